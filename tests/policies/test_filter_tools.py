"""Offering the tools that a conversation is about."""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.filter_tools import FilterTools, ToolGroup
from proxy.chat import ChatRequest, Fields, Tool, listed
from proxy.context import CacheRules, Context, Identity
from proxy.policy import Decision, Keep, Rewrite
from proxy.state.cache import OnceService
from proxy.state.decisions import Memos
from proxy.state.sqlite import SqliteStore
from proxy.testing import context, profile, tool
from proxy.text.sections import without_sections
from proxy.tools.deferral import OURS
from proxy.tools.search_tools import left_out
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.static import Static
from proxy.wires.responses import ResponsesBody
from tests import talk
from tests.costs import Piece, request_cost
from tests.decisions import rewrite
from tests.services import ToldEmbedder
from tests.talk import assistant, calls, user

SUBJECTS = ("alarm", "light", "email", "weather", "hotel", "flight", "song", "ticket", "invoice", "calendar")
ACTIONS = ("create", "list", "delete", "change")
TOOLS = tuple(tool(f"{subject}_{action}", f"To {action} the {subject}.") for subject in SUBJECTS for action in ACTIONS)
CACHE = CacheRules(read=0.1, write=1.25, minimum=100, ttl=300)
POLICY = FilterTools(keep=8, least=8)
SELECT = FilterTools(keep=8, least=8, strategy="select")


def asked(*texts: str, tools: Sequence[Tool] = TOOLS, system: str = "", **rest: Any) -> ChatRequest:
    """User messages with an answer between each two."""
    messages = [talk.system(system)] if system else []
    for text in texts:
        if messages and messages[-1].role == "user":
            messages.append(assistant("Done."))
        messages.append(user(text))
    return ChatRequest("test-model", tuple(messages), tuple(tools), Fields(rest))


def with_call(request: ChatRequest, name: str, result: str = "done") -> ChatRequest:
    call = f"c{len(request.messages)}"
    return request.with_messages([*request.messages, calls(call, name=name), talk.result(result, call)])


def ctx_of(request: ChatRequest, cache: CacheRules = CACHE, name: str = "test-model", **fields: Any) -> Context:
    return context(request, model=profile(10**6, cache=cache, name=name), **fields)


async def decided(request: ChatRequest, policy: FilterTools = POLICY, **fields: Any) -> Decision:
    return await policy.apply(request, ctx_of(request, **fields))


async def offered(request: ChatRequest, policy: FilterTools = POLICY, **fields: Any) -> list[str]:
    decision = await decided(request, policy, **fields)
    tools = (decision.request if isinstance(decision, Rewrite) else request).tools
    return [each.name for each in tools if each not in OURS]


