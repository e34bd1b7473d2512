"""Tools for testing policies: conversations in a tiny language, a context that needs no server, and `conform`.

`"s u1 a1! t1 a2 u2"` is a system message, a user message with the text "u1", an assistant message that calls a tool,
the tool's result, an assistant's and a user's message. `d` is a developer message; `a1!x,y` makes two parallel calls,
`x` and `y`, which `tx` and `ty` answer.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from msgspec import structs

from proxy.chat import ChatRequest, Fields, Message, Tool, encode
from proxy.context import Conditions, Context, ContextServices, Identity, ModelProfile, TokenCount, Uncached
from proxy.gateway.chain import count_checked, run
from proxy.policy import BringsTools, Decision, Keep, Policy, Rewrite, ToolContext
from proxy.state.cache import OnceService

_ROLES = {"s": "system", "d": "developer", "u": "user", "a": "assistant", "t": "tool"}


def message(word: str) -> Message:
    """Return the message of one word of the tiny language."""
    role, (text, bang, calls) = _ROLES[word[0]], word.partition("!")
    if role == "tool":
        return Message({"role": role, "tool_call_id": word[1:], "content": f"result {word[1:]}"})
    if not bang:
        return Message({"role": role, "content": text})
    return Message({"role": role, "content": None, "tool_calls": [_call(i) for i in (calls or text[1:]).split(",")]})


def _call(call_id: str, name: str = "look_up") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": f'{{"key":"{call_id}"}}'}}


def tool(name: str = "look_up", description: str = "Looks something up.") -> Tool:
    """Return a tool definition with one string parameter."""
    return Tool.function(name, description, {"key": "string"}, ["key"])


def chat(conversation: str, *, model: str = "test-model", tools: Sequence[Tool] = (), **rest: Any) -> ChatRequest:
    """Return the request of a conversation in the tiny language; `rest` are further top-level fields."""
    messages = tuple(message(word) for word in conversation.split())
    if not tools and any(item.called_tools for item in messages):
        tools = (tool(),)
    return ChatRequest(model=model, messages=messages, tools=tuple(tools), rest=Fields(rest))


def script(request: ChatRequest) -> str:
    """Return a request in the tiny language."""
    return " ".join(_word(item) for item in request.messages)


def _word(item: Message) -> str:
    if item.role == "tool":
        return f"t{item['tool_call_id']}"
    if item.call_ids:
        return f"a!{','.join(item.call_ids)}" if len(item.call_ids) > 1 else f"a{item.call_ids[0]}!"
    return item.text


class CharTokens:
    """A token counter that counts four characters of JSON as a token, so that tests need no tokenizer."""

    async def sizes(self, messages: Sequence[Message | Tool]) -> tuple[int, ...]:
        return tuple(len(item.raw) // 4 for item in messages)

    tool_sizes = sizes

    async def count(self, request: ChatRequest) -> TokenCount:
        sizes = await self.sizes(request.messages)
        system = sum(size for size, item in zip(sizes, request.messages, strict=True) if item.is_system)
        return TokenCount(system, sum(await self.tool_sizes(request.tools)), sum(sizes) - system, exact=False)

    def observe(self, request: ChatRequest, counted: TokenCount, reported: int) -> None:
        """Ignore what an upstream reports: there is nothing to calibrate."""

    def refused(self, counted: TokenCount, least: int) -> None:
        """Ignore a refused prompt."""


class MemoryArchive:
    """An archive in memory; with `broken`, it stores nothing."""

    def __init__(self, *, broken: bool = False) -> None:
        self.contents: dict[str, str] = {}
        self.broken = broken

    async def keep(self, content: str) -> str | None:
        if self.broken:
            return None
        handle = self.handle(content)
        self.contents[handle] = content
        return handle

    def handle(self, content: str) -> str:
        return sha256(content.encode(errors="surrogatepass")).hexdigest()[:16]

    async def touch(self, handles: Collection[str]) -> frozenset[str]:
        return frozenset(handle for handle in handles if handle in self.contents)

    async def fetch(self, handle: str) -> str | None:
        return self.contents.get(handle)

    async def handles(self, limit: int) -> tuple[str, ...]:
        return tuple(reversed(self.contents))[:limit]


class MemoryMemo:
    """A memo in memory."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    async def known(self, keys: Sequence[str]) -> Sequence[str | None]:
        return [self.values.get(key) for key in keys]

    async def settle(self, key: str, value: str) -> str:
        return self.values.setdefault(key, value)


