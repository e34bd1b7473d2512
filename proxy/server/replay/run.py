"""Replays conversations: each request of each one, in order, through a chain."""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence

from proxy.chat import Message, encode
from proxy.chat.errors import ConfigError, PenstockError
from proxy.config.load import load
from proxy.config.settings import Settings
from proxy.server.replay.page import render_page
from proxy.server.replay.player import Explained, Player, open_player
from proxy.server.replay.reading import Conversation, RecordedRequest, read, request_of
from proxy.server.replay.report import Bound, build_report, render_text
from proxy.server.replay.score import Replayed, Scoring
from proxy.wires import body_of


async def replay(
    settings: Settings,
    conversations: Sequence[Conversation],
    *,
    chain: str | None = None,
    model: str | None = None,
    advance: Callable[[int], None] = lambda turns: None,
) -> list[Replayed]:
    """Play conversations. `advance` is called after each turn.

    Those whose requests have times are played together, in the order in which the requests came; each of the others by
    itself, without anything that the others left. `chain` is run instead of the model's own; `model` is asked instead
    of the one that the requests name. Raise `PenstockError` for a request that the proxy would refuse before the chain
    runs.
    """
    results = [Replayed(each.name, each.source, []) for each in conversations]
    timed = {place for place, each in enumerate(conversations) if all(point.at is not None for point in each.points)}
    groups = [[place] for place in range(len(conversations)) if place not in timed] + [sorted(timed)]
    async with open_player(settings) as player:
        for group in filter(None, groups):
            await player.forget()
            await play(player, {place: conversations[place] for place in group}, results, chain, model, advance)
    return results


async def play(
    player: Player,
    conversations: Mapping[int, Conversation],
    results: Sequence[Replayed],
    chain: str | None,
    model: str | None,
    advance: Callable[[int], None],
) -> None:
    """Play conversations together, and add their scores to the results at the same places. Raise `PenstockError`."""
    scorings, at = {each: Scoring(player) for each in conversations}, 0.0
    points = [(n, place) for n, each in conversations.items() for place in range(len(each.points))]
    if len(conversations) > 1:
        points.sort(key=lambda each: conversations[each[0]].points[each[1]].at or 0.0)
    for n, place in points:
        conversation, point = conversations[n], conversations[n].points[place]
        at = max(at, point.at or 0.0)
        try:
            played = await player.play(
                _body(point, model),
                chain=chain,
                headers=point.headers,
                at=at or None,
                conversation=conversation.name,
            )
        except PenstockError as error:
            error.args = (f"{conversation.name}, request {place + 1}: {error}",)
            raise
        is_last = place == len(conversation.points) - 1
        results[n].turns.append(await scorings[n].turn(played, point, at, is_last=is_last))
        answer = None if point.answer is None else Message(point.answer)
        await player.commit(played, answer, point.usage if _is_as_recorded(played, point) else None)
        advance(1)


def _body(point: RecordedRequest, model: str | None) -> bytes:
    if not (model or point.body.get("model")):
        raise ConfigError("the file names no model: say which with --model")
    raw = encode(point.body) if point.raw is None else point.raw
    return body_of(raw).encoded({"model": model}) if model else raw


def _is_as_recorded(played: Explained, point: RecordedRequest) -> bool:
    """Return whether the request that would be sent is the one that the upstream reported on."""
    sent = point.body if point.sent is None else point.sent
    return played.outcome.request.messages == request_of(sent).messages


_WIDTH = 30


def replay_files(options: argparse.Namespace) -> int:
    """Replay files as the command line says. Return the exit code: 1 where a bound of `--fail-if` is broken."""
    bounds = [Bound.read(text) for text in options.fail_if]
    config = load(options.config)
    other = load(options.against_config) if options.against_config else config
    compares = options.against is not None or options.against_config is not None
    conversations = [each for path in options.files for each in read(path)]
    turns = sum(len(each.points) for each in conversations) * (2 if compares else 1)
    advance = _bar(turns)
    ours = asyncio.run(
        replay(config.settings, conversations, chain=options.chain, model=options.model, advance=advance)
    )
    theirs = None
    if compares:
        run = replay(other.settings, conversations, chain=options.against, model=options.model, advance=advance)
        theirs = asyncio.run(run)
    report = build_report(ours, theirs, file=str(options.against_config or ""))
    if options.html is not None:
        names = ", ".join(path.name for path in options.files)
        options.html.write_text(render_page(report, f"Replay of {names}"), encoding="utf-8")
    print(json.dumps(report, indent=2, ensure_ascii=False) if options.json else render_text(report))
    broken = [said for bound in bounds if (said := bound.broken_by(report["total"])) is not None]
    for each in broken:
        print(f"penstock: failed: {each}", file=sys.stderr)
    return 1 if broken else 0


def _bar(turns: int) -> Callable[[int], None]:
    """Return a progress bar on standard error, if a terminal shows it."""
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        filled = _WIDTH * done // max(1, turns)
        end = "\n" if done == turns else ""
        print(f"\r{'#' * filled}{'.' * (_WIDTH - filled)} {done} of {turns} requests", end=end, file=sys.stderr)
        sys.stderr.flush()

    return advance if sys.stderr.isatty() else lambda more: None
