"""What internal tools added, put back into later requests."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.chat import ChatRequest, Message, encode
from proxy.chat.wire import flaws
from proxy.context import Outage
from proxy.gateway.hidden import Answers, Hidden, HiddenParts, digest
from proxy.gateway.loop import send
from proxy.state.decisions import StoredMemory
from proxy.testing import chat, script
from tests.scripted import (
    LOOK_UP,
    RECALL,
    Away,
    Kept,
    Recall,
    Scripted,
    answer,
    assembled,
    call_of,
    events,
    raws,
    read,
    reply,
    streaming,
)
from tests.talk import assistant, result, system, user
from tests.talk import calls as calls_of

thorough = settings(max_examples=50, deadline=None)
INNER = (calls_of("r1", name="recall"), result("x", "r1"))


@dataclass
class Client:
    """A client that sends whole conversations through the hidden parts and a loop, and keeps what it is answered."""

    memory: Kept = field(default_factory=Kept)
    messages: list[Message] = field(default_factory=lambda: [system("s")])
    scope: str = "tenant"
    sent: list[ChatRequest] = field(default_factory=list)
    """Every request that reached the upstream."""
    stream: bool = False
    rounds: int = 4

    async def say(self, text: str, *answers: dict[str, Any]) -> None:
        self.messages.append(user(text))
        await self.go(*answers)

    async def go(self, *answers: dict[str, Any]) -> None:
        """Send, be answered by these rounds, and answer its own calls at once."""
        request = chat("u", tools=[LOOK_UP, RECALL], stream=self.stream).with_messages(self.messages)
        parts = HiddenParts(self.memory)
        restored = await parts.restored(request, self.scope)
        upstream = Scripted(*(streaming(events(one)) if self.stream else reply(one) for one in answers))
        record = partial(parts.record, request=request, scope=self.scope)
        made = await send(upstream, call_of(restored), [Recall()], record, rounds=self.rounds)
        if self.stream:
            got = assembled(await read(made))
            said = {"role": "assistant", "content": got.get("content") or None}
            own = [{"id": call.pop("id"), "type": "function", "function": call} for call in got["calls"]]
            said |= {"tool_calls": own} if own else {}
        else:
            said = json.loads(made.body or b"")["choices"][0]["message"]
        self.sent += [upstream.sent(place) for place in range(len(upstream.calls))]
        message = self.rewritten(said)
        self.messages.append(message)
        self.messages += [result(f"result {i}", i) for i in message.call_ids]

    def rewritten(self, said: dict[str, Any]) -> Message:
        return Message(said)

    @property
    def prefixes_hold(self) -> bool:
        """Whether each request to the upstream begins with the one before, byte for byte."""
        pairs = zip(self.sent, self.sent[1:], strict=False)
        return all(raws(later)[: len(earlier.messages)] == raws(earlier) for earlier, later in pairs)


class Rewriting(Client):
    """A client that drops fields and re-writes JSON and white space, as SDKs do."""

    def rewritten(self, said: dict[str, Any]) -> Message:
        calls = [
            {"function": {**call["function"], "arguments": json.dumps(json.loads(call["function"]["arguments"]), indent=1)}, "id": call["id"], "type": "function"}
            for call in said.get("tool_calls") or ()
        ]  # fmt: skip
        content = [{"type": "text", "text": f"{said.get('content') or ''}\n"}]
        return Message({"content": content, "role": "assistant", **({"tool_calls": calls} if calls else {})})


@pytest.mark.parametrize("kind", [Client, Rewriting])
@pytest.mark.parametrize("stream", [False, True])
async def test_later_requests_contain_what_was_hidden(kind: type[Client], stream: bool) -> None:
    client = kind(stream=stream)
    await client.say("u1", answer(None, "recall:r1", "recall:r2"), answer("Look.", "recall:r3"), answer("It is 42."))
    await client.say("u2", answer("Both", "recall:r4", "look_up:x", "recall:r5", "look_up:y"))
    await client.go(answer(None, "recall:r6"), answer("And", "recall:r7", "look_up:z"))
    await client.go(answer("Done."))
    await client.say("u3", answer("Bye."))

    last = client.sent[-1]
    assert client.prefixes_hold
    assert not flaws(last)
    said = [
        part
        for each in last.messages
        for part in (each.call_ids or [each.get("tool_call_id") if each.role in ("tool", "assistant") else each.text])
    ]
    assert said == ["s", "u1", "r1", "r2", "r1", "r2", "r3", "r3", None, "u2", "r4", "x", "r5", "y", "r4", "r5", "x", "y",
                    "r6", "r6", "r7", "z", "r7", "z", None, "u3"]  # fmt: skip
    texts = [message.text for message in last.messages if message.role == "assistant"]
    assert [text.strip() for text in texts] == ["", "Look.", "It is 42.", "Both", "", "And", "Done."]


ids = iter(range(10**9))


@st.composite
def rounds(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Internal rounds, then one that is not."""

    def one(internal: int, client: int) -> dict[str, Any]:
        made = [f"recall:r{next(ids)}" for _ in range(internal)] + [f"look_up:x{next(ids)}" for _ in range(client)]
        text = draw(st.sampled_from([None, "a", "Some text. ", "\n b"]))
        mixed, thought = draw(st.permutations(made)), draw(st.sampled_from([None, "hm"]))
        return answer(text if made else text or "end", *mixed, reasoning_content=thought)

    inner = [one(draw(st.integers(1, 2)), 0) for _ in range(draw(st.integers(0, 3)))]
    return [*inner, one(draw(st.integers(0, 2)), draw(st.integers(1, 2))) if draw(st.booleans()) else one(0, 0)]


