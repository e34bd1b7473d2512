"""Whose request it is, and which conversation it belongs to."""

from collections.abc import Mapping
from hashlib import blake2b

from proxy.chat import ChatRequest
from proxy.context import Identity

ANONYMOUS = Identity(tenant="anonymous")
"""A client without a key; all of them share one tenant."""


def identify(headers: Mapping[str, str], request: ChatRequest) -> Identity:
    """The tenant behind a client's key, and the conversation that a request continues.

    The tenant is a hash, from which the key cannot be told. The conversation has the name in `x-penstock-session`, else
    what its system messages and first user message make: conversations that open with the same words share it.
    """
    key = headers.get("authorization")
    tenant = _hash(key.encode(errors="surrogateescape")) if key else ANONYMOUS.tenant
    name = headers.get("x-penstock-session")
    if name:
        return Identity(tenant, f"named-{_hash(name.encode(errors='surrogateescape'))}")
    return Identity(tenant, f"opening-{_hash(_opening(request))}")


def _opening(request: ChatRequest) -> bytes:
    first = next((message.raw for message in request.messages if message.role == "user"), b"")
    return b"\0".join([*(message.raw for message in request.messages if message.is_system), first])


def _hash(text: bytes) -> str:
    return blake2b(text, digest_size=16).hexdigest()
