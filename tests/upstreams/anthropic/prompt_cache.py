"""Anthropic's prompt cache, as its documentation says: what is written, what is read, and how usage tells it."""

import json
from collections.abc import Iterator
from hashlib import sha256

from tests.upstreams.anthropic.rules import LOOKBACK, MINIMUM, TTLS, Body, bare, blocks, tokens

Prefix = tuple[str, int]
"""A digest of what stands up to the end of a block, and its tokens."""


class PromptCache:
    """Writes at marks alone, and looks back from each for so many blocks."""

    def __init__(self) -> None:
        self.now = 0.0
        """The time by which prefixes expire, in seconds."""
        self._kept: dict[str, tuple[float, float]] = {}
        """When prefixes expire, and for how long they stay when they are read."""

    def used(self, body: Body) -> dict[str, int]:
        """The tokens of a prompt that are new, read and written."""
        prefixes = list(_prefixes(body))
        marks = _marks(body)
        total = prefixes[-1][1] if prefixes else 0
        read = max((self._read(prefixes[max(0, place - LOOKBACK + 1) : place + 1]) for place, _ in marks), default=0)
        written = 0
        for place, ttl in marks:
            digest, size = prefixes[place]
            if size >= MINIMUM.get(body["model"], 1024):
                written = max(written, size - read)
                self._kept[digest] = (self.now + ttl, ttl)
        fresh = total - read - written
        return {"input_tokens": fresh, "cache_read_input_tokens": read, "cache_creation_input_tokens": written}

    def _read(self, prefixes: list[Prefix]) -> int:
        for digest, size in reversed(prefixes):
            expires, ttl = self._kept.get(digest, (0.0, 0.0))
            if expires > self.now:
                self._kept[digest] = (max(expires, self.now + ttl), ttl)
                return size
        return 0


def _prefixes(body: Body) -> Iterator[Prefix]:
    """What stands up to each block; the messages also depend on how tools are chosen and how much is thought."""
    running, total, before = sha256(body["model"].encode()), 0, "tools"
    for level, block in blocks(body):
        if level == "messages" != before:
            config = [body.get(key) for key in ("tool_choice", "thinking", "output_config")]
            running.update(json.dumps(config).encode())
        before = level
        running.update(json.dumps(bare(block)).encode())
        total += tokens(bare(block))
        yield running.hexdigest(), total


def _marks(body: Body) -> list[tuple[int, float]]:
    """The places of the marked blocks, each with the seconds that it asks for."""
    listed = [block for _, block in blocks(body)]
    found = [(place, block["cache_control"]) for place, block in enumerate(listed) if block.get("cache_control")]
    if body.get("cache_control") and listed:
        found.append((len(listed) - 1, body["cache_control"]))
    return [(place, TTLS[mark.get("ttl", "5m")]) for place, mark in found]
