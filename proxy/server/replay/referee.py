"""Asks a real model in recorded conversations through two chains or proxies, and compares its decisions.

Each request of a conversation goes through A, through A again and through B, with the recorded answers in front of it.
Two answers of A differ by the model's own noise, so B has changed only those decisions that differ beyond that.
"""

import argparse
import asyncio
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain, count
from typing import Any, NamedTuple
from uuid import uuid4

from yarl import URL

from proxy.chat import encode
from proxy.chat.errors import BadRequest, PenstockError
from proxy.compaction.identifiers import identifiers
from proxy.config.load import load
from proxy.config.settings import Settings
from proxy.context import ModelProfile
from proxy.http.client import Timeouts, Transport
from proxy.models.usage import UsageReader
from proxy.server.build import build_upstreams
from proxy.server.replay.player import check_chain
from proxy.server.replay.reading import Conversation, RecordedRequest, read
from proxy.server.replay.trial import serving
from proxy.text import counted
from proxy.upstreams.routing import Routes
from proxy.wires import WIRES, body_of

_TIMEOUTS = Timeouts(connect=10.0, idle=600.0)
_DRAWS = 2000
"""Resamples of the conversations, from which the intervals are."""
_SHOWN = 5
_NAMING = ("user", "safety_identifier", "metadata", "prompt_cache_key", "stream", "stream_options")
"""Fields of a recorded request that are not sent."""


class Decision(NamedTuple):
    """The decision that an answer is. The first field that differs names the kind of a change."""

    failed: str
    tools: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    """The arguments of the calls, in the order of the tools."""
    facts: tuple[str, ...] = ()

    @classmethod
    def of(cls, wire: str, status: int, body: bytes) -> "Decision":
        answer = WIRES[wire].answer(body, streamed=False) if status == 200 else None
        if answer is None:
            return cls(f"{status} {UsageReader().of_body(body).error or 'no answer'}")
        calls = sorted((name, _canonical(arguments)) for name, arguments in answer.calls)
        facts = () if calls else tuple(sorted(identifiers(answer.text)))
        return cls("", tuple(name for name, _ in calls), tuple(arguments for _, arguments in calls), facts)

    def change(self, other: "Decision") -> str | None:
        """Return the kind of a change from one decision to another; None for no change."""
        pairs = zip(self._fields, self, other, strict=True)
        return next((kind for kind, one, two in pairs if one != two), None)

    def __str__(self) -> str:
        calls = ", ".join(map("{}({})".format, self.tools, self.arguments))
        return self.failed or calls or f"an answer with {', '.join(self.facts) or 'no facts'}"


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True, ensure_ascii=False)
    except ValueError:
        return arguments


class Side(NamedTuple):
    """A proxy that is compared, or a chain of one."""

    name: str
    base: str
    chain: str | None = None


class ComparedRequest(NamedTuple):
    """The decisions at one request."""

    conversation: str
    number: int
    first: Decision
    again: Decision
    other: Decision
    usd: tuple[float, float]
    """The price of the request with its answer by A and by B, as the usage says."""

    @property
    def noise(self) -> str | None:
        """The kind of the change between A and A again."""
        return self.first.change(self.again)

    @property
    def changes(self) -> tuple[str | None, str | None]:
        """The kinds of the changes between B and each answer of A."""
        return self.first.change(self.other), self.again.change(self.other)


class Referee:
    """The player of conversations with a model behind two sides. Each conversation is a session of its own."""

    def __init__(self, model: str, profile: ModelProfile, a: Side, b: Side, headers: Mapping[str, str]) -> None:
        self._model, self._profile, self._a, self._b, self._headers = model, profile, a, b, headers
        self._transport = Transport("referee", _TIMEOUTS)

    async def play_all(self, conversations: Sequence[Conversation], at_once: int) -> list[ComparedRequest]:
        free, done = asyncio.Semaphore(at_once), count(1)

        async def play(conversation: Conversation) -> list[ComparedRequest]:
            async with free:
                compared = await self._play(conversation)
            if sys.stderr.isatty():
                print(f"\r{next(done)} of {len(conversations)} conversations", end="", file=sys.stderr)
            return compared

        try:
            return [*chain.from_iterable(await asyncio.gather(*map(play, conversations)))]
        finally:
            await self._transport.aclose()

    async def _play(self, conversation: Conversation) -> list[ComparedRequest]:
        """Play a conversation. A is asked again last, so that its bill has no reads from this question's cache."""
        sessions, compared = [f"referee-{uuid4().hex}" for _ in range(3)], []
        for number, point in enumerate(conversation.points, 1):
            (first, ours), (other, theirs) = await asyncio.gather(
                self._ask(self._a, point, sessions[0]), self._ask(self._b, point, sessions[1])
            )
            again, _ = await self._ask(self._a, point, sessions[2])
            compared.append(ComparedRequest(conversation.name, number, first, again, other, (ours, theirs)))
        return compared

    async def _ask(self, side: Side, point: RecordedRequest, session: str) -> tuple[Decision, float]:
        kept = {name: value for name, value in point.body.items() if name not in _NAMING}
        body = body_of(encode({**kept, "model": self._model}))
        headers = {"content-type": "application/json", "accept-encoding": "identity", **self._headers}
        headers |= {"x-penstock-session": session, **({"x-penstock-chain": side.chain} if side.chain else {})}
        try:
            reply = await self._transport.request("POST", URL(f"{side.base}{body.path}"), headers, body.raw)
            answer = await reply.read()
        except PenstockError as error:
            return Decision(f"{error.status} {error.code}"), 0.0
        usage, profile = UsageReader().of_body(answer), self._profile
        tokens = usage.input or 0
        cost = profile.cache.reported_cost(tokens, usage.cached or 0, usage.written or 0)
        return Decision.of(body.wire, reply.status, answer), profile.prices.usd(tokens, cost, usage.output or 0)


