"""Replays conversations: each request of each one, in order, through a chain.

As a program it compares two chains on the conversations that come on standard input: `/admin/replays` starts it. It
writes lines of JSON: `{"played", "requests"}` as it goes on, at the end `{"report"}` or `{"error"}`.
"""

import argparse
import asyncio
import json
import operator
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from proxy.chat import Message, encode
from proxy.chat.errors import ConfigError, PenstockError
from proxy.config.load import load
from proxy.config.settings import Settings
from proxy.server.replay.player import Player, check_chain, open_player
from proxy.server.replay.reading import Conversation, RecordedRequest, read, request_of
from proxy.server.replay.report import build_report, render_page, render_text, totals
from proxy.server.replay.score import Replayed
from proxy.wires import body_of

_WIDTH = 30
_NO_CHAIN = "no chain"
_NICE = 10

Advance = Callable[[int], None]
"""A function that is called with the number of requests that were played since the last call."""


async def replay(
    settings: Settings,
    conversations: Sequence[Conversation],
    *,
    chain: str | None = None,
    model: str | None = None,
    apart: bool = False,
    advance: Advance = lambda turns: None,
) -> list[Replayed]:
    """Play conversations: those whose requests have times together, in their order, the others each by itself.

    Raise `PenstockError` for a request that the proxy would refuse; played `apart`, it ends its own conversation alone.
    """
    results, together = [*map(Replayed, conversations)], list[Replayed]()
    groups = [together]
    for each in results:
        if apart or any(point.at is None for point in each.conversation.points):
            groups.append([each])
        else:
            together.append(each)
    async with open_player(settings) as player:
        for group in groups:
            await player.forget()
            try:
                await _play(player, group, chain, model, advance)
            except PenstockError as error:
                if not apart:
                    raise
                (each,) = group
                each.error = str(error)
                advance(len(each.conversation.points) - len(each.turns))
    return results


async def _play(
    player: Player, group: Sequence[Replayed], chain: str | None, model: str | None, advance: Advance
) -> None:
    at, turns = 0.0, [(point, each) for each in group for point in each.conversation.points]
    turns.sort(key=lambda turn: turn[0].at or 0.0)
    for point, each in turns:
        name, at = each.conversation.name, max(at, point.at or 0.0)
        try:
            played = await player.play(
                _body(point, model), chain=chain, headers=point.headers, at=at or None, conversation=name
            )
        except PenstockError as error:
            error.args = (f"{name}, request {len(each.turns) + 1}: {error}",)
            raise
        await each.score(player, played, point, at)
        answer = None if point.answer is None else Message(point.answer)
        as_recorded = request_of(point.sent or point.body).messages == played.done.outcome.request.messages
        await player.commit(played, answer, point.usage if as_recorded else None)
        advance(1)


def _body(point: RecordedRequest, model: str | None) -> bytes:
    if not (model or point.body.get("model")):
        raise ConfigError("the file names no model: say which with --model")
    raw = encode(point.body) if point.raw is None else point.raw
    return body_of(raw).encoded({"model": model}) if model else raw


_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip

_BOUND = re.compile(r"\s*([a-z0-9_]+)\s*(>=|<=|==|!=|>|<)\s*(-?[0-9]+(?:\.[0-9]+)?)\s*(%?)\s*")

NAMES: Mapping[str, tuple[str, ...]] = {
    "cost": ("cost", "own"),
    "cost_against": ("cost_against", "own"),
    "tokens": ("tokens", "ratio"),
    "survival": ("values", "survival"),
    "lost": ("values", "lost"),
    "hidden": ("values", "retrievable"),
    "gone": ("messages", "gone"),
    "breaks": ("breaks", "count"),
    "broken_tokens": ("breaks", "tokens"),
    "left_out": ("left_out",),
    "violations": ("violations", "requests"),
    "refused": ("refused",),
    "failed": ("failed_steps",),
    "ms_p50": ("milliseconds", "p50"),
    "ms_p99": ("milliseconds", "p99"),
}
"""The place of each name in the totals of a report."""


