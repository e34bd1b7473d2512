import json
from collections.abc import Sequence

import pytest

from policies.compact_tool_results import CompactToolResults
from policies.compress_history import CompressHistory
from policies.offload_content import OffloadContent
from policies.pin_context import PinContext
from policies.reject_oversize import RejectOversize
from proxy.chat import ChatRequest, Message
from proxy.chat.markers import is_shortened, is_to_fit
from proxy.context import Context, Identity
from proxy.gateway.chain import Outcome, run
from proxy.state.cache import OnceService
from proxy.testing import MemoryArchive, chat, context, profile

CHAIN = [
    ("compact_tool_results", CompactToolResults(timeout=60)),
    ("offload_content", OffloadContent(timeout=60)),
    ("compress_history", CompressHistory(timeout=60)),
    ("reject_oversize", RejectOversize()),
]
TEXT = "\n\n".join(
    f"Paragraph {n} says little about anything at all, as every other one does here." for n in range(2000)
)
LOG = "\n".join(f"2026-03-01 10:{n // 60 % 60:02}:{n % 60:02} INFO request r-{n} took {n * 3} ms" for n in range(1750))
JSON = json.dumps([{"id": f"T-{n}", "owner": f"person {n * 3}"} for n in range(1750)], indent=1)


def with_contents(words: str, **contents: str) -> ChatRequest:
    """A conversation in the tiny language; results have their contents by `t` and the call's id."""
    request = chat(words)
    return request.with_messages(
        message.with_changes(content=contents[key])
        if (key := f"t{message['tool_call_id']}" if message.role == "tool" else message.text) in contents
        else message
        for message in request.messages
    )


def upon(request: ChatRequest, archive: MemoryArchive | None = None) -> Context:
    return context(request, model=profile(8192), archive=archive or MemoryArchive())


async def through(request: ChatRequest, ctx: Context | None = None) -> Outcome:
    return await run(CHAIN, ctx or upon(request), strict=True)


async def used(outcome: Outcome, ctx: Context) -> float:
    return (await ctx.tokens.count(outcome.request)).total / 8192


@pytest.mark.parametrize(
    "result", [TEXT, LOG, JSON, "".join(map(str, range(40_000)))], ids=["text", "log", "json", "one word"]
)
async def test_one_result_that_does_not_fit_is_made_to_fit(result: str) -> None:
    request = with_contents("s u1 a1! t1", u1="Who has T-1700? And what about r-1700 and paragraph 1700?", t1=result)
    ctx = upon(request)
    outcome = await through(request, ctx)
    last = outcome.request.messages[-1]

    assert outcome.rejected is None
    assert 0.4 <= await used(outcome, ctx) <= 0.6
    assert is_to_fit(last.text)
    assert last["tool_call_id"] == "1"
    assert [message.raw for message in outcome.request.messages[:-1]] == [m.raw for m in request.messages[:-1]]
    assert result in ctx.archive.contents.values()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("sizes", "whole", "least"),
    [
        pytest.param([30, 30, 30], 0, 0.3, id="three large ones"),
        pytest.param([1, 40, 1], 2, 0.15, id="the large one of three"),
        pytest.param([16, 16, 2, 2], 3, 0.71, id="one of four is enough"),
        pytest.param([30, 30, 2, 2], 2, 0.34, id="the two large ones of four, and they alone"),
        pytest.param([2] * 40, 0, 0.7, id="forty small ones"),
    ],
)
async def test_of_results_that_do_not_fit_the_largest_shrink(sizes: Sequence[int], whole: int, least: float) -> None:
    ids = [f"c{n}" for n in range(len(sizes))]
    texts = (TEXT.replace("Paragraph", f"{call}, paragraph") for call in ids)
    contents = {f"t{call}": text[: size * 1000] for call, text, size in zip(ids, texts, sizes, strict=True)}
    request = with_contents(f"s u1 a1!{','.join(ids)} {' '.join(f't{call}' for call in ids)}", **contents)
    ctx = upon(request)
    outcome = await through(request, ctx)

    assert outcome.rejected is None
    assert least <= await used(outcome, ctx) <= 0.95
    results = [message.text for message in outcome.request.messages if message.role == "tool"]
    assert sum(not is_shortened(text) for text in results) == whole


async def test_results_stay_whole_where_the_later_refers_to_the_earlier() -> None:
    result = TEXT[:22_000]
    request = with_contents("s u1 a1!1,2 t1 t2", t1=result, t2=result)
    outcome = await through(request)
    first, second = outcome.request.messages[-2:]
    assert first.text == result
    assert second.text.startswith("[… 553 lines as above; ")
    assert outcome.rejected is None


@pytest.mark.parametrize("words", ["s ubig", "s u1 a1 ubig", "ubig"])
@pytest.mark.parametrize("form", ["Who is named in 1700?\n\n{}", "{}\n\nWho is named in 1700?"])
async def test_a_document_that_does_not_fit_keeps_its_question(form: str, words: str) -> None:
    request = with_contents(words, ubig=form.format(TEXT))
    ctx = upon(request)
    outcome = await through(request, ctx)
    last = outcome.request.messages[-1].text

    assert outcome.rejected is None
    assert 0.4 <= await used(outcome, ctx) <= 0.6
    assert "Who is named in 1700?" in last
    assert "Paragraph 1700 says" in last
    assert is_to_fit(last)