def profile(window: int = 8192, **fields: Any) -> ModelProfile:
    """Return a model with a window of so many tokens."""
    known: dict[str, Any] = {"name": "test-model", "window": window, "max_output": window // 4, "reserve": 0}
    return ModelProfile(**(known | fields))


def context(incoming: ChatRequest | None = None, *, window: int = 8192, **fields: Any) -> Context:
    """Return a context with an archive in memory, without a deadline and without background services.

    `fields` are those of the context, of its services and of its conditions.
    """
    parts: dict[str, Any] = {}
    for part, kind in (("services", ContextServices), ("conditions", Conditions)):
        parts[part] = kind(**{name: fields.pop(name) for name in kind.__struct_fields__ if name in fields})
    known: dict[str, Any] = {
        "incoming": incoming or chat("u1"),
        "model": profile(window),
        "identity": Identity(tenant="test"),
        "tokens": CharTokens(),
        "archive": MemoryArchive(),
    }
    return Context(**(known | parts | fields))


# --- conformance ------------------------------------------------------------------------------------------------------

_SENTENCES = (
    "The printer in room 214 is out of toner: ana.ruiz@example.com wants 3 cartridges at 41.90 EUR each.",
    "Nunca reserves hoteles de más de 200 euros por noche. Mi número es el +34 600 123 456.",
    "I'm vegetarian, I live in Lyon, and my name is Bruno Keller.",
    "Please keep every answer under 80 words. 👍",
    "今天下午三点的会议改到明天。",
)
_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
_SOUND = {"type": "input_audio", "input_audio": {"data": "UklGRgAAAABXQVZF", "format": "wav"}}


def lifelike(turns: int = 40) -> ChatRequest:
    """Return a conversation with every kind of content that clients send.

    It has several system messages, text in lists, images, audio, pasted text, addresses, numbers, languages, reasoning
    with and without a signature, parallel calls, large and failed results, and 40 tools.
    """
    words = ["s", "s2", "d"]
    messages = [message(word) for word in words]
    for turn in range(turns):
        messages += _turn(turn)
    tools = [tool(f"tool_{number}", f"Does job {number} for the printers.") for number in range(40)]
    return chat("", tools=tools).with_messages(messages)


def _turn(turn: int) -> Iterator[Message]:
    text = f"{_SENTENCES[turn % len(_SENTENCES)]} ({turn})"
    pasted = "\n".join(f"{turn}.{line} A line of a text that was pasted." for line in range(150))
    contents = [text, [{"type": "text", "text": text}, _IMAGE], [_SOUND, {"type": "text", "text": text}], text]
    yield Message({"role": "user", "content": f"{text}\n{pasted}" if turn % 10 == 5 else contents[turn % 4]})
    if turn % 4 == 1:
        signed = [{"type": "thinking", "thinking": f"Look up {turn}.", "signature": f"c2ln{turn}"}]
        thought = {"thinking_blocks": signed} if turn % 8 == 1 else {"reasoning_content": f"I look up {turn}."}
        calls = [_call(f"{turn}.{number}", f"tool_{turn % 3}") for number in range(2)]
        yield Message({"role": "assistant", "content": None, **thought, "tool_calls": calls})
        rows = [{"id": 1000 * turn + row, "mail": f"u{row}@example.com", "price": row * 1.25} for row in range(100)]
        yield Message({"role": "tool", "tool_call_id": calls[0]["id"], "content": json.dumps(rows)})
        failed = [{"type": "text", "text": f"error 503: printer {turn} is busy"}]
        yield Message({"role": "tool", "tool_call_id": calls[1]["id"], "content": failed})
    yield Message({"role": "assistant", "content": f"Job {turn} is done."})


def prefixes(request: ChatRequest) -> Iterator[ChatRequest]:
    """Yield the requests that a client sends as a conversation grows up to this request, which is the last one."""
    for end, item in enumerate(request.messages):
        if item.role == "assistant" and end and request.messages[end - 1].role in ("user", "tool"):
            yield request.with_messages(request.messages[:end])
    yield request


@dataclass(frozen=True)
class Example:
    """A conversation in which a policy acts, with its context, its settings or the steps before it."""

    start: ChatRequest | Context
    policy: Policy | None = None
    """Policy with settings; None for the default ones."""
    before: Sequence[Policy] = field(default=())
    """Steps that run before it."""


async def conform(kind: type[Policy], examples: Iterable[ChatRequest | Example] = ()) -> None:
    """Raise `AssertionError` if a policy breaks the contract.

    The policy runs over growing conversations: `lifelike` with a large window and with a small one, and the examples.
    It must act in all examples and at least once. It must not change a request in place, must decide the same twice,
    return a valid request, change nothing more when applied again, and change the prefix that was sent before at most
    `prefix_breaks_per_turn` times a turn, in the conversations in which it acts. It must build the internal tools that
    it declares, and offer no others.
    """
    for name, about in kind.model_fields.items():
        _require(about.description, f"{kind.__name__}.{name} has no docstring")
    _require(kind.__doc__, f"{kind.__name__} has no docstring")
    request = lifelike()
    if isinstance(step := kind(), BringsTools):
        built = step.build_tools(ToolContext(context(request), request, 1000))
        declared = [tool.definition for tool in step.internal_tools]
        _require(
            [tool.definition for tool in built] == declared, f"{kind.__name__} builds other tools than it declares"
        )
        for tool_ in built:
            _require(isinstance(await tool_.run("{}"), str), f"{tool_.name} has no answer to a call without arguments")
    tight = sum(await CharTokens().sizes(request.messages)) * 3 // 5
    general = [Example(context(request, window=window)) for window in (10**6, tight)]
    own = [each if isinstance(each, Example) else Example(each) for each in examples]
    grown = [await _grow(each, kind) for each in (*general, *own)]
    acted = [each for each in grown if each.acts]
    _require(acted, f"no conversation made {kind.__name__} act: bring EXAMPLES that do")
    idle = [place for place, each in enumerate(grown[len(general) :]) if not each.acts]
    _require(not idle, f"{kind.__name__} does not act in its examples {idle}")
    breaks, turns = sum(each.breaks for each in acted), sum(each.turns for each in acted)
    most = kind.prefix_breaks_per_turn
    _require(
        breaks <= most * turns, f"{breaks} of {turns} turns change what was sent before: more than {most} per turn"
    )


@dataclass
class _Grown:
    """The record of a policy in a growing conversation."""

    turns: int = 0
    acts: int = 0
    breaks: int = 0


async def _grow(example: Example, kind: type[Policy]) -> _Grown:
    policy = example.policy or kind()
    ctx = example.start if isinstance(example.start, Context) else context(example.start)
    once = OnceService(2**26)
    ctx = structs.replace(ctx, once=once.bind(Identity("test")))
    grown, original = _Grown(), dump(ctx.incoming)
    sent: tuple[list[bytes], list[bytes]] = ([], [])
    for incoming in prefixes(ctx.incoming):
        now = structs.replace(ctx, incoming=incoming)
        before = await run([(type(step).__name__, step) for step in example.before], now, strict=True)
        now = structs.replace(now, incoming=before.incoming or incoming)
        decide = check if grown.turns % 8 == 0 or incoming is ctx.incoming else type(policy).decide
        decision = await decide(policy, before.request, now)
        after = decision.request if isinstance(decision, Rewrite) else before.request
        sends = _raws(before.request), _raws(after)
        # a break by the steps before is not this policy's
        had, has = (new[: len(old)] != old[: len(new)] for new, old in zip(sends, sent, strict=True))
        grown.turns += 1
        grown.acts += not isinstance(decision, Keep)
        grown.breaks += has and not had
        sent = sends
    once.close()
    _require(dump(ctx.incoming) == original, f"{kind.__name__} changed the request in place")
    return grown


def _raws(request: ChatRequest) -> list[bytes]:
    return [item.raw for item in (*request.tools, *request.messages)]


async def check(policy: Policy, request: ChatRequest, ctx: Context) -> Decision:
    """Return the decision of a policy. Raise `AssertionError` or `BrokenRequest` if it breaks the contract."""
    name, original = type(policy).__name__, dump(request)
    first = await policy.decide(request, ctx)
    second = await policy.decide(request, structs.replace(ctx, once=Uncached()))
    _require(dump(request) == original, f"{name} changed the request in place")
    _require(_sent(first) == _sent(second), f"{name} made two decisions on the same request")
    # with a memo the second run finds settled decisions, so its reason may differ
    _require(
        ctx.memo is not None or _reason(first) == _reason(second), f"{name} gave two reasons for the same decision"
    )
    if isinstance(first, Rewrite):
        _check_offer(policy, request, first.request)
        await count_checked(policy, request, await ctx.tokens.count(request), first, ctx)
        again = await policy.decide(first.request, ctx)
        if isinstance(again, Rewrite):
            _require(dump(again.request) == dump(first.request), f"{name} changes more when it is applied again")
    return first


def _check_offer(policy: Policy, request: ChatRequest, rewritten: ChatRequest) -> None:
    had = {tool.name for tool in request.tools}
    brought = [kind.definition for kind in policy.internal_tools] if isinstance(policy, BringsTools) else []
    unknown = [tool.name for tool in rewritten.tools if tool.name not in had and tool not in brought]
    _require(
        not unknown, f"{type(policy).__name__} offers {', '.join(unknown)}, which nothing runs: see `internal_tools`"
    )


def _require(condition: object, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def dump(request: ChatRequest) -> bytes:
    """Return all fields of a request as bytes, encoded anew."""
    return encode([request.model, list(request.messages), list(request.tools), dict(request.rest), list(request.order)])


def _sent(decision: Decision) -> tuple[type, bytes]:
    return type(decision), dump(decision.request) if isinstance(decision, Rewrite) else b""


def _reason(decision: Decision) -> tuple[str, dict[str, Any]]:
    return decision.why, dict(decision.facts)
