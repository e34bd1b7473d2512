"""The model that compares texts for the default chain fails."""

import json
from collections.abc import Callable

import pytest

from tests.e2e.conftest import Lab
from tests.e2e.default_chain import NEEDLE, TOOLS, Client, chatting, config, handles
from tests.e2e.servers import Respond, answering, proxy, silent

NOWHERE = "http://127.0.0.1:9/v1"
"""Nobody listens there."""


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


Said = Callable[[], list[dict[str, str]]]


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
    sent = await client.ask(chatting(), tools=TOOLS)
    assert handles(sent)
    return sent.partition("<recalled_context>")[2].partition("</recalled_context>")[0]
