"""What is kept of one request, and how it reads.

A request makes a `Record`, which only refers to what is there. Later, when nobody waits, it becomes a row: a JSON array
of the `COLUMNS` of the table that it is kept in, and of all else, as it is shown.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import zip_longest
from operator import attrgetter
from typing import Any, NamedTuple

import orjson

from proxy.chat import ChatRequest, JsonObject, Message, encode
from proxy.chat.parse import Body
from proxy.context import Context, Identity, ModelProfile
from proxy.identity import identify
from proxy.models.usage import Usage
from proxy.state.cache import Cache
from proxy.step import Step
from proxy.telemetry.bill import Bills, Effect, Estimate, Prefixes, estimated, prefixes
from proxy.telemetry.changes import Doers, MessageChange, Stages, changes
from proxy.wires import WIRES

COLUMNS = (
    "ended", "started", "tenant", "conversation", "request_id", "model", "chain", "status", "failed", "refused",
    "failed_steps", "broken", "input", "cached", "written", "output", "usd", "usd_saved", "tokens_before",
    "tokens_after", "turn",
)  # fmt: skip
"""What lists filter by and conversations are summed up from."""

LARGEST = 128 * 1024
"""Bytes that a row may take; of a larger one only its sums are kept."""

NONE = "none"
"""What stands for what a request has not got: a model, or an upstream."""

PARSED = 64 * 1024
"""Bytes up to which a body is read for its conversation where nothing else has read it."""
_NAME = 128
KEY = 32
"""Characters of the hash of a text."""
LARGEST_TEXT = 2**20
"""Bytes of a text that is kept; a longer one is not."""
_TOLD, _TOLD_FOR = 100_000, 900.0
"""How many hashes of texts are remembered, and for how many seconds."""
_STEP = attrgetter(
    "policy", "verdict", "why", "observed", "tokens_before", "tokens_after", "seconds", "facts", "findings"
)
_STEP_NAMES = (
    "policy", "verdict", "why", "observed", "tokens_before", "tokens_after", "milliseconds", "facts", "findings",
    *Effect._fields,
)  # fmt: skip


class Rewriting(NamedTuple):
    """A request as it came and as its chain left it."""

    came: ChatRequest
    sent: ChatRequest
    stages: Stages
    ctx: Context
    sections: tuple[tuple[int, int, int], tuple[int, int, int]] | None
    """Tokens of system, tools and messages, before and after."""
    given: ChatRequest | None = None
    """What the first step was given, where each was given what the one before it left."""


@dataclass(slots=True)
class Record:
    """What is known of one request. Made for each, so it only refers to what is there."""

    tenant: str
    """A hash, from which no key can be told."""
    config: str
    """The version of the configuration that it was served with."""
    known: dict[str, str | None]
    """Its id, route, upstream and chain, and the fields that the upstream has nothing for."""
    bills: Bills
    model: str = NONE
    """The upstream's name for the model."""
    steps: Sequence[Step] = ()
    before: int | None = None
    after: int | None = None
    window: int | None = None
    usd: float | None = None
    estimate: Estimate | None = None
    saved: float | None = None
    answers: list[Usage] = field(default_factory=list)
    """What upstreams reported, of internal rounds included."""
    rewriting: Rewriting | None = None
    passed: tuple[Body | None, Mapping[str, str]] | None = None
    """A body that no chain has read, unless it is large, and the client's headers."""
    answer: tuple[bytes, bool] | None = None
    """The answer's bytes, where texts are kept, and whether they are a stream."""
    when: float = 0.0
    """Its end, in seconds since 1970."""
    seconds: float = 0.0
    status: int = 0
    error: str | None = None
    stream: bool = False
    trace_id: str | None = None

    @property
    def is_large(self) -> bool:
        """Whether it refers to much memory: it should become a row soon."""
        return (self.before or 0) > 20_000

    def identity(self) -> tuple[Identity, ChatRequest | None]:
        """Whose conversation it belongs to, and the request where it was read."""
        if self.rewriting is not None:
            return self.rewriting.ctx.identity, self.rewriting.came
        if self.passed is None:
            return Identity(self.tenant), None
        body, headers = self.passed
        request = None
        if body is not None:
            try:
                request = body.parse()
            except Exception:  # whatever the client sent, its upstream has judged it
                request = None
        return identify(headers, request, self.tenant), request


