"""Whole conversations through the default chain of `config.yaml`: growing, edited, in branches, of any shape."""

import re
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.chat import ChatRequest, Message
from proxy.chat.texts import arguments
from proxy.chat.wire import flaws
from proxy.config.load import load
from proxy.config.settings import Chain
from proxy.context import Identity
from proxy.gateway.chain import Outcome, run
from proxy.state.cache import OnceService
from proxy.state.decisions import Memos
from proxy.state.sqlite import SqliteStore
from proxy.testing import MemoryArchive, chat, context, profile, tool

SHIPPED = load(Path(__file__).parent.parent / "config.yaml", {}).settings.chains["default"]
CHAIN = tuple((name, step.model_copy(update={"timeout": 600.0})) for name, step in SHIPPED)
"""Whose steps have all the time that a busy machine needs."""
LAYOUT = tuple(step for step in CHAIN if step[0] != "recall_history")
"""Without what each question chooses for itself, at the tail."""
WINDOW = 2400
HANDLE = re.compile(r'recall\(\\?"([0-9a-f]+)\\?"\)')
RULES = ("Never use id_7.", "Siempre responde en español.", "You must ask before paying.", "Only weekdays, please.")
FEW = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))


class Proxy:
    """What stays between requests: the archive and the memo."""

    def __init__(self, chain: Chain = CHAIN) -> None:
        self._chain = chain
        self._model = profile(WINDOW)
        self.archive = MemoryArchive()
        self._memo = Memos(SqliteStore(None, 10**8), ttl=1000).bind(Identity("t", "s"))
        self._once = OnceService()

    async def sends(self, messages: list[Message]) -> Outcome:
        # bytes as they are parsed anew from each body
        parsed = [Message(message, bytes(bytearray(message.raw))) for message in messages]
        request = ChatRequest("test-model", tuple(parsed), (tool(),))
        once = self._once.bind(Identity("t"))
        ctx = context(request, model=self._model, archive=self.archive, once=once, memo=self._memo)
        outcome = await run(self._chain, ctx, strict=True)
        if outcome.rejected is None:
            assert not flaws(outcome.request)
        return outcome

    async def everything(self, request: ChatRequest) -> str:
        """What the model can read: what it is sent, and all that the handles in it bring back."""
        told = ["\n".join((message.text, *arguments(message))) for message in request.messages]
        handles, seen = HANDLE.findall("\n".join(told)), set()
        while handles:
            handle = handles.pop()
            if handle not in seen:
                seen.add(handle)
                content = await self.archive.fetch(handle)
                assert content is not None, "a handle of nothing"
                told.append(content)
                handles += HANDLE.findall(content)
        return "\n".join(told)


def words(count: int) -> str:
    return "word " * count


@st.composite
def turns(draw: st.DrawFn, *, huge: bool, most: int = 16) -> list[list[Message]]:
    """A conversation, request by request: what each adds. Parallel calls, images, late system messages, long ones."""
    sizes = st.sampled_from([0, 5, 40, 90, *([700, 3500] if huge else [])])
    added: list[list[Message]] = []
    new = [Message({"role": "system", "content": f"Operator {n}. {words(5)}"}) for n in range(draw(st.integers(0, 2)))]
    for turn in range(draw(st.integers(3, most))):
        if draw(st.integers(0, 11)) == 0:
            new.append(Message({"role": "system", "content": f"note {turn}"}))
        rule = RULES[turn] if turn < len(RULES) and draw(st.booleans()) else ""
        # the goal and the constraints are short: what outgrows the pins' share stays behind the handle
        said: object = f"Question {turn}. {rule} {words(draw(sizes) if turn >= len(RULES) else 5)}"
        if draw(st.integers(0, 9)) == 0:
            image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{turn:04d}"}}
            said = [{"type": "text", "text": said}, image]
        new.append(Message({"role": "user", "content": said}))
        for step in range(draw(st.integers(0, 4))):
            added.append(new)
            ids = [f"{turn}.{step}.{n}" for n in range(draw(st.integers(1, 3)))]
            new = [*chat(f"a!{','.join(ids)}").messages]
            new += [result(one, draw(sizes)) for one in ids]
        added.append(new)
        new = [Message({"role": "assistant", "content": f"Answer {turn}. {words(draw(sizes))}"})]
    return added


