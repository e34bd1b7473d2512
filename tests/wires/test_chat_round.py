"""The events of one round, and whose its tool calls are."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.gateway.loop import heard, send
from proxy.upstreams.base import Reply
from proxy.wires.chat_round import Calls, ChatRound
from tests.scripted import Recall, Scripted, ask, event, read, streaming, whole

odd: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-1, 2), st.sampled_from(["", "x", "recall", "{}"]), st.just([]), st.just({})
)


def objects(**fields: Any) -> st.SearchStrategy[Any]:
    """Objects that may lack any of these fields, or have something odd there."""
    return st.fixed_dictionaries({}, optional={name: odd | value for name, value in fields.items()})


function = objects(name=st.sampled_from(["recall", "look_up"]), arguments=st.just("{}"), input=st.just("{}"))
ids, kinds = st.sampled_from(["a", "b"]), st.just("function")
entry = objects(index=st.integers(0, 2), id=ids, function=function, custom=function, type=kinds)
said = objects(role=st.just("assistant"), content=st.text(max_size=3), tool_calls=st.lists(odd | entry, max_size=3))
finish = st.sampled_from(["stop", "tool_calls", "length"])
choice = objects(index=st.integers(0, 1), delta=said, message=said, finish_reason=finish)
usage = objects(prompt_tokens=st.integers(0, 9), prompt_tokens_details=objects(cached_tokens=st.integers(0, 9)))
chunk = objects(id=st.just("c"), choices=st.lists(odd | choice, max_size=2), usage=usage, error=st.just({"code": "x"}))

thorough = settings(max_examples=100, deadline=None)


@given(st.lists(chunk, max_size=6), st.booleans())
@thorough
def test_reading_never_fails(chunks: list[Any], later: bool) -> None:
    names = frozenset({"recall"})
    first = ChatRound(names)
    first.feed(event({"id": "first"}))
    deltas = ChatRound(names, first if later else None)

    shown = b"".join(deltas.feed(event(each)) for each in chunks) + deltas.end()
    heard(deltas)

    assert deltas.head.get("id") in (("first",) if later else (None, "c", "x", "recall", "{}", True, 1, 2, -1))
    if not later and not deltas.hidden and not any("tool_calls" in json.dumps(each) for each in chunks):
        assert shown == b"".join(map(event, chunks))


@given(st.lists(chunk, max_size=5), st.lists(chunk, max_size=5))
@thorough
async def test_odd_streams_go_through_the_loop(first: list[Any], second: list[Any]) -> None:
    replies = [streaming(map(event, each)) for each in (first, second, second)]
    await read(await send(Scripted(*replies), ask(stream=True), [Recall()], rounds=2))


@given(chunk, chunk)
@thorough
async def test_odd_answers_go_through_the_loop(first: Any, second: Any) -> None:
    replies = [Reply(200, body=json.dumps(each).encode()) for each in (first, second)]
    await send(Scripted(*replies, whole("end")), ask(), [Recall()])


def delta(index: Any = None, id: str | None = None, name: str | None = None, arguments: str = "") -> dict[str, Any]:
    entry: dict[str, Any] = {} if index is None else {"index": index}
    if id is not None:
        entry["id"] = id
    return {**entry, "function": {**({} if name is None else {"name": name}), "arguments": arguments}}


def sort(*entries: dict[str, Any]) -> tuple[list[Any], Calls]:
    calls = Calls(frozenset({"recall"}))
    return [shown for entry in entries for shown in calls.sort([entry])], calls


@pytest.mark.parametrize("entries", [
    pytest.param([delta(0, "a", "x"), delta(0, arguments="{"), delta(1, "b", "x"), delta(0, arguments="}")], id="plain"),
    pytest.param([delta(1, "a", "x"), delta(1, arguments="{}")], id="from one on"),
    pytest.param([delta(0, "a", "x", "{}"), delta(0, "b", "x", "{}")], id="the same index for all"),
    pytest.param([delta(None, "a", "x", "{}"), delta(None, "b", "x", "{}")], id="no index"),
    pytest.param([delta(0, "a", "x", "{"), delta(0, "a", "x", "}")], id="repeated names"),
])  # fmt: skip
def test_calls_of_the_client_stay_as_they_are(entries: list[dict[str, Any]]) -> None:
    shown, _ = sort(*entries)
    assert len(shown) == len(entries)
    assert all(one is other for one, other in zip(shown, entries, strict=True))


@pytest.mark.parametrize(("entries", "indexes"), [
    pytest.param([delta(0, "r", "recall"), delta(1, "a", "x"), delta(1, arguments="{}")], [0], id="behind an internal one"),
    pytest.param([delta(0, "a", "x"), delta(1, "r", "recall"), delta(2, "b", "x"), delta(0, arguments="{}")], [0, 0, 1], id="around one: it waits"),
    pytest.param([delta(0, "r"), delta(1, "a", "x"), delta(0, name="recall"), delta(1, arguments="{}")], [0], id="the name comes late"),
    pytest.param([delta(0, "b"), delta(1, "a", "x"), delta(0, name="x"), delta(1, arguments="{}")], [0, 1], id="late, and the client's"),
    pytest.param([delta(0, "a", "x"), delta(0, "r", "recall"), delta(0, "b", "x")], [0, 1], id="the same index for all"),
    pytest.param([delta(None, "r", "recall"), delta(None, "a", "x"), delta(None, arguments="{}")], [0], id="no index"),
])  # fmt: skip
def test_indexes_are_contiguous(entries: list[dict[str, Any]], indexes: list[int]) -> None:
    shown, calls = sort(*entries)
    assert [entry["index"] for entry in [*shown, *calls.remaining()]] == indexes


def test_a_call_is_put_together_and_deltas_without_a_name_are_held() -> None:
    null: dict[str, Any] = {"index": 0, "id": None, "function": {"name": None, "arguments": "1}"}}
    signed = delta(0, "r", "recall", '{"a":') | {"type": "function", "extra": {"signature": "s"}}
    shown, calls = sort(signed, null, delta(0, "r", "recall", ""))
    assert shown == []
    function = {"name": "recall", "arguments": '{"a":1}'}
    assert calls.all == [{"index": 0, "id": "r", "function": function, "type": "function", "extra": {"signature": "s"}}]
    shown, calls = sort(delta(0, "q"), delta(0, arguments="{}"))
    assert shown == []
    assert calls.remaining() == [delta(0, "q", arguments="{}")], "in one piece"
    assert calls.remaining() == []


def test_pieces_of_reasoning_are_put_together() -> None:
    """As OpenRouter streams signed reasoning: it is refused where it does not come back as it was."""
    entry = {"type": "reasoning.text", "format": "anthropic-claude-v1", "id": "r", "index": 0}
    pieces = [{**entry, "text": "Let"}, {**entry, "text": " me see."}, {**entry, "signature": "sig"}]
    deltas = ChatRound(frozenset({"recall"}))
    for each in (*({"reasoning_details": [piece]} for piece in pieces), {"tool_calls": [delta(0, "r", "recall")]}):
        deltas.feed(event({"choices": [{"index": 0, "delta": each}]}))
    deltas.end()
    assert deltas.result().message["reasoning_details"] == [{**entry, "text": "Let me see.", "signature": "sig"}]


def test_an_end_that_does_not_change_keeps_its_bytes() -> None:
    """The client has a call of its own beside the internal one: the end says what it said."""
    deltas = ChatRound(frozenset({"recall"}))
    calls = [delta(0, "a", "look_up", "{}"), delta(1, "r", "recall", "{}")]
    deltas.feed(event({"choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": None}]}))
    end = b'data: {"choices" : [{"index":0,"delta":{},"finish_reason":"tool_calls"}], "x": 1.50}\n\ndata: [DONE]\n\n'
    assert deltas.feed(end) == b""
    assert deltas.tail() == end
