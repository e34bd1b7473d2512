"""What requests cost with their chain and without it, followed through the provider's cache."""

from dataclasses import replace
from math import ceil

import pytest

from proxy.chat import ChatRequest, Message
from proxy.context import CacheRules, ModelProfile, Prices
from proxy.step import Step
from proxy.telemetry.bill import Bills, Effect, Estimate
from proxy.testing import chat, context, profile

FIVE_MINUTES = CacheRules(read=0.1, write=1.25, minimum=1024, ttl=300)
MODEL = profile(prices=Prices(5.0, 25.0), cache=FIVE_MINUTES)


def talk(*sizes: int) -> ChatRequest:
    """A conversation in which user and assistant take turns; each message has about so many words, and more tokens."""
    made = ((("user", "assistant")[place % 2], f"{place} " + "word " * size) for place, size in enumerate(sizes))
    return chat("u").with_messages(Message({"role": role, "content": text}) for role, text in made)


class Conversation:
    """A conversation whose requests are estimated one after the other."""

    def __init__(self, model: ModelProfile = MODEL, most: int = 2**20) -> None:
        self.model, self.now = model, 1000.0
        self.bills = Bills(most, lambda: self.now)

    async def turn(self, came: ChatRequest, sent: ChatRequest | None = None, who: str = "t") -> Estimate:
        sent = sent or came
        found = await self.bills.estimate((who, "m"), came, sent, self.model, context(came, model=self.model).tokens)
        self.bills.sent(found)
        return found


def marked(request: ChatRequest, *places: int, text: bool = False) -> ChatRequest:
    """The request with marks of the client's; its texts are parts also where they have none, if not `text`."""

    def written(place: int, message: Message) -> Message:
        mark = {"cache_control": {"type": "ephemeral"}} if place in places else {}
        parts = [{"type": "text", "text": message.text, **mark}]
        return message if text and not mark else message.with_changes(content=parts)

    return request.with_messages([written(*each) for each in enumerate(request.messages)])


@pytest.mark.parametrize("text", [False, True])
async def test_marks_that_a_client_moves_break_no_prefix(text: bool) -> None:
    talking = Conversation(profile(prices=Prices(5.0, 25.0), cache=replace(FIVE_MINUTES, marked=True)))
    first = await talking.turn(marked(talk(3000, 500, 20), 0, 2, text=text))
    second = await talking.turn(marked(talk(3000, 500, 20, 500, 20), 2, 4, text=text))

    assert second.changed(0) is None
    assert second.sent.cached > 0.99 * first.sent.tokens


@pytest.mark.parametrize(("seen", "most", "is_known"), [
    pytest.param([talk(3000)], 2**20, True, id="this process sent the request before"),
    pytest.param([talk(3000), talk(2000), talk(1500)], 2**20, True, id="others were sent after it"),
    pytest.param([], 2**20, False, id="another process did"),
    pytest.param([talk(3000)], 1, False, id="it was forgotten"),
])  # fmt: skip
async def test_of_one_that_began_elsewhere_nothing_is_told(seen: list[ChatRequest], most: int, is_known: bool) -> None:
    talking = Conversation(most=most)
    for request in seen:
        await talking.turn(request)
    estimate = await talking.turn(talk(3000, 500, 20))

    assert (estimate.usd_unchanged is not None) is is_known
    assert (estimate.usd_saved is not None) is is_known


async def test_a_prompt_above_the_step_and_rounds_of_tools_are_part_of_the_cost() -> None:
    model = profile(prices=Prices(1.0, 2.0, 2000, 3.0, 4.0), cache=CacheRules())
    estimate = await Conversation(model).turn(talk(3000), talk(1500))

    assert estimate.usd == pytest.approx(1e-6 * estimate.sent.tokens)
    assert estimate.usd_unchanged == pytest.approx(6 * estimate.usd, rel=0.01)
    talking = Conversation()
    estimate = await talking.turn(talk(3000))
    once, unchanged = estimate.usd, estimate.usd_unchanged
    estimate.rounds = 3
    assert estimate.usd == pytest.approx(once + 2 * 5e-6 * 0.1 * estimate.sent.tokens)
    assert estimate.usd_unchanged == unchanged


