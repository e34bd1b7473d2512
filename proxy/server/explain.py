"""An explanation of a request: the work of its chain, without sending it."""

import argparse
import asyncio
import json
import sys
from codecs import BOM_UTF8
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from proxy.access.callers import Caller, Callers
from proxy.access.exchange import Exchange
from proxy.chat import Message, encode
from proxy.chat.errors import BadRequest, ConfigError, NotFound
from proxy.chat.parse import Body
from proxy.config.load import Config, load, read_chain
from proxy.config.settings import Settings
from proxy.context import ModelProfile, TokenCount
from proxy.gateway.prepare import Services
from proxy.server.build import build_upstreams
from proxy.server.replay.player import Explained, open_player, patient, play_all, player_beside
from proxy.server.replay.reading import recorded_body
from proxy.state.store import Store
from proxy.step import Step
from proxy.telemetry.bill import estimated, with_effects
from proxy.telemetry.changes import changes
from proxy.text import columns, figure
from proxy.upstreams.routing import Routes
from proxy.wires import body_of


def explain_file(options: argparse.Namespace) -> int:
    """Print the explanation of a request in a file. Return 1 where its body is asked for and would not be sent."""
    file = sys.stdin.buffer.read() if options.request == "-" else Path(options.request).read_bytes()
    raw, config, headers = _body(file, options.request), load(options.config), dict(options.header)
    lines = [] if options.before is None else options.before.read_bytes().splitlines()
    before = [_body(line, f"{options.before}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    explained = [
        asyncio.run(explain(config, raw, chain=chain, headers=headers, before=before, waits=options.wait))
        for chain in (options.chain, *filter(None, [options.against]))
    ]
    if options.body:
        if unasked := explained[0].unasked:
            told = f"penstock: not asked here: {figure(unasked)}; `penstock serve` may send another body"
            print(told, file=sys.stderr)
        sys.stdout.buffer.write(explained[0].body or b"")
        return 0 if explained[0].body is not None else 1
    tell = whole if options.whole else briefly if options.diff else None
    if options.json:
        print(render_json(*explained, tell=tell))
    else:
        print(("\n\n" + "-" * 80 + "\n\n").join(render_table(each, tell) for each in explained))
    return 0


def _body(text: bytes, place: str) -> bytes:
    """Return the body of a request in a file. Raise `BadRequest`, with its place."""
    try:
        body_of(raw := text.removeprefix(BOM_UTF8)).parse()
    except BadRequest as error:
        raise BadRequest(f"{place}: {error}") from None
    return raw


async def explain(
    config: Config, raw: bytes, *, before: Sequence[bytes] = (), waits: bool = False, **how: Any
) -> Explained:
    """Prepare a request, and those `before` it, as served, and change no state. It `waits` for an embedding model."""
    if headers := how.get("headers"):
        how["caller"] = Callers(config.settings.auth).of(headers)
    async with open_player(config.settings, reads_state=True, loads=waits) as player:
        return await play_all(player, raw, before, **how)


Tell = Callable[[Message], str]


def render_table(explained: Explained, tell: Tell | None = None) -> str:
    """Return it for people: the figures, under the names that the JSON has, each step, and changed messages."""
    steps, rejected = explained.done.outcome.steps, explained.done.outcome.rejected
    figures = [(name, figure(value)) for name, value in shown(explained).items() if value and name != "steps"]
    findings = [f"  {step.policy}: {finding}" for step in steps for finding in step.findings]
    paragraphs = [
        columns(figures),
        [] if rejected is None else [f"rejected with {rejected.status} {rejected.code}: nothing would be sent"],
        columns([("step", "verdict", "before", "after", "ms", "why"), *map(_row, steps)]) if steps else [],
        ["findings", *findings] if findings else [],
        [] if tell is None else _diff(explained, tell),
    ]
    return "\n\n".join("\n".join(lines) for lines in paragraphs if lines)


def render_json(*explained: Explained, tell: Tell | None = None) -> str:
    """Return the same for machines; of two chains both."""
    told = [{**shown(each), **({} if tell is None else {"diff": _diff(each, tell)})} for each in explained]
    found = told[0] if len(told) == 1 else dict(zip(("explained", "against"), told, strict=True))
    return json.dumps(found, indent=2, ensure_ascii=False)


def shown(explained: Explained) -> dict[str, Any]:
    """Return what was explained, as JSON values."""
    outcome, profile = explained.done.outcome, explained.done.ctx.model
    before, after, rejected = explained.before, explained.after, outcome.rejected
    return {
        "model": explained.done.sent.model,
        "upstream": explained.prepared.route.upstream.name,
        "upstream_model": profile.name,
        "chain": explained.chain,
        "wire": explained.done.sent.wire,
        "window": profile.window,
        "window_source": profile.source,
        "usable": explained.usable,
        "used": round(after.total / explained.usable, 3) if explained.usable else None,
        "exact": profile.exact,
        "tokens_before": before.total,
        "tokens_after": after.total,
        "unchanged": rejected is None and outcome.request is explained.done.sent,
        "sections": {"before": before.by_section(), "after": after.by_section()},
        "prompt_usd_before": _prompt_usd(profile, before),
        "prompt_usd_after": _prompt_usd(profile, after),
        **estimated(explained.estimate),
        "rejected": rejected and rejected.why,
        "steps": with_effects(outcome.steps, explained.effects),
        "judge_not_asked": explained.unasked.get("judge", 0),
        "not_compared_by_meaning": explained.unasked.get("vectors", 0),
        "ignored": list(explained.ignored),
        "lowered": explained.prepared.lowered,
        "milliseconds": round(explained.seconds * 1000, 1),
    }


def list_models(options: argparse.Namespace) -> None:
    """Print the models of the configuration, and what is known about each."""
    config = load(options.config)
    upstreams = build_upstreams(config.settings)
    profile_of = Routes(config.settings, upstreams).profile_of
    rows: list[tuple[str, ...]] = [("model", "upstream", "chain", "window", "reserve", "tokenizer", "counts", "source")]
    for entry in config.settings.models:
        for name in entry.match:
            upstream = upstreams[entry.upstream]
            profile = profile_of(entry.model or name, entry, upstream)
            counts = "exact" if profile.exact else f"estimate x{profile.factor:g}"
            known = (str(profile.window), str(profile.reserve), profile.encoding, counts, profile.source)
            if any(mark in name for mark in "*?[") and profile.source == "default":
                known = ("by model", "", "", "", "")
            rows.append((name, upstream.name, entry.chain, *known))
    print("\n".join(columns(rows)))


def _row(step: Step) -> tuple[str, ...]:
    before, after = ("-" if size is None else str(size) for size in (step.tokens_before, step.tokens_after))
    verdict = f"({step.verdict})" if step.observed else step.verdict
    return step.policy, verdict, before, after, f"{step.seconds * 1000:.2f}", step.why


def _prompt_usd(profile: ModelProfile, count: TokenCount) -> float | None:
    """Return US dollars for a prompt of which nothing is in the provider's cache; None where prices are not known."""
    cost = profile.prices.usd(count.total, profile.cache.prompt_cost(0, count.total))
    return round(cost, 9) if profile.prices.known else None


def _diff(explained: Explained, tell: Tell) -> list[str]:
    before, after = explained.done.sent.messages, explained.done.outcome.request.messages
    kept = {id(message) for message in after}
    old = {id(message) for message in before}
    lines = [f"- [{index}] {tell(message)}" for index, message in enumerate(before) if id(message) not in kept]
    lines += [f"+ [{index}] {tell(message)}" for index, message in enumerate(after) if id(message) not in old]
    return [*lines, f"  {len(kept & old)} messages unchanged"]


def briefly(message: Message) -> str:
    """Return a message's first characters, and its size."""
    calls = f" calls {', '.join(message.called_tools)}" if message.called_tools else ""
    text = " ".join(message.text.split())
    return f"{message.role}:{calls} {text[:80]}{'...' if len(text) > 80 else ''} ({len(message.raw)} bytes)"


def whole(message: Message) -> str:
    """Return all of a message."""
    rest = {key: value for key, value in message.items() if key not in ("role", "content")}
    lines = [*message.text.splitlines(), *([json.dumps(rest, ensure_ascii=False)] if rest else [])]
    return "\n    ".join([f"{message.role}:", *lines])


# --- by a running server ----------------------------------------------------------------------------------------------

MOST_BEFORE = 64
"""Requests that may stand before one."""

_TIME = 30.0
"""Seconds for the chain: nobody waits for an answer."""

_TRIED = "tried here"

Find = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any] | None]]
"""The record of a request id, if there is one."""


