"""`/metrics` has the figures of what requests went through, over sockets: each finding counts once in a conversation."""

import json
from dataclasses import dataclass
from typing import Any

from tests.e2e.conftest import Lab
from tests.e2e.test_recall import CONVERSATION, TOOLS, handle_in
from tests.e2e.test_recall import model as recalling

CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}"}}}}
models: [{{match: "*", upstream: main, window: 100000}}]
chains: {{default: [{chain}]}}
"""
KEY = {"authorization": "Bearer k"}


@dataclass
class Running:
    """A proxy, what is behind it, and what it has counted."""

    base: str
    lab: Lab

    async def ask(self, method: str, path: str, **options: Any) -> Any:
        async with self.lab.http.request(method, f"{self.base}{path}", headers=KEY, **options) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def chat(self, messages: list[Any], **fields: Any) -> list[Any]:
        """The messages that reached the upstream."""
        await self.ask("POST", "/v1/chat/completions", json={"model": "m", "messages": messages, **fields})
        sent: list[Any] = json.loads(self.lab.behind.last.body)["messages"]
        return sent

    async def counted(self, *names: str) -> list[float]:
        """The values of these series; 0 for one that is not there."""
        lines = [line.rpartition(" ") for line in (await self.lab.metrics(self.base)).splitlines()]
        known = {name: float(value) for name, _, value in lines if name and not name.startswith("#")}
        return [known.get(f"penstock_{name}", 0.0) for name in names]


async def running(lab: Lab, chain: str) -> Running:
    return Running(await lab.start(CONFIG.format(url=lab.behind.url, chain=chain)), lab)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


async def test_memories_are_counted_by_what_became_of_them(lab: Lab) -> None:
    run = await running(lab, "{select_memories: {}}")
    for text in ("The user drinks green tea", "The user drinks green tea.", "Lives in Bremen"):
        made = await run.ask("POST", "/v1/memories", json={"text": text, "user": "ann"})
    await run.ask("GET", "/v1/memories?user=ann&query=tea")
    await run.ask("DELETE", f"/v1/memories/{made['id']}?user=ann")
    said = [user("Which green tea does the user drink?")]
    await run.chat(said, user="ann")
    await run.chat([*said, assistant("Sencha."), user("Thank you!")], user="ann")
    changes = [f'memories_total{{change="{each}"}}' for each in ("added", "repeated", "deleted", "refused")]
    assert await run.counted(*changes) == [2, 1, 1, 0]
    searched, selected, failed = await run.counted(
        'memory_searches_total{found_by="words"}',
        'memories_selected_total{policy="select_memories"}',
        'memory_searches_total{found_by="failed"}',
    )
    assert (searched, selected, failed) == (2, 1, 0)
    steps = await run.counted(
        'policy_verdicts_total{mode="enforce",policy="select_memories",verdict="rewrite"}',
        'policy_duration_seconds_count{policy="select_memories"}',
    )
    assert steps == [1, 2]
    (size,) = await run.counted("memory_written_bytes_total")
    assert size > len("The user drinks green tea")


async def test_what_leaves_is_written_once_and_each_look_at_it_is_a_read(lab: Lab) -> None:
    names = ('scratchpad_writes_total{kind="original"}', 'scratchpad_reads_total{kind="original"}')
    run = await running(lab, "{compact_tool_results: {over: 600, read_again: 0}}, {offer_recall: {}}")
    run.lab.behind.respond = recalling
    for times in (1, 2):
        await run.chat(CONVERSATION, tools=TOOLS)
        assert await run.counted(*names) == [1, times]
    await run.ask("GET", f"/v1/retrieve/{handle_in(run.lab.behind.received[0].body)}")
    assert await run.counted(*names) == [1, 3]
    unknown = f"{run.base}/v1/retrieve/{'a' * 20}"
    async with run.lab.http.get(unknown, headers=KEY) as response:
        assert response.status == 404
    assert await run.counted(*names) == [1, 3], "what is not there is not read"
