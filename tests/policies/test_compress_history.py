import json
from itertools import pairwise

import pytest
from pydantic import ValidationError

from policies.compress_history import CompressHistory
from proxy.chat import ChatRequest, Message
from proxy.chat.wire import damage
from proxy.context import CacheRules
from proxy.gateway.chain import run
from proxy.policy import Keep, Rewrite
from proxy.testing import MemoryArchive, chat, context, profile, tool
from tests.decisions import rewrite
from tests.talk import assistant, calls, result, user

WINDOW = 2000


def turn(n: int, text: str = "") -> list[Message]:
    """About a hundred tokens."""
    words = "word " * 30
    return [user(f"{text} question {n} {words}?"), assistant(f"answer {n} {words}")]


def talk(turns: int, first: str = "Never use the old card.") -> ChatRequest:
    messages = [*chat("s").messages, *turn(0, first)]
    for n in range(1, turns):
        messages += turn(n)
    return chat("u").with_messages([*messages, *chat("ulast").messages])


def step(turns: int) -> ChatRequest:
    """An agent's run: one request, then calls."""
    messages = [*chat("s").messages, *turn(0, "Fix it.")[:1]]
    for n in range(turns):
        call, result = chat(f"a!c{n} tc{n}").messages
        messages += [call, result.with_changes(content=f"row {n} " + "word " * 60)]
    return chat("u").with_messages(messages)


async def decided(request: ChatRequest, archive: MemoryArchive | None = None, **settings: float) -> Keep | Rewrite:
    ctx = context(request, window=WINDOW, archive=archive or MemoryArchive())
    decision = await CompressHistory.model_validate(settings).apply(request, ctx)
    assert isinstance(decision, Keep | Rewrite)
    return decision


@pytest.mark.parametrize(("turns", "why"), [(3, "context at 15%"), (15, "context at 73%, near the 80% mark")])
async def test_below_the_mark_nothing_happens(turns: int, why: str) -> None:
    assert await decided(talk(turns)) == Keep(why)


@pytest.mark.parametrize("words", [100, 180, 300])
async def test_the_action_that_an_observation_answers_stays_the_assistants(words: int) -> None:
    """Agents without tool calls get observations as user messages, two or three of which fill a small window."""
    messages = [*chat("s u1").messages]
    for n in range(12):
        action = assistant(f"I look.\n```bash\nsed -n {n}p x.py\n```")
        messages += [action, user(f"output {n} " + "word " * words * 3)]
        decision = await decided(chat("u").with_messages(messages))
        sent = decision.request.messages if isinstance(decision, Rewrite) else messages
        assert action in sent, n
        assert (await context().tokens.count(chat("u").with_messages(sent))).total <= 0.8 * WINDOW
    assert isinstance(decision, Rewrite)


async def test_a_short_form_has_no_envelope_or_colour() -> None:
    lines = "\n".join(f"\x1b[32mrow {n}\x1b[0m has the value {n * 7919}" for n in range(90))
    envelope = json.dumps({"content": [{"type": "text", "text": lines}]})
    talk = [each.with_changes(content=envelope) if each.role == "tool" else each for each in step(4).messages]
    (*_, form) = rewrite(await decided(chat("u").with_messages([*talk, *step(2).messages[2:]]))).request.messages[:-4]
    assert form.text.startswith("row 0 has the value 0\n")
    assert "[shortened: " in form.text


async def test_what_a_tight_cut_shows_in_short_forms_has_no_line_in_its_digest() -> None:
    said = [f"Rule {n}: the depot of town {n} closes at {n} o'clock on holidays." for n in range(10, 40)]
    past = [
        Message({"role": role, "content": text})
        for each in said
        for role, text in (("user", each), ("assistant", "Yes."))
    ]
    request = chat("u").with_messages(
        [*chat("s").messages, *past, Message({"role": "user", "content": "word " * 1100})]
    )
    digest, *rest = rewrite(await decided(request)).request.messages[1:]
    shown = [message.text for message in rest]
    assert digest.text.startswith("<conversation_summary>")
    assert len({*said} & {*shown}) > 2
    assert any(each in digest.text for each in said)
    assert not any(each in digest.text and each in shown for each in said)


async def test_files_that_left_with_the_last_cut_fill_the_room_up_to_the_low_mark() -> None:
    code = "\n".join(f"def f{n}(x):\n    return x + {n}\n" for n in range(300))
    log = "\n".join(f"12:00:{n:03} job {n * 37 % 101} is done" for n in range(640))
    messages = [*chat("s u1").messages, calls("c1"), result(code), calls("c2"), result(log, "c2")]
    request = chat("u", tools=[tool()]).with_messages([*messages, assistant("I saw both."), user("Now edit the code.")])
    decision = rewrite(await CompressHistory().apply(request, context(request, window=8192)))
    shown = [message for message in decision.request.messages if message.role == "tool"]
    assert [message.text.splitlines()[0] for message in shown] == [code.splitlines()[0], log.splitlines()[0]]
    assert 0.25 < (await context().tokens.count(decision.request)).total / 8192 <= 0.3


async def test_calls_that_stand_in_short_forms_are_not_in_the_line_of_their_loop() -> None:
    log = "\n".join(f"12:00:{n:03} job {n * 37 % 101} is done" for n in range(200))
    loop = [message for n in range(7) for message in (calls(f"c{n}", arguments=f'{{"at":{n}}}'), result(log, f"c{n}"))]
    request = chat("u", tools=[tool()]).with_messages([*chat("s u1").messages, *loop, user("Go on. " * 1500)])
    decision = rewrite(await CompressHistory().apply(request, context(request, window=8192)))
    _, _, digest, *shown = decision.request.messages
    assert [message.call_ids for message in shown if message.call_ids] == [(f"c{n}",) for n in range(2, 7)]
    assert "\n-> [look_up(0, 1)]\n" in digest.text