def summary(compared: Sequence[ComparedRequest]) -> dict[str, Any]:
    """Return the shares of changed decisions by kind, with 95 % intervals from a bootstrap over conversations."""
    names = {each.conversation for each in compared}
    groups: dict[Any, list[ComparedRequest]] = defaultdict(list)
    for place, each in enumerate(compared):
        groups[each.conversation if len(names) > 1 else place].append(each)
    kinds = {kind: _changed([*groups.values()], kind) for kind in (*Decision._fields, "any")}
    a, b = (sum(each.usd[side] for each in compared) for side in (0, 1))
    return {"conversations": len(names), "requests": len(compared), "kinds": kinds, "usd": {"a": a, "b": b}}


def _changed(groups: Sequence[Sequence[ComparedRequest]], kind: str) -> dict[str, Any]:
    def share(*changes: str | None) -> float:
        return sum(change is not None and kind in (change, "any") for change in changes) / len(changes)

    sums = [
        (sum(share(each.noise) for each in group), sum(share(*each.changes) for each in group), len(group))
        for group in groups
    ]
    noise, changed, requests = map(sum, zip(*sums, strict=True))
    dice = random.Random(1)
    samples = (dice.choices(sums, k=len(sums)) for _ in range(_DRAWS))
    drawn = sorted(sum(more - less for less, more, _ in each) / sum(size for *_, size in each) for each in samples)
    shares = {"noise": noise / requests, "changed": changed / requests, "beyond": (changed - noise) / requests}
    return {**shares, "interval": (drawn[int(0.025 * _DRAWS)], drawn[int(0.975 * _DRAWS)])}


def is_changed(report: Mapping[str, Any]) -> bool:
    """Return whether B changes decisions beyond the noise."""
    return bool(report["kinds"]["any"]["interval"][0] > 0)


def render(report: Mapping[str, Any], compared: Sequence[ComparedRequest], a: str, b: str) -> Iterator[str]:
    """Yield the lines of the report for people."""
    requests, conversations = counted(report["requests"], "request"), counted(report["conversations"], "conversation")
    yield f"{requests} of {conversations}; A is {a}, B is {b}"
    yield ""
    yield f"{'changed':10}{'A and A again':>15}{'A and B':>10}{'beyond noise':>14}   95 %"
    for kind, each in report["kinds"].items():
        low, high = each["interval"]
        shares = f"{each['noise']:>15.1%}{each['changed']:>10.1%}{each['beyond']:>+14.1%}"
        yield f"{kind:10}{shares}   {low:+.1%} to {high:+.1%}"
    yield ""
    if report["usd"]["a"]:  # else the model has no prices
        yield f"bill: A ${report['usd']['a']:.4f}, B ${report['usd']['b']:.4f}, by the usage that the answers report"
    yield "B changes decisions beyond the noise" if is_changed(report) else "no change beyond the noise"
    certain = [each for each in compared if each.noise is None and each.changes[0] is not None]
    for each in certain[:_SHOWN]:
        yield f"{each.conversation}, request {each.number}: {each.changes[0]}: A {each.first}; B {each.other}"
    if len(certain) > _SHOWN:
        yield f"{len(certain) - _SHOWN:,} more, in which both answers of A agree"


def referee_files(options: argparse.Namespace) -> int:
    """Compare as the command line says. Return the exit code: 1 if B changes decisions beyond the noise."""
    if not (options.against or options.against_config):
        raise PenstockError("say what to compare with: --against CHAIN or URL, or --against-config FILE")
    config, most, conversations = load(options.config), options.most, list[Conversation]()
    other_config = load(options.against_config) if options.against_config else config
    profile, is_url = _profile(config.settings, options.model), "://" in (options.against or "")
    check_chain(config.settings, options.chain)
    check_chain(other_config.settings, None if is_url else options.against)
    for each in (each for path in options.files for each in read(path)):
        if most > 0:
            conversations.append(replace(each, points=each.points[:most]))
        most -= len(each.points)
    with ExitStack() as stack:
        base = other = stack.enter_context(serving(config, _for_comparison))
        if options.against_config:
            other = stack.enter_context(serving(other_config, _for_comparison))
        a = Side(options.chain or "the model's own chain", f"{base}/v1", options.chain)
        b = Side(options.against, f"{other}/v1", options.against)
        if is_url:
            b = Side(options.against, options.against.rstrip("/"))
        elif options.against_config:
            b = b._replace(name=f"{options.against or 'the same'} of {options.against_config}")
        referee = Referee(options.model, profile, a, b, dict(options.header))
        compared = asyncio.run(referee.play_all(conversations, options.at_once))
    report = summary(compared)
    print(json.dumps(report, indent=2) if options.json else "\n".join(render(report, compared, a.name, b.name)))
    return 1 if is_changed(report) else 0


def _for_comparison(data: dict[str, Any]) -> None:
    data["server"] = {**(data.get("server") or {}), "may_choose_chain": True}
    data |= {"state": {"kind": "memory"}, "records": "off"}


def _profile(settings: Settings, model: str) -> ModelProfile:
    try:
        return Routes(settings, build_upstreams(settings)).of(model).profile
    except PenstockError as error:
        raise BadRequest(f"--model: {error}") from None
