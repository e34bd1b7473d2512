"""The kit for policy authors: conversations in a tiny language, and a context that needs no server.

`"s u1 a1! t1 a2 u2"` is a system message, a user message with the text "u1", an assistant message that calls a tool,
the tool's result, an assistant's and a user's message. `d` is a developer message; `a1!x,y` makes two parallel calls,
`x` and `y`, which `tx` and `ty` answer.
"""

from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Any

from proxy.chat import ChatRequest, JsonObject, Message, Tool
from proxy.context import Context, Identity, ModelProfile, TokenCount

_ROLES = {"s": "system", "d": "developer", "u": "user", "a": "assistant", "t": "tool"}


def message(word: str) -> Message:
    """The message that one word of the tiny language stands for."""
    role, (text, bang, calls) = _ROLES[word[0]], word.partition("!")
    if role == "tool":
        return Message({"role": role, "tool_call_id": word[1:], "content": f"result {word[1:]}"})
    if not bang:
        return Message({"role": role, "content": text})
    return Message({"role": role, "content": None, "tool_calls": [_call(i) for i in (calls or text[1:]).split(",")]})


def _call(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "look_up", "arguments": f'{{"key":"{call_id}"}}'}}


def tool(name: str = "look_up", description: str = "Looks something up.") -> Tool:
    """A tool definition with one string parameter."""
    parameters = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
    return Tool({"type": "function", "function": {"name": name, "description": description, "parameters": parameters}})


def chat(conversation: str, *, model: str = "test-model", tools: Sequence[Tool] = (), **rest: Any) -> ChatRequest:
    """The request that a conversation in the tiny language stands for; `rest` are further top-level fields."""
    messages = tuple(message(word) for word in conversation.split())
    if not tools and any(item.called_tools for item in messages):
        tools = (tool(),)
    return ChatRequest(model=model, messages=messages, tools=tuple(tools), rest=JsonObject(rest))


def script(request: ChatRequest) -> str:
    """A request back in the tiny language."""
    return " ".join(_word(item) for item in request.messages)


def _word(item: Message) -> str:
    if item.role == "tool":
        return f"t{item['tool_call_id']}"
    if item.call_ids:
        return f"a!{','.join(item.call_ids)}" if len(item.call_ids) > 1 else f"a{item.call_ids[0]}!"
    return item.text


class CharTokens:
    """Counts four characters of JSON as a token: enough for tests, and the same on every machine."""

    async def sizes(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Tokens of each message."""
        return tuple(len(item.raw) // 4 for item in messages)

    async def tool_sizes(self, tools: Sequence[Tool]) -> tuple[int, ...]:
        """Tokens of each tool."""
        return tuple(len(item.raw) // 4 for item in tools)

    async def count(self, request: ChatRequest) -> TokenCount:
        """Tokens of a request, by section."""
        sizes = await self.sizes(request.messages)
        system = sum(size for size, item in zip(sizes, request.messages, strict=True) if item.is_system)
        return TokenCount(system, sum(await self.tool_sizes(request.tools)), sum(sizes) - system, exact=False)

    def observe(self, request: ChatRequest, counted: TokenCount, reported: int) -> None:
        """It has nothing to learn."""


class MemoryArchive:
    """Keeps content in memory; with `broken`, nothing can be kept."""

    def __init__(self, *, broken: bool = False) -> None:
        self.kept: dict[str, str] = {}
        self.broken = broken

    async def keep(self, content: str) -> str | None:
        """A handle that depends on the content alone."""
        if self.broken:
            return None
        handle = self.handle(content)
        self.kept[handle] = content
        return handle

    def handle(self, content: str) -> str:
        """A hash of the content."""
        return sha256(content.encode(errors="surrogatepass")).hexdigest()[:16]

    async def touch(self, handles: Collection[str]) -> frozenset[str]:
        """Those that were kept."""
        return frozenset(handle for handle in handles if handle in self.kept)

    async def fetch(self, handle: str) -> str | None:
        """What was kept under a handle."""
        return self.kept.get(handle)

    async def handles(self, limit: int) -> tuple[str, ...]:
        """The handles of what was kept last, the latest first."""
        return tuple(reversed(self.kept))[:limit]


def profile(window: int = 8192, **fields: Any) -> ModelProfile:
    """A model with a window of so many tokens."""
    known: dict[str, Any] = {"name": "test-model", "window": window, "max_output": window // 4, "reserve": 0}
    return ModelProfile(**(known | fields))


def context(incoming: ChatRequest | None = None, *, window: int = 8192, **fields: Any) -> Context:
    """A context in which nothing has to be waited for."""
    known: dict[str, Any] = {
        "incoming": incoming or chat("u1"),
        "model": profile(window),
        "identity": Identity(tenant="test"),
        "tokens": CharTokens(),
        "deadline": float("inf"),
        "archive": MemoryArchive(),
    }
    return Context(**(known | fields))
