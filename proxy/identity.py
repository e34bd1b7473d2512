"""Whose request it is, and which conversation, agent and task it belongs to.

Each name is taken from the first place that gives one:

| | header | then the body |
|---|---|---|
| user | `x-penstock-user` | `safety_identifier`, `user`, `metadata.user_id` |
| session | `x-penstock-session` | `metadata.session_id`, `.conversation_id`, `.thread_id`; else the opening |
| agent | `x-penstock-agent` | `metadata.agent`, `metadata.agent_id` |
| task | `x-penstock-task` | `metadata.task`, `metadata.task_id`; else the tag of the last user message |

Claude Code names session and agent in `x-claude-code-session-id` and `x-claude-code-agent-id`.

`prompt_cache_key` names no conversation, because clients give many of them the same one; but conversations that begin
alike and have different ones are told apart by it.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from proxy.chat import SYSTEM_ROLES, ChatRequest
from proxy.chat.cache_marks import unmarked
from proxy.chat.names import first_of, key_of, tag_of, text_of
from proxy.chat.wire import last_user
from proxy.context import Identity

ANONYMOUS = Identity(tenant="anonymous")
"""A client without a key; all of them share one tenant."""

_OTHER_KEYS = ("api-key", "x-api-key")
"""Headers in which SDKs of OpenAI's neighbours send their key."""

_NOTHING: Mapping[str, Any] = {}


def identify(headers: Mapping[str, str], request: ChatRequest | None, tenant: str | None = None) -> Identity:
    """The tenant behind a client's key, unless it is known, and what the client calls the rest.

    All of it is hashes, from which no key and no name can be told. Conversations without a name that open with the same
    words share one identity. Without a request, as for endpoints that have none, headers alone count: what they do not
    name is empty.
    """
    tenant = tenant or tenant_of(headers)
    rest: Mapping[str, Any] = _NOTHING if request is None else request.rest
    metadata = rest.get("metadata")
    data: Mapping[str, Any] = metadata if isinstance(metadata, dict) else _NOTHING
    user = headers.get("x-penstock-user") or first_of(rest, "safety_identifier", "user") or first_of(data, "user_id")
    agent = first_of(headers, "x-penstock-agent", "x-claude-code-agent-id") or first_of(data, "agent", "agent_id")
    task = headers.get("x-penstock-task") or first_of(data, "task", "task_id") or _tagged(request)
    named = first_of(headers, "x-penstock-session", "x-claude-code-session-id")
    named = named or first_of(data, "session_id", "conversation_id", "thread_id")
    session = session_key(named) if named else "" if request is None else _unnamed(request)
    return Identity(
        tenant, session, key_of("user", tenant, user), key_of("agent", tenant, agent), key_of("task", tenant, task)
    )


def tenant_of(headers: Mapping[str, str]) -> str:
    """The tenant behind a client's key, whichever header holds it; of several all count."""
    key = headers.get("authorization")
    others = [f"{name}\0{value}" for name in _OTHER_KEYS if (value := headers.get(name))]
    if others:
        key = "\0".join((key or "", *others))
    return _hash(key.encode(errors="surrogateescape")) if key else ANONYMOUS.tenant


def tenant_named(name: str) -> str:
    """The tenant that the configuration calls so. No header makes the same one: none can hold a NUL byte."""
    return _hash(b"tenant\0" + name.encode())


def session_key(name: str) -> str:
    """What stands for a conversation of this name; it is never without a tenant in front of it."""
    return f"{Identity.NAMED}{_hash(name.encode(errors='surrogateescape'))}"


def _unnamed(request: ChatRequest) -> str:
    """What stands for a conversation without a name: what it opens with."""
    opening = _opening(request)
    key = text_of(request.rest.get("prompt_cache_key"))
    if key:
        opening = b"%d\0%b%b" % (len(key), key.encode(errors="surrogateescape"), opening)
    return f"opening-{_hash(opening)}"


def _opening(request: ChatRequest) -> bytes:
    """The system messages up to the first user message, and that one: nothing that is said later changes it."""
    system: list[bytes] = []
    for message in request.messages:
        role = message.get("role")
        if role == "user":
            return b"\0".join([*system, unmarked(message).raw])
        if role in SYSTEM_ROLES:
            system.append(unmarked(message).raw)
    return b"\0".join([*system, b""])


def _tagged(request: ChatRequest | None) -> str:
    """The task of the last user message."""
    said = None if request is None else last_user(request)
    return "" if said is None else tag_of(said)


def _hash(text: bytes) -> str:
    return blake2b(text, digest_size=16).hexdigest()
