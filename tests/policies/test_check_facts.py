from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from policies.check_facts import CheckFacts
from proxy.chat import ChatRequest, Message
from proxy.chat.blocks import MEMORIES, NOTES, RECALLED, SHARED, build, items
from proxy.chat.errors import ConfigError
from proxy.config.load import load
from proxy.policy import Decision, Keep, Reject, Rewrite
from proxy.testing import Example, MemoryArchive, chat, context
from tests.decisions import rewrite, texts
from tests.services import SureJudge

FACT = "The capital of Australia is Canberra."
FALSE = "The capital of Australia is Sydney."
NOTE = f'[incorrect: contradicts the trusted fact "{FACT}"]'
CONFIG = """
upstreams:
  echo: {kind: echo}
models:
  - {match: "*", upstream: echo}
chains:
  default:
    - check_facts: {file: facts.txt}
"""


def talk(*messages: tuple[str, Any]) -> ChatRequest:
    return chat("u").with_messages([Message({"role": role, "content": content}) for role, content in messages])


async def decided(request: ChatRequest, archive: MemoryArchive | None = None, **settings: Any) -> Decision:
    return await CheckFacts(**({"facts": (FACT,)} | settings)).apply(request, context(request, archive=archive))


def said_by_model(text: str) -> ChatRequest:
    return talk(("assistant", text), ("user", "Hm."))


EXAMPLES = [Example(talk(("user", "Hello."), ("assistant", FALSE), ("user", "Thanks.")), CheckFacts(facts=(FACT,)))]


@pytest.mark.parametrize("role", ["user", "assistant"])
async def test_a_note_stands_behind_the_statement(role: str) -> None:
    request = talk(("user", "Hello."), (role, f"Well. {FALSE} Anything else?"), ("user", "Thanks."))
    decision = await decided(request)
    assert texts(decision) == ["Hello.", f"Well. {FALSE} {NOTE} Anything else?", "Thanks."]
    assert decision.facts["poisoning_attempts"] == 1


async def test_a_statement_is_new_once_though_it_is_sent_with_each_request() -> None:
    said: list[tuple[str, Any]] = [("user", f"Hello. {FALSE}")]
    counts = []
    for more in ([], [("assistant", FALSE), ("user", "Sure?")], [("assistant", "Yes."), ("user", "Good.")]):
        said += more
        facts = (await decided(talk(*said))).facts
        counts.append((facts["poisoning_attempts"], facts["poisoning_attempts_new"]))
    assert counts == [(1, 1), (2, 1), (2, 0)]


async def test_a_tool_result_in_json_stays_json_and_of_parts_each_text_is_checked() -> None:
    request = chat("u1 a1! t1 u2")
    tool = request.messages[2].with_changes(content=f'{{"text": "{FALSE}", "n": 1.50}}')
    request = request.with_messages([*request.messages[:2], tool, request.messages[3]])
    note = NOTE.replace('"', '\\"')
    assert texts(await decided(request))[2] == f'{{"text": "{FALSE} {note}", "n": 1.50}}'
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    parts = [{"type": "text", "text": "Look."}, image, {"type": "text", "text": FALSE}]
    sent = rewrite(await decided(talk(("user", parts), ("assistant", "Yes."), ("user", "And?")))).request
    assert list(sent.messages[0]["content"]) == [*parts[:2], {"type": "text", "text": f"{FALSE} {NOTE}"}]


async def test_the_last_user_message_is_never_touched() -> None:
    request = talk(("user", "Hello."), ("assistant", "Hi."), ("user", FALSE))
    decision = await decided(request, action="quarantine", archive=MemoryArchive())
    assert texts(decision) == [
        "Hello.",
        "Hi.",
        "<trusted_facts>\nTrusted facts that the next message contradicts; data, not instructions.\n"
        f"- {FACT}\n</trusted_facts>",
        FALSE,
    ]


async def test_quarantine_archives_the_text_and_leaves_a_note_with_its_handle() -> None:
    archive = MemoryArchive()
    request = talk(("user", "Hello."), ("assistant", f"Well. {FALSE} Bye."), ("user", "Thanks."))
    told = texts(await decided(request, archive, action="quarantine"))[1]
    handle = archive.handle(f"Well. {FALSE} Bye.")
    assert archive.contents == {handle: f"Well. {FALSE} Bye."}
    assert told == f'Well. {NOTE[:-1]}; quarantined, recall("{handle}") has it] Bye.'
    assert FALSE not in told


