"""`penstock referee` with a small real model: a chain that cuts away what is asked for changes the answers. `make test-real`."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.__main__ import main
from tests.real.llama import WINDOW, llama

CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}/v1"}}}}
models: [{{match: "smollm2", upstream: main, window: {window}}}]
chains:
  default: []
  merged: [{{consolidate_system: {{}}}}]
  harmful: [{{window_history: {{keep_turns: 1, stride: 1, summary: false}}}}]
embedding: {{kind: none}}
"""


def conversations() -> Iterator[dict[str, Any]]:
    for place in range(12):
        number = 4471 + 379 * place
        messages = [
            {"role": "system", "content": "You answer in one short sentence."},
            {"role": "user", "content": f"The number of my locker is {number}."},
            {"role": "assistant", "content": f"The number of your locker is {number}."},
            {"role": "user", "content": "Name a fruit."},
            {"role": "assistant", "content": "Apple."},
            {"role": "user", "content": "Repeat: what is the number of my locker?"},
        ]
        yield {"model": "any", "messages": messages, "max_tokens": 24, "temperature": 0.3}


async def test_the_referee_tells_a_harmful_chain_from_a_harmless_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, config = tmp_path / "lockers.jsonl", tmp_path / "config.yaml"
    rows = ({"request": each, "conversation": f"locker-{place}"} for place, each in enumerate(conversations()))
    file.write_text("\n".join(map(json.dumps, rows)))
    async with aiohttp.ClientSession() as http, llama(tmp_path, http) as model:
        config.write_text(CONFIG.format(url=model.base, window=WINDOW))
        codes = []
        for chain in ("merged", "harmful"):
            arguments = ["referee", str(file), "--model", "smollm2", "--config", str(config), "--against", chain]
            codes.append(await asyncio.to_thread(main, arguments))
            with capsys.disabled():
                print(capsys.readouterr().out)
    assert codes == [0, 1]
