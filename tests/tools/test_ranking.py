"""How tools are ranked: by words, by meaning, in company, in Spanish; and what a score says."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.chat import Tool
from proxy.context import Identity
from proxy.state.cache import OnceService
from proxy.testing import context, tool
from proxy.text.language import english
from proxy.tools.ranking import NOTHING, grouped, noise, pooled, relevance, text_of
from tests.services import ToldEmbedder

CLOCK = tool("set_alarm", "Sets an alarm for a time of day.")
LIGHT = tool("turn_on", "Turns on a light, a lamp or another device.")
MAIL = tool("sendEmail", "Sends an e-mail message to an address.")
TOOLS = (CLOCK, LIGHT, MAIL)


class Meaning(ToldEmbedder):
    """Lacks the vectors of texts with one word; counts how often it is asked for the noise."""

    def __init__(self, cosines: Mapping[str, Mapping[str, float]] | None = None, missing: str | None = None) -> None:
        super().__init__(cosines)
        self.missing, self.asked = missing, 0

    def near(self, query: str, text: str) -> float | None:
        return None if self.missing and self.missing in text else super().near(query, text)

    async def noise(self, texts: Sequence[str], *, wait: float) -> float | None:
        self.asked += 1
        return await super().noise(texts, wait=wait)


WAKE = Meaning({"despiértame": {"levántame": 0.8}})
NO_ALARM = Meaning({"alarm": {"turn on": 0.3}}, missing="set alarm")


async def ranked(
    query: str, tools: Sequence[Tool] = TOOLS, *, examples: Mapping[str, Sequence[str]] | None = None, **more: Any
) -> list[tuple[Tool, float]]:
    """The tools with their scores, the best first; equals in the client's order."""
    ctx = context(**more)
    found = await relevance(query, await pooled(tools, ctx, examples or {}, {}), ctx, 0.0)
    return sorted(zip(tools, found.scores, strict=True), key=lambda each: -each[1])


async def names(query: str, tools: Sequence[Tool] = TOOLS, **more: Any) -> list[str]:
    return [each.name for each, _ in await ranked(query, tools, **more)]


@pytest.mark.parametrize(("query", "more", "first"), [
    pytest.param("set the alarm to seven", {}, CLOCK, id="words"),
    pytest.param("pon la alarma a las siete", {}, CLOCK, id="Spanish"),
    pytest.param("envía un correo a mi madre", {}, MAIL, id="and more"),
    pytest.param("wake up call", {"examples": {"sendE*": ["wake up call please"]}}, MAIL, id="an example"),
    pytest.param("despiértame", {"examples": {"set_alarm": ["levántame pronto"]}, "embedder": WAKE}, CLOCK, id="an example's vector"),
    pytest.param("alarm", {"embedder": NO_ALARM}, CLOCK, id="by words beside others with a vector"),
    pytest.param("zzz " * 1000 + "send an email", {}, MAIL, id="both ends of a long query"),
])  # fmt: skip
async def test_the_tool_that_fits_is_first(query: str, more: dict[str, Any], first: Tool) -> None:
    assert (await ranked(query, **more))[0][0] is first


async def test_meaning_and_the_company_of_the_best_rank_tools() -> None:
    near = Meaning({"wake me": {"set alarm": 0.6, "turn on": 0.1}})
    (first, best), (_, second), *_ = await ranked("wake me early", embedder=near)
    assert first is CLOCK
    assert best >= NOTHING > second
    assert max(score for _, score in await ranked("who wrote Don Quixote?", embedder=Meaning())) < NOTHING
    tools = [tool("bank_pay", "Pays a bill."), tool("zoo_feed", "Feeds."), tool("bank_balance", "Says what is there.")]
    tools += [tool(f"other{n}", "Something else.") for n in range(3)]
    scores = {each.name: score for each, score in await ranked("pay my bill", tools)}
    assert scores["bank_balance"] > scores["zoo_feed"] == 0.0


