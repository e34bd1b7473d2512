import json
from dataclasses import replace
from itertools import pairwise

import pytest

from policies.window_history import WindowHistory
from proxy.chat import ChatRequest
from proxy.chat.wire import damage
from proxy.context import CacheRules, ModelProfile, Prices
from proxy.policy import Keep, Rewrite
from proxy.testing import MemoryArchive, chat, context, profile, script, tool
from tests.decisions import rewrite
from tests.talk import assistant, user

EXAMPLES = [chat(" ".join(f"u{n} a{n}" for n in range(60)))]


@pytest.mark.parametrize(
    ("given", "forwarded"),
    [
        pytest.param("s u1 a1 u2 a2 u3 a3 u4 a4 u5 a5 u6", "s u3 a3 u4 a4 u5 a5 u6", id="a stride leaves at once"),
        pytest.param("s u1 u2 u3 u4 u5 u6 u7", "s u3 u4 u5 u6 u7", id="the cut then stands still"),
        pytest.param("s u1 u2 u3 u4 u5 u6 u7 u8", "s u5 u6 u7 u8", id="until another stride is full"),
        pytest.param("u1 a1! t1 a1 u2 u3 u4 u5 u6", "u3 u4 u5 u6", id="a tool result leaves with its call"),
        pytest.param("s d u1 u2 u3 u4 u5 u6", "s d u3 u4 u5 u6", id="all leading system messages stay"),
        pytest.param("a0 u1 u2 u3 u4 u5", "u2 u3 u4 u5", id="what comes before the first user message is a turn"),
        pytest.param("u1 u2 a! u3 ta u4 u5 u6 u7", "u4 u5 u6 u7", id="the cut waits until no call is open across it"),
    ],
)
async def test_old_turns_leave(given: str, forwarded: str) -> None:
    request = chat(given.replace("a!", "a2!a"))
    decision = rewrite(await WindowHistory(keep_turns=4, stride=2, summary=False).apply(request, context(request)))
    assert script(decision.request) == forwarded
    assert decision.facts["dropped_messages"] == len(request.messages) - len(decision.request.messages)


@pytest.mark.parametrize(("keep", "stride"), [(1, 1), (5, 5), (8, 4), (2, 7), (10, 1)])
async def test_at_least_so_many_turns_stand_and_less_than_a_stride_more(keep: int, stride: int) -> None:
    policy, words = WindowHistory(keep_turns=keep, stride=stride, summary=False), list[str]()
    for turn in range(1, 60):
        words += [f"u{turn}"]
        request = chat(" ".join(words))
        decision = await policy.apply(request, context(request))
        stand = len(decision.request.messages) if isinstance(decision, Rewrite) else turn
        assert min(turn, keep) <= stand <= keep + stride - 1
        words += [f"a{turn}"] if turn % 2 else []
        words = [word for word in words if not word.startswith("a")]


@pytest.mark.parametrize(
    ("given", "keep", "stride"),
    [
        pytest.param("s u1 a1 u2", 4, 2, id="short"),
        pytest.param("u1 u2 u3 u4 u5", 4, 2, id="less than a stride too long"),
        pytest.param("u1 a1!x u2 u3 tx", 1, 1, id="every cut would part a call from its result"),
    ],
)
async def test_a_conversation_is_kept(given: str, keep: int, stride: int) -> None:
    request = chat(given)
    assert isinstance(await WindowHistory(keep_turns=keep, stride=stride).apply(request, context(request)), Keep)


TENTH = CacheRules(read=0.1, write=1.0, minimum=1024, ttl=300)


