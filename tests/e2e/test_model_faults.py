"""The models behind the default chain fail: the small one that writes summaries, and the one that compares texts."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import Lab
from tests.e2e.default_chain import NEEDLE, Client, chatting, config, handles
from tests.e2e.servers import (
    Received,
    Respond,
    Upstream,
    answering,
    begin_stream,
    proxy,
    send_chunk,
    silent,
)
from tests.e2e.test_summaries import saying

GOOD = """## Goal
## Constraints
## Decisions
## Facts and identifiers
- remark 3 is about nothing.
## Open items
"""
NOWHERE = "http://127.0.0.1:9/v1"
"""Nobody listens there."""


async def streamed(behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    await begin_stream(writer)
    chunk = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": GOOD}, "finish_reason": "stop"}]}
    await send_chunk(writer, b"data: " + json.dumps(chunk).encode() + b"\n\n")
    await asyncio.Event().wait()


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[dict[str, str]]]:
    """The lines of the log, none of which may quote a prompt or name a key."""

    def lines() -> list[dict[str, str]]:
        written = capsys.readouterr().err
        assert not [word for word in ("lorem", "dolor", "Halcyon", "Question", "Bearer") if word in written], written
        lines = map(json.loads, written.splitlines())
        about = [line for line in lines if line["logger"] != "penstock.context"]
        return [line for line in about if line["event"] != "server not reached"]  # which names it for the operator

    return lines


def with_writer(main: str, small: str, state: Path) -> str:
    """The shipped configuration with a small model, which its default chain asks for summaries."""
    made = config(main, state, "embedding: {kind: none}\nwriter: {model: tiny-writer, timeout: 60}")
    made = made.replace("upstreams:\n", f'upstreams:\n  small: {{kind: openai, base_url: "{small}"}}\n', 1)
    made = made.replace("models:\n", "models:\n  - {match: tiny-writer, upstream: small, window: 16000}\n", 1)
    return made.replace("- compress_history: {} ", "- compress_history: {summary: written} ", 1)


async def judged(lab: Lab, base: str, outcome: str) -> None:
    """Wait until an answer of the small model was judged so."""
    await lab.until(base, f'penstock_writer_summaries_total{{outcome="{outcome}"}} 1.0')


Said = Callable[[], list[dict[str, str]]]


async def test_without_a_fault_the_summary_is_written(lab: Lab, said: Said) -> None:
    small = await lab.upstream()
    small.respond = answering(saying(GOOD))
    base = await lab.start(with_writer(lab.behind.url, small.url, lab.folder / "state"))
    await Client(base, lab.behind, lab.http).ask(chatting(26))
    await judged(lab, base, "written")
    assert not said()


@pytest.mark.parametrize(
    ("respond", "outcome"),
    [
        pytest.param(None, "failed", id="down"),
        pytest.param(streamed, "unusable", id="a stream that nobody asked for"),
    ],
)
async def test_the_extract_stands_in_for_the_small_model(
    lab: Lab, said: Said, respond: Respond | None, outcome: str
) -> None:
    small = await lab.upstream()
    small.respond = respond or silent
    base = await lab.start(with_writer(lab.behind.url, small.url if respond else NOWHERE, lab.folder / "state"))
    client = Client(base, lab.behind, lab.http)
    assert "<conversation_summary>" not in await client.ask(chatting(26))
    await judged(lab, base, outcome)
    sent = await client.ask(chatting())
    assert sent.count("</conversation_summary>") == 1
    assert "## Summary" not in sent
    assert handles(sent)
    assert not await client.missing()
    assert [(line["event"], line["cause"]) for line in said()] == [("no summary was written", outcome)]


@pytest.mark.parametrize(
    ("respond", "cause"),
    [
        pytest.param(None, "unreachable", id="down"),
        pytest.param(silent, None, id="silent"),
        pytest.param(answering(b"\x00\xff lorem"), "unexpected_answer", id="nonsense"),
    ],
)
async def test_words_stand_in_for_a_server_of_vectors(
    lab: Lab, said: Said, respond: Respond | None, cause: str | None
) -> None:
    vectors = await lab.upstream()
    vectors.respond = respond or silent
    embedding = f'embedding: {{kind: openai, model: e, base_url: "{vectors.url if respond else NOWHERE}"}}'
    async with proxy(config(lab.behind.url, lab.folder / "state", embedding), lab.folder) as base:
        recalled = await recalled_of(Client(base, lab.behind, lab.http))
    assert bool(vectors.received) == bool(respond)
    assert NEEDLE in recalled
    lines = said()
    assert [line["event"] for line in lines] == ["embedding failed"] * bool(cause)
    assert [line["cause"] for line in lines] == [cause] * bool(cause)


async def test_words_stand_in_for_a_model_that_is_not_there(lab: Lab, said: Said) -> None:
    embedding = f'embedding: {{kind: sentence-transformers, model: "{lab.folder}/none"}}'
    async with proxy(config(lab.behind.url, lab.folder / "state", embedding), lab.folder) as base:
        assert NEEDLE in await recalled_of(Client(base, lab.behind, lab.http))
    assert [(line["event"], line["cause"]) for line in said()] == [("embedding failed", "no_such_model")]


async def recalled_of(client: Client) -> str:
    """What came back for the last question of a conversation whose beginning was cut off."""
    sent = await client.ask(chatting())
    assert handles(sent)
    return sent.partition("<recalled_context>")[2].partition("</recalled_context>")[0]