class TestSelect:
    async def test_offers_what_the_user_wants_in_the_clients_order(self) -> None:
        names = await offered(asked("delete the alarm and write an email"))
        assert len(names) == 8
        assert {"alarm_delete", "email_create"} <= {*names}
        assert names == sorted(names, key=[each.name for each in TOOLS].index)
        sent = rewrite(await decided(asked("delete the alarm"))).request.tools
        assert all(any(each is one for one in (*TOOLS, *OURS)) for each in sent)
        assert sent[-2:] == OURS

    async def test_a_follow_up_that_may_mean_anything_changes_nothing(self) -> None:
        first = await offered(asked("delete the alarm"))
        assert await offered(asked("delete the alarm", "yes, the second one", "both")) == first

    async def test_a_tool_that_is_clearly_wanted_comes_only_if_what_was_saved_pays_for_it(self) -> None:
        assert "invoice_list" not in await offered(asked("delete the alarm"))
        later = await offered(asked("delete the alarm", "what does the invoice say? list the invoice"))
        assert {"invoice_list", "alarm_delete"} <= {*later}
        assert len(later) == 8
        long = "what a day. " * 4000
        texts = ("delete the alarm", f"nothing more, thank you very much. {long}", "list the invoice")
        assert await offered(asked(*texts)) == await offered(asked(*texts[:1]))
        assert "invoice_list" in await offered(asked(*texts), cache=CacheRules())

    async def test_results_change_nothing_while_the_model_works(self) -> None:
        request = asked("delete the alarm")
        first = await offered(request)
        for _ in range(3):
            request = with_call(request, "alarm_delete", "see the invoice and list each flight")
            assert await offered(request) == first

    async def test_offered_tools_that_were_called_never_leave(self) -> None:
        request = with_call(asked("change the song"), "song_change")
        assert "song_change" in await offered(asked("change the song"))
        for subject in (each for each in SUBJECTS if each != "song"):
            request = request.with_messages([*request.messages, assistant("Done."), user(f"list each {subject}")])
        names = await offered(request, cache=CacheRules())
        assert {"song_change", f"{subject}_list"} <= {*names}
        assert len(names) == 8

    async def test_a_call_of_what_is_left_out_goes_through_the_tool_that_calls(self) -> None:
        request = with_call(asked("delete the alarm"), "song_change")
        assert rewrite(await decided(request)).request.messages[1].called_tools == ("call_tool",)
        nowhere = rewrite(await decided(request, SELECT, runs_tools=False)).request
        assert nowhere.messages[1] is request.messages[1]
        assert "song_change" in [each.name for each in nowhere.tools]

    async def test_always_and_groups_are_kept_also_in_another_language(self) -> None:
        policy = FilterTools(keep=9, always=("weather_*",), groups={"rest": ToolGroup(tools=("song_list", "light_*"))})
        names = await offered(asked("list the song"), policy)
        assert {"weather_list", "weather_create", "light_list", "song_list"} <= {*names}
        assert len(names) == 9
        group = ToolGroup(tools=("light_*",), examples=("doe het licht uit",))
        names = await offered(asked("doe het licht uit in de keuken"), FilterTools(keep=4, groups={"lamps": group}))
        assert {*names} == {f"light_{action}" for action in ACTIONS}

    async def test_the_definitions_have_a_bound_and_clashing_names_are_both_offered(self) -> None:
        each = len(TOOLS[0].raw) // 4
        names = await offered(asked("delete the alarm"), FilterTools(keep=30, max_tokens=each * 5))
        assert 3 <= len(names) <= 5
        assert "alarm_delete" in names
        twins = [tool("twin", "One."), tool("twin", "Other.")]
        request = with_call(asked("delete the alarm", tools=[*TOOLS, *twins]), "twin")
        assert (await offered(request)).count("twin") == 2

    async def test_steps_before_it_may_have_shortened_the_history_and_tools_of_ours_stay(self) -> None:
        whole = asked("delete the alarm", "and so on", "and on")
        short = whole.with_messages(whole.messages[-1:])
        decision = rewrite(await POLICY.apply(short, ctx_of(whole)))
        assert [each.name for each in decision.request.tools if each not in OURS] == await offered(whole)
        request, ours = asked("delete the alarm"), tool("recall")
        decision = rewrite(await POLICY.apply(request.with_tools([*TOOLS, ours]), ctx_of(request)))
        assert decision.request.tools[-3:] == (ours, *OURS)
        assert len(decision.request.tools) == 8 + 3


class Slow(ToldEmbedder):
    ready = False

    def near(self, query: str, text: str) -> float | None:
        return None if not self.ready else 0.9 if "flight" in text else 0.0

    async def floor(self, query: str, *, wait: float) -> float | None:
        return 0.0 if self.ready else None

    async def noise(self, texts: Sequence[str], *, wait: float) -> float | None:
        return 0.06 if self.ready else None


class Near(ToldEmbedder):
    def __init__(self, **cosines: Mapping[str, float]) -> None:
        super().__init__(cosines)

    def near(self, query: str, text: str) -> float:
        return super().near(query, text) or 0.05

    async def floor(self, query: str, *, wait: float) -> float | None:
        return 0.5 if query in ("both", "ambos") else 0.1


