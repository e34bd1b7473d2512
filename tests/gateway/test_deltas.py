"""Whatever an upstream sends, reading it never fails, and what is not an internal call passes as it came."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.gateway.deltas import Deltas
from proxy.gateway.loop import Loop
from proxy.upstreams.base import Reply
from tests.scripted import Recall, Scripted, ask, event, read, streaming, whole

odd: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-1, 2)
    | st.sampled_from(["", "x", "recall", "{}"])
    | st.just([])
    | st.just({})
)


def objects(**fields: Any) -> st.SearchStrategy[Any]:
    """Objects that may lack any of these fields, or have something odd there."""
    return st.fixed_dictionaries({}, optional={name: odd | value for name, value in fields.items()})


function = objects(name=st.sampled_from(["recall", "look_up"]), arguments=st.just("{}"), input=st.just("{}"))
entry = objects(
    index=st.integers(0, 2),
    id=st.sampled_from(["a", "b"]),
    function=function,
    custom=function,
    type=st.just("function"),
)
said = objects(role=st.just("assistant"), content=st.text(max_size=3), tool_calls=st.lists(odd | entry, max_size=3))
finish = st.sampled_from(["stop", "tool_calls", "length"])
choice = objects(index=st.integers(0, 1), delta=said, message=said, finish_reason=finish)
usage = objects(prompt_tokens=st.integers(0, 9), prompt_tokens_details=objects(cached_tokens=st.integers(0, 9)))
chunk = objects(id=st.just("c"), choices=st.lists(odd | choice, max_size=2), usage=usage, error=st.just({"code": "x"}))

thorough = settings(max_examples=300, deadline=None)


@given(st.lists(chunk, max_size=6), st.booleans())
@thorough
def test_reading_never_fails(chunks: list[Any], later: bool) -> None:
    deltas = Deltas(frozenset({"recall"}), head={"id": "first"} if later else None, text="a")

    shown = b"".join(deltas.feed(event(each)) for each in chunks) + deltas.end()
    deltas.heard()

    assert deltas.head.get("id") in (("first",) if later else (None, "c", "x", "recall", "{}", True, 1, 2, -1))
    if not later and not deltas.hidden and not any("tool_calls" in json.dumps(each) for each in chunks):
        assert shown == b"".join(map(event, chunks))


@given(st.lists(chunk, max_size=5), st.lists(chunk, max_size=5))
@thorough
async def test_odd_streams_go_through_the_loop(first: list[Any], second: list[Any]) -> None:
    replies = [streaming(map(event, each)) for each in (first, second, second)]
    await read(await Loop([Recall()], rounds=2).send(Scripted(*replies), ask(stream=True)))


@given(chunk, chunk)
@thorough
async def test_odd_answers_go_through_the_loop(first: Any, second: Any) -> None:
    replies = [Reply(200, body=json.dumps(each).encode()) for each in (first, second)]
    await Loop([Recall()]).send(Scripted(*replies, whole("end")), ask())