@given(
    st.lists(rounds(), min_size=1, max_size=6), st.booleans(), st.sampled_from([Client, Rewriting]), st.integers(1, 4)
)
@thorough
async def test_the_prefix_stays_whole(
    turns: list[list[dict[str, Any]]], stream: bool, kind: type[Client], most: int
) -> None:
    client = kind(stream=stream, rounds=most)
    for number, drawn in enumerate(turns):
        answers = [*drawn[: min(most, len(drawn) - 1)], drawn[-1]]
        await (client.go(*answers) if client.messages[-1].role == "tool" else client.say(f"u{number}", *answers))
    assert client.prefixes_hold
    assert not any(flaws(request) for request in client.sent)


LOST = (b"", b"{", b"[]", b'{"before":[3],"last":{},"results":[]}', b'{"before":[],"last":{},"results":[{}]}')


@given(st.lists(rounds(), min_size=1, max_size=6), st.data())
@thorough
async def test_a_memory_that_loses_breaks_nothing(turns: list[list[dict[str, Any]]], data: st.DataObject) -> None:
    client = Client()
    for number, answers in enumerate(turns):
        for key in list(client.memory.values):
            if data.draw(st.booleans()):
                client.memory.values[key] = data.draw(st.sampled_from(LOST))
        client.memory.broken = data.draw(st.booleans())
        await (client.go(*answers) if client.messages[-1].role == "tool" else client.say(f"u{number}", *answers))
    assert not any(flaws(request) for request in client.sent)


async def test_nothing_crosses_scopes_or_conversations() -> None:
    client = Client()
    await client.say("u1", answer(None, "recall:r1"), answer("ok"))
    request = chat("s u1", tools=[RECALL]).with_messages([*client.messages, user("u2")])
    parts = HiddenParts(client.memory)

    assert script(await parts.restored(request, "tenant")) == "s u1 ar1! tr1 ok u2"
    assert await parts.restored(request, "another") is request
    for place in (0, 1, 2):
        edited = [*request.messages]
        edited[place] = edited[place].with_changes(content="edited")
        other = request.with_messages(edited)
        assert await parts.restored(other, "tenant") is other


async def test_marks_that_move_do_not_matter_and_images_do() -> None:
    def picture(url: str, **marks: Any) -> Message:
        parts: list[dict[str, Any]] = [{"type": "text", "text": "u1"}, {"type": "image_url", "image_url": {"url": url}}]
        return user([part | marks for part in parts])

    def asked(*messages: Message) -> ChatRequest:
        return chat("u").with_messages(messages)

    said = assistant("ok")
    parts = HiddenParts(Kept())
    await parts.record(Hidden(said, INNER, said), asked(picture("a", cache_control={"type": "ephemeral"})), "t")
    for url, count in (("a", 5), ("b", 3)):
        later = asked(picture(url), said, user("u2"))
        assert len((await parts.restored(later, "t")).messages) == count