def conversation_id(who: Identity) -> str | None:
    """What stands for a conversation of a tenant; another one for each agent and task of a session."""
    if not who.session:
        return None
    return blake2b(f"{who.tenant}\0{who.scope}".encode(errors="surrogateescape"), digest_size=16).hexdigest()


def turn_of(request: ChatRequest) -> int:
    """The number of a request in its conversation, from 1."""
    return request.form.fold("turns", 1, _with_turns)


def _with_turns(before: int, messages: Sequence[Message]) -> int:
    return before + sum(message.role == "assistant" for message in messages)


class Prompts:
    """What was sent last in each conversation. Tells where a prompt no longer begins like the one before it."""

    def __init__(self, max_bytes: int = 8 * 2**20) -> None:
        self._last: Cache[tuple[str, str], _Prompt] = Cache(max_bytes)

    async def broken(
        self, record: Record, who: Identity, doers: Doers, found: Sequence[MessageChange]
    ) -> dict[str, Any] | None:
        """What of the earlier prompt is not in the provider's cache although it was expected; None where all is."""
        made, estimate = record.rewriting, record.estimate
        if made is None or not made.ctx.model.cache.ttl or record.status >= 400:
            return None
        scope = (who.tenant, f"{who.scope}\0{record.known.get('upstream')}\0{made.ctx.model.name}")
        if estimate is not None:
            came, sent = estimate.came.prefixes, estimate.sent.prefixes
        else:
            came, sent = (
                await prefixes(scope, made.came, made.ctx.tokens),
                await prefixes(scope, made.sent, made.ctx.tokens),
            )
        rules, last = made.ctx.model.cache, self._last.get(scope)
        prompt = _Prompt.of(record, came, sent, doers)
        self._last.put(scope, prompt, prompt.size)
        if last is None or record.when - last.when > rules.ttl or last.total < rules.minimum:
            return None
        place = _first_difference(last.sent, sent)
        if place is None:
            return None
        at = sent[place - 1][1] if place else 0
        index = place - len(made.sent.tools)
        if place < max(prompt.tools, last.tools):
            step = prompt.tools_by or last.tools_by
        else:
            step = prompt.by.get(index) or last.by.get(index)
            if step is None and _first_difference(last.came, came) is None:
                step = _removed_before(index, found)
        return {"at": at, "message": index if index >= 0 else None, "lost": last.total - at, "step": step}

    def forget(self, tenant: str) -> int:
        """Forget the conversations of a tenant."""
        return self._last.forget(tenant)


class _Prompt(NamedTuple):
    when: float
    came: "array[int]"
    sent: "array[int]"
    total: int
    tools: int
    by: Mapping[int, str]
    """Steps by the places of the messages that they made."""
    tools_by: str | None

    @classmethod
    def of(cls, record: Record, came: Prefixes, sent: Prefixes, doers: Doers) -> "_Prompt":
        made = record.rewriting
        messages = () if made is None else made.sent.messages
        by = {place: step for place, each in enumerate(messages) if (step := doers.made.get(id(each))) is not None}
        ours, theirs = (array("q", [key for key, _ in each]) for each in (sent, came))
        tools = len(sent) - len(messages)
        return cls(record.when, theirs, ours, sent[-1][1] if sent else 0, tools, by, doers.tools)

    @property
    def size(self) -> int:
        return 400 + 8 * (len(self.came) + len(self.sent)) + 100 * len(self.by)


def _first_difference(before: "array[int]", after: Prefixes) -> int | None:
    """The first place at which a prompt is not the earlier one; None where that is its beginning."""
    if not before or (len(before) <= len(after) and before[-1] == after[len(before) - 1][0]):
        return None
    return next((n for n, (old, new) in enumerate(zip(before, after, strict=False)) if old != new[0]), len(after))


