"""Costs with the cache pilot, net of its refreshes: python -m benchmarks.pilot FOLDER

The folder has conversations (`messages`, `request_points`, `tools`) as JSON lines. They have no times, so their gaps
are drawn from three distributions. Each set is played three times in a row, from an empty memory of idle times on,
by the rules of Claude's cache: 5 minutes, a read at a tenth, a write at a quarter more. Costs are in input tokens.
"""

import json
import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from proxy.context import CacheRules
from proxy.gateway.pilot import PERIOD, WINDOWS, IdleTimes

RULES = CacheRules(read=0.1, write=1.25, minimum=1024, ttl=300, marked=True)
DAYS = 3
ANSWER = 5
"""Cost of the one token of a refresh, in input tokens."""
GAPS: dict[str, Callable[[random.Random], float]] = {
    "agent, median 20 s": lambda dice: dice.lognormvariate(math.log(20), 1.0),
    "chat, median 4 min": lambda dice: dice.lognormvariate(math.log(240), 1.0),
    "office, median 15 min": lambda dice: dice.lognormvariate(math.log(900), 1.2),
}


def sizes(folder: Path) -> Iterator[list[int]]:
    """Yield the tokens of each request of each conversation, four characters of JSON to a token."""
    for path in sorted(folder.glob("*.jsonl")):
        for row in map(json.loads, path.open()):
            lengths = [len(json.dumps(message)) for message in row["messages"]]
            tools = len(json.dumps(row.get("tools") or []))
            yield [(tools + sum(lengths[:point])) // 4 for point in row["request_points"]]


class Played:
    """Costs of conversations with and without the pilot."""

    def __init__(self) -> None:
        self.plain = self.piloted = self.refreshes = 0.0
        self._times = IdleTimes()

    def conversation(self, totals: Sequence[int], gap: Callable[[], float]) -> None:
        """Play a conversation, behind whose end nobody comes back."""
        before = 0
        for total in totals:
            idle = gap()
            alive = self._idle(before, idle)
            self.plain += RULES.prompt_cost(before if idle <= RULES.ttl else 0, total)
            self.piloted += RULES.prompt_cost(before if alive else 0, total)
            before = total
        self._idle(before, math.inf)

    def _idle(self, tokens: int, idle: float) -> bool:
        """Pass an idle time; return whether the prefix is in the cache at its end."""
        price, gain = tokens * RULES.read, tokens * (RULES.write - RULES.read)
        step, alive, passed = PERIOD * RULES.ttl, tokens >= RULES.minimum, 0
        while passed < WINDOWS and (passed + 1) * step < idle:
            self._times.waited[passed] += 1
            alive = alive and self._times.pays(passed, price, gain)
            self.refreshes += alive * (price + ANSWER)
            passed += 1
        if passed and idle <= (passed + 1) * step:
            self._times.resumed[passed - 1] += 1
        return idle <= RULES.ttl or (alive and idle - passed * step <= RULES.ttl)


def main() -> None:
    """Print a row for each distribution."""
    conversations = list(sizes(Path(sys.argv[1])))
    print(f"{len(conversations)} conversations, {sum(map(len, conversations))} requests, {DAYS} times")
    print(f"{'gaps':24}{'without':>14}{'with':>14}{'refreshes':>14}{'net':>9}")
    for name, draw in GAPS.items():
        dice, played = random.Random(1), Played()
        for _ in range(DAYS):
            for totals in conversations:
                played.conversation(totals, lambda: draw(dice))  # noqa: B023
        net = (played.piloted + played.refreshes) / played.plain - 1
        print(f"{name:24}{played.plain:14,.0f}{played.piloted:14,.0f}{played.refreshes:14,.0f}{net:+9.1%}")


if __name__ == "__main__":
    main()
