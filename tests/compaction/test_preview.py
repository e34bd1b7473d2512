import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.compaction.form import weight
from proxy.compaction.preview import preview

LINE = "It was a long afternoon and the people in the hall had little to say about the matter."
PROSE = "\n".join(f"{LINE} ({n})" for n in range(400))
ASK = "Summarise the report for our board. Use at most three bullets. Which risks does it name?"


def short(text: str) -> str:
    found = preview(text)
    assert found is not None
    assert len(found.text) < 0.75 * len(text)
    return found.text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{ASK}\n\n{PROSE}", id="before"),
        pytest.param(f"{PROSE}\n\n{ASK}\n\n{PROSE}", id="in the middle"),
        pytest.param(f"<document name='a'>\n{PROSE}\n</document>\n{ASK}", id="after tags"),
        pytest.param(f"<a>\n{PROSE}\n</a>\n{ASK}\n<b>\n{PROSE}\n</b>", id="between two documents"),
        pytest.param(f"```\n{PROSE}\n\n{ASK}", id="after a fence that never ends"),
    ],
)
def test_the_users_own_words_stay(text: str) -> None:
    found = short(text)
    for sentence in ("Use at most three bullets.", "Which risks does it name?"):
        assert sentence in found


def test_marks_stay_and_what_they_hold_takes_the_form_of_its_kind() -> None:
    rows = "\n".join(f"A-{n},{n * 7},open" for n in range(900))
    found = short(f"Look at this:\n```csv\nid,amount,state\n{rows}\n```\nThanks.")
    assert found.startswith("Look at this:\n```csv\nid,amount,state\n")
    assert "\n```\nThanks." in found
    assert "A-1," in found


def test_a_document_with_tables_in_it_has_an_outline() -> None:
    rows = "\n".join(f"| key{n} | a setting that says how much of number {n} there may be |" for n in range(40))
    text = "\n\n".join(f"## Part {n}\n\n| key | about |\n|---|---|\n{rows}" for n in range(12))
    found = short(text)
    assert all(f"## Part {n}\n" in found for n in range(12))
    assert len(found) < 0.4 * len(text)


def test_what_both_have_in_common_at_the_beginning_is_counted() -> None:
    text = f"{ASK}\n\n{PROSE}"
    found = preview(text)
    assert found is not None
    assert 250 < found.prefix_tokens < found.tokens < weight(text)


def test_both_ends_of_a_text_stay_word_for_word_though_a_document_is_marked_in_it() -> None:
    found = short(f"{PROSE}\n```\n{PROSE}\n```\n{PROSE}")
    assert found.startswith(PROSE[:1300])
    assert found.endswith(PROSE[-1300:])
    assert len(found) < 16_000, "of the rest little"


def test_of_many_questions_the_first_and_the_last_stay() -> None:
    asked = [f"Is shop {n} open today?" for n in range(30)]
    found = short("\n".join([PROSE, *(f"{LINE} {each}" for each in asked), PROSE]))
    assert {*range(10), *range(20, 30)} <= {n for n, each in enumerate(asked) if each in found}


@pytest.mark.parametrize("text", ["", "short", "?\n" * 30, LINE * 20])
def test_what_is_short_has_none(text: str) -> None:
    assert preview(text) is None


MARKS = ["```", "~~~", "<doc>", "</doc>", "<a b='c'>", "</a>", "# Title", "", "{", "}"]
PIECES = st.sampled_from([*MARKS, ASK, LINE, "You must never guess.", PROSE])


@settings(max_examples=25, deadline=None)
@given(st.lists(PIECES, max_size=25))
def test_preview_keeps_questions_and_shortens(pieces: list[str]) -> None:
    text = "\n".join(pieces)
    found = preview(text)
    assert found == preview(text)
    if found is not None:
        assert len(found.text) < len(text)
        assert ASK not in text or "Which risks does it name?" in found.text


@pytest.mark.parametrize(
    "question", ["Geht es am 3. Dezember auch nach 16 Uhr?", "三番目の段落は何について書かれていますか？"]
)
def test_a_question_stays_whole(question: str) -> None:
    document = "\n".join(f"Ein Satz {n} über nichts. 何も書かれていません。" * 4 for n in range(80))
    assert question in short(f"{document}\nAbsatz. 段落です。{question} Danke. はい。\n{document}")


def test_a_line_near_the_cut_stays_whole_and_what_is_gathered_is_told_from_a_line() -> None:
    lines = [f"Line {n} of a text that was pasted, and that is as long as this." for n in range(400)]
    assert {line for line in short("\n".join(lines)).splitlines() if line.startswith("Line")} <= set(lines)
    lines = [f"Order A-{n} was paid in March, as the others of that month were." for n in range(400)]
    found = [line for line in short("\n".join(lines)).splitlines() if line not in lines]
    assert found
    assert all(line.startswith("[…") and line.endswith("]") for line in found)
