"""The internal tool loop, over whole answers and over streams."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.chat import Message
from proxy.chat.errors import UpstreamFailed
from proxy.chat.wire import flaws
from proxy.gateway.hidden import Hidden
from proxy.gateway.loop import send
from proxy.models.usage import UsageReader
from proxy.testing import chat, script, tool
from proxy.upstreams.base import Reply
from tests.scripted import (
    LOOK_UP,
    RECALL,
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

EARLIER = {"earlier_input": 10, "earlier_output": 2, "earlier_cached": 4}
"""What the first of two rounds used."""


def body(made: Reply) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(made.body or b"")
    return parsed


def streams(*values: Any) -> list[Reply]:
    return [streaming(events(value)) for value in values]


async def streamed(upstream: Scripted, recall: Recall | None = None, **rest: Any) -> bytes:
    return await read(await send(upstream, ask(stream=True, **rest), [recall or Recall()]))


def message(made: Reply) -> dict[str, Any]:
    said: dict[str, Any] = body(made)["choices"][0]["message"]
    return said


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(ask(tools=[LOOK_UP]), id="the tool is not offered"),
        pytest.param(ask(tools=[tool("recall", "the client's own")]), id="the client has one of the same name"),
        pytest.param(ask(tools=[RECALL, tool("recall")]), id="the client has one as well"),
    ],
)
async def test_without_the_tool_it_is_the_upstream(call: Any) -> None:
    given = whole(None, "recall:r1")
    upstream = Scripted(given)
    assert await send(upstream, call, [Recall()]) is given
    assert upstream.calls == [call]
    assert upstream.calls[0] is call


async def test_the_tool_is_run_although_the_cache_is_marked_at_it() -> None:
    marked = RECALL.with_changes(cache_control={"type": "ephemeral"})
    upstream = Scripted(whole(None, "recall:r1"), whole("Found."))
    assert message(await send(upstream, ask(tools=[LOOK_UP, marked]), [Recall()]))["content"] == "Found."


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(whole("hello"), id="text"),
        pytest.param(whole(None, "look_up:x"), id="a call of the client's"),
        pytest.param(whole(None, "no_such_tool:x"), id="a tool that nobody offers"),
        pytest.param(Reply(200, body=b"not json"), id="no JSON"),
        pytest.param(Reply(200, body=b"[1]"), id="no object"),
        pytest.param(reply({"choices": [3]}), id="no choice"),
        pytest.param(reply({"choices": [{"message": {"content": "a"}, "finish_reason": []}]}), id="an odd end"),
        pytest.param(reply({"choices": [{"message": {"tool_calls": [3, {"function": None}]}}]}), id="no calls"),
        pytest.param(reply({"error": {"message": "x"}}, 400), id="an error"),
        pytest.param(Reply(200), id="nothing"),
    ],
)
async def test_an_answer_without_internal_calls_keeps_its_bytes(given: Reply) -> None:
    made = await send(Scripted(given), ask(), [Recall()])
    assert made.body is given.body
    assert (made.status, made.headers) == (given.status, given.headers)


async def test_internal_calls_are_answered_and_hidden() -> None:
    upstream = Scripted(
        whole("Let me look.", "recall:r1", "recall:r2", used=(10, 2, 4), reasoning_content="hm"),
        whole("It is 42.", used=(20, 3, 9)),
    )
    recall = Recall()
    call = ask("s u1 a1! t1 a1 u2")

    made = await send(upstream, call, [recall])

    assert recall.asked == ['{"key":"r1"}', '{"key":"r2"}']
    said = {"content": "Let me look.\n\nIt is 42.", "refusal": None, "reasoning_content": "hm"}
    assert message(made) == {"role": "assistant", **said}
    assert body(made)["usage"] == answer(used=(20, 3, 9))["usage"], "an agent reads its context's size there"
    assert made.facts == {"rounds": 2, "internal_calls": 2, "calls_recall": 2, **EARLIER}
    billed = UsageReader().of_body(made.body or b"").completed(made.facts)
    assert (billed.input, billed.output, billed.cached) == (30, 5, 13), "what both rounds used"
    again = upstream.sent(1)
    assert call.request is not None
    assert raws(again)[:6] == raws(call.request)
    assert upstream.calls[1].body.startswith(call.body[: call.body.index(b"]")])
    assert again.tools is call.request.tools
    assert not flaws(again)
    told = {"content": "Let me look.", "reasoning_content": "hm", "tool_calls": calls("recall:r1", "recall:r2")}
    assert again.messages[6:] == (
        {"role": "assistant", **told},
        {"role": "tool", "tool_call_id": "r1", "content": 'found {"key":"r1"}'},
        {"role": "tool", "tool_call_id": "r2", "content": 'found {"key":"r2"}'},
    )


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_calls_beyond_the_most_of_a_round_are_not_run(is_streamed: bool) -> None:
    given = stream if is_streamed else whole
    upstream, recall = Scripted(given(None, *(f"recall:r{number}" for number in range(3000))), given("Done.")), Recall()
    told = await send(upstream, ask(stream=is_streamed), [recall])
    assert (assembled(await read(told)) if is_streamed else message(told))["content"] == "Done."
    assert len(recall.asked) == 32
    results = [each for each in upstream.sent(1).messages if each.role == "tool"]
    assert len(results) == 3000
    assert {each.text for each in results[32:]} == {
        "Error: this call was not run. One answer may make 32 calls of such tools."
    }
    assert not flaws(upstream.sent(1))


async def test_parallel_calls_run_at_the_same_time() -> None:
    both = asyncio.Barrier(2)

    async def meet(arguments: str) -> str:
        await both.wait()
        return "met"

    upstream = Scripted(whole(None, "recall:r1", "recall:r2"), whole("done"))
    async with asyncio.timeout(60):
        assert message(await send(upstream, ask(), [Recall(answer=meet)]))["content"] == "done"


def recorder(hidden: list[Hidden]) -> Callable[[Hidden], Awaitable[bool]]:
    async def record(one: Hidden) -> bool:
        hidden.append(one)
        return True

    return record


async def test_a_mixed_answer_is_the_last_one() -> None:
    hidden: list[Hidden] = []
    upstream = Scripted(whole(None, "recall:r1"), whole("Both.", "look_up:x", "recall:r2", "look_up:y"))
    made = await send(upstream, ask(), [Recall()], recorder(hidden))
    assert message(made)["tool_calls"] == calls("look_up:x", "look_up:y")
    assert body(made)["choices"][0]["finish_reason"] == "tool_calls"
    assert made.facts == {"rounds": 2, "internal_calls": 2, "calls_recall": 2, **EARLIER}
    (one,) = hidden
    assert one.shown == {"role": "assistant", "content": "Both.", "tool_calls": calls("look_up:x", "look_up:y")}
    assert script(chat("s u1").with_messages(one.before)) == "ar1! tr1"
    assert one.last["tool_calls"] == calls("look_up:x", "recall:r2", "look_up:y")
    assert one.results == (Message({"role": "tool", "tool_call_id": "r2", "content": 'found {"key":"r2"}'}),)


class Failing(Recall):
    async def run(self, arguments: str) -> str:
        match self.name:
            case "fails":
                raise ValueError("secret")
            case "is_cancelled":
                raise asyncio.CancelledError
            case "times_out":
                await asyncio.Event().wait()
        return "\ud83d" if self.name == "says_nonsense" else None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("tool_", "told"),
    [
        ("fails", "Error: fails failed."),
        ("times_out", "Error: times_out took longer than 0.01 seconds."),
        ("is_cancelled", "Error: it was given up."),
        ("says_nonsense", "?"),
        ("says_nothing", "Error: says_nothing failed."),
    ],
)
async def test_a_tool_that_fails_is_told_to_the_model(tool_: str, told: str) -> None:
    upstream, failing = Scripted(whole(None, f"{tool_}:r1"), whole("sorry")), Failing(tool_)
    seconds = 0.01 if tool_ == "times_out" else 60
    made = await send(upstream, ask(tools=[failing.definition]), [failing], seconds=seconds)
    assert upstream.sent(1).messages[-1]["content"] == told
    assert message(made)["content"] == "sorry"


@pytest.mark.parametrize(
    ("arguments", "run", "told", "history"),
    [
        pytest.param('{"a":', None, "Error: the arguments are not valid JSON", "{}", id="cut off"),
        pytest.param("[1]", None, "Error: the arguments are not a JSON object", "{}", id="a list"),
        pytest.param("", "{}", "found {}", "{}", id="empty"),
        pytest.param(None, "{}", "found {}", "{}", id="null"),
        pytest.param({"a": 1}, '{"a":1}', 'found {"a":1}', '{"a":1}', id="an object instead of its text"),
        pytest.param('{ "a" : 1.0 }', '{ "a" : 1.0 }', 'found { "a" : 1.0 }', '{ "a" : 1.0 }', id="with white space"),
    ],
)
async def test_arguments_of_any_kind(arguments: Any, run: str | None, told: str, history: str) -> None:
    first = answer(None, "recall:r1")
    first["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = arguments
    upstream, recall = Scripted(reply(first), whole("done")), Recall()
    await send(upstream, ask(), [recall])
    assert recall.asked == ([] if run is None else [run])
    assert upstream.sent(1).messages[-1]["content"].startswith(told)
    assert upstream.sent(1).messages[-2]["tool_calls"][0]["function"]["arguments"] == history


@pytest.mark.parametrize("ids", [[None, None], ["", ""], ["r1", "r1"], [3, None]])
async def test_calls_without_ids_of_their_own_can_be_told_apart(ids: list[Any]) -> None:
    first = answer(None, "recall:r1", "recall:r1")
    for call, id_ in zip(first["choices"][0]["message"]["tool_calls"], ids, strict=True):
        call["id"] = id_
    twice = []
    for _ in range(2):
        upstream = Scripted(reply(first), whole("done"))
        await send(upstream, ask(), [Recall()])
        assert not flaws(upstream.sent(1))
        twice.append(raws(upstream.sent(1)))

    assert twice[0] == twice[1]


async def test_rounds_are_bounded_and_the_model_is_told() -> None:
    upstream = Scripted(*(whole(f"try {i}.", f"recall:r{i}") for i in range(3)))
    made = await send(upstream, ask(), [Recall()], rounds=2)
    assert message(made) == {"role": "assistant", "content": "try 0.\n\ntry 1.\n\ntry 2.", "refusal": None}
    assert body(made)["choices"][0]["finish_reason"] == "stop"
    assert made.facts == {"rounds": 3, "internal_calls": 2, "calls_recall": 2, **{k: 2 * n for k, n in EARLIER.items()}}
    assert "last call" not in upstream.sent(2).messages[-3]["content"]
    assert "last call" in upstream.sent(2).messages[-1]["content"]
    assert [RECALL in upstream.sent(place).tools for place in range(3)] == [True, True, False], "it has to answer"


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_model_that_calls_for_ever_answers_or_fails(streamed: bool) -> None:
    made = stream if streamed else whole
    calling = [made(None, f"recall:r{i}") for i in range(4)]

    async def last(upstream: Scripted) -> bytes:
        reply = await send(upstream, ask(stream=streamed), [Recall()])
        return await read(reply) if streamed else reply.body or b""

    greedy = Scripted(*calling, made("It is 42."))
    assert b"recall" not in await last(greedy)
    assert greedy.sent(4).tools == (LOOK_UP,)
    stubborn = Scripted(*(made(None, f"recall:r{i}") for i in range(5)))
    with pytest.raises(UpstreamFailed) as caught:
        await last(stubborn)
    assert caught.value.code == "no_answer", "an empty answer would look like success"


async def test_tools_that_signed_reasoning_is_bound_to_stay() -> None:
    thought = [{"type": "thinking", "thinking": "Veamos.", "signature": "s1g"}]
    upstream = Scripted(whole(None, "recall:r1", thinking_blocks=thought), whole("done"))
    await send(upstream, ask(), [Recall()], rounds=1)
    assert upstream.sent(1).tools == (LOOK_UP, RECALL)
    assert upstream.sent(1).rest["tool_choice"] == "none"


@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_calls_that_may_be_cut_off_are_not_run(finish: str) -> None:
    recall = Recall()
    made = await send(Scripted(whole("I", "recall:r1", finish=finish)), ask(), [recall])
    got = assembled(await streamed(Scripted(stream("I", "recall:r1", finish=finish)), recall))
    assert not recall.asked
    assert "tool_calls" not in message(made)
    assert body(made)["choices"][0]["finish_reason"] == finish
    assert (got["finish"], got["calls"]) == (finish, [])


@pytest.mark.parametrize("n", [2, 1])
async def test_several_choices_lose_their_internal_calls(n: int) -> None:
    first, second = answer(None, "recall:r1"), answer("b", "recall:r2", "look_up:x")
    first["choices"].append({**second["choices"][0], "index": 1})
    recall = Recall()

    made = await send(Scripted(reply(first)), ask(n=n), [recall])

    one, two = body(made)["choices"]
    await send(Scripted(whole("a", "recall:r1")), ask(n=2), [recall])
    assert not recall.asked, "nor those of the one choice that came of two"
    assert (one["message"]["content"], one["finish_reason"], "tool_calls" in one["message"]) == ("", "stop", False)
    assert (two["message"]["tool_calls"], two["finish_reason"]) == (calls("look_up:x"), "tool_calls")


async def test_what_a_later_round_ends_with_is_what_the_answer_is() -> None:
    error = reply({"error": {"message": "too long", "code": "context_length_exceeded"}}, 400)
    made = await send(Scripted(whole(None, "recall:r1"), error), ask(), [Recall()])
    assert (made.status, made.body) == (400, error.body)
    with pytest.raises(UpstreamFailed, match="gone"):
        await send(Scripted(whole(None, "recall:r1"), UpstreamFailed("gone")), ask(), [Recall()])
    wrong = stream("x")
    with pytest.raises(UpstreamFailed, match="not to be streamed"):
        await send(Scripted(whole(None, "recall:r1"), wrong), ask(), [Recall()])
    assert wrong.chunks is not None
    assert wrong.chunks.closed  # type: ignore[attr-defined]


async def test_facts_of_all_rounds_add_up() -> None:
    first, second = whole(None, "recall:r1"), whole("done")
    first.facts = {"prompt_tokens": 5, "truncated": True}
    second.facts = {"prompt_tokens": 7, "load_ms": 3}
    upstream = Scripted(first, second)
    made = await send(upstream, ask(), [Recall()])
    assert upstream.calls[1].counted is None, "the count of the first request does not stand for the second"
    figures = {"prompt_tokens": 12, "truncated": True, "load_ms": 3}
    assert made.facts == {**figures, "rounds": 2, "internal_calls": 1, "calls_recall": 1, **EARLIER}


async def test_an_unexpected_error_stream_is_relayed() -> None:
    given = streaming([b"x"])
    given.status = 500
    assert await send(Scripted(given), ask(), [Recall()]) is given


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
async def test_a_stream_without_calls_keeps_its_bytes(value: Any, cuts: list[int], crlf: bool, bare: bool) -> None:
    parts = [part.replace(b"\n\n", b"\r\n\r\n") if crlf else part for part in events(value)]
    parts.insert(2, b": keepalive\n\n")
    parts.insert(3, b"data: {broken\n\n")
    parts.insert(4, b"event: x\ndata: {}\n\n")
    if bare:
        parts[-1] = parts[-1].rstrip()

    made = await send(Scripted(streaming(recut(parts, cuts))), ask(stream=True), [Recall()])

    assert await read(made) == b"".join(parts)
    assert made.facts == {"rounds": 1, "internal_calls": 0}


async def test_text_passes_at_once_also_of_rounds_with_internal_calls() -> None:
    parts = events(TEXT)
    made = await send(Scripted(streaming(parts)), ask(stream=True), [Recall()])
    assert made.chunks is not None
    assert [chunk async for chunk in made.chunks] == parts
    upstream = Scripted(*streams(INTERNAL, TEXT))
    made = await send(upstream, ask(stream=True), [Recall()])
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

    made = await send(upstream, ask(stream=True), [recall])
    got = assembled((await read(made)).replace(b"\r\n", b"\n"))

    assert (got["role"], got["content"], got["finish"]) == ("assistant", "Wait.\n\nAnd then\n\nBoth", "tool_calls")
    assert got["calls"] == shown("look_up:x", "look_up:y")
    assert got["usage"] == MIXED["usage"]
    assert [json.loads(one)["key"] for one in recall.asked] == ["r1", "r2", "r3", "r1", "r2"]
    earlier = {"earlier_input": 30, "earlier_output": 3, "earlier_cached": 12}
    assert made.facts == {"rounds": 3, "internal_calls": 5, "calls_recall": 5, **earlier}
    assert not flaws(upstream.sent(2))
    assert all(each.chunks.closed for each in replies)  # type: ignore[union-attr]


@given(st.lists(st.integers(0, 10_000), max_size=12), st.lists(st.integers(0, 10_000), max_size=12), st.booleans())
@thorough
async def test_a_stream_says_what_a_whole_answer_says(first: list[int], second: list[int], usage: bool) -> None:
    last = answer("Done.", "look_up:x", used=(20, 1, 0))
    recall = Recall()
    streamed = Scripted(*(streaming(recut(events(v, usage=usage), c)) for v, c in ((INTERNAL, first), (last, second))))
    plain = Scripted(reply(INTERNAL), reply(last))

    got = assembled(await read(await send(streamed, ask(stream=True), [recall])))
    same = json.loads((await send(plain, ask(), [recall])).body or b"")

    said = same["choices"][0]["message"]
    assert (got["content"], got["finish"]) == (said["content"], same["choices"][0]["finish_reason"])
    assert got["calls"] == [{"id": c["id"], **c["function"]} for c in said["tool_calls"]]
    assert got["usage"] == (same["usage"] if usage else None)
    assert raws(streamed.sent(1)) == raws(plain.sent(1))


@pytest.mark.parametrize("rounds", [[MIXED], [INTERNAL, TEXT], [INTERNAL, MIXED]], ids=len)
async def test_what_is_hidden_is_recorded_before_the_end_is_sent(rounds: list[Any]) -> None:
    recorded: list[Hidden] = []
    upstream = Scripted(*streams(*rounds))
    made = await send(upstream, ask(stream=True), [Recall()], recorder(recorded))
    assert made.chunks is not None
    async for chunk in made.chunks:
        if any(e == "[DONE]" or (e["choices"] and e["choices"][0]["finish_reason"]) for e in payloads(chunk)):
            assert recorded
    assert len(recorded) == 1


async def test_several_streamed_choices_lose_their_internal_calls() -> None:
    parts = []
    for index, value in ((0, MIXED), (1, INTERNAL)):
        for payload in payloads(b"".join(events(value, usage=False, done=False))):
            payload["choices"][0]["index"] = index
            parts.append(event(payload))
    recall = Recall()
    data = await streamed(Scripted(streaming([*parts, b"data: [DONE]\n\n"])), recall, n=2)
    choices = [choice for chunk in payloads(data)[:-1] for choice in chunk["choices"]]
    entries = [
        (c["index"], e["index"], e["id"]) for c in choices for e in c["delta"].get("tool_calls", ()) if "id" in e
    ]
    assert {*entries} == {(0, 0, "x"), (0, 1, "y")}
    assert [c["finish_reason"] for c in choices if c["finish_reason"]] == ["tool_calls", "stop"]
    assert not recall.asked


def in_one_chunk(value: Any) -> list[bytes]:
    """Some servers send text, calls and the finish reason in one chunk."""
    choice = value["choices"][0]
    entries = [{"index": index, **call} for index, call in enumerate(choice["message"].get("tool_calls", ()))]
    delta = {key: part for key, part in choice["message"].items() if part is not None} | {"tool_calls": entries}
    made = {"index": 0, "delta": delta, "logprobs": {"content": []}, "finish_reason": choice["finish_reason"]}
    head = {key: value[key] for key in ("id", "created", "model")}
    return [event({**head, "choices": [made], "usage": value["usage"]}), b"data: [DONE]\n\n"]


@pytest.mark.parametrize("second", [TEXT, MIXED, answer("Done.")], ids=["text", "mixed", "short"])
async def test_what_the_last_chunk_says_reaches_the_client(second: Any) -> None:
    kept: list[Hidden] = []
    got = []
    for form in (in_one_chunk, events):
        upstream = Scripted(*(streaming(form(each)) for each in (INTERNAL, second)))
        got.append(assembled(await read(await send(upstream, ask(stream=True), [Recall()], recorder(kept)))))
    assert got[0] == got[1]
    assert kept[0] == kept[1]
    assert kept[0].shown["content"] == got[0]["content"]


async def test_keepalives_pass_in_every_round_and_one_without_an_end_mark_goes_on() -> None:
    odd = [b": ping\n\n", b"data: {broken\n\n", b"data: [1]\n\n"]
    upstream = Scripted(streaming([*odd, *events(INTERNAL), *odd]), streaming([*odd, *events(TEXT)]))
    data = await streamed(upstream)
    assert [data.count(each) for each in odd] == [3, 3, 3]
    parts = events(INTERNAL, usage=False)[:-2]
    data = await streamed(Scripted(streaming([*parts, b": last words"]), *streams(TEXT)))
    assert b": last words\n\ndata: " in data
    assert assembled(data)["content"].startswith("Wait.")


# --- errors and leaving -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("second", "status", "code"), [
    pytest.param(reply({"error": {"message": "slow down", "type": "tokens", "param": None, "code": "rate"}}, 429), 429, "rate", id="refused"),
    pytest.param(Reply(503, body=b"<html>"), 503, "upstream_broke_off", id="no JSON"),
    pytest.param(Reply(500, chunks=Chunks([b'{"error":{"code":', b'"c"}}'])), 500, "c", id="streamed error"),
    pytest.param(whole("x"), 502, "upstream_broke_off", id="not streamed"),
    pytest.param(UpstreamFailed("gone"), 502, "upstream_unreachable", id="unreachable"),
])  # fmt: skip
async def test_an_error_of_a_later_round_is_raised(second: Any, status: int, code: str) -> None:
    if isinstance(second, Reply):
        second.headers.append((b"retry-after", b"7"))
    with pytest.raises(UpstreamFailed) as caught:
        await streamed(Scripted(*streams(INTERNAL), second))
    assert (caught.value.status, caught.value.code) == (status, code)
    if isinstance(second, Reply):
        assert caught.value.headers.pop("x-should-retry", "false") == "false"
        assert caught.value.headers == {"retry-after": "7"}


async def test_an_error_event_or_a_stream_that_breaks_off_ends_the_loop() -> None:
    error = b'"error":{"message":"x","type":"server_error","param":null,"code":null}'
    failed = b"data: {%b}\n\n" % error
    recall = Recall()
    first = Scripted(streaming([*events(INTERNAL, usage=False)[:-2], failed]))
    assert (await streamed(first, recall)).endswith(failed)
    assert not recall.asked
    assert (await streamed(Scripted(*streams(INTERNAL), streaming([failed])))).endswith(failed)
    empty = b'data: {"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}],%b}\n\n' % error
    assert error in await streamed(Scripted(*streams(INTERNAL), streaming([empty]))), "as some servers say it"
    broken = Chunks(events(TEXT)[:2], then=UpstreamFailed("broke off"))
    made = await send(Scripted(streaming(events(INTERNAL)), Reply(200, chunks=broken)), ask(stream=True), [Recall()])
    with pytest.raises(UpstreamFailed, match="broke off"):
        await read(made)
    assert broken.closed
    assert made.facts["rounds"] == 2


@pytest.mark.parametrize("taken", [0, 1, 12, 40])
async def test_closing_closes_the_round_under_way(taken: int) -> None:
    replies = streams(INTERNAL, answer("long " * 50))
    upstream = Scripted(*replies)
    made = await send(upstream, ask(stream=True), [Recall()])
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

    waiting = [Recall(answer=wait)]
    made = await send(Scripted(streaming(events(INTERNAL))), ask(stream=True), waiting)
    for work in (read(made), send(Scripted(whole(None, "recall:r1")), ask(), waiting)):
        running.clear()
        cancelled.clear()
        task: asyncio.Future[Any] = asyncio.ensure_future(work)
        await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cancelled.is_set()

    hanging = Chunks([], hang=True)
    upstream = Scripted(streaming(events(INTERNAL)), Reply(200, chunks=hanging))
    task = asyncio.ensure_future(read(await send(upstream, ask(stream=True), [Recall()])))
    while len(upstream.calls) < 2:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert hanging.closed
