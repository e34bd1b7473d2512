"""Whose request it is, and which conversation it belongs to."""

from collections.abc import Mapping
from hashlib import blake2b

from proxy.chat import ChatRequest
from proxy.context import Identity

ANONYMOUS = Identity(tenant="anonymous")
"""A client without a key; all of them share one tenant."""

_OTHER_KEYS = ("api-key", "x-api-key")
"""Headers in which SDKs of OpenAI's neighbours send their key."""


def identify(headers: Mapping[str, str], request: ChatRequest, tenant: str | None = None) -> Identity:
    """The tenant behind a client's key, unless it is known, and the conversation that a request continues.

    The tenant is a hash, from which the key cannot be told. The conversation has the name in `x-penstock-session`, else
    what its system messages and first user message make: conversations that open with the same words share it.
    """
    tenant = tenant or tenant_of(headers)
    session = named_session(headers) or f"opening-{_hash(_opening(request))}"
    return Identity(tenant, session, user_key(tenant, user_of(headers, request.rest)))


def tenant_of(headers: Mapping[str, str]) -> str:
    """The tenant behind a client's key, whichever header holds it; of several all count."""
    key = headers.get("authorization")
    others = "\0".join(f"{name}\0{headers[name]}" for name in _OTHER_KEYS if headers.get(name))
    if others:
        key = f"{key or ''}\0{others}"
    return _hash(key.encode(errors="surrogateescape")) if key else ANONYMOUS.tenant


def tenant_named(name: str) -> str:
    """The tenant that the configuration calls so. No header makes the same one: none can hold a NUL byte."""
    return _hash(b"tenant\0" + name.encode())


def named_session(headers: Mapping[str, str]) -> str | None:
    """The conversation that `x-penstock-session` names; None without that header."""
    name = headers.get("x-penstock-session")
    return f"named-{_hash(name.encode(errors='surrogateescape'))}" if name else None


def user_of(headers: Mapping[str, str], fields: Mapping[str, object]) -> str:
    """The client's name for its user: `x-penstock-user`, else `safety_identifier`, else `user`; empty without one."""
    names = (headers.get("x-penstock-user"), fields.get("safety_identifier"), fields.get("user"))
    return next((name for name in names if isinstance(name, str) and name), "")


def user_key(tenant: str, name: str) -> str:
    """What stands for a user of a tenant in everything that is kept; empty for an empty name."""
    hashed = "\0".join((tenant, "user", name)).encode(errors="surrogatepass")
    return f"user-{_hash(hashed)}" if name else ""


def _opening(request: ChatRequest) -> bytes:
    first = next((message.raw for message in request.messages if message.role == "user"), b"")
    return b"\0".join([*(message.raw for message in request.messages if message.is_system), first])


def _hash(text: bytes) -> str:
    return blake2b(text, digest_size=16).hexdigest()