async def minimum(share: float) -> CacheRules:
    """A cache for prompts with at least this share of the tools."""
    whole = sum(await context().tokens.tool_sizes(TOOLS))
    return CacheRules(read=0.01, write=1.0, minimum=int(whole * share), ttl=300)


class TestFewerWhereSure:
    BOUND = FilterTools(keep=20, least=2)
    WEATHER = Near(weather={"weather list": 0.7})

    @pytest.mark.parametrize("text", ["weather in Seville tomorrow?", "¿qué weather hará mañana en Sevilla?"])
    async def test_few_are_offered_where_they_stand_out(self, text: str) -> None:
        near = Near(weather={"weather list": 0.7, "weather create": 0.6})
        names = await offered(asked(text), self.BOUND, embedder=near)
        assert {"weather_list", "weather_create"} <= {*names}
        assert len(names) <= 4

    @pytest.mark.parametrize(("text", "embedder", "policy"), [
        pytest.param("weather tomorrow", Slow(), BOUND, id="words alone decide"),
        pytest.param("weather tomorrow", None, BOUND, id="no vectors"),
        pytest.param("¿y ahora qué?", Near(), BOUND, id="none stands out"),
        pytest.param("weather tomorrow", WEATHER, FilterTools(keep=20, least=20), id="a setting"),
        pytest.param("weather tomorrow", WEATHER, FilterTools(keep=20, least=2, strategy="select"), id="no search"),
        pytest.param("明天的天气怎么样？", Near(天气={"weather list": 0.3, "garden create": 0.2}), BOUND, id="hardly nearer"),
    ])  # fmt: skip
    async def test_as_many_elsewhere(self, text: str, embedder: ToldEmbedder | None, policy: FilterTools) -> None:
        runs_tools = policy.strategy != "select"
        assert len(await offered(asked(text), policy, embedder=embedder, runs_tools=runs_tools)) == 20

    async def test_what_the_next_message_wants_comes_and_the_others_stay(self) -> None:
        near = Near(weather={"weather list": 0.7}, hotel={"hotel create": 0.7})
        first = await offered(asked("weather tomorrow"), self.BOUND, embedder=near)
        later = await offered(asked("weather tomorrow", "and a hotel"), self.BOUND, embedder=near)
        assert {*first, "hotel_create"} <= {*later}
        assert len(later) < 20

    async def test_an_answer_to_a_question_changes_nothing(self) -> None:
        class Answer(Slow):
            def near(self, query: str, text: str) -> float:
                return 0.6 if ("hotel create" if query == "Seville" else "weather list") in text else 0.05

        first = asked("weather tomorrow")
        before = await offered(first, self.BOUND, embedder=Answer())
        after = first.with_messages([*first.messages, assistant("In which city?"), user("Seville")])
        assert await offered(after, self.BOUND, embedder=Answer()) == before

    async def test_few_that_would_not_be_cached_are_filled_up(self) -> None:
        cache = await minimum(0.5)
        assert 15 < len(await offered(asked("weather tomorrow"), self.BOUND, embedder=self.WEATHER, cache=cache)) <= 20


