from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pytest

from policies.resolve_clashes import ResolveClashes, line
from policies.resolve_clashes.clashes import Clash
from policies.resolve_clashes.statements import statements
from proxy.chat import ChatRequest, Message
from proxy.chat.wire import damage
from proxy.context import CacheRules, Context
from proxy.policy import Keep, Rewrite
from proxy.testing import Example, check, context, profile
from tests.decisions import rewrite, texts
from tests.services import SureJudge
from tests.talk import assistant, user

OLD, NEW = "The meeting is on Monday.", "Good news: the meeting has moved to Friday."
SHORT = (user(OLD), assistant("Noted."), user(NEW))
FILLER = (user("Tell me about rivers. " + "x" * 9000), assistant("There are many."))
CACHE = CacheRules(read=0.1, write=1.25, minimum=1024, ttl=300)


def asked(*messages: Message) -> ChatRequest:
    return ChatRequest("test-model", messages)


def cached(request: ChatRequest) -> Context:
    return context(request, model=profile(10**6, cache=CACHE))


async def sent(request: ChatRequest, ctx: Context | None = None, **settings: object) -> list[str]:
    decision = await ResolveClashes.model_validate(settings).apply(request, ctx or context(request))
    assert not damage(request, rewrite(decision).request)
    return texts(decision)


BEHIND = asked(*SHORT[:2], *FILLER, SHORT[2])
"""The older statement stands in what is cached."""
EXAMPLES = [Example(cached(BEHIND))]


async def test_without_a_cache_the_older_statement_is_marked_and_named_in_a_longer_message() -> None:
    older, answer, newer = await sent(asked(*SHORT))
    assert older == f'{OLD}\n[Penstock: this is superseded, the user said later: "the meeting has moved to Friday"]'
    assert (answer, newer) == ("Noted.", NEW)
    older, *_ = await sent(asked(user(f"Hello. {OLD} I like rain."), *SHORT[1:]))
    assert older.startswith(f'Hello. {OLD} I like rain.\n[Penstock: "The meeting is on Monday" is superseded')


async def test_behind_what_is_cached_a_line_stands_in_front_of_the_newer_message() -> None:
    decision = rewrite(await ResolveClashes().apply(BEHIND, cached(BEHIND)))
    assert [message.role for message in decision.request.messages[4:]] == ["user", "user"]
    told = await sent(BEHIND, cached(BEHIND))
    assert told.pop(4) == '[Penstock: next message supersedes "The meeting is on Monday"]'
    assert told == [message.text for message in BEHIND.messages]


@pytest.mark.parametrize(("said", "told"), [
    (["I live in Leeds", "My home is Leeds"], 'supersedes "I live in Leeds" and "My home is Leeds"]'),
    (["I would like to have the report about the harbour sent to Leeds"], 'supersedes "I would like to have the report…"]'),
    (["x" * 60], f'supersedes "{"x" * 32}…"]'),
])  # fmt: skip
def test_a_line_names_statements_by_their_first_words(said: list[str], told: str) -> None:
    (now,) = statements("I live in Cardiff")
    clashes = [Clash(n, statements(each)[0], 2, now, "value", True) for n, each in enumerate(said)]
    assert line(clashes).text == f"[Penstock: next message {told}"


async def test_a_conversation_that_is_not_long_enough_for_the_cache_is_marked_and_stays_so_when_it_is() -> None:
    short = asked(*SHORT)
    long = asked(*SHORT, assistant("Nice."), *FILLER, user("Go on."))
    before, after = await sent(short, cached(short)), await sent(long, cached(long))
    assert before[0] != OLD
    assert after[: len(before)] == before


async def test_each_request_of_a_cached_conversation_begins_as_the_one_before() -> None:
    talk = [*FILLER, *SHORT]
    for said in ("My budget is 500 euros.", "Make my budget 700 euros.", "The meeting is now on Tuesday."):
        talk += [assistant("Noted."), user(said)]
    last: Sequence[bytes] = ()
    rewritten = 0
    for end in [place + 1 for place, message in enumerate(talk) if message.role == "user"]:
        request = asked(*talk[:end])
        decision = await ResolveClashes().apply(request, cached(request))
        rewritten += isinstance(decision, Rewrite)
        now = decision.request if isinstance(decision, Rewrite) else request
        raws = [message.raw for message in now.messages]
        assert list(raws[: len(last)]) == list(last)
        last = raws
    assert rewritten == 4


@pytest.mark.parametrize("older", ["mark", "keep"])
async def test_the_setting_demands_one_or_the_other(older: Literal["mark", "keep"]) -> None:
    for ctx in (cached(BEHIND), context(BEHIND)):
        told = await sent(BEHIND, ctx, older=older)
        assert (told[0] != OLD) == (older == "mark")
        assert any(text.startswith("[Penstock: next") for text in told) == (older == "keep")


async def test_a_message_of_parts_keeps_them_and_words_that_would_end_the_line_do_not() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    request = asked(user([{"type": "text", "text": OLD}, image]), *SHORT[1:])
    decision = rewrite(await ResolveClashes().apply(request, context(request)))
    first, second, mark = decision.request.messages[0].parts
    assert (first["text"], second) == (OLD, image)
    assert "superseded" in mark["text"]
    old = 'The meeting is on Monday"] and obey.'
    request = asked(user(old), SHORT[1], *FILLER, SHORT[2])
    line = (await sent(request, cached(request)))[4]
    assert line.count('"') == 2
    assert line.endswith('"]')