class Explaining:
    """`POST /v1/explain` and `POST /admin/explain`."""

    def __init__(self, config: Config, routes: Routes, services: Services, store: Store) -> None:
        self._config, self._settings = config, patient(config.settings, _TIME)  # also while a model is being loaded
        self._routes, self._services, self._store = routes, services, store

    async def serve(self, http: Exchange) -> dict[str, Any]:
        """Explain a request of the client's own, with the chain that it would get, or may choose."""
        asked = await http.body()
        async with http.watch():
            chain = _text(asked, "chain")
            headers = {**http.headers, "x-penstock-chain": chain} if chain else http.headers
            return await self._explain(self._settings, asked, _request(asked), headers=headers, caller=http.caller)

    async def for_operators(self, body: bytes, find: Find) -> dict[str, Any]:
        """Explain any request or a recorded one, with any chain, with one that is only tried, and `against` another."""
        asked, caller = Body(body), None
        if (request_id := _text(asked, "request_id")) is None:
            raw = _request(asked)
        else:
            record = await find(request_id, {name: _text(asked, name) or "" for name in ("tenant", "until")})
            if record is None or not record.get("text"):
                told = "no recent request has this id, or its text was not kept; set records.text in the configuration"
                raise NotFound(told, code="unknown_request")
            raw, caller = encode(recorded_body(record)), Caller(str(record["tenant"]))
        settings = patient(self._config.settings, _TIME, may_choose_chain=True)
        against, chain = _text(asked, "against"), _text(asked, "chain")
        if (tried := _text(asked, "chain_yaml")) is not None:
            try:
                chain, steps = _TRIED, await asyncio.to_thread(read_chain, tried, self._config)
            except ConfigError as error:
                raise BadRequest(str(error), param="chain_yaml", code="invalid_type") from None
            settings = settings.model_copy(update={"chains": {**settings.chains, _TRIED: steps}})
        explain = partial(self._explain, settings, asked, raw, caller=caller)
        return {
            "explained": await explain(chain=chain),
            "against": None if against is None else await explain(chain=against),
        }

    async def _explain(self, settings: Settings, asked: Body, raw: bytes, **how: Any) -> dict[str, Any]:
        """Return an explanation with what became of each message, and the messages themselves."""
        before = asked.raws_of("before")
        if len(before) > MOST_BEFORE:
            told = f"before has {len(before)} requests; send at most {MOST_BEFORE}"
            raise BadRequest(told, param="before", code="array_above_max_length")
        async with player_beside(settings, self._routes, self._services, self._store) as player:
            explained = await play_all(player, raw, before, **how)
            came, sent = explained.done.sent, explained.done.outcome.request
            found = await changes(came, sent, explained.done.outcome.stages, explained.done.tokens)
        text = {"before": came.messages, "after": sent.messages, "tools_before": came.tools, "tools_after": sent.tools}
        return {**shown(explained), "changes": found, "text": text}


def _request(asked: Body) -> bytes:
    """Return the client's own bytes of the request: handles are made of them."""
    if not isinstance(asked.get("request"), dict):
        raise BadRequest("request must be the body of a chat request", param="request", code="invalid_type")
    return asked.raw_of("request")


def _text(asked: Body, name: str) -> str | None:
    value = asked.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRequest(f"{name} must be a string", param=name, code="invalid_type")
    return value
