"""Compares two chains on recorded conversations, in a process of its own: `/admin/replays` starts it.

It writes lines of JSON: `{"played", "requests"}` as it goes on, at the end `{"report"}` or `{"error"}`.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from proxy.chat.errors import ConfigError, PenstockError
from proxy.config.load import load
from proxy.config.settings import Settings
from proxy.server.replay.player import open_player
from proxy.server.replay.reading import Conversation, read
from proxy.server.replay.report import totals
from proxy.server.replay.run import play
from proxy.server.replay.score import Replayed

_NO_CHAIN = "no chain"
_NICE = 10
"""The priority below the server's."""


async def compare(
    settings: Settings,
    conversations: Sequence[Conversation],
    chains: Sequence[str],
    advance: Callable[[int], None] = lambda turns: None,
) -> dict[str, Any]:
    """Play each conversation by itself through each chain, and return the figures of both.

    A chain without a name has no steps, but for the guards of the model's chain. The provider's cache counts by its
    rules on both sides: reports were of one of them. `advance` is called with the number of played requests.
    """
    conversations = [
        replace(each, points=[replace(point, usage=None) for point in each.points]) for each in conversations
    ]
    settings = settings.model_copy(update={"chains": {**settings.chains, _NO_CHAIN: ()}})
    played = [await _played(settings, conversations, chain or _NO_CHAIN, advance) for chain in chains]
    rows = [
        {"id": one.name, "error": first or second, "sides": [_figures([one]), _figures([other])]}
        for (one, first), (other, second) in zip(*played, strict=True)
    ]
    sound = [place for place, row in enumerate(rows) if row["error"] is None]
    total = [_figures([side[place][0] for place in sound]) for side in played]
    return {"conversations": rows, "total": total}


async def _played(
    settings: Settings, conversations: Sequence[Conversation], chain: str, advance: Callable[[int], None]
) -> list[tuple[Replayed, str | None]]:
    results: list[tuple[Replayed, str | None]] = []
    async with open_player(settings) as player:
        for each in conversations:
            result, error = Replayed(each.name, each.source, []), None
            await player.forget()
            try:
                await play(player, {0: each}, [result], chain, None, advance)
            except PenstockError as refusal:
                error = str(refusal)
            advance(len(each.points) - len(result.turns))
            results.append((result, error))
    return results


def _figures(replayed: Sequence[Replayed]) -> dict[str, Any]:
    total = totals(replayed)
    names = ("requests", "refused", "failed_steps", "usd", "usd_unchanged", "tokens", "cached", "values", "messages")
    return {name: total[name] for name in names}


def main(config: str, *chains: str) -> None:
    """Compare chains on the conversations that come on standard input."""
    os.nice(_NICE)
    done = 0

    def tell(**line: Any) -> None:
        print(json.dumps(line), flush=True)

    def advance(more: int) -> None:
        nonlocal done
        done += more
        tell(played=done, requests=requests)

    try:
        settings, conversations = load(Path(config)).settings, read(Path("/dev/stdin"))
        requests = len(chains) * sum(len(each.points) for each in conversations)
        tell(report=asyncio.run(compare(settings, conversations, chains, advance)))
    except (ConfigError, PenstockError) as error:
        tell(error=str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