@pytest.mark.parametrize("archive", [None, MemoryArchive(broken=True)])
async def test_what_cannot_be_archived_is_annotated_instead(archive: MemoryArchive | None) -> None:
    assert texts(await decided(said_by_model(FALSE), archive, action="quarantine"))[0] == f"{FALSE} {NOTE}"


async def test_a_new_statement_is_refused_and_says_where_it_is_and_which_fact() -> None:
    decision = await decided(talk(("user", "Hello."), ("assistant", "Hi."), ("user", FALSE)), action="reject")
    assert decision == Reject(
        f"a statement in messages[2] contradicts a trusted fact: {FACT}",
        "contradicts_trusted_fact",
        param="messages[2]",
        facts={"poisoning_attempts": 1},
        findings=[f'messages[2] contradicts the trusted fact "{FACT}"'],
    )


async def test_each_finding_is_told_for_named_roles_and_what_the_client_sent() -> None:
    decision = await decided(talk(("user", "Hello."), ("assistant", FALSE), ("user", "And?"), ("user", FALSE)))
    assert rewrite(decision).findings == [f'messages[{n}] contradicts the trusted fact "{FACT}"' for n in (1, 3)]
    request = talk(("user", FALSE), ("assistant", "Really?"), ("user", "Sorry."))
    assert texts(await decided(request, action="reject")) == [f"{FALSE} {NOTE}", "Really?", "Sorry."]
    request = talk(("user", FALSE), ("assistant", FALSE), ("user", "Hm."))
    assert texts(await decided(request, roles=("assistant",))) == [FALSE, f"{FALSE} {NOTE}", "Hm."]
    assert isinstance(await decided(request, roles=("tool",)), Keep)
    request = talk(("system", FALSE), ("user", "Hello."))
    assert isinstance(await decided(request), Keep)
    inserted = request.with_messages([Message({"role": "user", "content": FALSE}), *request.messages])
    assert isinstance(await CheckFacts(facts=(FACT,)).apply(inserted, context(request)), Keep)


async def test_without_facts_or_with_too_many_contradictions_nothing_happens() -> None:
    request = said_by_model(f"{FALSE} " * 3)
    assert isinstance(await decided(request, most=2), Keep)
    assert isinstance(await decided(request, most=3), Rewrite)
    assert await CheckFacts().apply(chat("u"), context(chat("u"))) == Keep("no trusted facts")


def growing() -> Iterator[Sequence[tuple[str, Any]]]:
    """A conversation turn by turn; the model is wrong in the third, the user in the sixth turn."""
    said: list[tuple[str, Any]] = [("system", "You help.")]
    for turn in range(10):
        said.append(("user", FALSE if turn == 5 else f"Question {turn}."))
        yield list(said)
        said.append(("assistant", FALSE if turn == 2 else f"Answer {turn}."))


@pytest.mark.parametrize("action", ["annotate", "quarantine"])
async def test_what_was_sent_once_is_sent_again_but_for_the_turn_of_a_user_that_was_wrong(action: str) -> None:
    archive = MemoryArchive()
    sent: list[bytes] = []
    changed: list[tuple[int, int]] = []
    for turn, said in enumerate(growing()):
        request = talk(*said)
        decision = await decided(request, archive, action=action)
        forwarded = decision.request if isinstance(decision, Rewrite) else request
        raws = [message.raw for message in forwarded.messages]
        same = next((n for n, (a, b) in enumerate(zip(sent, raws, strict=False)) if a != b), len(sent))
        if same < len(sent):
            changed.append((turn, len(sent) - same))
        sent = raws
    assert changed == [(6, 2)]  # the note and the message itself: the tail of one turn


# --- files --------------------------------------------------------------------------------------------------------------


def test_a_file_is_part_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "facts.txt").write_text(f"{FACT}\n")
    first = load(tmp_path / "config.yaml", {})
    assert tmp_path / "facts.txt" in first.files
    assert first.version == load(tmp_path / "config.yaml", {}).version
    (tmp_path / "facts.txt").write_text("The capital of Peru is Lima.\n")
    assert first.version != load(tmp_path / "config.yaml", {}).version


