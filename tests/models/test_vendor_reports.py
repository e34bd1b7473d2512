"""Reports of vendors on the requests that they got."""

import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.context import CacheRules, Identity
from proxy.models.usage import MISSES, PAUSE, ReportMemory, UsageReader, VendorReport
from proxy.testing import profile
from tests.clock import Clock

EDIT = {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 2, "cleared_input_tokens": 9}
DROPPED = {"type": "thinking_dropped", "reason": "prefix_binding_mismatch", "path": "messages.1.content.0"}
ALLOWED = {**DROPPED, "type": "thinking_mismatch_allowed"}
OTHER = {**DROPPED, "reason": "model_binding_mismatch"}


def stream(*events: dict[str, Any]) -> bytes:
    return b"".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events)


def test_a_stream_reports_in_its_first_and_in_its_last_event() -> None:
    usage = {"input_tokens": 5, "output_tokens": 1}
    missed = {"cache_miss_reason": {"type": "messages_changed"}}
    message = {"usage": usage, "input_transformations": [DROPPED], "diagnostics": missed}
    text = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x" * 9000}}
    end = {"type": "message_delta", "usage": usage, "context_management": {"applied_edits": [EDIT]}}
    reader = UsageReader()
    reader.feed(stream({"type": "message_start", "message": message}))
    for _ in range(9):
        reader.feed(stream(text))
    reader.feed(stream(end))

    found = reader.of_stream()
    assert found.input == 5
    assert str(found.report) == (
        f"dropped reasoning: prefix_binding_mismatch; applied {EDIT['type']}; missed its cache: messages_changed"
    )
    assert found.report.harm(is_unread=False) == "prefix_binding_mismatch"


@pytest.mark.parametrize(("told", "missed"), [
    ({"prompt_cache_diagnostics": {"reason": "input_changed"}}, "missed its cache: input_changed"),
    ({"diagnostics": {"cache_miss_reason": None}}, ""),
    ({"diagnostics": "x"}, ""),
])  # fmt: skip
def test_a_body_reports_what_missed_its_cache(told: dict[str, Any], missed: str) -> None:
    assert str(UsageReader().of_body(json.dumps(told).encode()).report) == missed


@pytest.mark.parametrize("told", [[], [ALLOWED], [OTHER], None, "x", [1]])
def test_no_edit_did_harm_where_the_prefix_was_not_the_cause(told: Any) -> None:
    body = json.dumps({"usage": {}, "input_transformations": told}).encode()
    assert UsageReader().of_body(body).report.harm(is_unread=True) is None


def test_a_hold_is_of_one_conversation_of_one_tenant() -> None:
    reports, who = ReportMemory(), Identity("a", session="s")
    reports.hold(who, ["one"], "prefix_mismatch")
    reports.hold(who, ["two"], "prefix_mismatch")

    assert reports.on_hold(who) == {"one": "prefix_mismatch", "two": "prefix_mismatch"}
    assert reports.on_hold(Identity("b", session="s")) == reports.on_hold(Identity("a", session="t")) == {}
    assert reports.forget("a") == 1
    assert reports.on_hold(who) == {}


@pytest.mark.parametrize(("missed", "is_unread", "harm"), [
    ("messages_changed", True, "messages_changed"),
    ("input_changed", True, "input_changed"),
    ("messages_changed", False, None),
    ("model_changed", True, None),
    ("previous_message_not_found", True, None),
])  # fmt: skip
def test_a_missed_cache_is_harm_where_it_was_expected_and_the_prompt_changed(
    missed: str, is_unread: bool, harm: str | None
) -> None:
    assert VendorReport(missed=missed).harm(is_unread=is_unread) == harm


KNOWN = replace(profile(), cache=CacheRules(0.1, 1.0, 1024, 300))
WHO = Identity("tenant", "session")


def is_used(use: ReportMemory, who: Identity = WHO, upstream: str = "openai") -> bool:
    applied = use.applied(who, upstream, KNOWN)
    assert applied.cache in (KNOWN.cache, CacheRules())
    return applied is KNOWN


@pytest.mark.parametrize(("answers", "expected"), [
    ([], True),
    ([(2000, 0)] * (MISSES - 1), True),
    ([(2000, 0)] * MISSES, False),
    ([(2000, None)] * MISSES, True),
    ([(0, 0)] * MISSES, True),
    ([(2000, 0)] * MISSES + [(0, 1500)], True),
    ([(2000, 0)] * (MISSES - 1) + [(2000, 1500), (2000, 0)], True),
], ids=["nothing known", "a few misses", "many", "not told", "none expected", "read again", "read in between"])  # fmt: skip
def test_a_cache_is_counted_on_while_it_is_read(answers: list[tuple[int, int | None]], expected: bool) -> None:
    use = ReportMemory()
    for read, reported in answers:
        use.note(WHO, "openai", KNOWN.name, read, reported)
    assert is_used(use) is expected


def test_misses_of_one_conversation_say_nothing_of_others_and_expire_or_are_forgotten() -> None:
    clock = Clock()
    use = ReportMemory(clock)
    for _ in range(MISSES):
        use.note(WHO, "openai", KNOWN.name, 2000, 0)
    others = (Identity("tenant", "another"), Identity("another", "session"))
    assert [is_used(use), *(is_used(use, other) for other in others), is_used(use, upstream="other")] == [
        False, True, True, True,
    ]  # fmt: skip
    clock.now += PAUSE + 1
    assert is_used(use)
    clock.now -= PAUSE + 1
    assert not is_used(use)
    assert (use.forget("tenant"), is_used(use)) == (1, True)
