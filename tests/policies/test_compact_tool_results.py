import asyncio
import base64
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.compact_tool_results import CompactToolResults
from proxy.chat import ChatRequest, Message, Tool, encode
from proxy.chat.markers import is_shortened, shortened
from proxy.chat.wire import damage
from proxy.context import CacheRules, Context, Identity, Uncached
from proxy.policy import Keep, Rewrite
from proxy.state.cache import OnceService
from proxy.testing import MemoryArchive, chat, context, profile, tool
from proxy.tools.recall import DEFINITION as RECALL
from tests.decisions import rewrite
from tests.scripted import raws
from tests.talk import calls, result, user

PROSE = "\n".join(f"Nobody could say why shop {n} on the corner had closed so early that year." for n in range(160))
LOOKUP = json.dumps([{"id": f"A-{n}", "price": n * 10, "note": PROSE[n * 80 :][:900]} for n in range(12)], indent=2)
HUGE = "\n".join(f"{n} {PROSE[n % 90 :][: 200 + n % 90]}".replace("\n", " ") for n in range(500))
"""Some 30,000 tokens, of which the form leaves less than a tenth."""
CACHED = CacheRules(read=0.1, write=1.0, minimum=0, ttl=300)


def call(arguments: str = "{}", *ids: str) -> Message:
    return calls(*ids or ("c1",), name="f", arguments=arguments)


def request_of(*messages: Message) -> ChatRequest:
    return chat("u1").with_messages([*chat("s u1").messages, *messages])


ANSWER, ASKED = chat("a1 u2").messages


async def forwarded(request: ChatRequest, ctx: Context | None = None, **fields: Any) -> list[Message]:
    ctx = ctx or context(request)
    decision = await CompactToolResults(**fields).apply(request, ctx)
    if not isinstance(decision, Rewrite):
        return list(request.messages)
    assert not damage(request, decision.request)
    again = await CompactToolResults(**fields).apply(decision.request, ctx)
    assert not isinstance(again, Rewrite) or raws(again.request) == raws(decision.request)
    return list(decision.request.messages)


async def shown(*messages: Message, tools: Sequence[Tool] = (), **about: Any) -> list[Any]:
    """The contents of these messages behind "s u1", as they are forwarded."""
    request = request_of(*messages).with_tools(tools)
    return [each["content"] for each in (await forwarded(request, context(request, **about)))[2:]]


async def test_a_new_result_says_the_same_in_less() -> None:
    rows = json.dumps([{"id": f"A-{n}", "price": n} for n in range(40)])
    content = (await shown(call(), result(rows)))[-1]
    assert content.startswith('[("id","price")\n ["A-0",0]\n ["A-1",1]\n')
    assert content.endswith(' ["A-39",39]]')
    as_json = await forwarded(request_of(call(), result(LOOKUP)), tables="json")
    assert as_json[-1]["content"] == json.dumps(json.loads(LOOKUP), separators=(",", ":"))


async def test_what_is_remembered_of_a_text_that_stays_leaves_the_clients_bytes() -> None:
    once = OnceService()
    for _ in range(2):
        spaced = Message({"role": "tool", "tool_call_id": "c1", "content": f"{PROSE} "}, b'{"spaced": 1}')
        request = request_of(call(), spaced)
        ctx = context(request, once=once.bind(Identity("t")))
        assert isinstance(await CompactToolResults().apply(request, ctx), Keep)
    once.close()


async def test_a_result_that_was_read_takes_its_form_and_names_the_original() -> None:
    archive = MemoryArchive()
    content = (await shown(call(), result(LOOKUP), ANSWER, ASKED, archive=archive))[1]
    assert len(content) < len(LOOKUP) / 2
    assert content.startswith('[("id","price","note")\n ["A-0",0,"Nobody could say')
    assert is_shortened(content)
    (handle,) = archive.contents
    assert content.endswith(f'recall("{handle}") has the whole]')
    assert archive.contents[handle] == LOOKUP


@pytest.mark.parametrize("archive", [None, MemoryArchive(broken=True)], ids=["no archive", "a broken one"])
async def test_what_cannot_be_archived_stays(archive: MemoryArchive | None) -> None:
    written = json.dumps({"text": PROSE}, separators=(",", ":"))
    request = request_of(call(written), result(PROSE), ANSWER, call(written, "2"), result("iVBORw0K1" * 400, "2"))
    assert isinstance(await CompactToolResults().apply(request, context(request, archive=archive)), Keep)


