"""The internal tool loop over streams: one stream to the client, whatever happens inside."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.chat.errors import UpstreamFailed
from proxy.chat.wire import flaws
from proxy.gateway.loop import Loop
from proxy.gateway.replay import Hidden
from proxy.upstreams.base import Reply
from tests.scripted import (
    Chunks,
    Recall,
    Scripted,
    answer,
    ask,
    assembled,
    calls,
    event,
    events,
    payloads,
    raws,
    read,
    reply,
    stream,
    streaming,
    whole,
)

thorough = settings(max_examples=60, deadline=None)

TEXT = answer("Grüße, 世界", reasoning_content="so")
CLIENTS = answer("I look", "look_up:x", "look_up:y")
INTERNAL = answer("Wait.", "recall:r1", "recall:r2", used=(10, 2, 4))
MIXED = answer("Both", "recall:r1", "look_up:x", "recall:r2", "look_up:y", used=(30, 3, 5))


def recut(parts: list[bytes], cuts: list[int]) -> list[bytes]:
    data = b"".join(parts)
    at = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]


def shown(*made: str) -> list[dict[str, str]]:
    return [{"id": call["id"], **call["function"]} for call in calls(*made)]


# --- nothing happens inside -------------------------------------------------------------------------------------------


@given(st.sampled_from([TEXT, CLIENTS]), st.lists(st.integers(0, 10_000), max_size=12), st.booleans(), st.booleans())
@thorough
async def test_a_stream_without_internal_calls_keeps_its_bytes(
    value: Any, cuts: list[int], crlf: bool, bare: bool
) -> None:
    parts = [part.replace(b"\n\n", b"\r\n\r\n") if crlf else part for part in events(value)]
    parts.insert(2, b": keepalive\n\n")
    parts.insert(3, b"data: {broken\n\n")
    parts.insert(4, b"event: x\ndata: {}\n\n")
    if bare:
        parts[-1] = parts[-1].rstrip()

    made = await Loop([Recall()]).send(Scripted(streaming(recut(parts, cuts))), ask(stream=True))

    assert await read(made) == b"".join(parts)
    assert made.facts == {"rounds": 1, "internal_calls": 0}


async def test_text_passes_at_once() -> None:
    parts = events(TEXT)
    made = await Loop([Recall()]).send(Scripted(streaming(parts)), ask(stream=True))
    assert made.chunks is not None
    assert [chunk async for chunk in made.chunks] == parts


async def test_text_of_rounds_with_internal_calls_passes_at_once() -> None:
    upstream = Scripted(streaming(events(INTERNAL)), streaming(events(TEXT)))
    made = await Loop([Recall()]).send(upstream, ask(stream=True))
    assert made.chunks is not None
    flow = aiter(made.chunks)
    text = ""
    while text != "Wait.":
        (chunk,) = payloads(await anext(flow))
        text += chunk["choices"][0]["delta"].get("content", "")
    assert len(upstream.calls) == 1
    await made.chunks.aclose()


# --- something happens inside -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 3, 7, 64, 100_000])
@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
async def test_rounds_are_one_stream_however_it_is_cut(step: int, end: bytes) -> None:
    rounds = [INTERNAL, answer("And then", "recall:r3", used=(20, 1, 8)), MIXED]
    data = [b"".join(events(value)).replace(b"\n\n", end) for value in rounds]
    replies = [streaming([each[i : i + step] for i in range(0, len(each), step)]) for each in data]
    upstream, recall = Scripted(*replies), Recall()

    made = await Loop([recall]).send(upstream, ask(stream=True))
    got = assembled((await read(made)).replace(b"\r\n", b"\n"))

    assert got["content"] == "Wait.\n\nAnd then\n\nBoth"
    assert got["role"] == "assistant"
    assert got["calls"] == shown("look_up:x", "look_up:y")
    assert got["finish"] == "tool_calls"
    assert got["usage"] == {
        "prompt_tokens": 30, "completion_tokens": 3, "total_tokens": 33, "prompt_tokens_details": {"cached_tokens": 5},
    }  # fmt: skip
    assert [json.loads(one)["key"] for one in recall.asked] == ["r1", "r2", "r3", "r1", "r2"]
    earlier = {"earlier_input": 30, "earlier_output": 3, "earlier_cached": 12}
    assert made.facts == {"rounds": 3, "internal_calls": 5, "calls_recall": 5, **earlier}
    assert not flaws(upstream.sent(2))
    assert all(each.chunks.closed for each in replies)  # type: ignore[union-attr]


@given(st.lists(st.integers(0, 10_000), max_size=12), st.lists(st.integers(0, 10_000), max_size=12), st.booleans())
@thorough
async def test_a_stream_says_what_a_whole_answer_says(first: list[int], second: list[int], usage: bool) -> None:
    last = answer("Done.", "look_up:x", used=(20, 1, 0))
    loop = Loop([Recall()])
    streamed = Scripted(*(streaming(recut(events(v, usage=usage), c)) for v, c in ((INTERNAL, first), (last, second))))
    plain = Scripted(reply(INTERNAL), reply(last))

    got = assembled(await read(await loop.send(streamed, ask(stream=True))))
    same = json.loads((await loop.send(plain, ask())).body or b"")

    said = same["choices"][0]["message"]
    assert (got["content"], got["finish"]) == (said["content"], same["choices"][0]["finish_reason"])
    assert got["calls"] == [{"id": c["id"], **c["function"]} for c in said["tool_calls"]]
    assert got["usage"] == (same["usage"] if usage else None)
    assert raws(streamed.sent(1)) == raws(plain.sent(1))


async def test_what_is_hidden_is_recorded_before_the_end_is_sent() -> None:
    recorded: list[Hidden] = []

    async def record(hidden: Hidden) -> bool:
        recorded.append(hidden)
        return True

    for rounds in ([MIXED], [INTERNAL, TEXT], [INTERNAL, MIXED]):
        recorded.clear()
        upstream = Scripted(*(streaming(events(value)) for value in rounds))
        made = await Loop([Recall()]).send(upstream, ask(stream=True), record)
        assert made.chunks is not None
        async for chunk in made.chunks:
            if any(e == "[DONE]" or (e["choices"] and e["choices"][0]["finish_reason"]) for e in payloads(chunk)):
                assert recorded
        assert len(recorded) == 1


async def test_an_exhausted_stream_ends_with_stop() -> None:
    upstream = Scripted(stream("a", "recall:r1"), stream("b", "recall:r2"))

    got = assembled(await read(await Loop([Recall()], rounds=1).send(upstream, ask(stream=True))))

    assert (got["content"], got["finish"], got["calls"]) == ("a\n\nb", "stop", [])


async def test_a_cut_off_call_is_not_run() -> None:
    recall = Recall()
    got = assembled(
        await read(await Loop([recall]).send(Scripted(stream("a", "recall:r1", finish="length")), ask(stream=True)))
    )
    assert (got["finish"], got["calls"], recall.asked) == ("length", [], [])


async def test_several_choices_lose_their_internal_calls() -> None:
    parts = []
    for index, value in ((0, MIXED), (1, INTERNAL)):
        for payload in payloads(b"".join(events(value, usage=False, done=False))):
            payload["choices"][0]["index"] = index
            parts.append(event(payload))
    recall = Recall()

    data = await read(
        await Loop([recall]).send(Scripted(streaming([*parts, b"data: [DONE]\n\n"])), ask(stream=True, n=2))
    )

    made = payloads(data)[:-1]
    entries = [e for c in made for ch in c["choices"] if ch["index"] == 0 for e in ch["delta"].get("tool_calls", ())]
    assert {(e["index"], e["id"]) for e in entries if "id" in e} == {(0, "x"), (1, "y")}
    assert not any(ch["delta"].get("tool_calls") for c in made for ch in c["choices"] if ch["index"] == 1)
    assert [ch["finish_reason"] for c in made for ch in c["choices"] if ch["finish_reason"]] == ["tool_calls", "stop"]
    assert not recall.asked


async def test_the_role_of_a_first_chunk_with_a_call_stays() -> None:
    first = {"id": "c", "created": 1, "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": None, "tool_calls": [
        {"index": 0, "id": "r1", "function": {"name": "recall", "arguments": "{}"}}]}, "finish_reason": None}]}  # fmt: skip
    last = {
        "id": "c",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}],
    }
    upstream = Scripted(streaming([event(first), event(last), b"data: [DONE]\n\n"]), stream("hi"))

    got = assembled(await read(await Loop([Recall()]).send(upstream, ask(stream=True))))

    assert (got["role"], got["content"]) == ("assistant", "hi")


async def test_usage_in_the_last_choice_chunk_is_counted_as_well() -> None:
    def one(value: Any) -> list[bytes]:
        made = payloads(b"".join(events(value, usage=False)))[:-1]
        made[-1]["usage"] = value["usage"]
        return [*map(event, made), b"data: [DONE]\n\n"]

    upstream = Scripted(streaming(one(INTERNAL)), streaming(one(TEXT)))
    made = await Loop([Recall()]).send(upstream, ask(stream=True))
    assert assembled(await read(made))["usage"]["prompt_tokens"] == 10
    assert made.facts["earlier_input"] == 10


async def test_keepalives_and_broken_events_pass_in_every_round() -> None:
    odd = [b": ping\n\n", b"data: {broken\n\n", b"data: [1]\n\n"]
    upstream = Scripted(streaming([*odd, *events(INTERNAL), *odd]), streaming([*odd, *events(TEXT)]))
    data = await read(await Loop([Recall()]).send(upstream, ask(stream=True)))
    assert [data.count(each) for each in odd] == [3, 3, 3]


async def test_a_round_without_an_end_mark_goes_on_between_whole_events() -> None:
    parts = events(INTERNAL, usage=False)[:-2]
    upstream = Scripted(streaming([*parts, b": last words"]), streaming(events(TEXT)))
    data = await read(await Loop([Recall()]).send(upstream, ask(stream=True)))
    assert b": last words\n\ndata: " in data
    assert assembled(data)["content"].startswith("Wait.")


async def test_calls_without_a_name_reach_the_client() -> None:
    nameless = {"id": "c", "created": 1, "model": "m", "choices": [{"index": 0, "delta": {"tool_calls": [
        {"index": 0, "id": "q", "function": {"arguments": "{}"}}]}, "finish_reason": None}]}  # fmt: skip
    for tail in ([], events(answer("x"))[-3:]):
        data = await read(await Loop([Recall()]).send(Scripted(streaming([event(nameless), *tail])), ask(stream=True)))
        assert data.count(b'"q"') == 1


# --- errors and leaving -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "status", "code"),
    [
        pytest.param(reply({"error": {"message": "slow down", "type": "tokens", "param": None, "code": "rate"}}, 429), 429, "rate", id="refused"),
        pytest.param(Reply(503, body=b"<html>"), 503, "upstream_broke_off", id="no JSON"),
        pytest.param(Reply(500, chunks=Chunks([b'{"error":{"code":', b'"c"}}'])), 500, "c", id="streamed error"),
        pytest.param(whole("x"), 502, "upstream_broke_off", id="not streamed"),
        pytest.param(UpstreamFailed("gone"), 502, "upstream_unreachable", id="unreachable"),
    ],
)  # fmt: skip
async def test_an_error_of_a_later_round_is_raised(second: Any, status: int, code: str) -> None:
    if isinstance(second, Reply):
        second.headers.append((b"retry-after", b"7"))
    made = await Loop([Recall()]).send(Scripted(streaming(events(INTERNAL)), second), ask(stream=True))
    with pytest.raises(UpstreamFailed) as caught:
        await read(made)
    assert (caught.value.status, caught.value.code) == (status, code)
    if isinstance(second, Reply):
        assert caught.value.headers == {"retry-after": "7"}


async def test_an_error_event_ends_the_loop() -> None:
    failed = b'data: {"error":{"message":"x","type":"server_error","param":null,"code":null}}\n\n'
    recall = Recall()
    first = Scripted(streaming([*events(INTERNAL, usage=False)[:-2], failed]))
    assert (await read(await Loop([recall]).send(first, ask(stream=True)))).endswith(failed)
    assert not recall.asked
    later = Scripted(streaming(events(INTERNAL)), streaming([failed]))
    assert (await read(await Loop([recall]).send(later, ask(stream=True)))).endswith(failed)


async def test_a_stream_that_breaks_off_is_an_error_in_every_round() -> None:
    broken = Chunks(events(TEXT)[:2], then=UpstreamFailed("broke off"))
    made = await Loop([Recall()]).send(
        Scripted(streaming(events(INTERNAL)), Reply(200, chunks=broken)), ask(stream=True)
    )
    with pytest.raises(UpstreamFailed, match="broke off"):
        await read(made)
    assert broken.closed
    assert made.facts["rounds"] == 2


async def test_closing_before_the_first_chunk_closes_the_upstream() -> None:
    given = streaming(events(TEXT))
    made = await Loop([Recall()]).send(Scripted(given), ask(stream=True))
    assert made.chunks is not None
    await made.chunks.aclose()
    assert given.chunks.closed  # type: ignore[union-attr]


@pytest.mark.parametrize("taken", [1, 12, 40])
async def test_closing_in_the_middle_closes_the_round_under_way(taken: int) -> None:
    replies = [streaming(events(INTERNAL)), streaming(events(answer("long " * 50)))]
    upstream = Scripted(*replies)
    made = await Loop([Recall()]).send(upstream, ask(stream=True))
    assert made.chunks is not None
    flow = aiter(made.chunks)
    for _ in range(taken):
        await anext(flow)
    await made.chunks.aclose()
    assert replies[len(upstream.calls) - 1].chunks.closed  # type: ignore[union-attr]


async def test_a_client_that_leaves_cancels_the_tool_or_the_round() -> None:
    running, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(arguments: str) -> str:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ""

    made = await Loop([Recall(answer=wait)]).send(Scripted(streaming(events(INTERNAL))), ask(stream=True))
    task = asyncio.ensure_future(read(made))
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled.is_set()

    hanging = Chunks([], hang=True)
    upstream = Scripted(streaming(events(INTERNAL)), Reply(200, chunks=hanging))
    task = asyncio.ensure_future(read(await Loop([Recall()]).send(upstream, ask(stream=True))))
    while len(upstream.calls) < 2:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert hanging.closed
