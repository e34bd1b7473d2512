"""Translations of requests: whatever comes there is a request, or an error for the client."""

from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.chat import ChatRequest, Fields, Message, Tool, encode
from proxy.chat.errors import BadRequest
from proxy.upstreams.anthropic import request as anthropic
from proxy.upstreams.ollama import request as ollama

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_WORDS = st.sampled_from([
    "function", "custom", "text", "image_url", "input_audio", "file", "document", "json_schema", "any", "tool",
    "data:text/plain;base64,aGk=", "allowed_tools", "low",
])  # fmt: skip
_NAMES = st.sampled_from([
    "type", "function", "name", "arguments", "custom", "input", "text", "image_url", "url", "json_schema", "schema",
    "allowed_tools", "tools", "effort", "parameters", "id", "input_audio", "data", "stop", "file", "file_data", "file_id", "mode", "user_id", "cache_control", "format", *ollama.OPTIONS,
])  # fmt: skip
_VALUES = st.recursive(
    _SCALARS | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)
_KEYS = [
    "role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "reasoning_content",
    "reasoning", "thinking_blocks", "cache_control", "audio", "is_error",
]  # fmt: skip
_MESSAGES = st.builds(
    lambda role, fields: Message({**role, **fields}),
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant", "tool", "function"])}),
    st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=5),
)
_TOOLS = st.builds(Tool, st.dictionaries(_NAMES, _VALUES, max_size=3))
_FIELDS = st.sampled_from(
    [*sorted(ollama.READ | anthropic.READ), "n", "tool_choice", "logit_bias", "parallel_tool_calls"]
)


@given(st.lists(_MESSAGES, max_size=3), st.lists(_TOOLS, max_size=2), st.dictionaries(_FIELDS, _VALUES, max_size=4))
def test_whatever_comes_there_is_a_request_or_an_error_for_the_client(
    given_messages: list[Message], tools: list[Tool], fields: dict[str, Any]
) -> None:
    request = ChatRequest("m", tuple(given_messages), tuple(tools), Fields(fields))
    with suppress(BadRequest):
        encode(ollama.translate(request, num_ctx=None, keep_alive=None).body)
    with suppress(BadRequest):
        encode(anthropic.AnthropicRequest(request, most=4096, room=4096).translation().body)
