"""One request as it is recorded: a `Record` refers to what is there, and later becomes a row as it is shown.

The row is the JSON of one object, made when nobody waits. The page and the sums of the table read nothing else.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from operator import attrgetter
from typing import Any, NamedTuple

import orjson

from proxy.chat import ChatRequest, JsonObject, Message, encode
from proxy.chat.markers import named_handles
from proxy.chat.parse import Body
from proxy.chat.provenance import identities
from proxy.context import Context, Identity, ModelProfile, TokenCount
from proxy.identity import identify
from proxy.models.usage import Usage
from proxy.state.cache import Cache
from proxy.step import Step
from proxy.telemetry.bill import Bills, Effect, Estimate, estimated, with_effects
from proxy.telemetry.changes import Stages, changes
from proxy.telemetry.ledger import LEDGER, Ledger
from proxy.wires import WIRES

LARGEST = 128 * 1024
"""Bytes that a row may take; a larger one is written without its steps and changes."""
NONE = "none"
PARSED = 64 * 1024
"""Bytes up to which a body is read for its conversation where nothing else has read it."""
KEY = 32
LARGEST_TEXT = 2**20
"""Bytes of a text that is stored; a longer one is not."""
TEXTS = "texts"
"""The member of a row with the hashes of its texts."""
_NAME, _TITLE = 128, 80
_KNOWN = ("upstream", "chain", "ignored", "lowered", "vendor")
_USED = ("input", "cached", "written", "output")
_STORED, _STORED_FOR = 100_000, 900.0
"""Number of hashes of texts that are remembered, and for how many seconds."""


class Rewriting(NamedTuple):
    """A request as it came and as its chain left it."""

    came: ChatRequest
    sent: ChatRequest
    stages: Stages
    ctx: Context
    before: TokenCount | None
    after: TokenCount | None
    first: ChatRequest | None = None
    """The request in front of the first step, where each step got the result of the one before it."""


class Record:
    """One request, by references to its parts."""

    tenant: str = ""
    """A hash, from which no key can be told; empty before the gate knows the caller."""
    config: str
    """The version of the configuration that it was served with."""
    known: dict[str, str | None]
    """Its id, route, upstream and chain, its model as a label, and the fields that the upstream has nothing for."""
    bills: Bills
    asked: str = NONE
    steps: Sequence[Step] = ()
    before: int | None = None
    after: int | None = None
    window: int | None = None
    usd: float | None = None
    estimate: Estimate | None = None
    saved: float | None = None
    answers: list[Usage]
    """Usage as upstreams report it, of internal rounds included."""
    rewriting: Rewriting | None = None
    unread: tuple[Body | None, Mapping[str, str]] | None = None
    """A body that no chain has read, unless it is large, and the client's headers."""
    text: tuple[bytes, bool] | None = None
    """The answer's bytes, where texts are stored, and True for a stream."""
    when: float = 0.0
    """Its end, in seconds since 1970."""
    seconds: float = 0.0
    status: int = 0
    error: str | None = None
    stream: bool = False
    trace_id: str | None = None

    def __init__(self, config: str, known: dict[str, str | None], bills: Bills) -> None:
        self.config, self.known, self.bills, self.answers = config, known, bills, []

    async def estimated(self, came: ChatRequest, sent: ChatRequest, ctx: Context) -> Estimate:
        scope = "\0".join((ctx.identity.scope, self.known.get("upstream") or "", ctx.model.name))
        return await self.bills.estimate((ctx.identity.tenant, scope), came, sent, ctx.model, ctx.tokens)

    def facts(self) -> dict[str, Any]:
        """Return the figures of the request, of which its row, its span and its line in the log are made."""
        return {
            "status": self.status,
            "error": self.error,
            "stream": self.stream,
            "milliseconds": round(self.seconds * 1000, 1),
            "tokens_before": self.before,
            "tokens_after": self.after,
            "window": self.window,
            "usd": self.usd,
            **estimated(self.estimate),
            "usd_saved": self.saved,
            "trace_id": self.trace_id,
        }

    def who(self, request: ChatRequest | None = None) -> Identity:
        """Return the conversation's identity; of an unread body, as its headers and the `request` in it say."""
        if self.rewriting is not None:
            return self.rewriting.ctx.identity
        return Identity(self.tenant) if self.unread is None else identify(self.unread[1], request, self.tenant)

    def request(self) -> ChatRequest | None:
        if self.rewriting is not None:
            return self.rewriting.came
        body = None if self.unread is None else self.unread[0]
        try:
            return None if body is None else body.parse()
        except Exception:  # its upstream has judged it
            return None