def _removed_before(place: int, found: Sequence[MessageChange]) -> str | None:
    """The last step that took something out in front of a place of what was sent."""
    step: str | None = None
    for change in found:
        if change.after is not None and change.after + change.size > place:
            break
        step = change.step if change.kind == "removed" else step
    return step


async def row_of(record: Record, prompts: Prompts, texts: "Texts | None" = None) -> bytes | None:
    """A record as the JSON of its row, behind that of its `texts`; None for one that JSON cannot hold."""
    who, request = record.identity()
    made, found, doers = record.rewriting, list[MessageChange](), Doers({}, {}, None)
    if made is not None:
        doers = Doers.of(made.came, made.stages)
        found = await changes(made.came, made.sent, doers, made.ctx.tokens)
    broken = await prompts.broken(record, who, doers, found)
    turn = None if request is None else turn_of(request)
    used = [_sum(getattr(each, name) for each in record.answers) for name in ("input", "cached", "written", "output")]
    verdicts = [step.verdict for step in record.steps if not step.observed]
    columns = (
        milliseconds(record.when), milliseconds(record.when - record.seconds), record.tenant, conversation_id(who),
        record.known["request_id"] or "", record.model[:_NAME], record.known.get("chain"), record.status,
        int(record.status >= 400 or bool(record.error)), int("reject" in verdicts), verdicts.count("fail"),
        int(broken is not None), *used, record.usd, record.saved, record.before, record.after, turn,
    )  # fmt: skip
    rest = {
        **record.known,
        "who": (who.session, who.agent, who.task),
        "config": record.config,
        "error": record.error,
        "seconds": record.seconds,
        "stream": record.stream,
        "window": record.window,
        "sections": None if made is None else made.sections,
        "prices": None if made is None else _prices(made.ctx.model, record.after or 0),
        "trace_id": record.trace_id,
        "prefix_broken": broken,
        **estimated(record.estimate),
    }
    told: Sequence[bytes] = ()
    if texts is not None:
        rest["text"], told = texts.of(record, request)
    effects: Sequence[Effect] = [Effect()] * len(record.steps)
    if made is not None and record.estimate is not None and record.answers:
        effects = await record.bills.effects(record.estimate, made.given, made.stages, record.steps, made.ctx.tokens)
    steps = [(*_STEP(step), *effect) for step, effect in zip(record.steps, effects, strict=True)]
    try:
        packed = orjson.dumps({**rest, "changes": [tuple(each) for each in found], "steps": steps})
        if len(packed) > LARGEST:
            packed = orjson.dumps({**rest, "changes": (), "steps": ()})
        # as a text in the row, so that whoever takes the row apart leaves it whole
        return b",".join((*told, orjson.dumps((*columns, packed.decode()))))
    except TypeError:  # a policy of the operator's own may give as a fact what is none
        return None


