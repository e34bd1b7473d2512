"""Where marking an older statement costs nothing: behind a cut, and when the provider's cache is cold."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.compress_history import CompressHistory
from policies.resolve_clashes import ResolveClashes
from proxy.chat import ChatRequest, Message
from proxy.context import CacheRules, Context, Identity
from proxy.gateway.chain import run
from proxy.policy import Rewrite
from proxy.state.decisions import Memos
from proxy.state.store import MemoryStore, Store
from proxy.testing import context, profile
from tests.talk import assistant, user

CACHE = CacheRules(read=0.1, write=1.25, minimum=1024, ttl=300)
NOON = 43_200.0
FILLER = (user("Tell me about rivers. " + "x" * 9000), assistant("There are many."))
OLD, NEW = user("I live in Leeds."), user("Good news: we moved to Cardiff.")
TALK = (*FILLER, OLD, assistant("Noted."), NEW)
SUMMARY = (
    Message({"role": "user", "content": "<summary>" + "z" * 5000}),
    assistant("Ok."),
)


class Sent(NamedTuple):
    given: Sequence[Message]
    """What an earlier step has made of the conversation."""
    messages: Sequence[Message]


async def sent(talk: Sequence[Message], store: Store | None, *, cut: int = 0, now: float = NOON) -> Sent:
    """What one of many replicas sends; with `cut`, a summary stands for so many messages."""
    incoming = ChatRequest("test-model", tuple(talk))
    given = incoming.with_messages([*SUMMARY, *talk[cut:]]) if cut else incoming
    memo = None if store is None else Memos(store, ttl=10**6).bind(Identity("tenant", "session"))
    ctx = context(incoming, model=profile(10**6, cache=CACHE), memo=memo, now=now)
    decision = await ResolveClashes().apply(given, ctx)
    return Sent(given.messages, decision.request.messages if isinstance(decision, Rewrite) else given.messages)


def marked(messages: Sequence[Message]) -> list[str]:
    return [message.text.partition("\n")[0] for message in messages if "[Penstock: this is superseded" in message.text]


def lines(messages: Sequence[Message]) -> int:
    return sum(message.text.startswith("[Penstock: ") for message in messages)


def more(talk: Sequence[Message], said: str = "Go on.") -> tuple[Message, ...]:
    return (*talk, assistant("Fine."), user(said))


LONG = (user("And lakes? " + "y" * 9000), assistant("Many too."))


async def test_behind_a_cut_the_older_statement_is_marked_and_stays_so() -> None:
    store, talk = MemoryStore(10**7), (*FILLER, *LONG, *TALK[2:])
    before = await sent(talk, store)
    assert (marked(before.messages), lines(before.messages)) == ([], 1)
    after = await sent(more(talk), store, cut=2)
    assert (marked(after.messages), lines(after.messages)) == ([OLD.text], 0)
    later = await sent(more(more(talk)), store, cut=2)
    assert list(later.messages[: len(after.messages)]) == list(after.messages)


async def test_a_clash_that_comes_behind_the_cut_gets_its_line_and_a_mark_at_the_next_cut() -> None:
    store, talk = MemoryStore(10**7), (*FILLER, *LONG, *LONG, OLD, assistant("Noted."), user("Hello."))
    await sent(talk, store, cut=2)
    after = await sent(more(talk, NEW.text), store, cut=2)
    assert (marked(after.messages), lines(after.messages)) == ([], 1)
    again = await sent(more(more(talk, NEW.text)), store, cut=4)
    assert (marked(again.messages), lines(again.messages)) == ([OLD.text], 0)


async def test_after_a_pause_the_older_statement_is_marked_and_stays_so() -> None:
    store = MemoryStore(10**7)
    before = await sent(TALK, store)
    assert (marked(before.messages), lines(before.messages)) == ([], 1)
    cold = await sent(more(TALK), store, now=NOON + 3600)
    assert (marked(cold.messages), lines(cold.messages)) == ([OLD.text], 0)
    warm = await sent(more(more(TALK)), store, now=NOON + 3660)
    assert list(warm.messages[: len(cold.messages)]) == list(cold.messages)


async def test_what_is_said_anew_after_a_pause_is_marked_at_once() -> None:
    store = MemoryStore(10**7)
    await sent(TALK[:3], store)
    cold = await sent(TALK, store, now=NOON + 3600)
    assert (marked(cold.messages), lines(cold.messages)) == ([OLD.text], 0)


async def test_what_changes_after_the_pause_is_told_by_a_line() -> None:
    store = MemoryStore(10**7)
    await sent(TALK, store)
    await sent(more(TALK), store, now=NOON + 3600)
    warm = await sent(more(more(TALK), "Now I live in Swansea."), store, now=NOON + 3660)
    assert (marked(warm.messages), lines(warm.messages)) == ([OLD.text], 1)


async def test_a_statement_too_long_for_a_line_is_marked_when_that_is_free() -> None:
    old = user(f"I live in Leeds {'near the river and the market and the mill ' * 4}with my family.")
    store, talk = MemoryStore(10**7), (*FILLER, old, assistant("Noted."), NEW)
    before = await sent(talk, store)
    assert before.messages == before.given
    assert marked((await sent(more(talk), store, now=NOON + 3600)).messages) == [old.text]


async def test_without_a_memo_the_line_stays_whatever_happens() -> None:
    talk = (*FILLER, *LONG, *TALK[2:])
    for cut, now in ((0, NOON), (2, NOON), (2, NOON + 3600)):
        messages = (await sent(more(talk), None, cut=cut, now=now)).messages
        assert (marked(messages), lines(messages)) == ([], 1)


async def test_a_memo_that_was_lost_costs_the_cache_and_nothing_else() -> None:
    store = MemoryStore(10**7)
    await sent(TALK, store)
    await sent(more(TALK), store, now=NOON + 3600)
    after = await sent(more(more(TALK)), MemoryStore(10**7), now=NOON + 3660)
    assert (marked(after.messages), lines(after.messages)) == ([], 1)
    given = set(map(id, after.given))
    assert [message for message in after.messages if id(message) in given] == list(after.given)


@pytest.mark.parametrize("older", ["keep", "mark"])
async def test_settings_that_demand_one_way_need_no_memo(older: str) -> None:
    class Refusing:
        async def known(self, keys: Sequence[str]) -> Sequence[str | None]:
            raise AssertionError

        async def settle(self, key: str, value: str) -> str:
            raise AssertionError

    request = ChatRequest("test-model", TALK)
    ctx = context(request, model=profile(10**6, cache=CACHE), memo=Refusing(), now=NOON)
    assert isinstance(await ResolveClashes.model_validate({"older": older}).apply(request, ctx), Rewrite)


@pytest.mark.parametrize("remembers", [True, False])
async def test_behind_a_cut_of_the_history_in_a_chain(remembers: bool) -> None:
    store, system = MemoryStore(10**7), Message({"role": "system", "content": "s" * 5000})
    chain = [("compress_history", CompressHistory()), ("resolve_clashes", ResolveClashes())]
    talk: list[Message] = [system, *FILLER, *LONG, *LONG, OLD, assistant("Noted."), NEW]
    texts: list[list[Message]] = []
    for at in range(4):
        request = ChatRequest("test-model", tuple(talk))
        memo = Memos(store, ttl=10**6).bind(Identity("tenant", "session")) if remembers else None
        ctx: Context = context(request, model=profile(11_000, cache=CACHE), memo=memo, now=NOON + 60 * at)
        texts.append(list((await run(chain, ctx, strict=True)).request.messages))
        talk += [assistant("Fine. " + "z" * 3000), user(f"Go on, {at}.")]
    assert len(texts[1]) < len(texts[0]), "the second request is cut"
    assert [lines(each) for each in texts] == ([1, 0, 0, 0] if remembers else [1, 1, 1, 1])
    assert [marked(each) for each in texts[1:]] == [[OLD.text] if remembers else []] * 3
    assert texts[2][: len(texts[1])] == texts[1]
    assert texts[3][: len(texts[2])] == texts[2]


# --- bytes that were sent -----------------------------------------------------------------------------------------------

SAYINGS = (
    "I live in Leeds.",
    "I moved to Cardiff.",
    "Now I live in Swansea.",
    "My budget is 500 euros.",
    "Make my budget 700 euros.",
    "My budget is 900 euros.",
    "I don't like tea.",
    "I like tea.",
    "Hello there.",
    FILLER[0].text,
)


class Turn(NamedTuple):
    said: str
    pause: int
    """Minutes since the turn before."""
    cut: bool
    """Whether an earlier step cuts the history now."""


TURNS = st.builds(Turn, st.sampled_from(SAYINGS), st.sampled_from([0, 1, 1, 4, 30]), st.integers(0, 4).map(bool))


@settings(max_examples=50, deadline=None)
@given(turns=st.lists(TURNS, min_size=2, max_size=12))
async def test_bytes_once_sent_change_only_behind_what_an_earlier_step_changed_or_when_cold(turns: list[Turn]) -> None:
    store, now, cut = MemoryStore(10**7), NOON, 0
    talk: list[Message] = list(FILLER)
    last: Sent | None = None
    for turn in turns:
        talk.append(user(turn.said))
        now += 60.0 * turn.pause
        cut = len(talk) // 4 * 2 if turn.cut else cut
        this = await sent(talk, store, cut=cut, now=now)
        if last is not None and turn.pause < 30:
            kept = _sent_for(last, _common(last.given, this.given))
            assert list(this.messages[: len(kept)]) == kept
        assert await sent(talk, store, cut=cut, now=now + 7200) == this, "the same request again"
        talk.append(assistant("Noted."))
        last = this


def _common(before: Sequence[Message], after: Sequence[Message]) -> int:
    """How many messages two requests have in common at their beginning."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((place for place, (one, other) in pairs if one is not other), min(len(before), len(after)))


def _sent_for(request: Sent, count: int) -> list[Message]:
    """What was sent for so many messages of a request."""
    found: list[Message] = []
    left, messages = count, iter(request.messages)
    while left:
        message = next(messages)
        found.append(message)
        if not message.text.startswith("[Penstock: "):
            left -= 1
    return found
