"""Trusted facts in a running proxy: the file that holds them is a part of the configuration."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.servers import proxy, upstream

CONFIG = """
upstreams: {{u: {{kind: openai, base_url: "{url}"}}}}
models: [{{match: m, upstream: u, window: 8192}}]
chains: {{default: [check_facts: {{file: facts.txt}}]}}
server: {{watch: {watch}, admin_key: admin}}
state: {{directory: "{folder}"}}
embedding: {{kind: none}}
"""
ADMIN = {"authorization": "Bearer admin"}
SAID = "The capital of Australia is Sydney."
BODY = {
    "model": "m",
    "messages": [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": SAID},
        {"role": "user", "content": "Thanks."},
    ],
}
NOTE = '[incorrect: contradicts the trusted fact "The capital of Australia is Canberra."]'


@pytest.mark.parametrize("watch", ["false", "true"], ids=["asked for", "by itself"])
async def test_changed_facts_take_effect(watch: str, tmp_path: Path, http: aiohttp.ClientSession) -> None:
    facts = tmp_path / "facts.txt"
    facts.write_text("The capital of Peru is Lima.\n")
    async with (
        upstream() as up,
        proxy(CONFIG.format(url=up.url, watch=watch, folder=tmp_path / "state"), tmp_path) as base,
    ):

        async def forwarded() -> Any:
            async with http.post(f"{base}/v1/chat/completions", json=BODY) as response:
                assert response.status == 200
            return json.loads(up.received[-1].body)["messages"][1]["content"]

        async def reloaded() -> None:
            if watch == "false":
                async with http.post(f"{base}/admin/reload", headers=ADMIN) as response:
                    assert (await response.json())["outcome"] == "applied"

        async def until(expected: str) -> None:
            async with asyncio.timeout(60):
                while await forwarded() != expected:
                    assert watch == "true", "a reload that was asked for is in force when it is answered"
                    await asyncio.sleep(0.1)

        assert await forwarded() == SAID
        facts.write_text("The capital of Australia is Canberra.\n")
        await reloaded()
        await until(f"{SAID} {NOTE}")
        facts.write_text("The capital of Australia is Canberra.\nThe capital of Australia is Sydney.\n")
        await reloaded()
        await until(SAID)


@pytest.mark.parametrize(
    ("fact", "said"),
    [
        ("The Eiffel Tower is in Paris.", "The Eiffel Tower is in London"),
        ("The Eiffel Tower stands in Paris, France.", "The Eiffel Tower is located in Rome, Italy."),
        ("La Torre Eiffel está en París.", "La Torre Eiffel está en Londres."),
        ("The rate limit is 100 requests per minute.", "The rate limit is 200 requests per minute."),
    ],
)
async def test_what_contradicts_a_plain_sentence_is_refused(
    fact: str, said: str, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    (tmp_path / "facts.txt").write_text(f"{fact}\n", encoding="utf-8")
    refusing = CONFIG.replace("file: facts.txt", "file: facts.txt, action: reject")
    async with (
        upstream() as up,
        proxy(refusing.format(url=up.url, watch="false", folder=tmp_path / "state"), tmp_path) as base,
    ):
        for content, status in ((said, 400), (fact, 200)):
            body = {"model": "m", "messages": [{"role": "user", "content": content}]}
            async with http.post(f"{base}/v1/chat/completions", json=body) as response:
                assert response.status == status
                error = (await response.json()).get("error", {})
            assert error.get("code") == ("contradicts_trusted_fact" if status == 400 else None)
            assert (fact in error.get("message", "")) == (status == 400)
        assert len(up.received) == 1
