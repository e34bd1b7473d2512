"""The messages that left a prompt, of which the passages are looked for."""

import random

import pytest

from policies.recall_history.search import find_left
from proxy.chat import ChatRequest, Message
from proxy.chat.folds import Folds
from proxy.testing import chat, context


async def gone(incoming: ChatRequest, request: ChatRequest) -> list[int]:
    """The places that left."""
    return [*(await find_left(request, context(incoming))).places]


@pytest.mark.parametrize(
    ("incoming", "request_", "expected"),
    [
        ("s u1 a1 u2", "s u1 a1 u2", ""),
        ("s u1 a1 u2 a2 u3", "s u2 a2 u3", "u1 a1"),
        ("s u1 aA! tA a1 u2", "s u2", "u1 aA! tA a1"),
        ("s u1 a1 u2 aB! tB", "s u2", "u1 a1"),
        ("s1 s2 u1 a1 u2", "u2", "u1 a1"),
    ],
    ids=["nothing", "the oldest", "with a call", "not what is behind the question", "no system message"],
)
async def test_what_left(incoming: str, request_: str, expected: str) -> None:
    before = chat(incoming)  # both share the messages that read alike
    by_word = dict(zip(incoming.split(), before.messages, strict=True))
    after = before.with_messages([by_word[word] for word in request_.split()])
    assert " ".join(incoming.split()[place] for place in await gone(before, after)) == expected


async def test_a_result_in_another_form_has_left_and_a_call_or_one_of_the_same_bytes_has_not() -> None:
    incoming = chat("u1 aA! tA a1 u2")
    call = incoming.messages[1].with_changes(content="shorter")
    kept = [incoming.messages[0], call, incoming.messages[2].with_changes(content="..."), *incoming.messages[3:]]
    assert await gone(incoming, incoming.with_messages(kept)) == [2]
    incoming = chat("u1 aA! tA a1 u2 aA! tA a2 u3")
    kept = list(incoming.messages[4:])
    assert await gone(incoming, incoming.with_messages(kept)) == [0, 3]
    kept[1] = kept[1].with_changes(content="thinking")
    assert await gone(incoming, incoming.with_messages(kept)) == [0, 1, 3]
    incoming = chat("u1 a1 u2")
    again = [Message(dict(message)) for message in incoming.messages]
    assert await gone(incoming, incoming.with_messages(again)) == []
    assert await gone(ChatRequest("m", ()), ChatRequest("m", ())) == []


async def test_what_left_says_which_passages_no_other_form_has() -> None:
    incoming = chat("u1 aA! tA a1 u2")
    result = incoming.messages[2]
    for text, parts in ((f"[{result.text}]", None), ("nothing of it", (0,))):
        kept = [*incoming.messages[:2], result.with_changes(content=text), *incoming.messages[3:]]
        found = await find_left(incoming.with_messages(kept), context(incoming))
        assert (found.places.get(2), found.stand) == (parts, parts is None)


@pytest.mark.parametrize("seed", range(12))
async def test_what_left_is_the_same_however_the_conversation_has_grown(seed: int) -> None:
    chance, folds, talk = random.Random(seed), Folds(), [*chat("s u0 a0").messages]
    forms, cut = dict[int, Message](), 1
    for count in range(1, 41):
        roles = chance.choice([("user",), ("user", "assistant"), ("assistant",), ("tool", "assistant"), ("system",)])
        talk += [Message({"role": role, "content": f"{role} {chance.randrange(count)} word"}) for role in roles]
        if chance.random() < 0.2:  # an edit, or a branch from further back
            talk = talk[: chance.randrange(3, len(talk) + 1)]
            cut = min(cut, len(talk) - 1)
        elif chance.random() < 0.2:
            cut = chance.randrange(cut, len(talk))
        for message in talk[cut:]:
            if id(message) not in forms:
                short = chance.choice([None, "other", f"[{message.text}]"])
                forms[id(message)] = message if short is None else message.with_changes(content=short)
        sent = [forms.get(id(message), message) for message in (*talk[:1], *talk[cut:])]
        grown = ChatRequest("m", tuple(talk), folds=folds.begin())
        anew = ChatRequest("m", tuple(talk))
        assert await gone(grown, grown.with_messages(sent)) == await gone(anew, anew.with_messages(sent))