@pytest.mark.parametrize(
    ("turns", "model", "leave"),
    [
        pytest.param(13, profile(10**6, cache=TENTH), False, id="a cut has more behind it than it removes"),
        pytest.param(60, profile(10**6, cache=TENTH), True, id="what leaves was long enough"),
        pytest.param(60, profile(10**6, cache=replace(TENTH, read=0.001)), False, id="reading costs next to nothing"),
        pytest.param(13, profile(10**6, prices=Prices(5, 25)), True, id="a price and no cache: fewer tokens cost less"),
        pytest.param(60, profile(10**6), False, id="no bill is known: a conversation that fits stays whole"),
    ],
)
async def test_behind_the_gate_turns_leave_only_where_that_pays(turns: int, model: ModelProfile, leave: bool) -> None:
    request = talk(turns)
    policy = WindowHistory(keep_turns=8, stride=4, only_if_paid_back=True, summary=False)
    decision = await policy.apply(request, context(request, model=model))
    assert isinstance(decision, Rewrite) is leave


@pytest.mark.parametrize(("turns", "leave"), [(60, False), (180, True)])
async def test_behind_the_gate_the_passages_that_come_back_count(turns: int, leave: bool) -> None:
    request, model = talk(turns), profile(10**6, cache=TENTH)
    policy = WindowHistory(keep_turns=8, stride=4, only_if_paid_back=True)
    assert isinstance(await policy.apply(request, context(request, model=model)), Rewrite) is leave


async def test_behind_the_gate_a_longer_conversation_is_cut_where_the_shorter_one_was() -> None:
    policy = WindowHistory(keep_turns=8, stride=4, only_if_paid_back=True)
    model, archive, sent = profile(10**6, cache=TENTH), MemoryArchive(), []
    for turns in range(1, 180):
        request = talk(turns)
        decision = await policy.apply(request, context(request, model=model, archive=archive))
        forwarded = decision.request if isinstance(decision, Rewrite) else request
        sent.append([message.raw for message in forwarded.messages[:-1]])
    breaks = sum(now[: len(before)] != before for before, now in pairwise(sent))
    assert 1 <= breaks <= 8


def talk(turns: int) -> ChatRequest:
    messages = list(chat("s").messages)
    for n in range(turns):
        rule = "Never use id_9." if n == 0 else ""
        messages += [user(f"{rule} question {n} " + "word " * 60), assistant(f"answer {n} " + "word " * 60)]
    return chat("u").with_messages([*messages, *chat("ulast").messages])


async def decided(request: ChatRequest, archive: MemoryArchive | None) -> Keep | Rewrite:
    decision = await WindowHistory(keep_turns=8, stride=4).apply(request, context(request, archive=archive))
    assert isinstance(decision, Keep | Rewrite)
    return decision


async def test_what_leaves_is_archived_and_summarised() -> None:
    request, archive = talk(11), MemoryArchive()
    decision = rewrite(await decided(request, archive))
    assert not damage(request, decision.request)
    head, summary, *kept = decision.request.messages
    assert (head, kept) == (request.messages[0], list(request.messages[9:]))
    assert summary.role == "user"
    assert "Never use id_9." in summary.text
    (content,) = archive.contents.values()
    assert "[stands for 8 messages]" in summary.text, "nobody could read a handle"
    assert [json.loads(line) for line in content.splitlines()] == list(request.messages[1:9])


async def test_a_summary_that_would_be_longer_is_none() -> None:
    request = chat(" ".join(f"u{n} a{n}" for n in range(12)))
    decision = await WindowHistory(keep_turns=10, stride=2).apply(request, context(request, archive=MemoryArchive()))
    assert decision == Keep("12 turns, but the summary would be longer than what it replaces")


async def test_the_prefix_stands_between_strides_and_everything_that_left_can_be_read() -> None:
    archive, sent = MemoryArchive(), []
    for turns in range(11, 80):
        request = talk(turns).with_tools([tool()])
        decision = rewrite(await decided(request, archive))
        assert all(handle in decision.request.messages[1].text for handle in list(archive.contents)[-1:])
        sent.append([message.raw for message in decision.request.messages[:-1]])
    breaks = sum(now[: len(before)] != before for before, now in pairwise(sent))
    assert breaks == (79 - 11) // 4
    assert sent[-1][1].count(b"recall(") <= 6
    recalled = "\n".join(archive.contents.values())
    assert all(raw in sent[-1] or raw.decode() in recalled for raw in (m.raw for m in talk(79).messages[:-1]))