def conversation_id(who: Identity) -> str | None:
    """Return the id of a conversation of a tenant; each agent and task of a session has its own."""
    if not who.session:
        return None
    return blake2b(f"{who.tenant}\0{who.scope}".encode(errors="surrogateescape"), digest_size=16).hexdigest()


def names_of(who: Identity) -> dict[str, str | None]:
    """Return the hashes by which a request's conversation and its parts are known."""
    session = who.session if who.is_named else None
    return {
        "conversation": conversation_id(who),
        "session": session,
        "agent": who.agent or None,
        "task": who.task or None,
    }


def turn_of(request: ChatRequest) -> int:
    """Return the number of a request in its conversation, from 1."""
    return request.form.fold("turns", 1, lambda turn, new: turn + sum(each.role == "assistant" for each in new))


def date(seconds: float) -> str:
    """Return a time as an ISO 8601 date in milliseconds: such dates sort as the times do."""
    moment = datetime.fromtimestamp(round(seconds * 1000) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def row_of(record: Record, ledger: Ledger, texts: "Texts | None" = None) -> bytes:
    """Return the JSON of a record's row, behind that of its new `texts`. Raise `TypeError` if JSON cannot hold it."""
    request = record.request()
    rewriting, changed, handles = record.rewriting, list[dict[str, Any]](), list[str]()
    sections: dict[str, Any] = {"before": None, "after": None}
    if rewriting is not None:
        came, sent = rewriting.came, rewriting.sent
        counts = {"before": rewriting.before, "after": rewriting.after}
        sections = {when: count and count.by_section() for when, count in counts.items()}
        changed = await changes(came, sent, rewriting.stages, rewriting.ctx.tokens)
        handles = _handles(came, sent)
    effects, broken = await _priced(record)
    names = names_of(record.who(request))
    key = record.tenant, names["conversation"] or ""
    link = ledger.link(key, handles)
    verdicts = [*map(attrgetter("verdict", "observed"), record.steps)]
    known = record.known
    row = {
        "request_id": known["request_id"] or "",
        "started": date(record.when - record.seconds),
        "ended": date(record.when),
        "tenant": record.tenant,
        "config": record.config,
        **names,
        "title": None if texts is None else _title(request),
        "key": known.get("key"),
        "turn": None if request is None else turn_of(request),
        "route": known.get("route"),
        "model": record.asked[:_NAME],
        **dict(zip(_KNOWN, map(known.get, _KNOWN), strict=True)),
        **record.facts(),
        "sections": sections,
        "prices": None if rewriting is None else _prices(rewriting.ctx.model, record.after or 0),
        **{f"{kind}_tokens": _sum(record.answers, kind) for kind in _USED},
        "prefix_broken": broken,
        "problems": {
            "errors": int(record.status >= 400 or bool(record.error)),
            "refused": int(("reject", False) in verdicts),
            "failed_steps": verdicts.count(("fail", False)),
            "prefix_breaks": int(broken is not None),
        },
        "changes": changed,
        "steps": with_effects(record.steps, effects),
        LEDGER: link,
    }
    new: Sequence[bytes] = ()
    if texts is not None:
        row[TEXTS], new = texts.of(record, request)
    packed = orjson.dumps(row)
    if len(packed) > LARGEST:
        packed = orjson.dumps({**row, "changes": [], "steps": []})
    ledger.add(key, link, packed)
    return b",".join((*new, packed))


def _handles(came: ChatRequest, sent: ChatRequest) -> list[str]:
    """Return the handles that messages of the chain's name, each once."""
    find = identities(came)

    def extend(before: tuple[str, ...], messages: Sequence[Message]) -> tuple[str, ...]:
        return (*before, *[handle for each in messages if find(id(each)) is None for handle in named_handles(each.raw)])

    named: tuple[str, ...] = sent.form.fold(("handles", came.form.lineage), (), extend)
    return [*dict.fromkeys(named)]


def _title(request: ChatRequest | None) -> str | None:
    messages = () if request is None else request.messages
    text = next((message.text for message in messages if message.role == "user"), "")
    return " ".join(text[: 4 * _TITLE].split())[:_TITLE] or None


async def _priced(record: Record) -> tuple[Sequence[Effect], dict[str, Any] | None]:
    """Return the effect of each step, and the place where the prompt differs from what the provider's cache has."""
    unknown, rewriting, estimate = [Effect()] * len(record.steps), record.rewriting, record.estimate
    if rewriting is None or record.status >= 400:
        return unknown, None
    is_priced = estimate is not None and bool(record.answers)
    if estimate is None:  # without prices, or sent by others
        estimate = await record.estimated(rewriting.came, rewriting.sent, rewriting.ctx)
        record.bills.sent(estimate)
    tokens = rewriting.ctx.tokens
    effects = await record.bills.effects(estimate, rewriting.first, rewriting.stages, record.steps, tokens)
    return effects if is_priced else unknown, estimate.broken(len(rewriting.sent.tools))


def _prices(model: ModelProfile, tokens: int) -> dict[str, float] | None:
    """Return US dollars for a million tokens each, for a prompt of so many tokens; None where they are not known."""
    if not model.prices.known:
        return None
    at, cache = model.prices.at(tokens), model.cache
    return {"input": at.input, "output": at.output, "read": at.input * cache.read, "write": at.input * cache.write}


def _sum(answers: Sequence[Usage], kind: str) -> int | None:
    known = [count for answer in answers if (count := getattr(answer, kind)) is not None]
    return sum(known) if known else None


# --- texts ---


class Texts:
    """Each message, tool and answer once for each tenant; a text that was stored lately is its hash alone."""

    def __init__(self) -> None:
        self._stored: Cache[tuple[str, str], None] = Cache(_STORED, age=_STORED_FOR)

    def of(self, record: Record, request: ChatRequest | None) -> tuple[dict[str, Any] | None, Sequence[bytes]]:
        """Return the hashes of all texts of a record, and the JSON of the new ones."""
        if request is None:
            return None, ()
        new, came = list[bytes](), request
        sent = came if record.rewriting is None else record.rewriting.sent

        def keys(parts: Sequence[JsonObject]) -> str:
            return "".join([self._key(record.tenant, part.raw, new) for part in parts])

        hashes: dict[str, Any] = {"before": keys(came.messages), "tools_before": keys(came.tools)}
        hashes["after"] = None if sent.messages is came.messages else keys(sent.messages)
        hashes["tools_after"] = None if sent.tools is came.tools else keys(sent.tools)
        answer = None if record.text is None else _message_of(came.wire, *record.text)
        hashes["answer"] = None if answer is None else self._key(record.tenant, answer, new)
        return hashes, new

    def _key(self, tenant: str, raw: bytes, new: list[bytes]) -> str:
        key = blake2b(raw, digest_size=KEY // 2).hexdigest()
        text: dict[str, str] = {"tenant": tenant, "key": key}
        if (tenant, key) not in self._stored:
            if len(raw) > LARGEST_TEXT:
                return key
            self._stored.put((tenant, key), None)
            text["text"] = raw.decode(errors="replace")
        new.append(orjson.dumps(text))
        return key

    def forget(self, tenant: str) -> None:
        self._stored.forget(tenant)


def _message_of(wire: str, body: bytes, streamed: bool) -> bytes | None:
    answer = WIRES[wire].answer(body, streamed=streamed)
    if answer is None:
        return None
    calls = [{"type": "function", "function": {"name": name, "arguments": text}} for name, text in answer.calls]
    message = {"content": answer.text or None, "refusal": answer.refusal or None, "tool_calls": calls or None}
    return encode({"role": "assistant", **{name: each for name, each in message.items() if each or name == "content"}})