class TestNothingToGain:
    CHOSEN = "tool_choice is the client's"

    @pytest.mark.parametrize(
        ("request_", "why"),
        [
            (asked("delete the alarm", tool_choice={"type": "function", "function": {"name": "alarm_list"}}), CHOSEN),
            (asked("delete the alarm", tool_choice={"type": "allowed_tools", "allowed_tools": {"tools": []}}), CHOSEN),
            (asked("delete the alarm", tools=TOOLS[:8]), "8 tools"),
            (asked("delete the alarm", tools=TOOLS[:9]), "9 tools, and nothing to gain by fewer"),
            (ChatRequest("m", (talk.system("x"),), TOOLS), "40 tools, and nothing to gain by fewer"),
        ],
        ids=["forced", "the client's choice", "few tools", "one too many is not worth a search", "no user message"],
    )
    async def test_the_tools_stay(self, request_: ChatRequest, why: str) -> None:
        assert await decided(request_) == Keep(why)

    @pytest.mark.parametrize("strategy", ["auto", "select", "defer", "native"])
    @pytest.mark.parametrize(
        "tools",
        [
            [each.with_changes(defer_loading=True) if place % 2 else each for place, each in enumerate(TOOLS * 4)],
            [Tool({"type": "tool_search"}), *TOOLS],
        ],
        ids=["some are deferred", "a search"],
    )
    async def test_a_client_that_has_its_provider_search_is_left_alone(self, tools: list[Tool], strategy: Any) -> None:
        policy = FilterTools(keep=8, strategy=strategy)
        why = "the client has the provider search its tools"
        assert await decided(asked("delete the alarm", tools=tools), policy) == Keep(why)

    async def test_a_prompt_that_would_become_too_short_to_be_cached(self) -> None:
        assert isinstance(await decided(asked("delete the alarm"), cache=await minimum(1)), Keep)
        assert isinstance(await decided(asked("delete the alarm")), Rewrite)

    @pytest.mark.parametrize(("small_talk", "count"), [("none", 1), ("select", 8), ("all", 40)])
    async def test_small_talk_gets_what_the_setting_says(self, small_talk: Any, count: int) -> None:
        policy = FilterTools(keep=8, least=8, small_talk=small_talk, always=("song_list",))
        assert len(await offered(asked("¡Hola! ¿Qué tal?"), policy)) == count
        later = await offered(asked("¡Hola! ¿Qué tal?", "delete the alarm"), policy)
        assert "alarm_delete" in later
        assert len(later) == 8 or small_talk == "all"

    async def test_small_talk_gets_tools_only_where_it_must_be_a_call(self) -> None:
        assert not await offered(asked("hi"))
        assert len(await offered(asked("hi", tool_choice="required"))) == 8
        request = asked("hello", tool_choice="auto", parallel_tool_calls=True)
        assert rewrite(await decided(request)).request.tools == OURS
        assert b"tool" not in rewrite(await decided(request, SELECT, runs_tools=False)).request.encode()


class TestTheOrder:
    """Some clients send the same tools in another order each time."""

    @pytest.mark.parametrize("texts", [("delete the alarm",), ("delete the alarm", "yes")])
    @pytest.mark.parametrize("policy", [POLICY, FilterTools(keep=40)], ids=["some are left out", "all stay"])
    async def test_that_came_first_stays(self, policy: FilterTools, texts: tuple[str, ...]) -> None:
        memo = Memos(SqliteStore(None, 10**6), ttl=100).bind(Identity("t", "s"))
        first = await offered(asked("delete the alarm"), policy, memo=memo)
        for seed in range(3):
            shuffled = Random(seed).sample(TOOLS, len(TOOLS))
            assert await offered(asked(*texts, tools=shuffled), policy, memo=memo) == first
            other = await offered(asked(*texts, tools=shuffled[1:]), policy, memo=memo)
            assert other == sorted(other, key=[each.name for each in shuffled].index), "another set has its own order"


class TestTheProvidersMost:
    MANY = tuple(tool(f"thing{n}_{n}", f"About thing {n}.") for n in range(150))

    @pytest.mark.parametrize("strategy", ["auto", "select", "narrow"])
    async def test_more_are_brought_under_it(self, strategy: Any) -> None:
        policy = FilterTools(keep=200, least=200, strategy=strategy)
        decision = rewrite(await decided(asked("about thing 140", tools=self.MANY), policy))
        assert len(decision.request.tools) == 128
        assert decision.request.tools[-2:] == OURS
        assert len(await offered(asked("about thing 140", tools=self.MANY), policy, runs_tools=False)) == 128

    async def test_even_with_a_forced_choice_which_stays(self) -> None:
        choice = {"type": "function", "function": {"name": "thing149_149"}}
        sent = rewrite(await decided(asked("about thing 3", tools=self.MANY, tool_choice=choice))).request
        assert "thing149_149" in [each.name for each in sent.tools]
        assert len(sent.tools) == 126, "as many as the provider takes, with two of later steps"
        assert sent.rest["tool_choice"] == choice

    async def test_there_is_no_search_where_tools_that_cannot_leave_take_its_place(self) -> None:
        custom = tuple(Tool({"type": "custom", "custom": {"name": f"own{n}"}}) for n in range(127))
        sent = rewrite(await decided(asked("about thing 3", tools=(*custom, *self.MANY[:10])))).request.tools
        assert len(sent) <= 128
        assert not {tool.name for tool in OURS} & {tool.name for tool in sent}


