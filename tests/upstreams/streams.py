"""The events that an upstream has streamed."""

import json
from typing import Any

from proxy.upstreams.base import Reply
from tests.scripted import read


async def events(reply: Reply) -> list[Any]:
    text = (await read(reply)).decode()
    assert text.endswith("\n\n")
    data = [event.removeprefix("data: ") for event in text.split("\n\n")[:-1] if event != ": ping"]
    return [item if item == "[DONE]" else json.loads(item) for item in data]


def assembled(chunks: list[Any]) -> dict[str, Any]:
    """Return the message that the deltas of a stream are, as the accumulators of SDKs make it."""
    message: dict[str, Any] = {}
    for chunk in chunks:
        if chunk != "[DONE]" and chunk.get("choices"):
            _add(message, chunk["choices"][0]["delta"])
    return message


def _add(known: dict[str, Any], delta: dict[str, Any]) -> None:
    for key, value in delta.items():
        if key not in known or key in ("index", "type"):
            known[key] = json.loads(json.dumps(value))
        elif isinstance(value, str):
            known[key] = (known[key] or "") + value
        elif isinstance(value, dict):
            _add(known[key], value)
        elif isinstance(value, list):
            for entry in value:
                if "index" in entry and entry["index"] < len(known[key]):
                    _add(known[key][entry["index"]], entry)
                else:
                    known[key].append(json.loads(json.dumps(entry)))
