"""What requests cost with their chain and without it, followed through the provider's cache."""

import pytest

from proxy.chat import ChatRequest, Message
from proxy.context import CacheRules, ModelProfile, Prices
from proxy.telemetry.bill import Bills, Estimate
from proxy.testing import chat, context, profile

FIVE_MINUTES = CacheRules(read=0.1, write=1.25, minimum=1024, ttl=300)
MODEL = profile(prices=Prices(5.0, 25.0), cache=FIVE_MINUTES)


def talk(*sizes: int) -> ChatRequest:
    """A conversation in which user and assistant take turns; each message has about so many words, and more tokens."""
    roles = ("user", "assistant")
    messages = [
        Message({"role": roles[place % 2], "content": f"{place} " + "word " * size}) for place, size in enumerate(sizes)
    ]
    return chat("u").with_messages(messages)


class Conversation:
    """A conversation whose requests are estimated one after the other."""

    def __init__(self, model: ModelProfile = MODEL, most: int = 10_000) -> None:
        self.model, self.now = model, 1000.0
        self.bills = Bills(most, lambda: self.now)

    async def turn(self, came: ChatRequest, sent: ChatRequest | None = None) -> Estimate:
        sent = sent or came
        found = await self.bills.estimate("t/m", came, sent, self.model, context(came, model=self.model).tokens)
        assert found is not None
        self.bills.sent(found)
        return found


async def test_an_unchanged_conversation_is_read_from_the_cache_and_saves_nothing() -> None:
    talking = Conversation()
    first = await talking.turn(talk(3000))
    second = await talking.turn(talk(3000, 500, 20))

    assert (first.cached, first.usd_saved, second.usd_saved) == (0, 0, 0)
    assert second.cached == first.tokens
    fresh = second.tokens - first.tokens
    assert second.usd == pytest.approx(5e-6 * (0.1 * first.tokens + 1.25 * fresh))


async def test_what_breaks_the_cache_is_charged_for_it() -> None:
    """The chain drops the oldest turns each time: nearly half the tokens leave, and little is read from the cache."""
    talking, sizes, saved, sent_tokens, all_tokens = Conversation(), [500] * 5, 0.0, 0, 0
    for _ in range(8):
        came = talk(*sizes)
        estimate = await talking.turn(came, came.with_messages(came.messages[len(sizes) - 5 :]))
        sent_tokens += estimate.tokens
        all_tokens += sum(await context(came, model=MODEL).tokens.sizes(came.messages))
        saved += estimate.usd_saved or 0.0
        sizes += [500, 500]

    assert sent_tokens < 0.6 * all_tokens
    assert saved < 0


async def test_what_was_removed_early_is_saved_at_the_price_of_the_cache() -> None:
    talking = Conversation()
    first = await talking.turn(talk(9000), talk(2000))
    second = await talking.turn(talk(9000, 500, 20), talk(2000, 500, 20))

    assert first.usd_saved is not None
    assert second.usd_saved == pytest.approx(first.usd_saved / 1.25 * 0.1)


async def test_after_the_caches_lifetime_all_is_written_anew() -> None:
    talking = Conversation()
    await talking.turn(talk(3000))
    talking.now += 301
    second = await talking.turn(talk(3000, 500, 20))

    assert (second.cached, second.usd_saved) == (0, 0)
    assert second.usd == pytest.approx(5e-6 * 1.25 * second.tokens)


@pytest.mark.parametrize(
    ("seen", "is_known"),
    [
        pytest.param([talk(3000)], True, id="this process sent the request before"),
        pytest.param([], False, id="another process did"),
        pytest.param([talk(3000), talk(2000), talk(1500)], False, id="it was forgotten"),
    ],
)
async def test_of_a_conversation_that_began_elsewhere_nothing_is_told(seen: list[ChatRequest], is_known: bool) -> None:
    talking = Conversation(most=4)
    for request in seen:
        await talking.turn(request)
    estimate = await talking.turn(talk(3000, 500, 20))

    assert (estimate.usd_unchanged is not None) is is_known
    assert (estimate.usd_saved is not None) is is_known


async def test_a_prompt_above_the_step_costs_the_price_above_it() -> None:
    model = profile(prices=Prices(1.0, 2.0, 2000, 3.0, 4.0), cache=CacheRules())
    estimate = await Conversation(model).turn(talk(3000), talk(1500))

    assert estimate.usd == pytest.approx(1e-6 * estimate.tokens)
    assert estimate.usd_unchanged == pytest.approx(6 * estimate.usd, rel=0.01)


async def test_without_prices_there_is_no_bill() -> None:
    request = talk(10)
    assert await Bills().estimate("t/m", request, request, profile(), context(request).tokens) is None


async def test_rounds_of_internal_tools_are_part_of_what_the_chain_costs() -> None:
    talking = Conversation()
    estimate = await talking.turn(talk(3000))

    assert estimate.after(1) == estimate
    assert estimate.after(3).usd == pytest.approx(estimate.usd + 2 * 5e-6 * 0.1 * estimate.tokens)
    assert estimate.after(3).usd_unchanged == estimate.usd_unchanged