@pytest.mark.parametrize("policy", [POLICY, FilterTools(keep=8, strategy="defer"), FilterTools(provider_most=20)])
async def test_requests_with_one_list_of_tools_are_decided_each_for_itself(policy: FilterTools) -> None:
    """What follows from the tools alone is worked out once for the list."""
    choice = {"type": "function", "function": {"name": "alarm_list"}}
    requests = [asked("delete the alarm"), asked("book a flight"), asked("book a flight", tool_choice=choice)]
    one = listed(TOOLS)
    for request, runs_tools in product(requests, (True, False)):
        made = [await decided(request.with_tools(tools), policy, runs_tools=runs_tools) for tools in (one, TOOLS)]
        sent = [each.request.tools if isinstance(each, Rewrite) else () for each in made]
        assert (made[0].why, sent[0]) == (made[1].why, sent[1])
        assert [*left_out(one, sent[0])] == [tool for tool in TOOLS if tool not in sent[0]]


class TestNarrow:
    NARROW = FilterTools(keep=8, strategy="narrow", allowed_tools_models=("gpt-5*",))

    async def test_leaves_the_tools_and_names_those_that_may_be_called(self) -> None:
        custom = Tool({"type": "custom", "custom": {"name": "alarm_grammar", "description": "The alarm as text."}})
        request = asked("delete the alarm", tools=[*TOOLS, custom])
        sent = rewrite(await decided(request, self.NARROW, name="gpt-5-mini")).request
        assert sent.tools is request.tools
        choice = sent.rest["tool_choice"]
        allowed = choice["allowed_tools"]
        assert (choice["type"], allowed["mode"], len(allowed["tools"])) == ("allowed_tools", "auto", 8)
        assert {"type": "function", "function": {"name": "alarm_delete"}} in allowed["tools"]
        assert {"type": "custom", "custom": {"name": "alarm_grammar"}} in allowed["tools"]

    async def test_tools_that_the_provider_runs_may_always_be_called(self) -> None:
        functions = [{"type": "function", **each["function"]} for each in TOOLS]
        grammar = {"type": "custom", "name": "alarm_grammar", "description": "The alarm as text."}
        hosted = [{"type": "web_search"}, {"type": "mcp", "server_label": "docs", "server_url": "https://x"}]
        fields = {"model": "gpt-5", "input": "delete the alarm", "tools": [*functions, grammar, *hosted]}
        request = ResponsesBody(json.dumps(fields).encode()).parse()
        sent = json.loads(rewrite(await decided(request, self.NARROW, name="gpt-5")).request.encode())
        allowed = sent["tool_choice"]["tools"]
        assert sent["tools"] == fields["tools"]
        assert [each for each in allowed if each["type"] not in ("function", "custom")] == [
            {"type": "web_search"},
            {"type": "mcp", "server_label": "docs"},
        ]
        assert {"type": "custom", "name": "alarm_grammar"} in allowed
        assert len(allowed) == 8

    async def test_applied_again_it_changes_nothing_and_auto_narrows_where_selecting_costs_more(self) -> None:
        first = rewrite(await decided(asked("delete the alarm"), self.NARROW, name="gpt-5"))
        assert isinstance(await decided(first.request, self.NARROW, name="gpt-5"), Keep)
        decision = rewrite(await decided(asked("delete the alarm"), cache=await minimum(1), name="gpt-5"))
        assert "tool_choice" in decision.request.rest

    @pytest.mark.parametrize(("name", "choice"), [("llama", "auto"), ("gpt-5", "required")])
    async def test_only_where_the_provider_can_and_the_client_lets(self, name: str, choice: str) -> None:
        assert isinstance(await decided(asked("delete the alarm", tool_choice=choice), self.NARROW, name=name), Keep)


