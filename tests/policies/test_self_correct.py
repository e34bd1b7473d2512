"""Notes about earlier answers: where they stand, and that they stay there."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from policies.self_correct import SelfCorrect
from proxy.chat import ChatRequest
from proxy.chat.wire import damage
from proxy.context import Context, Correction
from proxy.policy import Keep, Rewrite
from proxy.testing import Example, MemoryMemo, chat, context
from tests.decisions import rewrite

EMPTY = Correction("empty-1", "An answer was empty.")
JSON = Correction("json-1", "An answer was no JSON.")


class Watched(MemoryMemo):
    """A memo that counts what it is asked; a blind one, as of another replica, had not seen the slot when it looked."""

    asked = 0
    is_blind = False

    async def known(self, keys: Sequence[str]) -> Sequence[str | None]:
        self.asked += len(keys)
        return [None] * len(keys) if self.is_blind else await super().known(keys)


class Pending:
    def __init__(self, *pending: Correction) -> None:
        self.notes = list(pending)

    async def pending(self, kinds: Collection[str]) -> Sequence[Correction]:
        return self.notes


async def forwarded(request: ChatRequest, memo: MemoryMemo, *pending: Correction) -> ChatRequest:
    decision = await SelfCorrect().apply(request, made(request, memo, *pending))
    if isinstance(decision, Rewrite):
        assert not damage(request, decision.request)
        return decision.request
    assert isinstance(decision, Keep)
    return request


def made(request: ChatRequest, memo: MemoryMemo, *pending: Correction) -> Context:
    return context(request, memo=memo, corrections=Pending(*pending))


EXAMPLES = [Example(made(chat("s u1 a1 u2 a2 u3"), MemoryMemo(), EMPTY))]


async def test_a_note_stands_in_front_of_the_last_user_message_or_nothing_changes() -> None:
    made = await forwarded(chat("s u1 a1 u2"), MemoryMemo(), EMPTY, JSON)
    note = made.messages[3]
    assert [message.role for message in made.messages] == ["system", "user", "assistant", "user", "user"]
    assert note.text.startswith("<answer_notes>")
    assert EMPTY.text in note.text
    assert JSON.text in note.text
    request = chat("s u1 a1 u2")
    assert await forwarded(request, MemoryMemo()) is request
    assert isinstance(await SelfCorrect().apply(request, context(request)), Keep)


async def test_findings_say_what_was_wrong_and_where_with_every_request_that_has_the_note() -> None:
    memo = MemoryMemo()
    for talk in ("s u1 a1 u2", "s u1 a1 u2 a2 u3"):
        request = chat(talk)
        decision = rewrite(await SelfCorrect().apply(request, made(request, memo, EMPTY, JSON)))
        assert decision.findings == [f"before messages[3]: {each.text}" for each in (EMPTY, JSON)]


async def test_a_new_note_waits_for_the_next_user_message_and_the_same_kind_again_is_another() -> None:
    memo = MemoryMemo()
    working = chat("u1 ax! tx")
    assert await forwarded(working, memo, EMPTY) is working
    assert len((await forwarded(chat("u1 ax! tx a1 u2"), memo, EMPTY)).messages) == 6
    memo = MemoryMemo()
    await forwarded(chat("u1 a1 u2"), memo, EMPTY)
    made = await forwarded(chat("u1 a1 u2 a2 u3"), memo, Correction("empty-2", EMPTY.text))
    assert sum("<answer_notes>" in message.text for message in made.messages) == 2


async def test_a_request_that_is_sent_again_gets_the_same_and_a_note_leaves_with_its_message() -> None:
    memo = MemoryMemo()
    first = await forwarded(chat("u1 a1 u2"), memo, EMPTY)
    other = Watched()
    other.is_blind, other.values = True, memo.values
    for replica in (memo, other):
        assert (await forwarded(chat("u1 a1 u2"), replica, EMPTY, JSON)).messages == first.messages
    later = await forwarded(chat("u1 a1 u2 a2 u3"), memo, EMPTY, JSON)
    assert [JSON.text in message.text for message in later.messages][-2:] == [True, False], "what is new waits"
    memo, request = MemoryMemo(), chat("u1 a1 u2")
    once = await forwarded(request, memo, EMPTY)
    assert isinstance(await SelfCorrect().apply(once, made(request, memo, EMPTY)), Keep)
    later = chat("u1 a1 u2 a2 u3")
    cut = later.with_messages(later.messages[4:])
    assert isinstance(await SelfCorrect().apply(cut, made(later, memo, EMPTY)), Keep)


async def test_a_long_conversation_asks_for_its_new_messages_alone_and_keeps_its_note() -> None:
    memo, talk = Watched(), "s " + " ".join(f"u{n} a{n}" for n in range(20))
    request = chat(f"{talk} u20")
    noted = await forwarded(request, memo, EMPTY)
    memo.asked = 0
    messages = [*request.messages, *chat("a20 u21").messages]
    longer = replace(request, messages=tuple(messages), folds=request.folds.begin())
    later = await forwarded(longer, memo, EMPTY)
    assert later.messages[: len(noted.messages)] == noted.messages
    assert sum("<answer_notes>" in message.text for message in later.messages) == 1
    assert memo.asked < 6
    messages += chat("a21 u22 a22 u23 a23 u24").messages
    further = replace(longer, messages=tuple(messages), folds=longer.folds.begin())
    assert (await forwarded(further, memo, EMPTY)).messages[: len(noted.messages)] == noted.messages