async def test_a_forged_marker_is_content_and_one_of_ours_stays() -> None:
    archive = MemoryArchive()
    forged = shortened(PROSE, len(PROSE) + 1, "a" * 20)
    assert len((await shown(call(), result(forged), ANSWER, ASKED, archive=archive))[1]) < len(forged) / 2
    assert forged in archive.contents.values()
    own = shortened(PROSE, len(PROSE) + 1, await archive.keep(PROSE + ".") or "")
    assert (await shown(call(), result(own), ANSWER, ASKED, archive=archive))[1] == own


@pytest.mark.parametrize("text", [PROSE, PROSE.replace("\n", " ")], ids=["lines", "one line"])
async def test_a_repeat_becomes_a_note_that_needs_no_handle(text: str) -> None:
    _, first, second = await shown(call("{}", "c1", "2"), result(text), result(text, "2"))
    assert first == text
    assert re.fullmatch(r"\[… \d+ lines? as above; from .*\]", second)


@pytest.mark.parametrize("more", ["", "\nAnd one line more."])
async def test_what_a_reference_points_to_is_not_shortened(more: str) -> None:
    read = (call("{}", "c1", "2"), result(PROSE), result(PROSE + more, "2"), ANSWER, ASKED)
    assert (await shown(*read))[1] == PROSE


async def test_what_was_shortened_and_is_asked_for_again_stays_whole() -> None:
    said = await shown(call(), result(PROSE), ANSWER, call("{}", "2"), result(PROSE, "2"), ANSWER)
    first, again = said[1], said[4]
    assert is_shortened(first)
    lines = {line for line in again.split("\n") if not line.startswith("[… ")}
    assert lines | {*first.split("\n")} >= {*PROSE.split("\n")}


@pytest.mark.parametrize(
    "messages",
    [
        (call(json.dumps({"text": PROSE})), result("done"), ANSWER, ASKED, call("{}", "2"), result(PROSE, "2"), ANSWER),
        (call(), result(LOOKUP), ANSWER, ASKED, call("{}", "2"), result(LOOKUP, "2"), ANSWER),
        (call("{}", "c1", "2"), result(json.dumps({"x": PROSE})), result(PROSE[:4000], "2"), ANSWER),
    ],
    ids=["of an argument", "of a result in another layout", "of a part of a result beside it"],
)
async def test_a_second_pass_over_a_repeat_changes_nothing(messages: tuple[Message, ...]) -> None:
    request = request_of(*messages)
    assert await forwarded(request) != list(request.messages)  # and the pass behind it finds nothing more


NUMBERED = "\n".join(f"{n}: line {n * n} of the program does what it says" for n in range(1, 101))


async def test_a_file_that_is_read_again_after_an_edit_is_what_changed() -> None:
    reads = [calls(each, name="read_file", arguments='{"path": "a.py"}') for each in ("c1", "2")]
    lines = [f"def step_{n}(total): return total + {n}" for n in range(80)]
    changed = [*lines[:40], "def step_40(total, tax): return total * tax", *lines[41:]]
    first, second = (result("\n".join(each), name) for each, name in ((lines, "c1"), (changed, "2")))
    said = await shown(reads[0], first, ANSWER, reads[1], second)
    assert said[1] == "\n".join(lines)
    assert said[4].split("\n") == [
        "[… 37 lines as above; from def step_0(total): retur… to def step_36(total): retu…]",
        *changed[37:44],
        "[… 36 lines as above; from def step_44(total): retu… to def step_79(total): retu…]",
    ]


async def test_only_text_parts_change() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    content = [{"type": "text", "text": PROSE}, image, {"type": "text", "text": "short"}]
    parts = (await shown(call(), result(content), ANSWER))[1]
    assert is_shortened(parts[0]["text"])
    assert parts[1:] == content[1:]


async def test_a_payload_in_arguments_is_shortened_and_all_else_stays() -> None:
    arguments = json.dumps({"to": "ana", "content": PROSE, "mode": 1.0, "tags": ["x", PROSE]})
    (sent,) = (await forwarded(request_of(call(arguments), result("done"))))[2]["tool_calls"]
    read = json.loads(sent["function"]["arguments"])
    assert (sent["id"], sent["function"]["name"]) == ("c1", "f")
    assert list(read) == ["to", "content", "mode", "tags"]
    assert (read["to"], read["tags"][0]) == ("ana", "x")
    assert '"mode":1.0' in sent["function"]["arguments"]
    assert is_shortened(read["content"])
    assert is_shortened(read["tags"][1])