def result(call: str, size: int) -> Message:
    lines = "\n".join(f"row {n} of {call}: id_{n} {words(6)}" for n in range(size // 8))
    return Message({"role": "tool", "tool_call_id": call, "content": lines or "done"})


def requests(added: list[list[Message]]) -> list[list[Message]]:
    return [[message for part in added[:end] for message in part] for end in range(1, len(added) + 1)]


def raws(outcome: Outcome) -> list[bytes]:
    return [message.raw for message in outcome.request.messages]


def cuts(outcome: Outcome) -> int:
    return int(next(step.facts.get("cuts", 0) for step in outcome.steps if step.policy == "compress_history"))


@FEW
@given(added=turns(huge=True))
async def test_every_request_is_sound_and_all_that_was_said_can_be_read(added: list[list[Message]]) -> None:
    proxy = Proxy()
    for messages in requests(added):
        outcome = await proxy.sends(messages)
        if outcome.rejected is not None:
            continue
        readable = await proxy.everything(outcome.request)
        for message in messages:
            assert message.text in readable or message.raw.decode() in readable
        again = await proxy.sends(messages)
        assert raws(again) == raws(outcome)


@FEW
@given(added=turns(huge=False))
async def test_constraints_and_the_goal_survive_word_for_word(added: list[list[Message]]) -> None:
    proxy = Proxy()
    for messages in requests(added):
        outcome = await proxy.sends(messages)
        shown = "\n".join(message.text for message in outcome.request.messages)
        said = "\n".join(message.text for message in messages if message.role == "user")
        assert "Question 0." in shown
        assert all(rule in shown for rule in RULES if rule in said)


@FEW
@given(added=turns(huge=True))
async def test_what_the_model_has_read_stays_byte_for_byte_until_the_next_cut(added: list[list[Message]]) -> None:
    proxy = Proxy(LAYOUT)
    before: Outcome | None = None
    for messages, part in zip(requests(added), added, strict=True):
        outcome = await proxy.sends(messages)
        is_sent = before is not None and before.rejected is None and outcome.rejected is None
        if before is not None and is_sent and cuts(before) == cuts(outcome):
            # results that were new in the request before take their short form now; all in front of them stays
            unread = next((n for n, one in enumerate(reversed(raws(before))) if b'"tool"' not in one[:20]), 0)
            kept = len(before.request.messages) - unread - (1 if unread else 0)
            assert raws(outcome)[:kept] == raws(before)[:kept]
        before = outcome
        assert part


@FEW
@given(added=turns(huge=True, most=8), more=turns(huge=True, most=8), at=st.integers(0, 10**6))
async def test_branches_disturb_no_other(added: list[list[Message]], more: list[list[Message]], at: int) -> None:
    proxy = Proxy(LAYOUT)
    trunk = requests(added)
    fork = trunk[at % len(trunk)]
    other = [part for part in more if not part[0].is_system]
    branch = [[*fork, Message({"role": "assistant", "content": "Another way."}), *part] for part in requests(other)]
    alone = [raws(await Proxy(LAYOUT).sends(messages)) for messages in (trunk[-1], *branch[-1:])]
    for messages in (*trunk[::2], *branch[::2]):
        await proxy.sends(messages)
    again = [await proxy.sends(messages) for messages in (trunk[-1], *branch[-1:])]
    assert [raws(outcome) for outcome in again] == alone
    for outcome in again:
        await proxy.everything(outcome.request)


async def test_an_agent_that_reads_the_same_files_again_and_again_is_never_refused() -> None:
    proxy = Proxy(LAYOUT)
    talk = [*chat("s").messages, Message({"role": "user", "content": "Read all of them."})]
    for step in range(24):
        talk += [*chat(f"a!c{step}").messages]
        rows = (f"row {n} of file {step % 3} says {n * (7 + step % 3)}" for n in range(60))
        talk.append(Message({"role": "tool", "tool_call_id": f"c{step}", "content": "\n".join(rows)}))
        outcome = await proxy.sends(talk)
        assert outcome.rejected is None, step
        assert outcome.after is not None
        assert outcome.after.total <= 0.82 * WINDOW, step


@FEW
@given(added=turns(huge=False), at=st.integers(0, 10**6))
async def test_an_edited_message_counts_as_it_is_now(added: list[list[Message]], at: int) -> None:
    proxy = Proxy(LAYOUT)
    messages = requests(added)[-1]
    await proxy.sends(messages)
    places = [place for place, message in enumerate(messages) if message.role == "user"]
    place = places[at % len(places)]
    edited = list(messages)
    edited[place] = messages[place].with_changes(content="Never touch account acct_991. And now?")
    outcome = await proxy.sends(edited)
    assert raws(outcome) == raws(await Proxy(LAYOUT).sends(edited)), "nothing of the old text lingers"
    readable = await proxy.everything(outcome.request)
    assert "Never touch account acct_991." in "\n".join(message.text for message in outcome.request.messages)
    assert messages[place].text not in readable
