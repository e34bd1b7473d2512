"""Trusted facts in a running proxy: the file that holds them is a part of the configuration."""

import asyncio
import json
from typing import Any

import pytest

from tests.e2e.conftest import Lab

CONFIG = """
upstreams: {{u: {{kind: openai, base_url: "{url}"}}}}
models: [{{match: m, upstream: u, window: 8192}}]
chains: {{default: [check_facts: {{file: facts.txt}}]}}
server: {{watch: {watch}, admin_key: admin}}
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
async def test_changed_facts_take_effect(watch: str, lab: Lab) -> None:
    facts = lab.folder / "facts.txt"
    facts.write_text("The capital of Peru is Lima.\n")
    base = await lab.start(CONFIG.format(url=lab.behind.url, watch=watch))

    async def forwarded() -> Any:
        assert (await lab.chat(base, BODY))[0] == 200
        return json.loads(lab.behind.last.body)["messages"][1]["content"]

    async def reloaded() -> None:
        if watch == "false":
            async with lab.http.post(f"{base}/admin/reload", headers=ADMIN) as response:
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


async def test_what_contradicts_a_plain_sentence_is_refused(lab: Lab) -> None:
    pairs = {
        "The Eiffel Tower is in Paris.": "The Eiffel Tower is in London",
        "The Colosseum stands in Rome, Italy.": "The Colosseum is located in Paris, France.",
        "La Giralda está en Sevilla.": "La Giralda está en Londres.",
        "The rate limit is 100 requests per minute.": "The rate limit is 200 requests per minute.",
    }
    (lab.folder / "facts.txt").write_text("\n".join(pairs), encoding="utf-8")
    refusing = CONFIG.replace("file: facts.txt", "file: facts.txt, action: reject")
    base = await lab.start(refusing.format(url=lab.behind.url, watch="false"))
    for fact, said in pairs.items():
        for content, status in ((said, 400), (fact, 200)):
            body = {"model": "m", "messages": [{"role": "user", "content": content}]}
            answered, _, told = await lab.chat(base, body)
            assert answered == status, content
            error = told.get("error", {})
            assert error.get("code") == ("contradicts_trusted_fact" if status == 400 else None)
            assert (fact in error.get("message", "")) == (status == 400)
    assert len(lab.behind.received) == len(pairs)