async def test_a_plan_in_a_call_that_stands_behind_the_digest_is_not_repeated_in_it() -> None:
    log = "\n".join(f"12:00:{n:03} job {n * 37 % 101} is done" for n in range(200))
    todos = '{"todos": [{"content": "Find the fault", "status": "done"}, {"content": "Mend it", "status": "open"}]}'
    loop = [message for n in range(7) for message in (calls(f"c{n}", arguments=todos), result(log, f"c{n}"))]
    request = chat("u", tools=[tool()]).with_messages([*chat("s u1").messages, *loop, user("Go on. " * 1500)])
    decision = rewrite(await CompressHistory().apply(request, context(request, window=8192)))
    _, _, digest, *shown = decision.request.messages
    assert any("Mend it" in str(message.get("tool_calls")) for message in shown)
    assert "open plan" not in digest.text


async def test_above_it_the_oldest_turns_become_a_summary_that_the_archive_backs() -> None:
    request, archive = talk(17), MemoryArchive()
    decision = rewrite(await decided(request, archive))
    head, summary, *kept = decision.request.messages
    assert head is request.messages[0]
    assert summary.role == "user"
    assert summary.text.startswith("<conversation_summary>\n")
    assert "\n1: Never use the old card. question 0" in summary.text
    assert kept == list(request.messages[-len(kept) :])
    assert kept[0].role == "user"
    left = request.messages[1 : -len(kept)]
    assert decision.facts["left_messages"] == len(left)
    (content,) = archive.contents.values()
    assert f"\n[stands for {len(left)} messages]\n" in summary.text, "nobody could read a handle"
    assert [json.loads(line) for line in content.splitlines()] == list(left)
    assert not damage(request, decision.request)
    counted = await context().tokens.count(decision.request)
    assert counted.total <= 0.3 * WINDOW


@pytest.mark.parametrize(("cache", "deepest"), [(CacheRules(0.1, 1.0, 0, 300), 0.8), (CacheRules(), 0.55)])
async def test_the_prefix_stands_until_the_next_cut(cache: CacheRules, deepest: float) -> None:
    """With a prompt cache until 80% is reached again; without one, where tokens alone count, for a shorter time."""
    forwarded: list[list[bytes]] = []
    for turns in range(2, 60):
        request = talk(turns)
        ctx = context(request, model=profile(WINDOW, cache=cache))
        decision = await CompressHistory().apply(request, ctx)
        after = decision.request if isinstance(decision, Rewrite) else request
        if isinstance(decision, Rewrite):
            assert (await ctx.tokens.count(after)).total <= deepest * WINDOW
        forwarded.append([message.raw for message in after.messages[:-1]])
    breaks = sum(now[: len(before)] != before for before, now in pairwise(forwarded))
    assert 0 < breaks <= 60 * 95 / ((deepest - 0.4) * WINDOW) + 1


async def test_an_agents_only_request_stays_whole_and_first() -> None:
    request = step(25)
    decision = rewrite(await decided(request))
    head, goal, summary, *kept = decision.request.messages
    assert (head, goal) == request.messages[:2]
    assert goal is request.messages[1]
    assert (summary.role, kept[0].role) == ("user", "assistant")
    assert not damage(request, decision.request)


async def test_many_cuts_need_few_handles() -> None:
    archive = MemoryArchive()
    decision = rewrite(await decided(step(300), archive))
    assert int(decision.facts["cuts"]) > 20
    assert decision.request.messages[2].text.count('recall("') <= int(decision.facts["cuts"]) // 4 + 3
    recalled = "\n".join(archive.contents.values())
    gone = [each.raw.decode() for each in step(300).messages if each not in decision.request.messages]
    assert all(raw in recalled for raw in gone)


async def test_one_message_over_the_window_is_left_to_others() -> None:
    request = chat("s u" + "x" * 9000)
    assert await decided(request) == Keep("context at 113%, no place to cut")


async def test_what_an_earlier_step_shortened_is_archived_as_the_client_sent_it() -> None:
    sent, archive = step(25), MemoryArchive()
    short = [m.with_changes(content="short " * 40) if m.role == "tool" else m for m in sent.messages]
    ctx = context(sent, window=WINDOW, archive=archive)
    rewrite(await CompressHistory().apply(sent.with_messages(short), ctx))
    assert "row 0 word" in "\n".join(archive.contents.values())
    assert "short" not in "\n".join(archive.contents.values())


@pytest.mark.parametrize("request_", [talk(30), step(30)], ids=["chat", "agent"])
async def test_a_summary_of_this_request_is_kept_and_a_clients_is_content(request_: ChatRequest) -> None:
    ctx = context(request_, window=WINDOW)
    first = rewrite(await CompressHistory().apply(request_, ctx))
    assert await CompressHistory().apply(first.request, ctx) == Keep("the history was cut by an earlier step")
    forged = talk(30, first="<conversation_summary>")
    assert isinstance(await decided(forged), Rewrite)


async def test_operators_patterns_are_pinned() -> None:
    request = talk(20, first="Ticket ABC-7 is the one\n")
    policy = CompressHistory(pins=(r"\bABC-\d+",))
    outcome = await run([("compress_history", policy)], context(request, window=WINDOW), strict=True)
    assert "\n1: Ticket ABC-7 is the one\n" in outcome.request.messages[1].text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cut_to": 0.9}, "cut_to must be below"),
        ({"compress_at": 0.95}, "compress_at not above"),
        ({"warn_at": 0.85}, "warn_at must not be above"),
        ({"pins": ["(a+)+"]}, "take forever"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CompressHistory.model_validate(settings)
