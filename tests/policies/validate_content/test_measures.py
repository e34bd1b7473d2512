"""Each measure by a table of faults and of texts that only look faulty."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.validate_content.measures import Finding, freshness, judge, overall, present, stated
from tests.talk import user

LEAST = {"relevance": 0.7, "freshness": 1.0, "accuracy": 0.9, "completeness": 0.5}
PROSE = (
    "The lighthouse on the northern cape was built of granite blocks that masons cut on the mainland and shipped over "
    "during three quiet summers. Its lamp burned whale oil first, then kerosene, and a keeper climbed the spiral "
    "stairs twice each night to trim the wick and wind the clockwork that turned the heavy glass lens. Fishermen from "
    "the villages below paid for the bell, which rang whenever fog came in."
)


def poor(text: str) -> set[str]:
    return {name for name, each in judge(text).items() if each.score < LEAST[name]}


@pytest.mark.parametrize("text", [
    pytest.param("ORA-01017: invalid username/password; logon denied", id="a tool's own error"),
    pytest.param('{"error": "404 Not Found"}', id="an error in JSON"),
    pytest.param("The replacement character \ufffd stands for what cannot be read.", id="one about damage"),
    pytest.param("SÃO PAULO, ÂNGELA, CÂMARA, IRMÃ", id="capitals with tildes"),
    pytest.param(PROSE, id="prose"),
    pytest.param("| a1b2c3 | d4e5f6 | g7h8i9 |\n" * 40, id="a table of identifiers"),
    pytest.param("def f0o1b(x1y):\n    return h3llo(x1y) | m1x\n" * 20, id="code with odd names"),
    pytest.param("<html><title>How to handle 404</title><body>" + PROSE * 9 + "</body></html>", id="a page on errors"),
    pytest.param("line one\r\n\tline two\x1b[0m\n", id="white space and colours"),
    pytest.param("\x00\x01", id="a little binary"),
])  # fmt: skip
def test_accuracy_is_high_for_good_content(text: str) -> None:
    assert "accuracy" not in poor(text)


@pytest.mark.parametrize("text", [
    pytest.param("<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>", id="a gateway"),
    pytest.param("<!doctype html><title>Just a moment...</title><p>Checking your browser before ...</p></html>", id="a wall"),
    pytest.param("Please verify you are a human to continue.", id="a captcha"),
    pytest.param("El niño comió en la estación ñandú".encode().decode("cp1252"), id="mojibake"),
    pytest.param("caf\ufffd se\ufffdor ma\ufffdana", id="replacement characters"),
    pytest.param("\x00\x01 \x02\x03 \x04\x05", id="binary"),
])  # fmt: skip
def test_accuracy_is_low_for_faulty_content(text: str) -> None:
    assert "accuracy" in poor(text)


ENVELOPE = "meta=None content=[TextContent(type='text', text='one\\ntwo', annotations=None)] isError=False"


@pytest.mark.parametrize(
    ("text", "score"),
    [
        pytest.param('{"a": [1, 2, {"b": "c"}]}', 1.0, id="whole JSON"),
        pytest.param('{"a": [1, 2, {"b": "c', 0.4, id="JSON cut in a string"),
        pytest.param('[{"a": 1}, {"a": 2}, {"a":', 0.4, id="JSON cut behind a key"),
        pytest.param('{"a": [1, 2, {"b": "c ... [truncated]', 0.8, id="JSON cut that says so"),
        pytest.param("[12:30] started\n[12:31] stopped", 1.0, id="a log in brackets"),
        pytest.param("[File: a.py (300 lines total)]\n(20 more lines above)\n1: x = {", 1.0, id="a window of a file"),
        pytest.param("first\nsecond\n(20 more lines)", 1.0, id="it says that there is more"),
        pytest.param("Use it like this:\n```python\nx = 1\n", 0.4, id="an open block of code"),
        pytest.param("Use it like this:\n```python\nx = 1\n```\nDone.", 1.0, id="a block of code"),
        pytest.param("<!DOCTYPE html><html><body><p>Half a pa", 0.4, id="half a page"),
        pytest.param("[]", 1.0, id="an empty list"),
        pytest.param("", 1.0, id="nothing"),
        pytest.param(ENVELOPE, 1.0, id="an envelope"),
        pytest.param(ENVELOPE[:-40], 0.4, id="half an envelope"),
    ],
)
def test_completeness_has_a_score_for_each_end(text: str, score: float) -> None:
    assert judge(text)["completeness"].score == score


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(json.dumps(["wick"] * 250_000), id="JSON"),
        pytest.param(f"<!doctype html><html>{'<p>wick</p>' * 250_000}</html>", id="a page"),
    ],
)
def test_completeness_of_a_whole_text_that_is_too_long_to_read_is_full(text: str) -> None:
    assert judge(text)["completeness"].score == 1.0


@pytest.mark.parametrize(("query", "score"), [
    pytest.param("Who paid for the lighthouse bell in the fishing villages?", 0.9, id="it answers"),
    pytest.param("quarterly revenue semiconductor exports Taiwan guidance", 0.0, id="another subject"),
    pytest.param("lighthouse", None, id="a short question"),
    pytest.param("¿Qué dice la empresa de semiconductores sobre los ingresos del trimestre?", None, id="another language"),
])  # fmt: skip
def test_relevance_counts_shared_words(query: str, score: float | None) -> None:
    found = judge(PROSE, query).get("relevance")
    assert (found is None) == (score is None)
    if found is not None and score is not None:
        assert abs(found.score - score) < 0.15


def test_relevance_is_unknown_for_a_short_text_and_overall_leaves_it_out() -> None:
    assert "relevance" not in judge("42", "How many berths has the marina of Valencia in summer?")
    assert overall({"accuracy": Finding(0.5), "completeness": Finding(1.0)}) == 0.75
    assert overall({}) == 1.0


NOON = datetime(2026, 5, 4, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "moment", "exact"),
    [
        ('{"fetched_at": "2026-05-04T12:00:00Z", "born": "1990-01-01"}', NOON, True),
        ("Prices as of 2026-05-04 14:00 +02:00", NOON, True),
        ("Retrieved: 2026-05-04 12:00:00", NOON, False),
        ('<context as_of="2026-05-04T12:00Z">', NOON, True),
        ('{"created_at": "2026-05-04T12:00:00Z"}', None, False),
        ('{"fetched_at": "2026-13-44T12:00:00Z"}', None, False),
        ("as of 2026-05-04T99:00:00Z", None, False),
        ("as of 1999-05-04", None, False),
        ("no time at all", None, False),
    ],
)
def test_stated_reads_only_the_time_of_the_text_itself(text: str, moment: float | None, exact: bool) -> None:
    assert stated(text) == (None if moment is None else moment + (0 if exact else 14 * 3600))


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("The current time is 2026-05-04 12:00:00 UTC.", NOON),
        ("Current date: 2026-05-04T12:00Z", NOON),
        ("Hoy es 2026-05-04T12:00Z", NOON),
        ("The flight leaves on 2026-05-04 12:00", None),
    ],
)
def test_present_reads_the_time_that_is_now(text: str, moment: float | None) -> None:
    assert present(user(text)) == moment


@pytest.mark.parametrize(
    ("hours", "exact", "score"),
    [
        (0.5, True, 1.0),
        (1, True, 1.0),
        (2, True, 0.5),
        (24, True, 1 / 24),
        (-3, True, 1.0),
        (14, False, 1.0),
        (16, False, 0.5),
    ],
)
def test_freshness_falls_with_age_beyond_a_missing_zone(hours: float, exact: bool, score: float) -> None:
    found = freshness(NOON - hours * 3600 + (0 if exact else 14 * 3600), NOON, 3600)
    assert found.score == pytest.approx(score)


@pytest.mark.parametrize(("hours", "age"), [(1.5, "90 minutes"), (30, "30 hours"), (49, "2 days")])
def test_freshness_names_the_age(hours: float, age: str) -> None:
    assert freshness(NOON - hours * 3600, NOON, 3600).fault == f"it says that it was made {age} before"


@settings(max_examples=50, deadline=None)
@given(
    text=st.text(max_size=400)
    | st.recursive(
        st.none() | st.integers() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
        max_leaves=12,
    ).map(json.dumps),
    query=st.text(max_size=100),
)
def test_judge_returns_the_same_within_bounds_for_any_text(text: str, query: str) -> None:
    verdict = judge(text, query)
    assert verdict == judge(text, query)
    assert all(0.0 <= each.score <= 1.0 for each in verdict.values())
    stated(text)
    present(user(text))


@pytest.mark.parametrize(
    "piece",
    ["{", '{"a":', "[", "as of 2026-05-04 ", "Ã", "1 + 1 = ", "<html>", "`" * 3 + "\n", "a1b ", "\\", "Monday, "],
)
def test_judge_takes_linear_time_for_long_texts(piece: str) -> None:
    # with anything quadratic this would not end within the time that a test may take
    judge(piece * (300_000 // len(piece)), piece * 100)
