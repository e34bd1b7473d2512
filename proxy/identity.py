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
    tenant = tenant_of(headers)
    return Identity(tenant, named_session(headers) or f"opening-{_hash(_opening(request))}")


def tenant_of(headers: Mapping[str, str]) -> str:
    """The tenant behind a client's key."""
    key = headers.get("authorization")
    return _hash(key.encode(errors="surrogateescape")) if key else ANONYMOUS.tenant


def named_session(headers: Mapping[str, str]) -> str | None:
    """The conversation that `x-penstock-session` names; None without that header."""
    name = headers.get("x-penstock-session")
    return f"named-{_hash(name.encode(errors='surrogateescape'))}" if name else None


def _opening(request: ChatRequest) -> bytes:
    first = next((message.raw for message in request.messages if message.role == "user"), b"")
    return b"\0".join([*(message.raw for message in request.messages if message.is_system), first])


def _hash(text: bytes) -> str:
    return blake2b(text, digest_size=16).hexdigest()