@pytest.mark.parametrize(
    ("content", "told"), [("fine\n{bad\n", "line 2 of the file of facts"), (None, "the file of facts cannot be read")]
)
def test_a_bad_file_is_an_error_of_the_configuration(tmp_path: Path, content: str | None, told: str) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    if content is not None:
        (tmp_path / "facts.txt").write_text(content)
    with pytest.raises(ConfigError, match=told) as caught:
        load(tmp_path / "config.yaml", {})
    assert "config.yaml:8" in str(caught.value)


# --- the judge ----------------------------------------------------------------------------------------------------------

BORN = "Ada Lovelace was an English mathematician."
SAID = "Ada Lovelace wrote the first cookbook of Norwick."


class Scripted(SureJudge):
    """A judge that is sure of what it is told to be, or late."""

    contradictions = SureJudge.replacements


async def judged(request: ChatRequest, judge: Scripted | None) -> Decision:
    return await CheckFacts(facts=(BORN, FACT), judge=0.5).apply(request, context(request, judge=judge))


async def test_a_judge_is_asked_only_about_what_the_rules_cannot_read() -> None:
    judge = Scripted(0.95)
    told = texts(await judged(said_by_model(f"{SAID} The weather is fine. Is Ada Lovelace alive?"), judge))[0]
    assert told.startswith(f'{SAID} [incorrect: contradicts the trusted fact "{BORN}"]')
    assert judge.asked == [(BORN, SAID)]
    judge = Scripted(0.99)
    assert texts(await judged(said_by_model(FALSE), judge))[0] == f"{FALSE} {NOTE}"
    assert judge.asked == []


@pytest.mark.parametrize("judge", [Scripted(0.6), Scripted(None), None])
async def test_a_judge_that_is_unsure_late_or_absent_changes_nothing(judge: Scripted | None) -> None:
    assert isinstance(await judged(said_by_model(SAID), judge), Keep)


TRUE = "The capital of Peru is Lima."


async def checked_block(tag: str, lines: Sequence[str], action: str, said: str = "Plan a trip.") -> Decision:
    """What becomes of a block that a step has put in front of the last message."""
    sent = talk(("user", "Hello."), ("assistant", "Hello."), ("user", said))
    made = sent.with_messages([*sent.messages[:2], build(tag, "About this.", lines), sent.messages[2]])
    policy = CheckFacts(facts=(FACT, "La capital de Francia es París."), action=action)
    return await policy.apply(made, context(sent, archive=MemoryArchive()))


@pytest.mark.parametrize("tag", [MEMORIES, SHARED, NOTES, RECALLED])
@pytest.mark.parametrize("said", [FALSE, FALSE[:-1], "La capital de Francia es Lyon."])
async def test_what_a_step_put_in_gets_a_note(tag: str, said: str) -> None:
    decision = await checked_block(tag, items([TRUE, said]), "annotate")
    assert f"- {said} [incorrect: contradicts the trusted fact" in texts(decision)[2]
    assert TRUE in texts(decision)[2]
    assert len(texts(decision)) == 4
    assert decision.facts["poisoning_attempts"] == decision.facts["poisoning_attempts_new"] == 1
    assert rewrite(decision).findings[0].startswith("before messages[2] contradicts")


@pytest.mark.parametrize("action", ["quarantine", "reject"])
async def test_a_false_memory_is_left_out_and_a_client_is_not_refused_for_it(action: str) -> None:
    decision = await checked_block(MEMORIES, items([TRUE, FALSE, "Likes jazz"]), action)
    assert texts(decision)[2].splitlines()[2:-1] == [f"- {TRUE}", "- Likes jazz"]
    assert texts(await checked_block(MEMORIES, items([FALSE]), action)) == ["Hello.", "Hello.", "Plan a trip."]
    shared = texts(await checked_block(SHARED, [f"{TRUE} {FALSE}"], action))[2]
    assert [each in shared for each in (TRUE, f"{NOTE[:-1]}; quarantined, ", FALSE)] == [True, True, False]


async def test_what_the_client_says_is_still_refused_and_named() -> None:
    decision = await checked_block(MEMORIES, items([FALSE]), "reject", said=FALSE)
    assert isinstance(decision, Reject)
    assert decision.param == "messages[2]"
    assert len(decision.findings) == 1
