"""Calls to a foreign upstream, and the errors that come back."""

import json
from typing import Any

from proxy.chat import ChatRequest
from proxy.testing import chat
from proxy.upstreams.base import Call, Reply
from proxy.upstreams.foreign.provider import Provider
from proxy.upstreams.refusal import Refused

KEY = "sk-ant-client-key"
MODEL = "claude-sonnet-4-5"


def call(request: ChatRequest, key: str | None = KEY) -> Call:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return Call("/chat/completions", request.model, request.encode(), headers, request=request)


async def send(provider: Provider, request: ChatRequest, key: str | None = KEY) -> Reply:
    """Ask a provider. Return a refusal as its process does."""
    try:
        return await provider.send(call(request, key))
    except Refused as error:
        headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
        return Reply(error.status, headers, error.body())


def ask(conversation: str = "u1", **rest: Any) -> ChatRequest:
    return chat(conversation, model=rest.pop("model", MODEL), **rest)


def error(reply: Reply) -> dict[str, Any]:
    assert reply.body is not None
    body = json.loads(reply.body)
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return dict(body["error"])
