"""Finding the tools that were left out."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from proxy.chat import Message, Tool
from proxy.testing import context, tool
from proxy.tools.search_tools import MOST_CHARACTERS, SearchTools, by_relevance, found_in, left_out
from tests.services import ToldEmbedder
from tests.talk import calls, result

WEATHER = tool("get_weather", "The weather of a city.")
MAIL = tool("send_email", "Sends a message to someone.")
CALENDAR = tool("list_events", "What is in the calendar.")
TOOLS = (WEATHER, MAIL, CALENDAR)


def search(tools: Sequence[Tool] = TOOLS, *, messages: Sequence[Message] = ()) -> SearchTools:
    return SearchTools(tools, by_relevance(tools, context(), {}, {}), how="Call them.", messages=messages)


def found(answer: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.split("\n")[1:] if line.startswith("{")]


async def test_the_tools_that_fit_come_with_their_schemas() -> None:
    answer = await search().run('{"query": "weather in Lima"}')
    assert answer.startswith("1 of 3 tools. Call them.\n")
    assert found(answer) == [dict(WEATHER["function"])]


@pytest.mark.parametrize("arguments", ["", "{}", "[]", '{"query": 3}', '{"query": " "}', '{"query": "zebra"}', "{"])
async def test_without_a_hit_the_model_is_told_what_there_is(arguments: str) -> None:
    answer = await search().run(arguments)
    assert "get_weather, send_email, list_events" in answer
    assert "\n" not in answer


@pytest.mark.parametrize("query", ["nothing", "word"])
async def test_two_thousand_tools_stay_one_short_answer(query: str) -> None:
    many = [tool(f"tool_{n}", "word " * 20) for n in range(2000)]
    assert len(await search(many).run(json.dumps({"query": query}))) < 5000


def large(name: str, properties: int) -> Tool:
    described = {f"p{n}": {"type": "string", "description": "x" * 50} for n in range(properties)}
    schema = {"type": "object", "properties": described}
    return Tool({"type": "function", "function": {"name": name, "description": "Weather.", "parameters": schema}})


async def test_the_next_best_are_named() -> None:
    many = [tool(f"weather_{n}", f"Weather.\n{{{'x' * 200}") for n in range(12)]
    answer = await search(many).run('{"query": "weather"}')
    assert [each["name"] for each in found(answer)] == [f"weather_{n}" for n in range(5)]
    last = answer.splitlines()[-1]
    assert [f"weather_{n} (Weather. {{xxx" in last for n in range(12)] == [False] * 5 + [True] * 5 + [False] * 2
    assert len(last) < 700
    assert found_in(answered(answer), many) == tuple(many[:5]), "what was only named is shown when it is found"


async def test_a_large_definition_is_shortened_and_even_one_has_an_end() -> None:
    many = [large(f"weather_{n}", 100) for n in range(5)]
    answer = await search(many).run('{"query": "weather"}')
    assert len(answer) < MOST_CHARACTERS + 500
    first, second, *_ = found(answer)
    assert first == many[0]["function"], "the best one is whole"
    assert second["parameter_names"][:2] == ["p0", "p1"]
    assert "exact name" in second["note"]
    assert found(await search(many).run('{"query": "weather_1"}')) == [dict(many[1]["function"])]
    assert len(await search([large("weather", 5000)]).run('{"query": "weather"}')) < 70_000


@pytest.mark.parametrize(
    "odd",
    [
        Tool({"type": "function", "function": {"name": "weather"}}),
        Tool({"type": "function", "function": {"name": "weather", "description": None, "parameters": None}}),
        Tool({"type": "function", "function": {"name": "weather", "parameters": "?"}}),
        Tool({"type": "custom", "custom": {"name": "weather", "format": {"type": "text"}}}),
        Tool({"name": "weather", "description": "a\u2028b"}),
    ],
)
async def test_odd_definitions(odd: Tool) -> None:
    (one,) = found(await search([odd]).run('{"query": "weather"}'))
    assert one["name"] == "weather"


def answered(*answers: str) -> tuple[Message, ...]:
    messages: list[Message] = []
    for n, told in enumerate(answers):
        messages += calls(f"s{n}", name="search_tools"), result(told, f"s{n}")
    return tuple(messages)


async def test_what_was_found_is_read_from_the_conversation_and_not_given_twice() -> None:
    odd = tool("odd", "calendar\u2028of days")
    tools = (*TOOLS, odd)
    first = await search(tools).run('{"query": "odd calendar"}')
    second = await search(tools).run('{"query": "weather or calendar"}')
    messages = answered(first, "No tool fits.", second + "\n\n[This was the last call of this kind.]")
    assert [each.name for each in found_in(messages, tools)] == ["odd", "list_events", "get_weather"]
    assert found_in(messages, [MAIL]) == (), "no tool that the client does not send"
    assert found_in(messages[1:2], tools) == (), "an answer of something else"
    first = await search().run('{"query": "weather"}')
    later = search(messages=answered(first))
    both = found(await later.run('{"query": "weather or calendar"}'))
    assert both[0] == CALENDAR["function"]
    assert (both[1]["name"], "description" in both[1]) == ("get_weather", False)
    assert [one["name"] for one in found(await later.run('{"query": "calendar"}'))] == ["list_events"]
    assert "description" not in found(await later.run('{"query": "calendar"}'))[0]
    assert found(await later.run('{"query": "get_weather"}')) == [dict(WEATHER["function"])], "an exact name has all"


@pytest.mark.parametrize("line", ["{", "{}", '{"name": 3}', '["get_weather"]', "get_weather"])
def test_an_answer_that_is_none_finds_nothing(line: str) -> None:
    assert found_in(answered(line), TOOLS) == ()


async def test_parallel_searches_have_one_order() -> None:
    async def slowly(query: str, tools: Sequence[Tool]) -> Sequence[Tool]:
        if query == "first":
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return [WEATHER]

    both = SearchTools(TOOLS, slowly, how="Call them.")
    first, second = await asyncio.gather(both.run('{"query": "first"}'), both.run('{"query": "second"}'))
    assert ["description" in found(one)[0] for one in (first, second)] == [True, False]


def test_what_is_left_out() -> None:
    assert left_out(TOOLS, [MAIL]) == (WEATHER, CALENDAR)
    assert left_out([Tool({"type": "web_search"})], []) == ()


class Loading(ToldEmbedder):
    def near(self, query: str, text: str) -> None:
        return None


def near(word: str) -> ToldEmbedder:
    """An embedder for which this word is near to everything."""
    return ToldEmbedder({"": {word: 0.9}})


GRANDMA = {"send_email": ["escribe a la abuela"]}
FIRST: dict[str, tuple[str, ToldEmbedder, Sequence[Tool], dict[str, list[str]], list[str]]] = {
    "by meaning": ("write to grandma", near("message"), TOOLS, {}, ["send_email"]),
    "among what is left out": ("write to grandma", near("message"), [WEATHER, CALENDAR], {}, []),
    "by the operator's examples": ("saludos a la abuela", near("abuela"), TOOLS, GRANDMA, ["send_email"]),
    "nothing fits": ("zebra", near("nothing has it"), TOOLS, {}, []),
    "by words without vectors": ("the weather in Lima", Loading(), TOOLS, {}, ["get_weather"]),
}


@pytest.mark.parametrize(("query", "embedder", "wanted", "examples", "first"), FIRST.values(), ids=FIRST)
async def test_a_search_ranks(query: str, embedder: Any, wanted: Any, examples: Any, first: list[str]) -> None:
    rank = by_relevance(TOOLS, context(embedder=embedder), examples, {})
    found = [one.name for one in await rank(query, wanted)]
    assert found == first