@pytest.mark.parametrize(("wanted", "stays"), [({"path": "/tmp/a.txt"}, True), ({"to": "ana"}, False)])
async def test_what_a_call_writes_to_a_file_stays(wanted: dict[str, str], stays: bool) -> None:
    arguments = json.dumps({**wanted, "content": PROSE})
    messages = await forwarded(request_of(call(arguments), result("done")))
    assert (messages[2]["tool_calls"][0]["function"]["arguments"] == arguments) is stays


async def test_a_call_has_one_form_while_it_is_open_or_nobody_answered_it() -> None:
    request = request_of(call(json.dumps({"content": PROSE})))
    assert isinstance(await CompactToolResults().apply(request, context(request)), Keep)
    unanswered = [call(json.dumps({"content": PROSE})), ASKED]
    first = await forwarded(request_of(*unanswered))
    later = await forwarded(request_of(*unanswered, call("{}", "c2"), result("done", "c2")))
    assert encode(later[: len(first)]) == encode(first)
    assert PROSE not in first[2]["tool_calls"][0]["function"]["arguments"]


@pytest.mark.parametrize(
    "arguments",
    ["", "{broken", '{ "a" :  1 }', '["' + PROSE + '"]', '"' + PROSE + '"', '{"content":[{"type":"text","text":"x"}]}'],
)
async def test_arguments_that_stay(arguments: str) -> None:
    messages = await forwarded(request_of(call(arguments), result("done")))
    assert messages[2]["tool_calls"][0]["function"]["arguments"] == arguments


async def test_a_form_that_does_not_pay_in_time_is_not_taken() -> None:
    request = request_of(call(), result(LOOKUP), ANSWER)
    ctx = context(request, model=profile(cache=CACHED))

    assert is_shortened((await forwarded(request, ctx, turns=12))[3]["content"])
    assert not is_shortened((await forwarded(request, ctx, turns=1))[3]["content"])
    assert not is_shortened((await forwarded(request, ctx, turns=12, read_again=1))[3]["content"])
    written = request_of(call(json.dumps({"text": PROSE})), result("done"), ANSWER)
    for turns, stays in ((12, False), (1, True)):
        sent = await forwarded(written, context(written, model=profile(cache=CACHED)), turns=turns, read_again=0.9)
        assert (sent[2] is written.messages[2]) is stays


@pytest.mark.parametrize(("tools", "leaves"), [([], True), ([tool()], False), ([tool(), RECALL], True)])
async def test_the_first_handle_pays_for_the_tool_that_reads_it(tools: list[Tool], leaves: bool) -> None:
    said = await shown(user("x, " * 7200), call(), result(LOOKUP), ANSWER, tools=tools, model=profile(cache=CACHED))
    assert is_shortened(said[2]) is leaves


async def test_a_handle_follows_another_without_a_further_tool() -> None:
    read = (call(), result(HUGE), ANSWER, user("x, " * 8000), call("{}", "2"), result(PROSE, "2"), ANSWER)
    said = await shown(*read, tools=[tool()], model=profile(cache=CACHED))
    assert is_shortened(said[1])
    assert is_shortened(said[5])


async def test_nothing_is_left_out_that_cannot_be_read_or_that_the_cache_needs() -> None:
    blob = base64.b64encode(random.Random(7).randbytes(6000)).decode()
    signed = (call(), result(blob), ANSWER, ASKED)
    assert (await shown(*signed, tools=[tool()], frozen=2))[1] == blob
    assert is_shortened((await shown(*signed, tools=[tool(), RECALL], frozen=2))[1])
    rules = CacheRules(read=0.1, write=1.0, minimum=1024, ttl=300)
    request = request_of(call(), result(LOOKUP), ANSWER)
    messages = await forwarded(request, context(request, model=profile(cache=rules)), turns=2)
    assert not is_shortened(messages[3]["content"])


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(CacheRules(read=0.1, write=1.25, minimum=4096, ttl=300), id="read at a tenth, 4,096 at least"),
        pytest.param(CacheRules(read=0.5, write=1.0, minimum=1024, ttl=600), id="read at half"),
    ],
)
async def test_a_huge_text_is_not_carried_in_full_only_because_it_would_be_cached(rules: CacheRules) -> None:
    written = call(json.dumps({"text": HUGE}), "c2")
    request = chat("u1").with_messages([*chat("u1").messages, call(), result(HUGE), written, result("done", "c2")])
    messages = await forwarded(request, context(request, model=profile(10**6, cache=rules)), turns=20)
    assert is_shortened(messages[2]["content"])
    assert len(messages[2]["content"]) < len(HUGE) / 8
    assert len(messages[3]["tool_calls"][0]["function"]["arguments"]) < len(HUGE) / 8


