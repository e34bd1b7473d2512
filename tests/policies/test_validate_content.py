"""What is done with content that is not good enough, and that nothing is done with any other."""

import pytest

from policies.validate_content import Scores, ValidateContent
from proxy.chat import ChatRequest, Message
from proxy.chat.wire import damage
from proxy.context import Context
from proxy.policy import Decision, Keep, Reject, Rewrite
from proxy.testing import MemoryArchive, MemoryMemo, context
from tests import talk
from tests.decisions import rewrite, texts
from tests.talk import calls

CUT = '{"items": [{"name": "lamp"}, {"name": "wick'
WHOLE = '{"items": [{"name": "lamp"}]}'
LATER = (talk.assistant("ok"), talk.user("and?"))
NOON = 1777896000.0  # 2026-05-04T12:00:00Z


def asked(result: str, *later: Message, arguments: str = '{"key": "a"}', user: str = "look it up") -> ChatRequest:
    return ChatRequest("m", (talk.user(user), calls("c1", arguments=arguments), talk.result(result), *later))


async def decided(policy: ValidateContent, request: ChatRequest, ctx: Context | None = None) -> Decision:
    decision = await policy.apply(request, ctx or context(request))
    if isinstance(decision, Rewrite):
        assert not damage(request, decision.request)
    return decision


def result_of(decision: Decision) -> str:
    return next(message.text for message in rewrite(decision).request.messages if message.role == "tool")


EXAMPLES = [asked(CUT, *LATER)]


async def test_good_content_is_left_alone_and_a_result_that_left_is_not_asked_for() -> None:
    decision = await decided(ValidateContent(), asked(WHOLE))
    assert isinstance(decision, Keep)
    assert (decision.facts["quality_score"], decision.facts["judged"]) == (1.0, 1)
    incoming = asked(CUT, *LATER)
    request = incoming.with_messages(incoming.messages[-1:])
    assert isinstance(await ValidateContent().apply(request, context(incoming)), Keep)


async def test_the_line_stays_as_the_conversation_grows_and_is_not_added_twice() -> None:
    policy = ValidateContent()
    first = result_of(await decided(policy, asked(CUT)))
    longer = asked(CUT, *LATER)
    decision = await decided(policy, longer)
    assert result_of(decision) == first
    assert isinstance(decision, Rewrite)
    assert decision.facts["poor_contents"] == 0, "what was told before is told again"
    again = await policy.apply(decision.request, context(longer))
    assert isinstance(again, Keep)


async def test_the_line_stands_in_front_of_the_form_that_an_earlier_step_made() -> None:
    incoming = asked(CUT, LATER[0])
    short = incoming.messages[2].with_changes(content="short form")
    request = incoming.with_messages([*incoming.messages[:2], short, incoming.messages[3]])
    decision = await ValidateContent().apply(request, context(incoming))
    assert result_of(decision) == "[quality check: its JSON is cut off (completeness 0.40)]\nshort form"


async def test_quarantine_leaves_one_line_and_the_archive_has_the_rest_with_the_reason() -> None:
    request, archive = asked(CUT), MemoryArchive()
    decision = await decided(ValidateContent(action="quarantine"), request, context(request, archive=archive))
    line = result_of(decision)
    (handle, kept), *others = archive.contents.items()
    assert not others
    assert kept == f"[quality check: its JSON is cut off (completeness 0.40)]\n{CUT}"
    assert f'recall("{handle}")' in line
    assert "wick" not in line
    assert "\n" not in line


@pytest.mark.parametrize("archive", [None, MemoryArchive(broken=True)])
async def test_nothing_is_set_aside_that_cannot_be_archived(archive: MemoryArchive | None) -> None:
    request = asked(CUT)
    decision = await decided(ValidateContent(action="quarantine"), request, context(request, archive=archive))
    assert result_of(decision).endswith(CUT)


async def test_new_content_is_refused_and_old_content_refuses_nothing_for_ever() -> None:
    policy = ValidateContent(action="reject")
    decision = await decided(policy, asked(CUT))
    assert isinstance(decision, Reject)
    assert decision.code == "content_quality"
    assert "wick" not in decision.why
    old = asked(CUT, *LATER)
    assert result_of(await decided(policy, old)).endswith(CUT)


DATA = "<context>\nEl ni\u00c3\u00b1o comi\u00c3\u00b3 en la estaci\u00c3\u00b3n.\n</context>\nWhen does it open?"


async def test_data_in_a_users_message_gets_a_note_in_front_and_the_message_stays() -> None:
    request = ChatRequest("m", (talk.user(DATA),))
    sent = rewrite(await decided(ValidateContent(action="quarantine"), request)).request
    note, theirs = sent.messages
    assert theirs is request.messages[0]
    assert note.role == "user"
    assert "damaged" in note.text
    assert isinstance(await ValidateContent().apply(sent, context(request)), Keep)


async def test_parts_are_judged_one_by_one_and_two_poor_texts_get_one_line_each_fault() -> None:
    parts = [{"type": "text", "text": WHOLE}, {"type": "text", "text": CUT}]
    request = asked("")
    made = request.messages[2].with_changes(content=parts)
    request = request.with_messages([*request.messages[:2], made])
    first, second = rewrite(await decided(ValidateContent(), request)).request.messages[2].parts
    assert first["text"] == WHOLE
    assert second["text"].startswith("[quality check")
    request = ChatRequest("m", (talk.user(f"{DATA} {DATA}"),))
    assert len(texts(await decided(ValidateContent(), request))[0].splitlines()) == 2


async def test_tools_can_be_left_out_measures_turned_off_and_the_overall_score_has_a_threshold() -> None:
    assert isinstance(await decided(ValidateContent(skip_tools=("look_*",)), asked(CUT)), Keep)
    assert isinstance(await decided(ValidateContent(least=Scores(completeness=0)), asked(CUT)), Keep)
    decision = await decided(ValidateContent(least=Scores(completeness=0), overall=0.9), asked(CUT))
    assert "overall quality" in result_of(decision)


STALE = '{"price": 3, "fetched_at": "2026-05-01T12:00:00Z"}'


async def test_age_is_measured_from_the_time_of_the_conversation_or_its_first_sight() -> None:
    told = "look it up. The current time is 2026-05-04 12:00:00 UTC"
    assert "3 days before" in result_of(await decided(ValidateContent(), asked(STALE, user=told)))
    assert isinstance(await decided(ValidateContent(), asked(STALE)), Keep)
    policy, memo, request = ValidateContent(), MemoryMemo(), asked(STALE)
    first = result_of(await decided(policy, request, context(request, memo=memo, now=NOON)))
    assert "3 days before" in first
    later = asked(STALE, *LATER)
    for now in (NOON + 9 * 86400, None):
        assert result_of(await decided(policy, later, context(later, memo=memo, now=now))) == first
    unseen = context(later, memo=MemoryMemo(), now=NOON)
    assert isinstance(await decided(policy, later, unseen), Keep), "nobody knows when it came"


@pytest.mark.parametrize(("hour", "is_stale"), [(11, False), (8, True)])
async def test_content_is_fresh_for_an_hour(hour: int, is_stale: bool) -> None:
    result = f'{{"price": 3, "fetched_at": "2026-05-04T{hour:02}:30:00Z"}}'
    told = "look it up. The current time is 2026-05-04 12:00:00 UTC"
    decision = await decided(ValidateContent(), asked(result, user=told))
    assert isinstance(decision, Rewrite) is is_stale
