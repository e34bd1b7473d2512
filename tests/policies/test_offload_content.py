from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.offload_content import OffloadContent
from proxy.chat import ChatRequest, Message
from proxy.chat.markers import is_shortened
from proxy.chat.wire import damage
from proxy.context import CacheRules
from proxy.policy import Keep, Rewrite
from proxy.testing import MemoryArchive, chat, context, profile

DOCUMENT = "# Report\n\n" + "\n\n".join(f"## Part {n}\n\n" + "All was quiet there for years. " * 20 for n in range(60))
PASTED = f"What are the open points? Do not guess.\n\n{DOCUMENT}"
CACHED = CacheRules(read=0.1, write=1.25, minimum=1024, ttl=300)


def conversation(words: str, **contents: Any) -> ChatRequest:
    """A conversation in the tiny language in which user messages with these names have other contents."""
    request = chat(words)
    return request.with_messages(
        message.with_changes(content=contents[message.text]) if message.text in contents else message
        for message in request.messages
    )


async def forwarded(request: ChatRequest, archive: Any = "", rules: CacheRules = CACHED) -> Sequence[Message]:
    archive = MemoryArchive() if archive == "" else archive
    ctx = context(request, model=profile(10**6, cache=rules), archive=archive)
    decision = await OffloadContent().apply(request, ctx)
    if isinstance(decision, Keep):
        return request.messages
    assert isinstance(decision, Rewrite)
    assert not damage(request, decision.request)
    assert isinstance(await OffloadContent().apply(decision.request, ctx), Keep)
    return decision.request.messages


EXAMPLES = [conversation("s ubig a1 u2 a2 u3", ubig=PASTED)]


@pytest.mark.parametrize(
    ("words", "leaves"),
    [
        pytest.param("s ubig", False, id="it is new"),
        pytest.param("s ubig a1", False, id="it is the last user message"),
        pytest.param("s ubig a1! t1 a2! t2", False, id="the work on it goes on"),
        pytest.param("s ubig u2", False, id="nobody has read it"),
        pytest.param("s ubig a1 u2", True, id="it was read"),
        pytest.param("s ubig u2 a1", True, id="with the question behind it"),
        pytest.param("s ubig a1! t1 a2 u2", True, id="by way of tools"),
    ],
)
async def test_a_large_text_leaves_when_it_was_read(words: str, leaves: bool) -> None:
    archive = MemoryArchive()
    messages = await forwarded(conversation(words, ubig=PASTED), archive)
    assert is_shortened(messages[1].text) is leaves
    assert list(archive.contents.values()) == ([PASTED] if leaves else [])


async def test_the_preview_has_the_users_words_the_structure_and_the_handle() -> None:
    archive = MemoryArchive()
    text = (await forwarded(conversation("ubig a1 u2", ubig=PASTED), archive))[0].text
    assert text.startswith("What are the open points? Do not guess.\n\n# Report")
    assert all(f"## Part {n}\n" in text for n in range(60))
    assert text.endswith(f'recall("{next(iter(archive.contents))}") has the whole]')
    assert len(text) < len(PASTED) / 3


async def test_only_large_text_parts_change_and_nothing_that_an_earlier_step_wrote() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    file = {"type": "file", "file": {"file_id": "f"}}
    parts = [{"type": "text", "text": "Look:"}, image, {"type": "text", "text": PASTED}, file]
    sent = (await forwarded(conversation("ubig a1 u2", ubig=parts)))[0]["content"]
    assert [*sent[:2], sent[3]] == [*parts[:2], file]
    assert is_shortened(sent[2]["text"])
    request = conversation("ubig a1 u2", ubig=PASTED)
    ctx = context(chat("u0 a1 u2"), model=profile(10**6))
    decision = await OffloadContent().apply(request, ctx)
    assert isinstance(decision, Keep)


@pytest.mark.parametrize(
    ("rules", "between", "leaves"),
    [
        pytest.param(CACHED, 1, True, id="little was said since"),
        pytest.param(CACHED, 900, False, id="much was said since"),
        pytest.param(CacheRules(), 900, True, id="without a cache that does not matter"),
        pytest.param(CacheRules(read=0.1, write=1.0, minimum=16_384, ttl=300), 1, True, id="neither is cached"),
        pytest.param(CacheRules(read=0.05, write=1.0, minimum=6_000, ttl=300), 1, False, id="too short to be cached"),
    ],
)
async def test_it_leaves_only_where_that_pays(rules: CacheRules, between: int, leaves: bool) -> None:
    request = conversation("ubig alater u2", ubig=PASTED, alater="x")
    long = Message({"role": "assistant", "content": "Seven words are said in each sentence. " * between})
    request = request.with_messages([request.messages[0], long, request.messages[2]])
    assert is_shortened((await forwarded(request, rules=rules))[0].text) is leaves


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(["ubig", "uagain", "usmall", "a1", "a2", "tools"]), max_size=14))
async def test_a_settled_message_never_changes_again(kinds: list[str]) -> None:
    contents = {"ubig": PASTED, "uagain": PASTED.replace("quiet", "loud")}
    words, sent = ["s", "u0"], []
    for number, kind in enumerate(kinds):
        words += [f"a!{number}k", f"t{number}k"] if kind == "tools" else [kind]
        sent.append([message.raw for message in await forwarded(conversation(" ".join(words), **contents))])

    for earlier, later in pairwise(sent):
        changed = [place for place, raw in enumerate(earlier) if later[place] != raw]
        assert all(b"[shortened: " not in earlier[place] for place in changed), "a form changed"
        again = sent[-1]
        assert all(again[place] == later[place] for place in changed), "it came back"
