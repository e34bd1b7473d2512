"""Trusted facts in a running proxy: the file that holds them is a part of the configuration."""

import json
from typing import Any

from tests.e2e.conftest import Lab

CONFIG = """
upstreams: {{u: {{kind: openai, base_url: "{url}"}}}}
models: [{{match: m, upstream: u, window: 8192}}]
chains: {{default: [check_facts: {{file: facts.txt}}]}}
server: {{watch: false, admin_key: admin}}
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


async def test_changed_facts_take_effect_with_the_reload_that_was_asked_for(lab: Lab) -> None:
    facts = lab.folder / "facts.txt"
    facts.write_text("The capital of Peru is Lima.\n")
    base = await lab.start(CONFIG.format(url=lab.behind.url))

    async def forwarded() -> Any:
        assert (await lab.chat(base, BODY))[0] == 200
        return json.loads(lab.behind.last.body)["messages"][1]["content"]

    async def change(text: str) -> None:
        facts.write_text(text)
        async with lab.http.post(f"{base}/admin/reload", headers=ADMIN) as response:
            assert (await response.json())["outcome"] == "applied"

    assert await forwarded() == SAID
    await change("The capital of Australia is Canberra.\n")
    assert await forwarded() == f"{SAID} {NOTE}"
    await change("The capital of Australia is Canberra.\nThe capital of Australia is Sydney.\n")
    assert await forwarded() == SAID
