"""Play the compaction-conformance-kit against the shipped chain: which rules, facts and goals a model still reads.

    pip install compaction-conformance-kit
    python -m benchmarks.compaction_kit

Two tables: the kit's own benchmark, which allows a share of a session's characters, and its sessions filled up to
40,000 tokens, in small windows. A canary is visible if its words stand in the forwarded messages; what `recall` could
bring back does not count.
"""

import argparse
import asyncio
import json
import tempfile
import urllib.error
import urllib.request
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.served import CHAINS, served
from tests.e2e.servers import until_ready

STEP = 48
"""Tokens between the windows that the kit's budgets are tried with."""
LARGEST = 6000
WINDOWS = (8000, 5000)
TOKENS = 40_000
SESSIONS = range(1, 8)
ANSWER = (
    "The first thing to look at is how the parts depend on each other, and which of them change together. Most of the "
    "time goes into waiting, so a change there shows soonest. I would keep the interface as it is, move one caller "
    "after the other, and measure before and after each step; where a figure gets worse, we go back one step. "
)


def settings() -> str:
    """Return a configuration with a model for each window."""
    windows = [*range(STEP, LARGEST + 1, STEP), *WINDOWS]
    models = "".join(f"  - {{match: kit-{each}, upstream: echo, window: {each}, reserve: 0}}\n" for each in windows)
    rest = f"{CHAINS}\nstate: {{kind: memory}}\nembedding: {{kind: none}}\n"
    return f"version: 1\nupstreams:\n  echo: {{kind: echo}}\nmodels:\n{models}{rest}"


def kit(name: str) -> Any:
    """Return a module of the kit, which has no types."""
    return import_module(f"compaction_kit.{name}")


class Penstock:
    """A compactor of the kit: the messages that the chain leaves of a session."""

    name = "penstock"

    def __init__(self, base: str) -> None:
        self._base = base

    def compact(self, turns: list[Any], round_num: int = 1, budget_chars: int | None = None) -> Any:
        """Return what the largest window leaves that fits the budget. What fits already stays as it is."""
        compacted = kit("compacted")
        text = "\n".join(f"[{turn.role}] {turn.text}" for turn in turns)
        if round_num > 1:
            return compacted.CompactedContext(turns[0].text, self.name, round_num)
        messages = [{"role": turn.role, "content": turn.text} for turn in turns]
        if budget_chars is not None and len(text) > budget_chars:
            # the largest window that was cut so far: most of what it leaves is the digest, as right after a compaction
            most = min(LARGEST, budget_chars) // STEP * STEP
            tried = (self.forwarded(messages, window) for window in range(most, 0, -STEP))
            text = next((each for each in tried if len(each) <= budget_chars), "")
        return compacted.CompactedContext(text, self.name, round_num)

    def forwarded(self, messages: list[dict[str, str]], window: int) -> str:
        """Return the messages that the chain leaves in a window, as text."""
        body = json.dumps({"model": f"kit-{window}", "messages": messages}).encode()
        request = urllib.request.Request(f"{self._base}/v1/compress", body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request) as answer:
                return "\n".join(f"[{each['role']}] {each['content']}" for each in json.load(answer)["messages"])
        except urllib.error.HTTPError as error:
            if error.code != 400:
                raise
            return "\n".join(each["content"] for each in messages)  # refused: it does not fit


def filled(turns: list[Any]) -> list[dict[str, str]]:
    """Return a session whose answers to its filler are longer: `TOKENS` in all, about."""
    filler = [turn for turn in turns if turn.text.startswith("Acknowledged")]
    times = TOKENS * 4 // len(filler) // len(ANSWER)
    longer = [{"role": turn.role, "content": turn.text} for turn in turns]
    for place, turn in enumerate(turns):
        if turn in filler:
            longer[place]["content"] = f"{turn.text} {turns[place - 1].text} {ANSWER * times}"
    return [*longer, {"role": "user", "content": "Go on."}]


def play(base: str) -> None:
    """Print both tables."""
    benchmark, corpus = kit("benchmark"), kit("corpus")
    compactor = Penstock(base)
    made = benchmark.run_budget_benchmark({"penstock": lambda: compactor}, budgets=(0.3, 0.5), seeds=SESSIONS, rounds=5)
    print(benchmark.budget_benchmark_to_markdown(made))
    print("| window | visible of 20, by session |\n| --- | --- |")
    for window in WINDOWS:
        counts = []
        for seed in SESSIONS:
            session, canaries = corpus.build_random_session(seed)
            text = compactor.forwarded(filled(session.transcript()), window).lower()
            counts.append(sum(all(word.lower() in text for word in each.required_tokens) for each in canaries))
        print(f"| {window} | {' '.join(map(str, counts))} |")


async def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kit.yaml"
        path.write_text(settings(), encoding="utf-8")
        async with served(path) as (_, base):
            await until_ready(base)
            await asyncio.to_thread(play, base)


if __name__ == "__main__":
    asyncio.run(main())