SYSTEM = (
    "Be kind.\n\n## Lamps\nOff at night.\n### More\nAlways.\n\n## Songs\nSing.\n<Mail>\nSign it.\n</Mail>\nThe end."
)


class TestSections:
    POLICY = FilterTools(
        keep=4,
        groups={
            "lamps": ToolGroup(tools=("light_*",), sections=("lamps",)),
            "music": ToolGroup(tools=("song_*",), sections=("Songs",)),
            "post": ToolGroup(tools=("email_*",), sections=("mail",)),
            "none": ToolGroup(tools=("nobody_*",), sections=("The end",)),
        },
    )

    @pytest.mark.parametrize(
        ("text", "system"),
        [
            ("change the light", "Be kind.\n\n## Lamps\nOff at night.\n### More\nAlways.\n\n"),
            ("change the song", "Be kind.\n\n## Songs\nSing.\nThe end."),
            ("change the flight", "Be kind.\n\n"),
        ],
    )
    async def test_sections_leave_with_their_tools(self, text: str, system: str) -> None:
        decision = rewrite(await decided(asked(text, system=SYSTEM), self.POLICY))
        assert decision.request.messages[0].text == system

    async def test_sections_leave_from_a_prompt_in_parts(self) -> None:
        parts = [{"type": "text", "text": text} for text in (SYSTEM, "## Lamps\nNothing else.")]
        request = asked("change the song", system="x")
        request = request.with_messages([request.messages[0].with_changes(content=parts), *request.messages[1:]])
        sent = rewrite(await decided(request, self.POLICY)).request.messages[0]["content"]
        assert [part["text"] for part in sent] == ["Be kind.\n\n## Songs\nSing.\nThe end.", parts[1]["text"]]

    SMALL: ClassVar = {
        "weather": ToolGroup(sections=("Weather",), examples=("va a llover?",)),
        "flights": ToolGroup(sections=("Flights",), tools=("flight_*",)),
    }
    BELOW = FilterTools(groups=SMALL)
    PROMPT = "Be kind.\n## Weather\nUse Celsius.\n## Flights\nConfirm first.\n"
    NEAR = Near(
        weather={"weather": 0.6}, tiempo={"weather": 0.5}, flight={"flight": 0.6}, tomorrow={"weather": 0.1},
        ambos={"weather": 0.3},
    )  # fmt: skip

    async def stands(self, *texts: str, cache: CacheRules = CACHE, tools: Sequence[Tool] = (), **fields: Any) -> str:
        """Which sections a conversation has, each by its first letter."""
        request = asked(*texts, tools=tools, system=self.PROMPT)
        fields = {"embedder": self.NEAR} | fields
        decision = await decided(request, self.BELOW, cache=cache, **fields)
        text = (decision.request if isinstance(decision, Rewrite) else request).messages[0].text
        assert text.startswith("Be kind.\n")
        return "".join(letter for letter, words in (("W", "Celsius"), ("F", "Confirm")) if words in text)

    @pytest.mark.parametrize("tools", [(), TOOLS[20:24]], ids=["no tools", "below keep"])
    @pytest.mark.parametrize(
        ("texts", "stand"),
        [
            ("hola", ""),
            ("👍", ""),
            ("what will the weather be?", "W"),
            ("¿qué tiempo hará?", "W"),
            ("the weather, and book a flight", "WF"),
            ("who wrote Don Quixote?", ""),
            ("what will the weather be?|and tomorrow?", "W"),
            ("what will the weather be?|both", "W"),
            ("book a flight|ambos", "F"),
            ("hola|book a flight", "F"),
            ("what will the weather be?|book a flight|both", "F"),
        ],
    )
    async def test_sections_are_those_of_what_is_asked(self, texts: str, stand: str, tools: Sequence[Tool]) -> None:
        assert await self.stands(*texts.split("|"), cache=CacheRules(), tools=tools) == stand

    @pytest.mark.parametrize(
        ("texts", "minimum", "stand"),
        [
            ("hola", 1, ""),
            ("the weather, and book a flight|what will the weather be?", 1, "WF"),
            ("what will the weather be?|thanks", 1, "W"),
            ("what will the weather be?|book a flight", 1, "WF"),
            ("what will the weather be?|book a flight", 10**6, "F"),  # a prompt too short for the cache
            ("what will the weather be?|book a flight|who wrote Don Quixote?", 1, "WF"),
        ],
    )
    async def test_in_a_cached_prompt_all_stay_until_one_is_missing(self, texts: str, minimum: int, stand: str) -> None:
        cache = CacheRules(read=0.1, write=1.25, minimum=minimum, ttl=300)
        assert await self.stands(*texts.split("|"), cache=cache) == stand

    async def test_all_stay_where_words_say_nothing_and_what_was_settled_stays(self) -> None:
        assert await self.stands("who wrote Don Quixote?", embedder=None) == "WF"
        assert await self.stands("hola", embedder=None) == ""
        assert await self.stands("¿va a llover hoy?", embedder=None) == "W"
        memo = Memos(SqliteStore(None, 10**6), ttl=60).bind(Identity("t", "s"))
        assert await self.stands("¿qué tiempo hará?", memo=memo) == "W"
        assert await self.stands("¿qué tiempo hará?", memo=memo, embedder=None) == "W"


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("<a>\n# Weather\nx\n</a>\n<b>\ny\n</b>", "<a>\n</a>\n<b>\ny\n</b>"),
        ("# Weather\n<c>\nx\n</c>\nz\n# Other\ny", "# Other\ny"),
        ("<weather>\nx\n</weather>\ny", "y"),
        ("# weather\nx\n## More\nz", ""),
        ("no weather here", "no weather here"),
    ],
)
def test_a_section_ends_with_what_it_stands_in(text: str, without: str) -> None:
    assert without_sections(text, ["Weather"]) == without


