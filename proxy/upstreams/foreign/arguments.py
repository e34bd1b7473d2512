"""The arguments of litellm for a request: an allow-list, because litellm takes its own orders from the same arguments.

`acompletion(**body)` would let a client choose the address, the key, callbacks, prices, mock answers or other
models.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from proxy.chat import ChatRequest
from proxy.chat.errors import NotFound

FIELDS = frozenset({
    "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "max_completion_tokens",
    "max_tokens", "modalities", "n", "parallel_tool_calls", "prediction", "presence_penalty", "reasoning_effort",
    "response_format", "safety_identifier", "seed", "service_tier", "stop", "temperature", "tool_choice",
    "top_logprobs", "top_p", "user", "web_search_options",
})  # fmt: skip
"""Fields of OpenAI's chat request that litellm translates; it drops those that a provider lacks."""

SPOKEN_FOR = frozenset({"stream", "stream_options"})
"""Fields that Penstock sets itself."""

CLAUDES = frozenset({"anthropic", "bedrock", "vertex_ai"})
"""Providers whose Claude models want their signed thinking back."""

_MODEL = re.compile(r"(?!.*(?://|\.\.))[A-Za-z0-9][A-Za-z0-9._:/@+-]*", re.ASCII)


def arguments(request: ChatRequest, provider: str) -> tuple[dict[str, Any], set[str]]:
    """Return the arguments of `litellm.acompletion` for a request, and the names of the fields that were left out.

    The provider is always the configured one: a model such as `openai/x` is that provider's model of this name. Raise
    `NotFound` for a name that could not be a model's, because litellm builds addresses from it.
    """
    if not _MODEL.fullmatch(request.model):
        raise no_such_model(request.model)
    # litellm edits what it is given, so it gets plain copies.
    messages = [json.loads(message.raw) for message in request.messages]
    given = {name: value for name, value in request.rest.items() if value is not None}
    accepted = {name: json.loads(json.dumps(value)) for name, value in given.items() if name in FIELDS}
    if "reasoning_effort" in accepted and _lost_thinking(messages, provider, request.model):
        del accepted["reasoning_effort"]
    dropped = given.keys() - accepted.keys() - SPOKEN_FOR
    if request.tools:
        accepted["tools"] = [json.loads(tool.raw) for tool in request.tools]
    accepted |= {"model": f"{provider}/{request.model}", "custom_llm_provider": provider, "messages": messages}
    # Otherwise a tool of the right shape has litellm call tool servers by itself.
    accepted["_skip_mcp_handler"] = True
    return accepted, dropped


def no_such_model(name: str) -> NotFound:
    """Return the error for a name that this provider cannot have."""
    return NotFound(f"The model {name!r} does not exist or you do not have access to it.", code="model_not_found")


def _lost_thinking(messages: Sequence[Mapping[str, Any]], provider: str, model: str) -> bool:
    """Return whether thinking must stay off: a Claude refuses it if the open call has lost its signed thoughts."""
    if provider not in CLAUDES or "claude" not in model or not messages or messages[-1].get("role") != "tool":
        return False
    caller = next((message for message in reversed(messages) if message.get("role") == "assistant"), None)
    return caller is not None and not caller.get("thinking_blocks")