CONTENTS = st.sampled_from(
    ["short", PROSE, LOOKUP, PROSE + "1", "a,b,c\n" * 300, "x" * 5000, "", PROSE[2000:], NUMBERED,
     [{"type": "text", "text": PROSE}]]
)  # fmt: skip


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.lists(CONTENTS, min_size=1, max_size=3), min_size=1, max_size=6),
    st.sampled_from([CACHED, CacheRules()]),
)
async def test_a_growing_conversation_never_changes_what_was_settled(steps: list[list[Any]], rules: CacheRules) -> None:
    turns: list[Message] = []
    before: list[Message] = []
    archive = MemoryArchive()
    for step, contents in enumerate(steps):
        ids = [f"{step}.{place}" for place in range(len(contents))]
        settled = len(turns) + 2
        turns += [call(json.dumps({"q": str(contents[0])}), *ids), *map(result, contents, ids)]
        request = request_of(*turns)
        messages = await forwarded(request, context(request, model=profile(cache=rules), archive=archive))
        unread = len(steps[step - 1]) if step else 0
        assert [m.raw for m in messages[: settled - unread]] == [
            m.raw for m in before[: settled - unread]
        ] or not before
        assert sum(len(m.raw) for m in messages) <= sum(len(m.raw) for m in request.messages)
        before = messages


class Working(MemoryArchive):
    given = 0

    async def keep(self, content: str) -> str | None:
        self.given += 1
        return await super().keep(content)


async def test_what_was_made_of_a_result_is_remembered_while_its_original_is_there() -> None:
    once, archive = OnceService(), Working()
    first = request_of(call(), result(LOOKUP), ANSWER, ASKED)
    other_result = result(LOOKUP.replace("Nobody", "Anybody"), "2")
    longer = first.with_messages([*first.messages, call("{}", "2"), other_result, ANSWER])

    async def sent(request: ChatRequest, archive: MemoryArchive = archive) -> list[bytes]:
        fresh = request.with_messages(Message(message) for message in request.messages)
        ctx = context(fresh, archive=archive, once=once.bind(Identity("t")))
        decision = rewrite(await CompactToolResults().apply(fresh, ctx))
        assert decision.request.messages[0] is fresh.messages[0], "what nobody changed is the client's own"
        return raws(decision.request)

    made = await sent(first)
    assert archive.given == 1
    assert (await sent(longer))[: len(made)] == made
    assert archive.given == 2, "only the new result was worked on"
    assert await sent(first) == made
    assert archive.given == 2
    archive.contents.clear()
    assert await sent(first) == made
    assert archive.given == 3, "an original that is gone is archived again"
    other = Working()
    assert await sent(first, other) == made
    assert other.contents.keys() == archive.contents.keys(), "another session archives for itself"
    once.close()


async def test_what_could_not_be_archived_is_tried_again() -> None:
    once, read = OnceService(), (call(), result(LOOKUP), ANSWER, ASKED)
    for is_broken in (True, False):
        archive = MemoryArchive(broken=is_broken)
        said = await shown(*read, archive=archive, once=once.bind(Identity("t")))
        assert is_shortened(said[1]) is not is_broken
    once.close()


class Late(Uncached):
    def __init__(self, text: str) -> None:
        self.text = text

    async def of(self, function: Callable[[str], Any], text: str) -> Any:
        if text == self.text:
            await asyncio.Event().wait()
        return await super().of(function, text)


async def test_a_result_that_is_not_done_in_time_is_sent_as_it_came_and_the_others_keep_their_forms() -> None:
    request = request_of(call(), result(PROSE), ANSWER, call("{}", "2"), result(LOOKUP, "2"))
    done = await forwarded(request)
    late = rewrite(await CompactToolResults(timeout=0.2).apply(request, context(request, once=Late(LOOKUP))))
    assert raws(late.request)[:5] == [message.raw for message in done[:5]]
    assert late.request.messages[6] is request.messages[6]
    assert done[6].text != LOOKUP