async def test_an_untouched_request_is_the_same_object_and_an_empty_answer_leaves_what_was_added() -> None:
    memory = Kept()
    parts = HiddenParts(memory)
    for conversation in ("u1", "u1 a1 u2 a2 u3", "u1 a1 u2 a2 u3 a3 u4"):
        request = chat(conversation)
        assert await parts.restored(request, "t") is request
    assert memory.asked == 3
    client = Client(rounds=1)
    await client.say("u1", answer(None, "recall:r1"), answer(None))
    await client.say("u2", answer("bye"))
    assert script(client.sent[-1]) == "s u1 ar1! tr1 u2"
    assert client.prefixes_hold


async def test_a_failed_read_is_not_remembered_as_nothing_there() -> None:
    store = Away(None, 2**20)
    memory = StoredMemory(store, ttl=60)
    later = chat("u1 a1 u2")
    await HiddenParts(memory).record(Hidden(later.messages[1], INNER, later.messages[1]), chat("u1"), "t")
    replica, outage = HiddenParts(memory), Outage()
    store.is_away = True
    assert await replica.restored(later, "t", outage) is later
    assert outage.begun
    store.is_away = False
    assert len((await replica.restored(later, "t")).messages) == 5


async def test_an_answer_regenerated_with_tools_is_found_again() -> None:
    parts, later = HiddenParts(Kept()), chat("u1 a1 u2")
    assert await parts.restored(later, "t") is later
    await parts.record(Hidden(later.messages[1], INNER, later.messages[1]), chat("u1"), "t")
    assert len((await parts.restored(later, "t")).messages) == 5


async def test_a_client_that_answers_a_hidden_call_keeps_its_conversation() -> None:
    client = Client()
    await client.say("u1", answer(None, "recall:r1", "look_up:x"))
    client.messages.append(result("made up", "r1"))
    request = chat("u").with_messages(client.messages)
    assert (await HiddenParts(client.memory).restored(request, "tenant")).messages == request.messages


async def test_a_memory_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(Kept):
        async def get_all(self, keys: Sequence[str]) -> list[bytes | None]:
            await asyncio.Event().wait()
            return []

        async def put(self, key: str, value: bytes) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr("proxy.gateway.hidden.PATIENCE", 0.01)
    client = Client(Hanging())
    await client.say("u1", answer(None, "recall:r1"), answer("ok"))
    await client.say("u2", answer("bye"))
    assert [message.text for message in client.messages if message.role == "assistant"] == ["ok", "bye"]


async def test_what_is_kept_has_the_bytes_that_were_sent() -> None:
    client = Client()
    first = answer("é \u2028", "recall:r1")
    first["choices"][0]["message"]["reasoning_details"] = [{"type": "x", "signature": "s", "n": 1.0}]
    await client.say("u1", first, answer("ok"))
    await client.say("u2", answer("bye"))
    assert raws(client.sent[2])[: len(client.sent[1].messages)] == raws(client.sent[1])
    assert encode(first["choices"][0]["message"]["reasoning_details"]) in raws(client.sent[2])[2]


async def test_rounds_are_found_again_where_the_client_has_got_a_secret_for_its_placeholder() -> None:
    parts, request = HiddenParts(Kept()), chat("u1", tools=[LOOK_UP, RECALL])
    said = assistant("Mail redacted-email-bcdfghjkmnpqst.")
    secrets = {"redacted-email-bcdfghjkmnpqst": "ana@example.com"}
    assert await parts.record(Hidden(said, INNER, said), request, "tenant", restores=secrets)
    later = request.with_messages([*request.messages, assistant("Mail ana@example.com."), user("2")])
    assert (await parts.restored(later, "tenant")).messages[1:3] == INNER


def test_a_digest_is_the_same_where_messages_were_digested_before() -> None:
    def digested(*messages: Message) -> str:
        return Answers(blake2b()).then(messages).running.hexdigest()

    def large(end: str) -> Message:
        return user("a" * 1_000_000 + end)

    known, small = large("x"), user("x")
    digest([known, small])
    assert digested(known, small) == digested(large("x"), small)
    assert len({digested(large("x")), digested(large("y")), digested(small), digested(large("x"), small)}) == 4