class Chain(Conversation):
    """A conversation whose steps are priced too."""

    async def runs(
        self, came: ChatRequest, *left: ChatRequest | None, given: ChatRequest | None = None
    ) -> list[Effect]:
        """What steps are worth that left these requests; None for one that kept what it was given."""
        given = given or came
        named = [(f"step{place}", each) for place, each in enumerate(left)]
        steps = [Step(name, "rewrite" if each else "keep", "", 0.0, 0.0) for name, each in named]
        stages = [(name, each) for name, each in named if each is not None]
        estimate = await self.turn(came, stages[-1][1] if stages else given)
        tokens = context(came, model=self.model).tokens
        found = list(await self.bills.effects(estimate, given, stages, steps, tokens))
        if estimate.usd_saved is not None and given is came and None not in found[0]:
            assert sum(each.usd_saved or 0.0 for each in found) == pytest.approx(estimate.usd_saved, abs=1e-8)
        return found


def cut(request: ChatRequest, first: int) -> ChatRequest:
    return request.with_messages(request.messages[first:])


def saved(found: list[Effect]) -> list[float]:
    return [each.net_tokens or 0.0 for each in found]


async def test_each_step_is_charged_for_what_it_breaks_itself() -> None:
    """The first step is steady; the second cuts in the third turn, and every turn after it is cheaper."""
    talking, sizes, effects = Chain(), [3000], list[list[Effect]]()
    for turn in range(6):
        came = talk(*sizes)
        steady = came.with_messages([Message({"role": "user", "content": "short"}), *came.messages[1:]])
        effects.append(await talking.runs(came, steady, cut(steady, 2) if turn > 1 else None))
        sizes += [500, 1500]
    first, second = zip(*map(saved, effects), strict=True)

    assert first[0] == pytest.approx(1.25 * 3750, rel=0.1)
    assert first[2:] == pytest.approx([first[0] / 1.25 * 0.1] * 4, rel=0.1)
    assert second[:2] == (0, 0)
    assert second[2] < 0 < second[3]
    assert [found[1].pays_after for found in effects] == [0, 0, ceil(-second[2] / second[3]), 0, 0, 0]


async def test_a_step_that_no_longer_does_what_it_did_is_charged_for_that() -> None:
    talking = Chain()
    first = talk(6000)
    (before, _) = await talking.runs(first, first.with_messages([Message({"role": "user", "content": "short"})]), None)
    (after, other) = await talking.runs(talk(6000, 500, 20), None, None)
    assert saved([before])[0] > 6000
    assert saved([after])[0] < -6000
    assert after.pays_after is None
    assert other == Effect(0, 0, 0)


async def test_what_only_adds_or_is_no_longer_there_never_pays() -> None:
    talking, came = Chain(), talk(3000)
    added = came.with_messages([*came.messages, Message({"role": "user", "content": "more " * 100})])
    (found,) = await talking.runs(came, added)
    assert saved([found])[0] < -100
    assert found.pays_after is None
    talking, came = Chain(), talk(3000, 500, 2000)
    await talking.runs(came, cut(came, 1))
    after = await talking.turn(talk(3000, 500, 2000, 500, 20))
    assert (after.changed(0) or {})["step"] == "step0"


async def test_nothing_is_charged_to_a_step_for_what_was_put_back_or_not_priced() -> None:
    talking = Chain()
    await talking.turn(talk(3000))
    came = talk(3000, 500, 20)
    assert await talking.runs(came, cut(came, 1), None) == [Effect(), Effect()]
    came = talk(3000, 500, 20, 500, 20)
    assert Effect() not in await talking.runs(came, cut(came, 1), None)
    talking = Chain()
    await talking.runs(talk(3000), None, None)
    came = talk(3000, 500, 20)
    rounds = [Message({"role": "assistant", "content": "a call"}), Message({"role": "user", "content": "found " * 500})]
    given = came.with_messages([*came.messages[:1], *rounds, *came.messages[1:]])
    assert await talking.runs(came, None, None, given=given) == [Effect(0, 0, 0)] * 2


async def test_a_step_that_observes_costs_nothing_and_one_that_is_not_told_apart_is_not_known() -> None:
    talking, came = Chain(), talk(3000)
    estimate, tokens = await talking.turn(came), context(came).tokens
    steps = [Step("a", "rewrite", "", 0.0, 0.0, observed=True), Step("b", "keep", "", 0.0, 0.0)]
    assert await talking.bills.effects(estimate, came, (), steps, tokens) == [Effect(), Effect(0, 0, 0)]
    assert await talking.bills.effects(estimate, None, (), steps, tokens) == [Effect(), Effect()]
