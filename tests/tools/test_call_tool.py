"""Calls that are handed on to the client as calls of its own tools, streamed or not."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.chat import ChatRequest, Tool
from proxy.gateway.hidden import Hidden
from proxy.gateway.loop import send
from proxy.testing import chat, context, tool
from proxy.tools.deferral import CallTool, deferred
from proxy.tools.search_tools import SearchTools, by_relevance
from proxy.upstreams.base import Call, Reply
from tests.scripted import Scripted, answer, assembled, call_of, events, read, reply, streaming

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
ABOUT = {"name": "get_weather", "description": "The weather of a city.", "parameters": CITY}
WEATHER = Tool({"type": "function", "function": ABOUT})
MAIL = tool("send_email")
SHELL = Tool({"type": "custom", "custom": {"name": "shell"}})
SENT = (tool("pinned"), WEATHER, MAIL, SHELL)
LIMA = '{"city":"Lima"}'


def searcher() -> SearchTools:
    return SearchTools((WEATHER, MAIL), by_relevance((WEATHER, MAIL), context(), {}, {}), how="-")


def asking(sent: ChatRequest) -> Call:
    """What a request becomes on its way to the upstream."""
    return call_of(deferred(sent, {"get_weather", "send_email"}))


def through(name: str, arguments: str, id: str = "c1") -> dict[str, Any]:
    """A call by way of `call_tool`."""
    return plain("call_tool", f'{{"name": {json.dumps(name)}, "arguments": {arguments}}}', id)


def plain(name: str, arguments: str, id: str = "c1") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def search(id: str = "s1", query: str = "weather") -> dict[str, Any]:
    return plain("search_tools", json.dumps({"query": query}), id)


def said(*calls: dict[str, Any], content: str | None = None, finish: str | None = None) -> dict[str, Any]:
    made = answer(content, finish=finish or ("tool_calls" if calls else "stop"))
    if calls:
        made["choices"][0]["message"]["tool_calls"] = list(calls)
    return made


class Chat:
    """One request through the loop, streamed or not."""

    def __init__(self, *answers: dict[str, Any], stream: bool, rounds: int = 4) -> None:
        self.sent = chat("u1", tools=SENT, stream=stream)
        self.stream, self.rounds = stream, rounds
        self.upstream = Scripted(*(streaming(events(one)) if stream else reply(one) for one in answers))
        self.hidden: list[Hidden] = []

    async def got(self) -> dict[str, Any]:
        """The content, calls and finish reason that a client assembles."""
        tools = [searcher(), CallTool(SENT)]
        made = await send(self.upstream, asking(self.sent), tools, self._record, rounds=self.rounds)
        return assembled(await read(made)) if self.stream else _whole(made)

    async def _record(self, hidden: Hidden) -> bool:
        self.hidden.append(hidden)
        return True

    def told(self, place: int = 1) -> list[str]:
        return [one.text for one in self.upstream.sent(place).messages if one.role == "tool"]


def _whole(made: Reply) -> dict[str, Any]:
    choice = json.loads(made.body or b"")["choices"][0]
    calls = choice["message"].get("tool_calls") or []
    listed = [{"id": one["id"], **one["function"]} for one in calls]
    return {"content": choice["message"]["content"], "calls": listed, "finish": choice["finish_reason"]}


def shown(*calls: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"id": one["id"], **one["function"]} for one in calls]


ODD = '{ "city": "L\\u00edma" }'
PINNED = plain("pinned", "{}", "c2")


both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.mark.parametrize(("calls", "expected"), [
    pytest.param([through("get_weather", LIMA)], [plain("get_weather", LIMA)], id="one"),
    pytest.param([through("get_weather", ODD)], [plain("get_weather", ODD)], id="word for word"),
    pytest.param([through("get_weather", LIMA), PINNED], [plain("get_weather", LIMA), PINNED], id="beside one that is offered"),
    pytest.param([through("pinned", '{"key":"k"}')], [plain("pinned", '{"key":"k"}')], id="of one that is offered"),
    pytest.param([plain("get_weather", LIMA)], [plain("get_weather", LIMA)], id="called by its own name"),
])  # fmt: skip
async def test_the_client_gets_calls_of_its_own_tools(calls: Any, expected: Any) -> None:
    chat_ = Chat(said(*calls, content="Looking."), stream=True)
    got = await chat_.got()
    assert got["calls"] == shown(*expected)
    assert got["content"] == "Looking."
    assert got["finish"] == "tool_calls"
    assert len(chat_.upstream.calls) == 1
    assert chat_.hidden == [], "there is nothing that the client does not see"


@pytest.mark.parametrize(("call", "told"), [
    pytest.param(through("get_weather", "{}"), ["get_weather", "'city' is a required property", '"additionalProperties":false'], id="misses one"),
    pytest.param(through("get_wether", LIMA), ["no tool of this name; near it: get_weather"], id="unknown"),
    pytest.param(through("shell", '{"input":"ls"}'), ["shell is called directly"], id="custom"),
    pytest.param(through("get_weather", '"Lima"'), ['"arguments" must be a JSON object'], id="a text"),
    pytest.param(plain("call_tool", "{}"), ['There is no "name"'], id="nothing"),
    pytest.param(plain("call_tool", '{"name":'), ["not valid JSON"], id="half a call"),
])  # fmt: skip
async def test_what_does_not_fit_goes_back_to_the_model(call: Any, told: list[str]) -> None:
    chat_ = Chat(said(call), said(through("get_weather", LIMA, "c2")), stream=True)

    got = await chat_.got()

    assert got["calls"] == shown(plain("get_weather", LIMA, "c2"))
    (error,) = chat_.told()
    assert error.startswith("Error: ")
    assert all(part in error for part in told)
    (hidden,) = chat_.hidden
    assert hidden.shown["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": LIMA}
    assert hidden.before[0].called_tools == ("call_tool",)


@both
@pytest.mark.parametrize(
    ("query", "last"),
    [("weather", ["get_weather"]), ("zzz", ["get_weather", "send_email"])],
    ids=["found", "nothing found"],
)
async def test_a_call_that_must_be_made_is_one_of_the_clients(stream: bool, query: str, last: list[str]) -> None:
    chat_ = Chat(said(search("s1", query)), said(plain("get_weather", LIMA)), stream=stream, rounds=1)
    sent = (WEATHER, MAIL)
    chat_.sent = chat("u1", tools=sent, stream=stream, tool_choice="required")

    got = await chat_.got()

    assert got["calls"] == shown(plain("get_weather", LIMA))
    assert [one.name for one in chat_.upstream.sent(0).tools] == ["search_tools", "call_tool"]
    assert [one.name for one in chat_.upstream.sent(1).tools] == last
    assert chat_.upstream.sent(1).rest["tool_choice"] == "required"


async def test_one_that_does_not_fit_beside_one_that_does() -> None:
    chat_ = Chat(said(through("get_weather", "{}"), through("get_weather", LIMA, "c2")), stream=True)
    got = await chat_.got()
    assert got["calls"] == shown(plain("get_weather", LIMA, "c2"))
    (hidden,) = chat_.hidden
    assert hidden.results[0].text.startswith("Error: The arguments do not fit get_weather")


@both
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        pytest.param(through("get_weather", "{}"), [plain("get_weather", "{}")], id="the client judges the arguments"),
        pytest.param(through("nobody", "{}"), [], id="nobody's call is taken out"),
    ],
)
async def test_where_the_model_cannot_be_told(stream: bool, call: Any, expected: Any) -> None:
    got = await Chat(said(call, content="x"), stream=stream, rounds=0).got()
    assert got["calls"] == shown(*expected)
    assert got["finish"] == ("tool_calls" if expected else "stop")


@both
async def test_of_an_answer_that_is_cut_off_whole_calls_are_handed_on(stream: bool) -> None:
    half = plain("call_tool", '{"name":"get_weather","argum', "c2")
    chat_ = Chat(said(through("get_weather", LIMA), half, finish="length"), stream=stream)
    got = await chat_.got()
    assert got["calls"] == shown(plain("get_weather", LIMA))
    assert got["finish"] == "length"


async def test_each_of_several_choices_is_translated() -> None:
    made = said(through("get_weather", LIMA))
    made["choices"].append({**said(search(), through("send_email", "{}"))["choices"][0], "index": 1})
    upstream = Scripted(reply(made))

    got = await send(upstream, asking(chat("u1", tools=SENT, n=2)), [searcher(), CallTool(SENT)])

    messages = [choice["message"] for choice in json.loads(got.body or b"")["choices"]]
    called = [[call["function"]["name"] for call in one["tool_calls"]] for one in messages]
    assert called == [["get_weather"], ["send_email"]]
    assert len(upstream.calls) == 1


@given(
    st.lists(st.sampled_from(["get_weather", "send_email", "pinned", "search_tools", "bad"]), min_size=1, max_size=5)
)
def test_streamed_and_whole_are_one_layout(made: list[str]) -> None:
    def call(name: str, id: str) -> dict[str, Any]:
        if name == "search_tools":
            return search(id)
        if name == "pinned":
            return plain(name, "{}", id)
        return through(name, LIMA if name == "get_weather" else '{"key":"k"}', id)

    calls = [call(name, f"i{n}") for n, name in enumerate(made)]

    async def both_ways() -> list[tuple[Any, Any]]:
        results = []
        for stream in (False, True):
            chat_ = Chat(said(*calls), said(content="done"), stream=stream)
            got = await chat_.got()
            kept = [(one.shown.get("tool_calls"), one.before, one.last, one.results) for one in chat_.hidden]
            results.append(((got["calls"], got["finish"], got["content"] or ""), kept))
        return results

    whole, streamed = asyncio.run(both_ways())
    assert whole == streamed


class Slow(CallTool):
    async def handed(self, call: Any, *, strict: bool) -> None:
        await asyncio.Event().wait()


async def test_a_slow_check_is_no_call_and_without_a_definition_of_ours_nothing_is_translated() -> None:
    request = deferred(chat("u1", tools=SENT), {"get_weather"})
    upstream = Scripted(reply(said(through("get_weather", LIMA))), reply(said(content="sorry")))
    made = await send(upstream, call_of(request), [Slow(SENT)], seconds=0.01)
    assert _whole(made)["content"] == "sorry"
    request = chat("u1", tools=(*SENT, tool("call_tool")))
    given_ = reply(said(through("get_weather", LIMA)))
    assert await send(Scripted(given_), call_of(request), [CallTool(SENT)]) is given_
