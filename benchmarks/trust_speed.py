"""CPU of the policies that check content, in a further turn of a long conversation.

    python -m benchmarks.trust_speed [--turns 200] [--rounds 200] [--only check_facts ...]

It prints milliseconds of CPU of all threads, at the median and the 95th percentile: of a known turn, and of a new one
with a user message of 1 kB, after some 200 kB that are known. Each request is parsed anew, as from the wire; parsing is
not counted. Conversations, facts and tool results are generated: one sentence in fifty begins with a name in the facts,
and about every third of those contradicts a fact.
"""

import argparse
import asyncio
import gc
import json
import random
import statistics
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

from policies.check_facts import CheckFacts
from policies.inject_facts import InjectFacts
from policies.resolve_clashes import ResolveClashes
from policies.validate_content import ValidateContent
from proxy.chat import ChatRequest
from proxy.chat.parse import Body
from proxy.context import Identity
from proxy.policy import Policy
from proxy.state.cache import OnceService
from proxy.state.decisions import Memos
from proxy.state.sqlite import SqliteStore
from proxy.testing import context

_FIRST = "Ada Bruno Carla Dario Elena Felix Greta Hugo Irma Jonas Klara Luca Mona Nils Olga Pablo Rita Sven Tara Ugo"
_LAST = "Alder Bergen Castel Dorn Eklund Farro Gomez Harlan Iversen Jansen Kovac Lindt Moreno Novak Orsini"
_TOWN = "Ostrava Lund Segovia Bergamo Galway Patras Aarhus Poznan Toledo Verona"
_THING = "invoice budget report contract slides backup calendar draft ticket survey parcel schedule"
_TIME = "Monday Tuesday Wednesday Thursday Friday spring autumn lunch midnight Easter"
FIRST, LAST, TOWNS, THINGS, TIMES = (each.split() for each in (_FIRST, _LAST, _TOWN, _THING, _TIME))
_CALLED = ["painter", "chemist", "footballer", "poet", "architect", "singer"]
_NATIONS = ["Danish", "Spanish", "Polish", "Italian", "Irish", "Greek"]
_FILLER = [
    "The meeting about the {} was moved to {}.",
    "I would like to have the {} finished before {}.",
    "We looked at the {} again, and {} is still open.",
    "Please remind me of the {} on {}, because I forget it.",
    "My manager prefers the {} to be sent by {}.",
    "I usually take the {} with me when I travel to {}.",
]
_TOOL = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}]
_TURN = 1000
"""Characters of a user's message."""


def facts() -> list[str]:
    """Return 300 facts about persons in prose, and 100 about towns by relation."""
    chance = random.Random(1)
    people = [
        f"{first} {last} (born {chance.randint(1850, 1990)}) is a {chance.choice(_NATIONS)} {chance.choice(_CALLED)} "
        f"who was raised in {chance.choice(TOWNS)} and won the Alder Prize in {chance.randint(1900, 2020)}."
        for first in FIRST
        for last in LAST
    ]
    return people + [f"The mayor of {town} {n} is {chance.choice(LAST)}." for n in range(10) for town in TOWNS]


def _sentence(chance: random.Random) -> str:
    if chance.random() < 0.98:
        return chance.choice(_FILLER).format(f"{chance.choice(THINGS)} {chance.randrange(10**6)}", chance.choice(TIMES))
    name = f"{chance.choice(FIRST)} {chance.choice(LAST)}"
    predicate = chance.choice(
        ["was born in {year}.", "is a {calling} by trade.", "came to the office.", "likes the {thing}."]
    )
    year, calling, thing = chance.randint(1850, 1990), chance.choice(_CALLED), chance.choice(THINGS)
    return f"{name} {predicate.format(year=year, calling=calling, thing=thing)}"


def _text(chance: random.Random, size: int) -> str:
    text = _sentence(chance)
    while len(text) < size:
        text += f" {_sentence(chance)}"
    return text


class Conversation:
    """A long known conversation with a last turn that is replaced each time."""

    def __init__(self, turns: int) -> None:
        self._chance = random.Random(2)
        self._messages: list[dict[str, Any]] = [{"role": "system", "content": "You are an assistant."}]
        for _ in range(turns):
            self._answer(self._chance.randint(200, 900))
            self._messages.append({"role": "user", "content": _text(self._chance, self._chance.randint(100, 600))})
        self._known = len(self._messages)

    def _answer(self, size: int) -> None:
        if len(self._messages) == 1:
            return
        if self._chance.random() < 0.1:
            call = {"id": f"c{len(self._messages)}", "type": "function"}
            call["function"] = {"name": "look_up", "arguments": '{"what": "invoice"}'}  # type: ignore[assignment]
            rows = [{"id": n, "text": _sentence(self._chance)} for n in range(size // 100)]
            self._messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            self._messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps({"rows": rows})})
        self._messages.append({"role": "assistant", "content": _text(self._chance, size)})

    def go_on(self) -> None:
        """Replace the last turn by a new one with a user message of 1 kB."""
        del self._messages[self._known :]
        self._answer(200)
        self._messages.append({"role": "user", "content": _text(self._chance, _TURN)})

    def request(self) -> ChatRequest:
        """Return the request of the client."""
        return Body(json.dumps({"model": "m", "messages": self._messages, "tools": _TOOL}).encode()).parse()


POLICIES: dict[str, Callable[[], Policy]] = {
    "check_facts": lambda: CheckFacts(facts=tuple(facts()), most=1000),
    "inject_facts": lambda: InjectFacts(),
    "resolve_clashes": lambda: ResolveClashes(timeout=60),
    "validate_content": lambda: ValidateContent(timeout=60),
}


async def measure(name: str, turns: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds of CPU of known turns, and of new ones."""
    once, memos = OnceService(), Memos(SqliteStore(None, 2**26), ttl=600)
    policy, talk = POLICIES[name](), Conversation(turns)
    fresh, seen = list[float](), list[float]()

    async def cost() -> float:
        request = talk.request()
        ctx = context(request, window=10**6, once=once.bind(Identity("t")), memo=memos.bind(Identity("t", "s")))
        begun = process_time()
        await policy.decide(request, ctx)
        return (process_time() - begun) * 1000

    await cost()
    for _ in range(rounds):
        talk.go_on()
        fresh.append(await cost())
        seen.append(await cost())
    once.close()
    return seen, fresh


def _points(costs: Sequence[float]) -> str:
    return f"{statistics.median(costs):8.2f} {statistics.quantiles(costs, n=20)[18]:7.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=200, help="of the conversation that is known")
    parser.add_argument("--rounds", type=int, default=200, help="further turns")
    parser.add_argument("--only", nargs="*", default=[*POLICIES], choices=[*POLICIES])
    options = parser.parse_args()
    gc.set_threshold(50_000, 20, 20)  # as the proxy does
    size = (
        len(Conversation(options.turns).request().messages),
        sum(len(message.raw) for message in Conversation(options.turns).request().messages),
    )
    print(f"{size[0]} messages, {size[1] // 1000} kB; ms of CPU    seen p50     p95     new p50     p95")
    for name in options.only:
        seen, fresh = asyncio.run(measure(name, options.turns, options.rounds))
        print(f"{name:36} {_points(seen)}   {_points(fresh)}", flush=True)


if __name__ == "__main__":
    main()
