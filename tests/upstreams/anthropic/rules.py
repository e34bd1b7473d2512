"""What Anthropic refuses a request for, as far as its documentation says; the stand-in holds requests to it."""

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from anthropic.types.message_create_params import (
    MessageCreateParamsBase,
    MessageCreateParamsNonStreaming,
    MessageCreateParamsStreaming,
)
from pydantic import TypeAdapter, ValidationError

Body = dict[str, Any]
Block = dict[str, Any]

THOUGHTS = ("thinking", "redacted_thinking")
ALWAYS_THINKING = ("claude-opus-5-5", "claude-fable-5-1", "claude-fable-5-2", "claude-mythos-5-1", "claude-mythos-5-2")
BOUND = (*ALWAYS_THINKING, "claude-sonnet-5-5", "claude-haiku-5-5")
BUDGETS = (
    *("claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5"),
    *("claude-opus-4-1", "claude-sonnet-4-2", "claude-3-7"),
)
MINIMUM = {
    "claude-opus-5": 512, "claude-fable-5": 512, "claude-mythos-5": 512, "claude-opus-4-8": 1024, "claude-sonnet-5": 1024,
    "claude-sonnet-4-6": 1024, "claude-sonnet-4-5": 1024, "claude-opus-4-7": 2048, "claude-opus-4-6": 4096,
    "claude-opus-4-5": 4096, "claude-haiku-4-5": 4096,
}  # fmt: skip
"""The shortest prefix that is cached, in tokens."""

MODELS = {"claude-haiku-4-5": (200_000, 64_000)}
"""Window and longest answer, in tokens; of all others a million and 128,000."""

LOOKBACK = 20
TTLS = {"5m": 300.0, "1h": 3600.0}

_ADAPTERS = (TypeAdapter(MessageCreateParamsNonStreaming), TypeAdapter(MessageCreateParamsStreaming))
_UNKNOWN = frozenset({"temperature", "top_p", "top_k", "context_management", "mcp_servers", "compaction", "fallbacks"})
"""Fields of older models and of betas, which the plain types of the SDK have not."""
_ID = re.compile(r"[a-zA-Z0-9_-]+")


class Refusal(Exception):
    """A 400."""


def tokens(value: Any) -> int:
    """What a value counts as here: four bytes of JSON a token."""
    return len(json.dumps(value)) // 4


def content(message: Mapping[str, Any]) -> list[Block]:
    said = message["content"]
    return [{"type": "text", "text": said}] if isinstance(said, str) else list(said)


def blocks(body: Body) -> Iterator[tuple[str, Block]]:
    """All blocks in the order in which they are cached, each with the level that it stands on."""
    for tool in body.get("tools", ()):
        yield "tools", tool
    for block in content({"content": body.get("system", [])}):
        yield "system", block
    for message in body["messages"]:
        for block in content(message):
            yield "messages", block


def bare(value: Any) -> Any:
    """A block without what says where to cache."""
    if isinstance(value, dict):
        return {key: bare(each) for key, each in value.items() if key != "cache_control"}
    return [bare(each) for each in value] if isinstance(value, list) else value


def check(body: Body) -> None:
    """Raise `Refusal` for what the API refuses."""
    _check_types(body)
    _check_limits(body)
    _check_thinking(body)
    _check_texts(body)
    _check_roles(body)
    _check_pairs(body)
    _check_marks(body)
    _check_signatures(body)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise Refusal(message)


def _check_types(body: Body) -> None:
    known = MessageCreateParamsBase.__annotations__.keys() | MessageCreateParamsStreaming.__annotations__ | _UNKNOWN
    for key in body:
        _require(key in known, f"{key}: Extra inputs are not permitted")
    try:
        plain = {key: value for key, value in body.items() if key not in _UNKNOWN}
        read = _ADAPTERS[bool(body.get("stream"))].validate_python(plain)
        _exhaust(read)
    except ValidationError as error:
        raise Refusal(str(error)) from None