@pytest.mark.parametrize(
    ("rules", "is_behind", "stays"),
    [
        pytest.param(CACHE, False, True, id="cached"),
        pytest.param(CACHE, True, False, id="vectors are on their way"),
        pytest.param(CacheRules(), False, False, id="nothing is cached"),
    ],
)
async def test_what_was_chosen_by_words_is_chosen_again_where_that_costs_nothing(
    rules: CacheRules, is_behind: bool, stays: bool
) -> None:
    near, memos, request = Slow(), Memos(SqliteStore(None, 10**6), ttl=60), asked("delete the alarm")
    near.is_behind = is_behind

    async def names(request: ChatRequest = request, session: str = "s") -> list[str]:
        return await offered(request, embedder=near, memo=memos.bind(Identity("t", session)), cache=rules)

    first = await names()
    assert "by their words" in (await decided(request, embedder=near, cache=rules)).why
    near.ready = True
    assert "by words and meaning" in (await decided(request, embedder=near, cache=rules)).why
    again = await names(with_call(request, "alarm_delete"))
    assert (again == first) is stays
    assert ("flight_list" in again) is not stays
    assert "flight_list" in await names(session="other")
    near.ready = False  # from now on it is settled
    assert is_behind is False or await names(with_call(request, "alarm_delete")) == again


async def test_vectors_are_asked_for_again_only_where_some_were_missing() -> None:
    once, near, request = OnceService(), Slow(), asked("delete the alarm")
    for ready, is_asked in ((False, True), (True, True), (True, False)):
        near.ready, near.texts = ready, []
        await offered(request, embedder=near, once=once.bind(Identity("t")))
        assert bool(near.texts) is is_asked
    once.close()


