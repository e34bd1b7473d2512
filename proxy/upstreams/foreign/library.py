"""litellm itself, and the arguments that a request gives it: an allow-list.

litellm is imported by the first request, because that takes seconds and 200 MB, and silenced. It takes its own orders
from the arguments of `acompletion(**body)`: a client could choose the address, the key, callbacks or mock answers.
"""

import importlib
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

import orjson

from proxy.chat import ChatRequest
from proxy.chat.errors import NotFound
from proxy.models.encodings import lend
from proxy.text.tables import table
from proxy.upstreams.refusal import error_in
from proxy.upstreams.request_fields import is_neutral

_TABLE: Mapping[str, Any] = table("litellm")
FIELDS = frozenset(_TABLE["fields"])
"""Fields of OpenAI's chat request that litellm translates."""

SPOKEN_FOR = frozenset({"stream", "stream_options"})
"""Fields that Penstock sets itself."""

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
    if provider not in _TABLE["claudes"] or "claude" not in model or not messages or messages[-1].get("role") != "tool":
        return False
    caller = next((message for message in reversed(messages) if message.get("role") == "assistant"), None)
    return caller is not None and not caller.get("thinking_blocks")


def load() -> Any:
    """Import litellm. Blocks for seconds the first time, so call it in a thread. Raise `ImportError` without it."""
    for name, value in _TABLE["environment"].items():
        os.environ.setdefault(name, value)
    lend("cl100k_base")  # with which litellm counts where a provider does not
    token_files = os.environ.get("TIKTOKEN_CACHE_DIR")
    try:
        library: Any = importlib.import_module("litellm")
        # Left to itself litellm imports this at some later request, and sets the variable then.
        importlib.import_module("litellm.litellm_core_utils.default_encoding")
    finally:
        if token_files is None:
            os.environ.pop("TIKTOKEN_CACHE_DIR", None)
        else:
            os.environ["TIKTOKEN_CACHE_DIR"] = token_files
    for name, setting in _TABLE["switches"].items():
        setattr(library, name, setting)
    _send_once()
    _listen()
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).disabled = True
    return library


def _send_once() -> None:
    """Keep litellm from repeating a request that a provider may have processed.

    If a connection breaks off, litellm takes it for one that was never made.
    """
    handler: Any = importlib.import_module("litellm.llms.custom_httpx.http_handler")
    transport: Any = importlib.import_module("litellm.llms.custom_httpx.aiohttp_transport")
    aiohttp, httpx = transport.aiohttp, transport.httpx

    async def refuse(*_: Any, **__: Any) -> None:
        raise  # the error that is handled where this is called

    handler.AsyncHTTPHandler.single_connection_post_request = refuse
    transport.AIOHTTP_EXC_MAP[aiohttp.ClientOSError] = httpx.ReadError


@dataclass
class LastAnswer:
    """The last answer of a provider to one request, before litellm reads it."""

    status: int = 0
    """0 where none came."""
    headers: Sequence[tuple[bytes, bytes]] = ()
    body: bytes | None = None
    """None for a stream, unless it is refused."""

    @property
    def text(self) -> str:
        """The body as words; none of a page."""
        text = (self.body or b"").decode(errors="replace").strip()
        return "" if text.startswith("<") else text

    @property
    def error(self) -> Mapping[str, Any]:
        """The error in the body; nothing for an answer that is none."""
        try:
            answer = orjson.loads(self.body or b"")
        except orjson.JSONDecodeError:
            return {}
        is_error = self.status >= 400 or (isinstance(answer, dict) and "error" in answer)
        return error_in(answer) if is_error else {}


LAST_ANSWER: ContextVar[LastAnswer | None] = ContextVar("last_answer", default=None)
"""The note of the answer to the request that is under way."""


@cache
def _listen() -> None:
    """Note the answers that litellm's HTTP client gets, and keep it from following redirects."""
    client: Any = importlib.import_module("httpx").AsyncClient
    send = client.send

    async def listening(self: Any, request: Any, *, stream: bool = False, **more: Any) -> Any:
        noted = LAST_ANSWER.get() or LastAnswer()
        noted.status, noted.headers, noted.body = 0, (), None
        response = await send(self, request, stream=stream, **{**more, "follow_redirects": False})
        if not stream or response.status_code >= 400:
            noted.body = await response.aread()
        noted.status = response.status_code
        noted.headers = [(name.lower(), value) for name, value in response.headers.raw]
        return response

    client.send = listening


def knows(library: Any, provider: str) -> bool:
    """Return whether litellm has such a provider. If not, it would guess one from the model's name."""
    return provider in library.provider_list or _in_registry(provider)


def misroutes(library: Any, provider: str, model: str) -> bool:
    """Return whether litellm would send a request for this model to another provider than the given one."""
    if any(mark in model and provider != owner for mark, owner in _TABLE["marks"].items()):
        return True
    if provider == "azure":
        model = model.removeprefix("responses/")
        return model in library.cohere_chat_models or f"mistral/{model}" in library.mistral_chat_models
    if provider in _TABLE["openai_names"] or provider in library.openai_compatible_providers or _in_registry(provider):
        return False
    return any(model in getattr(library, name) for owner, name in _TABLE["lists"].items() if owner != provider)


def lacked(library: Any, provider: str, request: ChatRequest) -> set[str]:
    """Return the fields of a request that litellm drops, because the provider or the model lacks them."""
    taken = library.get_supported_openai_params(model=request.model, custom_llm_provider=provider)
    asked = {name for name, value in request.rest.items() if name in FIELDS and not is_neutral(name, value)}
    return set() if taken is None else asked - set(taken) - set(_TABLE["converted"])


def _in_registry(provider: str) -> bool:
    registry: Any = importlib.import_module("litellm.llms.openai_like.json_loader")
    return bool(registry.JSONProviderRegistry.exists(provider))