class Texts:
    """The texts of records: each message, tool and answer once for each tenant, under a hash of it.

    Every request sends its conversation again. What was told a short time ago is told by its hash alone.
    """

    def __init__(self) -> None:
        self._told: Cache[tuple[str, str], None] = Cache(_TOLD, age=_TOLD_FOR)

    def of(self, record: Record, request: ChatRequest | None) -> tuple[dict[str, Any] | None, Sequence[bytes]]:
        """The hashes of all texts of a record, and the JSON of what is to be kept under them."""
        made, told = record.rewriting, list[bytes]()
        came = request if made is None else made.came
        if came is None:
            return None, ()
        sent = came if made is None else made.sent

        def keys(parts: Sequence[JsonObject]) -> str:
            return "".join([self._key(record.tenant, part.raw, told) for part in parts])

        found: dict[str, Any] = {"before": keys(came.messages), "tools_before": keys(came.tools)}
        found["after"] = None if sent.messages is came.messages else keys(sent.messages)
        found["tools_after"] = None if sent.tools is came.tools else keys(sent.tools)
        answer = None if record.answer is None else _message_of(came.wire, *record.answer)
        found["answer"] = None if answer is None else self._key(record.tenant, answer, told)
        return found, told

    def _key(self, tenant: str, raw: bytes, told: list[bytes]) -> str:
        """The hash of a text, which is told unless it was told just now."""
        key = blake2b(raw, digest_size=KEY // 2).hexdigest()
        text: dict[str, str] = {"tenant": tenant, "key": key}
        if (tenant, key) not in self._told:
            if len(raw) > LARGEST_TEXT:
                return key
            self._told.put((tenant, key), None)
            text["text"] = raw.decode(errors="replace")
        told.append(orjson.dumps(text))
        return key

    def forget(self, tenant: str) -> None:
        """Forget what was told of a tenant."""
        self._told.forget(tenant)


def _message_of(wire: str, body: bytes, streamed: bool) -> bytes | None:
    """The message of an answer, from the bytes that went to the client."""
    answer = WIRES[wire].answer(body, streamed=streamed)
    if answer is None:
        return None
    calls = [{"type": "function", "function": {"name": name, "arguments": text}} for name, text in answer.calls]
    said = {"content": answer.text or None, "refusal": answer.refusal or None, "tool_calls": calls or None}
    return encode({"role": "assistant", **{name: each for name, each in said.items() if each or name == "content"}})


def shown(row: Sequence[Any]) -> dict[str, Any]:
    """A record as JSON values, from its columns and the rest; times in milliseconds."""
    at = dict(zip(COLUMNS, row, strict=False))
    rest = orjson.loads(row[len(COLUMNS)])
    session, agent, task = rest["who"]
    sections = rest["sections"] or (None, None)
    return {
        "request_id": at["request_id"],
        "ended": date(at["ended"]),
        "tenant": at["tenant"],
        "config": rest["config"],
        "conversation": at["conversation"],
        "session": session if session.startswith(Identity.NAMED) else None,
        "agent": agent or None,
        "task": task or None,
        "turn": at["turn"],
        "route": rest.get("route"),
        "model": at["model"],
        "upstream": rest.get("upstream"),
        "chain": at["chain"],
        "ignored": rest.get("ignored"),
        "lowered": rest.get("lowered"),
        "status": at["status"],
        "error": rest["error"],
        "stream": rest["stream"],
        "milliseconds": round(rest["seconds"] * 1000, 1),
        "tokens_before": at["tokens_before"],
        "tokens_after": at["tokens_after"],
        "window": rest["window"],
        "sections": {
            when: None if each is None else dict(zip(("system", "tools", "messages"), each, strict=True))
            for when, each in zip(("before", "after"), sections, strict=True)
        },
        "prices": rest["prices"],
        "input_tokens": at["input"],
        "cached_tokens": at["cached"],
        "written_tokens": at["written"],
        "output_tokens": at["output"],
        "usd": at["usd"],
        **{name: rest[name] for name in ("usd_estimated", "usd_unchanged", "cached_expected")},
        "usd_saved": at["usd_saved"],
        "prefix_broken": rest["prefix_broken"],
        "trace_id": rest["trace_id"],
        "changes": [MessageChange(*each).shown() for each in rest["changes"]],
        "steps": [_step(each) for each in rest["steps"]],
    }


def _prices(model: ModelProfile, tokens: int) -> dict[str, float] | None:
    """US dollars for a million tokens each, for a prompt of so many tokens; None where prices are not known."""
    if not model.prices.known:
        return None
    at = model.prices.at(tokens)
    cached = {"read": at.input * model.cache.read, "write": at.input * model.cache.write}
    return {"input": at.input, "output": at.output, **cached}


def _step(values: Sequence[Any]) -> dict[str, Any]:
    step = dict(zip_longest(_STEP_NAMES, values))
    return {**step, "milliseconds": round(step["milliseconds"] * 1000, 3)}


def milliseconds(seconds: float) -> int:
    """A time as it is kept: exact, so that what is shown can be asked for."""
    return round(seconds * 1000)


def date(kept: int) -> str:
    """A time that was kept as an ISO 8601 date."""
    return datetime.fromtimestamp(kept / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _sum(counts: Any) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
