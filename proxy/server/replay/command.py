"""`penstock replay`: reads files, plays them, and prints the report."""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable

from proxy.config.load import load
from proxy.server.replay.page import render_page
from proxy.server.replay.reading import read
from proxy.server.replay.report import Bound, build_report, render_text
from proxy.server.replay.run import replay

_WIDTH = 30


def replay_files(options: argparse.Namespace) -> int:
    """Replay files as the command line says. Return the exit code: 1 where a bound of `--fail-if` is broken."""
    bounds = [Bound.read(text) for text in options.fail_if]
    config = load(options.config)
    other = load(options.against_config) if options.against_config else config
    compares = options.against is not None or options.against_config is not None
    conversations = [each for path in options.files for each in read(path)]
    turns = sum(len(each.points) for each in conversations) * (2 if compares else 1)
    told = _bar(turns)
    ours = asyncio.run(replay(config.settings, conversations, chain=options.chain, model=options.model, told=told))
    theirs = None
    if compares:
        run = replay(other.settings, conversations, chain=options.against, model=options.model, told=told)
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
    """Return what shows progress on standard error, where somebody looks at it."""
    done = 0

    def told(more: int) -> None:
        nonlocal done
        done += more
        filled = _WIDTH * done // max(1, turns)
        end = "\n" if done == turns else ""
        print(f"\r{'#' * filled}{'.' * (_WIDTH - filled)} {done} of {turns} requests", end=end, file=sys.stderr)
        sys.stderr.flush()

    return told if sys.stderr.isatty() else lambda more: None