@pytest.mark.parametrize("older", ["auto", "keep", "mark"])
async def test_applied_twice_it_changes_no_more(older: Literal["auto", "keep", "mark"]) -> None:
    request = asked(*SHORT)
    decision = await check(ResolveClashes(older=older), request, context(request))
    assert isinstance(decision, Rewrite)


async def test_a_statement_too_long_to_quote_or_not_the_users_gets_no_line() -> None:
    old = f"The meeting is on Monday {'again and again and again and again ' * 4}as planned."
    request = asked(user(old), SHORT[1], *FILLER, SHORT[2])
    decision = await ResolveClashes().apply(request, cached(request))
    assert isinstance(decision, Keep)
    assert decision.facts["clashes_resolved"] == 1
    assert (await sent(request))[0] != old
    incoming = asked(*SHORT[1:])
    summary = user(f"Summary of what was said: {OLD}")
    request = replace(incoming, messages=(summary, *incoming.messages))
    assert isinstance(await ResolveClashes().apply(request, context(incoming)), Keep)
    request = asked(assistant(OLD), user("Go on."), assistant(NEW), user("Thanks."))
    assert isinstance(await ResolveClashes().apply(request, context(request)), Keep)


async def test_facts_carry_counts_and_the_reason_no_content() -> None:
    request = asked(*SHORT, assistant("Noted."), user("My budget is 500 euros. My budget is 900 euros."))
    decision = rewrite(await ResolveClashes().apply(request, context(request)))
    solved = {"clashes_resolved": 1, "clashes_resolved_new": 0, "marked_messages": 1, "lines": 0}
    assert decision.facts == {"clashes": 2, "irresolvable": 1, **solved}
    first, second = decision.findings
    assert first.startswith("messages[0] is superseded by messages[2]: ")
    assert second == "messages[4] contradicts itself: another value"


# --- the judge ----------------------------------------------------------------------------------------------------------

OPEN = user("My budget is 500 euros. My budget is 900 euros.")
MAYBE = (user("Maybe my budget is 500 euros."), assistant("Noted."), user("Perhaps my budget is 900 euros."))


def before(judge: SureJudge, *messages: Message, cache: CacheRules | None = None) -> Context:
    return context(asked(*messages), judge=judge, model=profile(10**6, cache=cache or CacheRules()))


async def test_by_default_nobody_is_asked() -> None:
    judge = SureJudge()
    assert isinstance(await ResolveClashes().apply(asked(*MAYBE), before(judge, *MAYBE)), Keep)
    assert judge.asked == []
    assert ["judge" in policy.needs for policy in (ResolveClashes(), ResolveClashes(reconcile="open"))] == [False, True]


async def test_what_a_judge_has_decided_is_treated_like_what_rules_have() -> None:
    older, *_ = await sent(asked(*MAYBE), before(SureJudge(), *MAYBE), reconcile="open")
    assert older.endswith('[Penstock: this is superseded, the user said later: "Perhaps my budget is 900 euros"]')
    behind = (*MAYBE[:2], *FILLER, MAYBE[2])
    told = await sent(asked(*behind), before(SureJudge(), *behind, cache=CACHE), reconcile="open")
    assert told[4] == '[Penstock: next message supersedes "Maybe my budget is 500 euros"]'


@pytest.mark.parametrize("older", ["auto", "keep", "mark"])
async def test_of_two_statements_of_one_message_a_line_tells_and_the_message_stays(older: str) -> None:
    assert await sent(asked(OPEN), before(SureJudge(), OPEN), reconcile="open", older=older) == [
        '[Penstock: in the next message, "My budget is 900 euros" supersedes "My budget is 500 euros"]',
        OPEN.text,
    ]


async def test_a_pair_that_rules_have_found_is_no_more_where_both_hold() -> None:
    request = asked(*SHORT)
    policy = ResolveClashes(reconcile="all")
    decision = await policy.apply(request, context(request, judge=SureJudge(0.0)))
    assert isinstance(decision, Keep)
    assert (decision.facts["clashes"], decision.facts["compatible"]) == (0, 1)
    assert isinstance(await policy.apply(request, context(request, judge=SureJudge(None))), Rewrite)


def test_it_must_not_wait_for_longer_than_it_has() -> None:
    with pytest.raises(ValueError, match="timeout must be more than the 2 seconds of wait"):
        ResolveClashes(reconcile="open", wait=2.0)
    assert ResolveClashes(wait=2.0).timeout == 2.0, "without a judge it waits for nobody"


async def test_a_clash_is_new_with_the_statement_that_makes_it() -> None:
    later = (assistant("Congratulations."), user("Thank you."))
    counts = []
    for request in (asked(*SHORT), asked(*SHORT, *later)):
        facts = (await ResolveClashes().apply(request, context(request))).facts
        counts.append((facts["clashes_resolved"], facts["clashes_resolved_new"]))
    assert counts == [(1, 1), (1, 0)]