def read_bound(text: str) -> Callable[[Mapping[str, Any]], str | None]:
    """Return a function for a condition that fails the replay. Raise `ConfigError`.

    It gets the totals of a report, and returns a message if they meet the condition.
    """
    match = _BOUND.fullmatch(text)
    if match is None or match[1] not in NAMES:
        told = f"--fail-if is NAME > NUMBER, or with >=, <, <=, ==, !=; names: {', '.join(NAMES)}"
        raise ConfigError(f"{text!r}: {told}")
    (name, sign, number, percent), plain = match.groups(), " ".join(text.split())
    limit = float(number) / (100 if percent else 1)

    def broken_by(totals: Mapping[str, Any]) -> str | None:
        value: Any = totals
        for key in NAMES[name]:
            value = None if value is None else value.get(key)
        if value is None:
            raise ConfigError(f"--fail-if {plain!r}: this replay has no {name}; cost_against needs --against")
        return f"{plain}: it is {value:.6g}" if _COMPARE[sign](value, limit) else None

    return broken_by


def replay_files(options: argparse.Namespace) -> int:
    """Replay files as the command line says. Return the exit code: 1 where a bound of `--fail-if` is broken."""
    bounds = [*map(read_bound, options.fail_if)]
    config = load(options.config)
    other = load(options.against_config) if options.against_config else config
    sides = [(config.settings, options.chain)]
    if options.against is not None or options.against_config is not None:
        sides.append((other.settings, options.against))
    for side in sides:
        check_chain(*side)
    conversations = [each for path in options.files for each in read(path)]
    advance = _advance(conversations, len(sides), _bar if sys.stderr.isatty() else lambda done, all: None)
    ours, *theirs = (
        asyncio.run(replay(settings, conversations, chain=chain, model=options.model, advance=advance))
        for settings, chain in sides
    )
    report = build_report(ours, *theirs, file=str(options.against_config or ""))
    if options.html is not None:
        names = ", ".join(path.name for path in options.files)
        options.html.write_text(render_page(report, f"Replay of {names}"), encoding="utf-8")
    print(json.dumps(report, indent=2, ensure_ascii=False) if options.json else render_text(report))
    broken = [*filter(None, (broken_by(report["total"]) for broken_by in bounds))]
    for each in broken:
        print(f"penstock: failed: {each}", file=sys.stderr)
    return 1 if broken else 0


def _advance(conversations: Iterable[Conversation], times: int, tell: Callable[[int, int], None]) -> Advance:
    done, turns = 0, times * sum(len(each.points) for each in conversations)

    def advance(more: int) -> None:
        nonlocal done
        done += more
        tell(done, turns)

    return advance


def _bar(done: int, turns: int) -> None:
    filled, end = _WIDTH * done // max(1, turns), "\n" if done == turns else ""
    bar = f"{'#' * filled}{'.' * (_WIDTH - filled)}"
    print(f"\r{bar} {done} of {turns} requests", end=end, file=sys.stderr, flush=True)


def compare(
    settings: Settings, conversations: Sequence[Conversation], chains: Sequence[str], advance: Advance
) -> dict[str, Any]:
    """Play each conversation by itself through each chain. A chain without a name has only guards."""
    talks = [replace(each, points=[replace(point, usage=None) for point in each.points]) for each in conversations]
    settings = settings.model_copy(update={"chains": {**settings.chains, _NO_CHAIN: ()}})
    sides = [
        asyncio.run(replay(settings, talks, chain=chain or _NO_CHAIN, apart=True, advance=advance)) for chain in chains
    ]
    rows = [
        {
            "id": ours.conversation.name,
            "error": ours.error or theirs.error,
            "sides": [totals([ours]), totals([theirs])],
        }
        for ours, theirs in zip(*sides, strict=True)
    ]
    sound = [[each for each, row in zip(side, rows, strict=True) if not row["error"]] for side in sides]
    return {"conversations": rows, "total": [*map(totals, sound)]}


def main(config: str, *chains: str) -> None:
    """Compare chains on the conversations that come on standard input."""
    os.nice(_NICE)

    def tell(**line: Any) -> None:
        print(json.dumps(line), flush=True)

    try:
        settings, conversations = load(Path(config)).settings, read(Path("/dev/stdin"))
        advance = _advance(conversations, len(chains), lambda done, turns: tell(played=done, requests=turns))
        tell(report=compare(settings, conversations, chains, advance))
    except (ConfigError, PenstockError) as error:
        tell(error=str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