async def test_only_a_question_that_does_not_fit_by_itself_is_refused() -> None:
    request = with_contents("s u1 ubig", ubig=TEXT)
    outcome = await run(CHAIN, context(request, model=profile(100)))
    assert outcome.rejected is not None
    assert outcome.rejected.code == "context_length_exceeded"


async def test_what_the_user_says_around_a_document_need_not_be_pinned() -> None:
    request = with_contents("s u1 a1 ubig", ubig=f"I want to know who is named in 1700. Never guess.\n\n{TEXT}")
    outcome = await run([*CHAIN[:3], ("pin_context", PinContext())], upon(request), strict=True)
    assert outcome.steps[-1].verdict == "keep"


@pytest.mark.parametrize("result", [TEXT, LOG, JSON], ids=["text", "log", "json"])
async def test_the_same_request_again_has_the_same_form(result: str) -> None:
    once, archive = OnceService(), MemoryArchive()
    sent = []
    for words in ("s u1 a1! t1", "s u1 a1! t1", "s u1 a1! t1 a2! t2"):
        request = with_contents(words, u1="What about T-1700 and r-1700?", t1=result, t2="done")
        ctx = context(request, model=profile(8192), archive=archive, once=once.bind(Identity("a")))
        outcome = await through(request, ctx)
        assert outcome.rejected is None
        sent.append(outcome.request.messages[3].raw)
    once.close()

    assert sent[0] == sent[1] == sent[2]


@pytest.mark.parametrize("archive", [None, MemoryArchive(broken=True)], ids=["no archive", "a broken one"])
async def test_what_cannot_be_archived_stays(archive: MemoryArchive | None) -> None:
    request = with_contents("s u1 a1! t1", t1=TEXT)
    ctx = context(request, model=profile(8192), archive=archive)
    outcome = await run(CHAIN[:2], ctx, strict=True)
    assert not is_shortened(outcome.request.messages[-1].text)


async def test_what_fits_is_not_touched_and_what_was_made_to_fit_cuts_no_history() -> None:
    request = with_contents("s u1 a1! t1 a2 ubig", t1=TEXT[:8000], ubig=TEXT[:12000])
    assert all(step.verdict != "rewrite" for step in (await run(CHAIN[1:2], upon(request))).steps)
    request = with_contents("s u1 a1 u2 a2! t2", t2=TEXT)
    outcome = await through(request)
    assert [message.text for message in outcome.request.messages[:4]] == ["s", "u1", "a1", "u2"]


async def test_lines_that_an_earlier_result_no_longer_shows_are_shown_again() -> None:
    part = "\n".join(LOG.splitlines()[800:840])
    request = with_contents("s u1 a1! t1 a2! t2", t1=LOG, t2=f"{part}\nend", u1="What took long?")
    request = request.with_messages(map(Message, request.messages))
    ctx = upon(request)
    keeps = ("compact_tool_results", CompactToolResults(over=10**6))
    compacted = await run([keeps], ctx, strict=True)
    fitted = await run([keeps, CHAIN[1]], ctx, strict=True)

    assert "lines as above" in compacted.request.messages[-1].text
    assert is_to_fit(fitted.request.messages[3].text)
    assert part.splitlines()[20] not in fitted.request.messages[3].text
    assert part in fitted.request.messages[-1].text


@pytest.mark.parametrize(
    ("size", "is_short"),
    [
        pytest.param(int(0.81 * 8192 * 4) - 600, False, id="above the mark at which history is cut, it fits"),
        pytest.param(int(0.9 * 8192 * 4) - 600, False, id="it just fits"),
        pytest.param(int(0.97 * 8192 * 4), True, id="a little too long, it loses a little"),
    ],
)
async def test_a_new_result_is_whole_while_it_fits(size: int, is_short: bool) -> None:
    request = with_contents("s u1 a1! t1", t1=LOG[:size])
    ctx = upon(request)
    outcome = await through(request, ctx)
    sent = outcome.request.messages[-1].text
    assert 0.8 < await used(outcome, ctx) <= 0.95
    assert is_to_fit(sent) is is_short
    assert is_short or sent == request.messages[-1].text


async def test_a_form_stays_the_same_in_all_later_requests() -> None:
    words = "s ubig a1! t1 a2!2,3 t2 t3 u4 a4! t4 a5 u6 a6 u7"
    whole = with_contents(words, ubig=f"Look for r-1700.\n\n{TEXT}", t1=LOG, t2=JSON, t3=LOG[::-1], t4="ok " * 40)
    seen: dict[bytes, bytes] = {}
    for end in (2, 4, 7, 8, 10, 12, 14):
        request = whole.with_messages(whole.messages[:end])
        assert (await through(request)).rejected is None
        forms = (await run(CHAIN[:2], upon(request), strict=True)).request.messages
        for sent, message in zip(request.messages, forms, strict=True):
            if sent.raw in seen or is_to_fit(message.text):
                assert seen.setdefault(sent.raw, message.raw) == message.raw
    assert len(seen) == 4


async def test_parts_that_are_no_text_stay() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    parts = [{"type": "text", "text": "What is wrong with request r-1700?"}, image, {"type": "text", "text": LOG}]
    request = chat("s u1").with_messages([Message({"role": "user", "content": parts})])
    sent = (await through(request)).request.messages[0]["content"]
    assert sent[:2] == parts[:2]
    assert is_to_fit(sent[2]["text"])
    assert "request r-1700 took" in sent[2]["text"]