async def test_the_noise_of_a_set_of_tools_is_asked_for_once() -> None:
    once, near = OnceService(), Meaning()
    ctx = context(embedder=near, once=once.bind(Identity("one")))
    pool = await pooled(TOOLS, ctx, {}, {})
    assert [await noise(pool, ctx, 0.0) for _ in range(2)] == [0.06] * 2
    once.close()
    assert near.asked == 1


def odd(**inner: Any) -> Tool:
    return Tool({"type": "function", "function": inner})


LOOP = {"type": "object", "properties": {"node": {"$ref": "#"}}, "$defs": {"n": {"$ref": "#/$defs/n"}}}
DEEP = {"type": "object", "properties": {"a": {"properties": {"inside": {"description": "a whale"}}}}}
ODD = [
    odd(name="bare"),
    odd(name="none", description=None, parameters=None),
    odd(name="loop", parameters=LOOP),
    odd(name="enum", parameters={"properties": {"unit": {"enum": ["celsius", 1, None]}}}),
    odd(name="listed", parameters={"properties": ["x"], "items": {"properties": {"zebra": {"type": "string"}}}}),
    odd(name="long", description="word " * 3000),
    odd(name="", description="nameless"),
    Tool({"type": "custom", "custom": {"name": "grammar", "description": "Writes SQL.", "format": {"type": "text"}}}),
    Tool({"type": "web_search"}),
]


@pytest.mark.parametrize("each", ODD, ids=lambda each: each.name or "nameless")
async def test_odd_definitions_are_ranked_and_left_as_they_are(each: Tool) -> None:
    before = json.dumps(each)
    assert len(await ranked("anything", [each, CLOCK])) == 2
    assert json.dumps(each) == before


async def test_nested_parameters_are_read_and_what_is_read_for_meaning_is_bounded() -> None:
    tools = [*ODD, odd(name="deep", parameters=DEEP)]
    assert (await names("whale", tools))[0] == "deep"
    assert (await names("celsius", tools))[0] == "enum"
    assert (await names("write sql", tools))[0] == "grammar"
    assert (await names("zebra", tools))[0] == "listed"
    many: dict[str, Any] = {"properties": {f"p{n}": {} for n in range(500)}}
    assert len(text_of(odd(name="x", description="y" * 10**6, parameters=many)).meaning) < 1500
    twice = [tool("look", "Finds a book."), tool("look", "Finds a whale.")]
    assert [each is twice[1] for each, _ in await ranked("whale", twice)] == [True, False]


@pytest.mark.parametrize(
    ("tools", "groups"),
    [
        (["mcp__git__log", "mcp__git__diff", "mcp__mail__send", "x"], ["prefix mcp git", "prefix mcp git", "", ""]),
        (["get_user", "get_order", "get_x", "y", "z"], ["", "", "", "", ""]),  # a verb is no subject
        (["HotelFind", "HotelBook", "a", "b"], ["prefix hotel", "prefix hotel", "", ""]),
        (["app_a", "app_b", "app_c"], ["", "", ""]),  # what all have tells nothing
        (["own_1", "own_2", "third", "z"], ["group mine", "prefix own", "group mine", ""]),
    ],
)
def test_tools_of_a_kind_are_grouped(tools: list[str], groups: list[str]) -> None:
    assert list(grouped([tool(name) for name in tools], {"mine": ["own_1", "third"]})) == groups


@pytest.mark.parametrize(
    ("text", "gloss"),
    [
        ("apaga las luces del dormitorio", "turn off lights bedroom"),
        ("Envíame la factura por correo", "send invoice bill mail email"),
        ("turn off the lights in the bedroom", None),
        ("¿va a llover mañana?", "go rain tomorrow morning"),
        ("", None),
    ],
)
def test_spanish_has_a_gloss_and_english_none(text: str, gloss: str | None) -> None:
    assert english(text) == gloss


@given(st.text(max_size=60))
def test_any_text_can_be_asked_for_its_gloss(text: str) -> None:
    found = english(text)
    assert found is None or found