def _exhaust(value: Any) -> Any:
    """Validate what pydantic validates only when it is gone through."""
    if isinstance(value, dict):
        return {key: _exhaust(each) for key, each in value.items()}
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        return value
    return [_exhaust(each) for each in value]


def _check_limits(body: Body) -> None:
    window, longest = MODELS.get(body["model"], (1_000_000, 128_000))
    asked = body["max_tokens"]
    _require(asked <= longest, f"max_tokens: {asked} > {longest}, which is the maximum allowed number of output tokens")
    prompt = sum(tokens(block) for _, block in blocks(body))
    _require(prompt <= window, f"prompt is too long: {prompt} tokens > {window} maximum")
    told = f"input length and `max_tokens` exceed context limit: {prompt} + {asked} > {window}"
    _require(body["model"] not in MODELS or prompt + asked <= window, told)


def _check_thinking(body: Body) -> None:
    model, thinking = body["model"], body.get("thinking", {"type": "default"})
    kind, choice = thinking["type"], body.get("tool_choice", {"type": "auto"})["type"]
    always = model in ALWAYS_THINKING
    budgeted = model.startswith(BUDGETS)
    unsupported = f'"thinking.type.{kind}" is not supported for this model.'
    _require(not (always and kind in ("disabled", "enabled")), unsupported)
    _require(not (model == "claude-sonnet-5-5" and kind == "disabled"), unsupported)
    _require(budgeted or kind != "enabled", unsupported)
    _require(not budgeted or kind != "adaptive", "adaptive thinking is not supported on this model")
    if kind == "enabled":
        budget = thinking["budget_tokens"]
        _require(budget >= 1024, "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        _require(budget < body["max_tokens"], "`max_tokens` must be greater than `thinking.budget_tokens`")
        _require(body.get("temperature", 1) == 1, "`temperature` may only be set to 1 when thinking is enabled")
        _require("top_k" not in body, "`top_k` must be unset when thinking is enabled")
    forced = choice in ("any", "tool")
    told = "Thinking may not be enabled when tool_choice forces tool use."
    _require(not (forced and kind in ("enabled", "adaptive")), told)
    forces_not = always or model == "claude-sonnet-5-5"
    _require(not (forced and forces_not), "tool_choice: forced tool use is not supported for this model")
    if not budgeted and not model.startswith(("claude-opus-4-6", "claude-sonnet-4-6", "claude-3")):
        _require(body.get("temperature", 1) == 1, "`temperature` is not supported for this model")
        _require("top_p" not in body, "`top_p` is not supported for this model")
    else:
        _require(not {"temperature", "top_p"} <= body.keys(), "`temperature` and `top_p` cannot both be specified")
    _require(not budgeted or "effort" not in body.get("output_config", {}), "This model does not support effort.")


def _check_texts(body: Body) -> None:
    for _, block in blocks(body):
        if block.get("type") == "text":
            _require(block["text"] != "", "messages: text content blocks must be non-empty")
            _require(block["text"].strip() != "", "messages: text content blocks must contain non-whitespace text")
    for stop in body.get("stop_sequences", ()):
        _require(stop.strip() != "", "stop_sequences: each stop sequence must contain non-whitespace")
    last = body["messages"][-1] if body["messages"] else {"role": "", "content": ""}
    if last["role"] == "assistant" and content(last) and content(last)[-1]["type"] == "text":
        text = content(last)[-1]["text"]
        _require(text == text.rstrip(), "messages: final assistant content cannot end with trailing whitespace")


def _check_roles(body: Body) -> None:
    messages = body["messages"]
    _require(bool(messages), "messages: at least one message is required")
    for place, message in enumerate(messages):
        role, is_last = message["role"], place + 1 == len(messages)
        _require(bool(content(message)) or (role == "assistant" and is_last), "messages: empty content")
        if role != "system":
            continue
        old = body["model"].startswith(("claude-opus-4-1", "claude-opus-4-5", "claude-opus-4-6", "claude-opus-4-7"))
        old = old or body["model"].startswith(("claude-sonnet-4", "claude-haiku-4", "claude-3"))
        _require(not old, "role 'system' is not supported on this model")
        _require(place > 0 and messages[place - 1]["role"] == "user", "role 'system' must follow a 'user' message")
        behind = messages[place + 1]["role"] if place + 1 < len(messages) else "assistant"
        _require(behind == "assistant", "role 'system' must precede an 'assistant' message or end the array")


def _check_pairs(body: Body) -> None:
    merged: list[tuple[str, list[Block]]] = []
    for message in body["messages"]:
        if merged and merged[-1][0] == message["role"]:
            merged[-1][1].extend(content(message))
        else:
            merged.append((message["role"], content(message)))
    called: list[str] = []
    told = "`tool_use` ids were found without `tool_result` blocks immediately after"
    for place, (role, said) in enumerate(merged):
        results = [block["tool_use_id"] for block in said if block["type"] == "tool_result"]
        if role == "user":
            head = [block["type"] == "tool_result" for block in said]
            _require(head == sorted(head, reverse=True), "tool_result blocks must come first in a user message")
            missing = [each for each in called if each not in results]
            _require(not missing, f"messages.{place}: {told}: {', '.join(missing)}")
            _require(len(results) == len(set(results)), "each tool_use must have a single result")
            _require(set(results) <= set(called), "unexpected `tool_use_id` found in `tool_result` blocks")
            called = []
        elif role == "assistant":
            _require(not called and not results, told)
            called = [block["id"] for block in said if block["type"] == "tool_use"]
            _require(all(map(_ID.fullmatch, called)), "messages: tool_use.id: String should match '^[a-zA-Z0-9_-]+$'")
            _require(len(called) == len(set(called)), "messages: `tool_use` ids must be unique")
    uses = any(block["type"] in ("tool_use", "tool_result") for _, said in merged for block in said)
    _require(not uses or bool(body.get("tools")), "Requests which include `tool_use` blocks must define tools")
    if body.get("thinking", {}).get("type") == "enabled" and merged[-1][1][0]["type"] == "tool_result":
        first = merged[-2][1][0]["type"]
        _require(first in THOUGHTS, f"Expected `thinking` or `redacted_thinking`, but found `{first}`")


def _check_marks(body: Body) -> None:
    marks = [(block, block["cache_control"]) for _, block in blocks(body) if block.get("cache_control")]
    if body.get("cache_control"):
        marks.append(({}, body["cache_control"]))
    _require(len(marks) <= 4, f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}.")
    last = TTLS["1h"]
    for block, mark in marks:
        _require(block.get("type") not in THOUGHTS, "cache_control cannot be set on thinking blocks")
        _require(not block.get("defer_loading"), "cache_control cannot be set on tools with defer_loading")
        ttl = TTLS[mark.get("ttl", "5m")]
        _require(ttl <= last, "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block")
        last = ttl


def signature(body: Body, before: list[Any], thinking: str) -> str:
    """The signature of thinking, over all that stood before it where the model binds the two."""
    prefix: list[Any] = []
    if body["model"] in BOUND:
        tools = [tool for tool in body.get("tools", ()) if not tool.get("defer_loading")]
        prefix = [tools, content({"content": body.get("system", [])}), before]
    return sha256(json.dumps(bare([body["model"], prefix, thinking])).encode()).hexdigest()


def _check_signatures(body: Body) -> None:
    before: list[Any] = []
    for place, message in enumerate(body["messages"]):
        for block in content(message):
            if block["type"] == "thinking":
                _require(block.keys() == {"type", "thinking", "signature"}, "thinking: Extra inputs are not permitted")
                expected = signature(body, before, block["thinking"])
                told = f"messages.{place}: Invalid `signature` in `thinking` block"
                _require(block["signature"] == expected, told)
            before.append([message["role"], block])
