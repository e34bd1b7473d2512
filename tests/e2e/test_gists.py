"""Gists of a small model: a real server plays it; what it says stands beside the form of a result that was read."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.state.sqlite import DiskStore
from tests.e2e.conftest import Lab
from tests.e2e.servers import Upstream, answering
from tests.e2e.test_summaries import CONFIG, saying

GISTS = CONFIG.replace("compress_history: {{summary: written}}", "compact_tool_results: {{gist: true}}").replace(
    "window: 4000", "window: 40000"
)
TOLD = "The keeper of lamp LMP-31 wrote that the winter was long and the oil ran low by March. " * 50

Body = dict[str, Any]


def talk(*more: Body) -> list[Body]:
    call = {"id": "c1", "type": "function", "function": {"name": "read_log", "arguments": "{}"}}
    return [
        {"role": "user", "content": "Read the log."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": TOLD},
        *more,
    ]


READ = {"role": "assistant", "content": "I have read it."}, {"role": "user", "content": "And?"}


async def forwarded(http: aiohttp.ClientSession, base: str, main: Upstream, messages: list[Body]) -> list[Body]:
    """What the model got."""
    body = {"model": "gpt", "messages": messages}
    async with http.post(f"{base}/v1/chat/completions", json=body) as response:
        assert response.status == 200
    sent: list[Body] = json.loads(main.last.body)["messages"]
    return sent


async def drafted(folder: Path) -> None:
    """Wait until the gist is stored."""
    store = DiskStore(folder / "archive", 2**30)
    async with asyncio.timeout(60):
        while not any("/draft/" in key and "/claim" not in key for key in await store.keys("summary/")):
            pass
    await store.aclose()


@pytest.mark.parametrize("late", [False, True], ids=["in time", "late"])
async def test_a_gist_is_settled_when_the_form_is_first_sent(lab: Lab, late: bool) -> None:
    main, small, http, state = lab.behind, await lab.upstream(), lab.http, lab.folder / "state"
    small.respond = answering(saying("- Oil ran low for LMP-31.\n- It cost 99 crowns.\n- Lamp LMP-32 went out."))
    bases = await lab.two(GISTS.format(main=main.url, small=small.url, folder=state, timeout=20))
    if late:
        first = await forwarded(http, bases[0], main, talk(*READ))
    assert await forwarded(http, bases[0], main, talk()) == talk(), "a new result is sent whole"
    await drafted(state)
    sent = [await forwarded(http, base, main, talk(*READ)) for base in bases]
    assert sent[0] == sent[1]
    form = sent[0][2]["content"]
    assert len(form) < len(TOLD) / 2
    if late:
        assert sent[0] == first
        assert "gist by" not in form
    else:
        assert "\n[gist by a model, may be wrong: Oil ran low for LMP-31.]\n[shortened: " in form
    shown = json.loads(small.received[0].body)["messages"][1]["content"]
    assert f"<text>\n{TOLD.strip()}" in shown
    assert len(small.received) == 1
