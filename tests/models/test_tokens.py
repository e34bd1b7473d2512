"""The token service: exact where rules are published, memoised by content and tenant, never in the way of others."""

import asyncio
import json
import logging
import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.chat import ChatRequest, Fields, Message, Tool
from proxy.context import Identity, ModelProfile, TokenCount
from proxy.models import Models, PriceList
from proxy.models.tokens import FRAMING, HIGHEST, INLINE_BYTES, LIMIT, PATIENCE, BoundTokens, Calibration, TokenService
from proxy.testing import chat, message, profile, tool
from tests.models.test_counting import ANYTHING, COOKBOOK, WEATHER, WEATHER_TALK, json_values

GPT4O = Models(PriceList(None)).resolve("gpt-4o")
GPT4 = Models(PriceList(None)).resolve("gpt-4")


class Spy:
    """An encoder that counts letters and remembers what it was asked, and in which thread."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.threads: set[str] = set()
        self.loads: list[str] = []

    def load(self, name: str) -> "Spy":
        self.loads.append(name)
        return self

    def __call__(self, text: str) -> int:
        self.texts.append(text)
        self.threads.add(threading.current_thread().name)
        return len(text)

    def asked(self) -> list[str]:
        texts, self.texts = self.texts, []
        self.threads.clear()
        return texts


@pytest.fixture
def spy() -> Spy:
    return Spy()


@pytest.fixture
def service(spy: Spy) -> Iterator[TokenService]:
    service = TokenService(load=spy.load)
    service.encoder("o200k_base")
    yield service
    service.close()


@pytest.fixture(scope="module")
def real() -> Iterator[TokenService]:
    service = TokenService()
    yield service
    service.close()


IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}


def request(messages: Sequence[dict[str, Any]], tools: list[dict[str, Any]] | None = None, **rest: Any) -> ChatRequest:
    """A request as the server parses it: every message with bytes of its own."""
    return ChatRequest(
        "gpt-4o",
        tuple(Message(item, json.dumps(item).encode()) for item in messages),
        tuple(Tool(item, json.dumps(item).encode()) for item in tools or ()),
        Fields(rest),
    )


@pytest.mark.parametrize(("model", "messages", "tools", "billed"), [
    pytest.param(GPT4, COOKBOOK, [], 129, id="a conversation, gpt-4"),
    pytest.param(GPT4O, COOKBOOK, [], 124, id="a conversation, gpt-4o"),
    pytest.param(GPT4, WEATHER_TALK, [WEATHER], 105, id="a tool, gpt-4"),
    pytest.param(GPT4O, WEATHER_TALK, [WEATHER], 101, id="a tool, gpt-4o"),
])  # fmt: skip
async def test_it_counts_what_openai_billed(
    model: ModelProfile, messages: list[Any], tools: list[Any], billed: int, real: TokenService
) -> None:
    count = await real.bind(Identity("t"), model).count(request(messages, tools))
    assert (count.total, count.exact) == (billed, True)


async def test_sections_add_up_to_the_sizes(service: TokenService) -> None:
    asked = chat("s d u1 a1! t1 a2 u2", tools=[tool("x"), tool("y")])
    bound = service.bind(Identity("t"), GPT4O)
    count, sizes = await bound.count(asked), await bound.sizes(asked.messages)
    assert count.system == sizes[0] + sizes[1]
    assert count.messages == sum(sizes[2:]) + 3
    assert count.tools == sum(await bound.tool_sizes(asked.tools)) + 12
    assert count.total == count.system + count.messages + count.tools
    assert await bound.count(request([])) == TokenCount(0, 0, 3, exact=True), "the reply alone"


@pytest.mark.parametrize(("rest", "tools"), [
    ({"functions": [{"name": "f", "description": "d"}]}, 7 + 3 + 12),
    ({"functions": "odd", "response_format": "odd"}, 0),
    ({"response_format": {"type": "json_object"}}, 0),
    ({"response_format": {"type": "json_schema", "json_schema": {"a": 1}}}, 8 + len('{"schema":{"a":1}}') + 12),
])  # fmt: skip
async def test_deprecated_functions_and_answer_schemas_count_as_tools(
    rest: dict[str, Any], tools: int, service: TokenService
) -> None:
    assert (await service.bind(Identity("t"), GPT4O).count(request([], **rest))).tools == tools


@pytest.mark.parametrize(("asked", "exact"), [
    (chat("s u1 a1 u2"), True),
    (chat("u1", tools=[tool()]), False),
    (chat("u1 a1! t1"), False),
    (request([IMAGE]), False),
])  # fmt: skip
async def test_it_says_where_it_estimates(asked: ChatRequest, exact: bool, service: TokenService) -> None:
    assert (await service.bind(Identity("t"), GPT4O).count(asked)).exact is exact


async def test_another_familys_factor_scales_text_but_not_images(service: TokenService) -> None:
    words = request([{"role": "user", "content": "x" * 93}])
    image = {"type": "image_url", "image_url": {"url": "https://example.org"}}
    plain = service.bind(Identity("t"), replace(GPT4O, name="claude-3-opus"))
    scaled = service.bind(Identity("t"), replace(GPT4O, name="claude-3-opus", factor=1.2, exact=False))
    assert await scaled.sizes(words.messages) == (120,)
    seen = request([{"role": "user", "content": [image]}]).messages
    (before,), (after,) = await plain.sizes(seen), await scaled.sizes(seen)
    assert after - before == round(7 * 0.2)
    assert not (await scaled.count(words)).exact


def talk(turns: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"turn {index}"} for index in range(turns)]


async def test_a_second_request_counts_only_what_is_new_and_sizes_share_it(service: TokenService, spy: Spy) -> None:
    await service.bind(Identity("t"), GPT4O).count(request(talk(400), [WEATHER]))
    spy.asked()
    await service.bind(Identity("t"), GPT4O).count(request(talk(401), [WEATHER]))
    assert spy.asked() == ["user", "turn 400"]
    bound, asked = service.bind(Identity("t"), GPT4O), request(talk(3), [WEATHER])
    await bound.count(asked)
    spy.asked()
    await bound.sizes(asked.messages[1:])
    await bound.tool_sizes(asked.tools)
    await bound.count(asked.with_tools(()))
    assert spy.asked() == []


DATED = replace(GPT4O, name="gpt-4o-2024-08-06", encoding="o200k_harmony")


@pytest.mark.parametrize(("model", "tenant", "is_shared"), [
    pytest.param(GPT4O, "other", False, id="another tenant's"),
    pytest.param(replace(GPT4O, name="claude-3-opus"), "t", False, id="another family's"),
    pytest.param(replace(GPT4O, encoding="cl100k_base"), "t", False, id="another encoding's"),
    pytest.param(DATED, "t", True, id="those of a dated model and of harmony are"),
])  # fmt: skip
async def test_some_counts_are_not_shared(
    model: ModelProfile, tenant: str, is_shared: bool, service: TokenService, spy: Spy
) -> None:
    await service.bind(Identity("t"), GPT4O).count(request(talk(2)))
    spy.asked()
    await service.bind(Identity(tenant), model).count(request(talk(2)))
    assert spy.asked() == ([] if is_shared else ["user", "turn 0", "user", "turn 1"])
    assert not is_shared or spy.loads == ["o200k_base"]


async def test_a_tool_is_not_mistaken_for_a_message(service: TokenService) -> None:
    same = {"role": "user", "content": "x"}
    bound = service.bind(Identity("t"), GPT4O)
    assert await bound.sizes([Message(same)]) != await bound.tool_sizes([Tool(same)])


@pytest.mark.parametrize(("letters", "elsewhere"), [(100, False), (INLINE_BYTES + 1, True)])
async def test_much_text_is_counted_in_a_thread(letters: int, elsewhere: bool, service: TokenService, spy: Spy) -> None:
    await service.bind(Identity("t"), GPT4O).count(request([{"role": "user", "content": "x" * letters}]))
    assert all(name.startswith("penstock-tokens") for name in spy.threads) is elsewhere


async def test_what_a_cancelled_request_counted_is_kept() -> None:
    spy, begun, may_end = Spy(), threading.Event(), threading.Event()

    def slow(text: str) -> int:
        begun.set()
        may_end.wait(60)
        return spy(text)

    service = TokenService(load=lambda name: slow)
    counting = asyncio.create_task(service.bind(Identity("t"), GPT4O).count(request(talk(1))))
    await asyncio.to_thread(begun.wait, 60)
    counting.cancel()
    await asyncio.gather(counting, return_exceptions=True)
    may_end.set()
    await service.run("t", 0, list)
    await asyncio.sleep(0.05)
    spy.asked()
    await service.bind(Identity("t"), GPT4O).count(request(talk(1)))
    service.close()
    assert spy.asked() == []


async def test_counting_does_not_wait_for_another_vocabulary() -> None:
    may_end = threading.Event()

    def load(name: str) -> Spy:
        if name == "cl100k_base":
            may_end.wait(60)
        return Spy()

    service = TokenService(load=load)
    await service.warm(["o200k_base"])
    loading = asyncio.create_task(service.warm(["cl100k_base"]))
    await asyncio.sleep(0.05)
    await asyncio.wait_for(service.bind(Identity("t"), GPT4O).count(request(talk(1))), 60)
    assert not loading.done()
    may_end.set()
    await loading
    service.close()


async def test_vocabularies_are_loaded_once_in_a_thread() -> None:
    spy = Spy()
    loaders: set[str] = set()

    def load(name: str) -> Spy:
        loaders.add(threading.current_thread().name)
        time.sleep(0.05)
        return spy.load(name)

    service = TokenService(load=load)
    await asyncio.gather(*(service.bind(Identity(f"t{index}"), GPT4O).count(request(talk(1))) for index in range(8)))
    await service.warm(["o200k_base", "o200k_harmony"])
    service.close()
    assert spy.loads == ["o200k_base"]
    assert all(name.startswith("penstock-tokens") for name in loaders)


@pytest.mark.parametrize("content", [None, "{"])
async def test_a_tokenizer_that_cannot_be_read_is_said_once_and_never_fails_a_request(
    content: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service, file = TokenService(), tmp_path / "tokenizer.json"
    if content is not None:
        file.write_text(content)
    model = profile(encoding=str(file), exact=True)
    with caplog.at_level(logging.WARNING, "penstock.tokens"):
        counts = [await service.bind(Identity("t"), model).count(request(talk(turns))) for turns in (1, 2, 3)]
    service.close()
    assert not any(count.exact for count in counts)
    assert counts[0].messages == 3 + (3 + 1 + 2) + 0
    assert str(file) in service.failed
    assert len(caplog.records) == 1


async def use(service: TokenService, model: ModelProfile, asked: ChatRequest, ratio: float, times: int) -> list[int]:
    totals = []
    for _ in range(times):
        bound = service.bind(Identity("t"), model)
        count = await bound.count(asked)
        totals.append(count.total)
        bound.observe(asked, count, round(totals[0] * ratio))
    return totals


LONG = request([{"role": "user", "content": "x" * 5000}])
GUESSED = profile(exact=False)
MANY = 2**20


async def test_a_request_is_measured_by_one_rule_however_long_it_takes(service: TokenService) -> None:
    early = service.bind(Identity("t"), GUESSED)
    await use(service, GUESSED, LONG, 1.5, 20)
    assert (await early.count(LONG)).total == 5010
    assert (await service.bind(Identity("t"), GUESSED).count(LONG)).total > 7000
    assert (await service.bind(Identity("other"), GUESSED).count(LONG)).total == 5010


class Kept(dict[str, str]):
    """The decisions of one conversation, as all replicas see them."""

    async def known(self, keys: Sequence[str]) -> Sequence[str | None]:
        return [self.get(key) for key in keys]

    async def settle(self, key: str, value: str) -> str:
        return self.setdefault(key, value)


async def test_a_conversation_is_counted_as_it_began_whatever_is_learned_meanwhile_or_by_other_replicas(
    service: TokenService, spy: Spy
) -> None:
    begun, replica = Kept(), TokenService(load=lambda name: spy)

    async def total(memo: Kept, by: TokenService = service) -> int:
        return (await (await by.bind_conversation(Identity("t"), GUESSED, memo, MANY)).count(LONG)).total

    first = await total(begun)
    await use(service, GUESSED, LONG, 1.15, 20)
    assert await total(begun) == first == await total(begun, replica)
    later = Kept()
    assert await total(later) > first, "a conversation that begins now has what was learned"
    assert await total(later, replica) == await total(later), "as has a process that has learned nothing"
    replica.close()


async def test_a_conversation_takes_a_correction_that_is_much_higher_or_that_a_refusal_taught(
    service: TokenService,
) -> None:
    async def bound(memo: Kept) -> BoundTokens:
        return await service.bind_conversation(Identity("t"), GUESSED, memo, MANY)

    begun, other = Kept(), Kept()
    first = await bound(begun)
    await bound(other)
    count = await first.count(LONG)
    first.refused(count, round(count.total * 1.1))
    assert (await bound(begun)).ratio == 1.1
    await use(service, GUESSED, LONG, 1.6, 40)
    assert (await bound(begun)).ratio == pytest.approx(1.6, abs=0.1)
    assert (await bound(other)).ratio == (await bound(begun)).ratio


async def test_a_refusal_counts_though_what_was_learned_says_as_much(service: TokenService) -> None:
    begun = Kept()
    first = await service.bind_conversation(Identity("t"), GUESSED, begun, MANY)
    count = await first.count(LONG)
    await use(service, GUESSED, LONG, 1.15, 20)
    assert (await service.bind_conversation(Identity("t"), GUESSED, begun, MANY)).ratio == 1.0
    first.refused(count, round(count.total * 1.12))
    assert (await service.bind_conversation(Identity("t"), GUESSED, begun, MANY)).ratio == 1.15


@pytest.mark.parametrize(("model", "asked"), [
    pytest.param(GPT4O, LONG, id="exact models"),
    pytest.param(GUESSED, request(talk(3)), id="small prompts"),
    pytest.param(GUESSED, request([*COOKBOOK * 20, IMAGE]), id="prompts with images"),
])  # fmt: skip
async def test_some_reports_teach_nothing(model: ModelProfile, asked: ChatRequest, service: TokenService) -> None:
    assert len(set(await use(service, model, asked, 1.5, 30))) == 1


async def test_a_refusal_disproves_a_count_by_published_rules(service: TokenService) -> None:
    bound = service.bind(Identity("t"), GPT4O)
    count = await bound.count(LONG)
    assert count.exact
    bound.refused(count, 2 * count.total)
    corrected = await service.bind(Identity("t"), GPT4O).count(LONG)
    assert corrected.total == pytest.approx(2 * count.total, rel=0.01)
    assert not corrected.exact
    assert (await service.bind(Identity("other"), GPT4O).count(LONG)).exact
    await use(service, GPT4O, LONG, 0.5, 40)
    taught = await service.bind(Identity("t"), GPT4O).count(LONG)
    assert taught.total == pytest.approx(count.total, rel=0.06), "answers teach again"


@ANYTHING
@given(
    st.lists(st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "name"]), json_values), max_size=4),
    st.lists(st.dictionaries(st.sampled_from(["type", "function", "custom"]), json_values), max_size=3),
    st.dictionaries(st.sampled_from(["functions", "response_format", "tool_choice"]), json_values),
)
def test_no_request_raises(messages: list[Any], tools: list[Any], rest: dict[str, Any]) -> None:
    service = TokenService(load=lambda name: len)
    asked = ChatRequest("m", tuple(map(Message, messages)), tuple(map(Tool, tools)), Fields(rest))
    count = asyncio.run(service.bind(Identity("t"), GPT4O).count(asked))
    service.close()
    assert count.total >= 3


async def test_messages_that_json_cannot_hold_are_counted(service: TokenService) -> None:
    odd = [Message({"role": "user", "content": "\ud83d"}), Message({"role": "user", "content": {1, 2}})]
    assert len(await service.bind(Identity("t"), GPT4O).sizes([*odd, message("u1")])) == 3


async def test_only_a_vocabulary_that_stands_in_needs_a_guess_of_digits(real: TokenService) -> None:
    asked = request([{"role": "user", "content": "1" * 300}])
    for encoding, (least, most) in {"chars": (0, 100), "o200k_base": (300, 400)}.items():
        count = await real.bind(Identity("t"), profile(encoding=encoding)).count(asked)
        assert least < count.total < most


KEY = ("tenant", "model")


def learned(*ratios: float, counted: int = 10_000) -> list[float]:
    calibration, found = Calibration(), []
    for ratio in ratios:
        calibration.observe(KEY, counted, round(counted * ratio))
        found.append(calibration.ratio(KEY))
    return found


@pytest.mark.parametrize(("ratio", "correction"), [
    (1.0, 1.0), (1.04, 1.0), (0.96, 1.0), (1.06, 1.05), (0.9, 0.9), (1.5, 1.5), (2.0, 2.0), (0.5, 0.5),
    *((no_tokenizers, 1.0) for no_tokenizers in (0.0, 0.1, HIGHEST + 0.1, 50)),
])  # fmt: skip
def test_it_is_a_multiple_of_a_twentieth_and_ignores_less(ratio: float, correction: float) -> None:
    assert learned(*[ratio] * 50)[-1] == correction


def test_eight_requests_move_it_and_a_count_that_is_far_too_low_does_at_once() -> None:
    assert learned(*[1.2] * (PATIENCE + 1)) == [1.0] * (PATIENCE - 1) + [1.2, 1.2]
    assert learned(1.6) == [1.6]
    assert learned(0.7) == [1.0], "too high is not urgent"


@pytest.mark.parametrize("counted", [200, 500, 5000])
def test_only_a_much_larger_prompt_moves_it_at_once_again(counted: int) -> None:
    calibration = Calibration()
    calibration.observe(KEY, counted, counted)
    calibration.observe(KEY, counted * 2, round(counted * 2 * 1.6))
    assert calibration.ratio(KEY) == 1.0, "not so much larger"
    calibration.observe(KEY, counted * 5, round(counted * 5 * 1.6))
    assert calibration.ratio(KEY) > 1.5


@pytest.mark.parametrize(("least", "ratio"), [(1100, 1.1), (1101, 1.15), (2324, 2.35), (9000, HIGHEST), (900, 1.0)])
def test_a_refusal_moves_it_at_once_and_only_up(least: int, ratio: float) -> None:
    calibration = Calibration()
    calibration.refused(KEY, 1000, least)
    assert calibration.ratio(KEY) == ratio
    calibration.refused(KEY, 1000, 1000)
    assert calibration.ratio(KEY) == ratio


def test_it_neither_jitters_nor_follows_a_lasting_change_at_once() -> None:
    dice = random.Random(3)
    found = learned(*(1.2 + dice.uniform(-0.1, 0.1) for _ in range(1000)))
    assert sum(before != after for before, after in pairwise(found)) <= 2
    assert found[-1] in (1.15, 1.2, 1.25)
    found = learned(*[1.0] * 50, *[1.3] * 60)
    assert found[50] == 1.0
    assert found[-1] in (1.25, 1.3)
    assert len(set(found)) <= 6


@pytest.mark.parametrize(("counted", "ratio"), [(40, 1.0), (100, 1.35), (900, 1.65), (9000, 1.7)])
def test_small_prompts_teach_less_because_of_their_framing(counted: int, ratio: float) -> None:
    assert learned(1.7, counted=counted)[-1] == pytest.approx(ratio, abs=0.051)
    assert learned(1 + FRAMING / counted, counted=counted)[-1] == 1.0


def test_keys_do_not_mix_and_are_bounded() -> None:
    calibration = Calibration()
    for _ in range(PATIENCE):
        calibration.observe(KEY, 10_000, 15_000)
    assert calibration.ratio(KEY) == 1.5
    assert calibration.ratio(("other", "model")) == 1.0
    for index in range(LIMIT):
        calibration.observe((str(index),), 10_000, 10_000)
    assert calibration.ratio(KEY) == 1.0