class ReadStore(SqliteStore):
    """A store that counts its look-ups."""

    reads = 0

    async def get_all(self, keys: Sequence[str], *, ttl: float | None = None) -> list[bytes | None]:
        self.reads += 1
        return await super().get_all(keys, ttl=ttl)


async def test_a_process_looks_up_a_conversation_once_and_another_one_goes_on_with_its_choices() -> None:
    store, said = ReadStore(None, 10**6), ["delete the alarm", "list the invoice", "change the song"]

    async def names(service: OnceService, memos: Memos, *texts: str) -> list[str]:
        who = Identity("t", "s")
        return await offered(asked(*texts), once=service.bind(who), memo=memos.bind(who), cache=CacheRules())

    chosen, reads = list[list[str]](), list[int]()
    for service in (OnceService(), OnceService()):
        memos = Memos(store, ttl=60)
        for count in (1, 2, 3):
            store.reads = 0
            chosen.append(await names(service, memos, *said[:count]))
            reads.append(store.reads)
        service.close()
    assert reads == [1, 0, 0, 1, 1, 1]
    assert chosen[:3] == chosen[3:]
    assert "song_change" in chosen[2]


def cost_of(requests: Sequence[ChatRequest]) -> float:
    """What a conversation costs, in input tokens."""
    total, before = 0.0, None
    for request in requests:
        after = [Piece(each.raw, len(each.raw) // 4) for each in (*request.tools, *request.messages)]
        total += request_cost(CACHE, before, after)
        before = after
    return total


WORDS = st.lists(st.sampled_from([*SUBJECTS, "list", "hello", "yes", "x " * 400]), min_size=1, max_size=4)


@settings(max_examples=25, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=8), st.booleans())
async def test_it_never_costs_more_than_all_tools_would_and_remembers_what_it_would_work_out(
    texts: list[list[str]], is_remembered: bool
) -> None:
    said = [" ".join(words) for words in texts]
    memo = Memos(SqliteStore(None, 10**6), ttl=60).bind(Identity("t", "s")) if is_remembered else None
    plain, made = [], []
    for count in range(1, len(said) + 1):
        request = asked(*said[:count])
        decision = await decided(request, memo=memo)
        assert memo is None or await offered(request, memo=memo) == await offered(request)
        plain.append(request)
        made.append(decision.request if isinstance(decision, Rewrite) else request)
    assert cost_of(made) <= cost_of(plain) * 1.01


THINGS = {
    "weather": "the weather forecast of a city", "flight": "a flight from one city to another",
    "light": "a light or a lamp in a room", "message": "a message to a person",
    "calendar": "an appointment in the calendar", "invoice": "an invoice that a customer has to pay",
    "song": "a song in the player", "stock": "shares of a company", "recipe": "a recipe for a meal",
    "ticket": "a ticket of the help desk", "photo": "a photo in an album", "route": "a route on the map",
    "parcel": "a parcel that was sent",
}  # fmt: skip
MANY = [
    tool(f"{verb}_{thing}", f"To {verb} {about}.")
    for verb in ("show", "change", "remove")
    for thing, about in THINGS.items()
]


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("Show me the weather forecast for Cairo.", 5, 12),
        ("帮我查一下明天从北京到上海的航班", 30, 30),
        ("リビングの電気を消して", 30, 30),
        ("ما هو الطقس غدا في القاهرة؟", 30, 30),
        ("Wie wird das Wetter morgen in Hamburg?", 30, 30),
    ],
)
async def test_few_tools_are_offered_only_where_some_match(text: str, least: int, most: int) -> None:
    service = EmbeddingService(Static(), patient=True)
    embedder = service.bind(Identity("tenant"))
    names = await offered(asked(text, tools=MANY), FilterTools(), embedder=embedder, runs_tools=True)
    assert least <= len(names) <= most
    await service.aclose()
