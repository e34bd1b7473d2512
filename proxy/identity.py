"""The identity of a request: its tenant, user, conversation, agent and task.

Each name comes from the first of these places that has one:

| | header | then the body |
|---|---|---|
| user | `x-penstock-user` | `safety_identifier`, `user`, `metadata.user_id` |
| session | `x-penstock-session` | `metadata.session_id`, `.conversation_id`, `.thread_id`; else the first messages |
| agent | `x-penstock-agent` | `metadata.agent`, `metadata.agent_id` |
| task | `x-penstock-task` | `metadata.task`, `metadata.task_id`; else the tag of the last user message |

A stored `conversation` of Responses names a session, too. Claude Code names session and agent in
`x-claude-code-session-id` and `x-claude-code-agent-id`.

A name counts within its tenant only, and is kept as a hash of both: so it may be any text, of any length, and what is
stored under it tells nobody the name. `prompt_cache_key` names no conversation, because clients reuse it for many. But
two conversations with the same first messages and different keys are different conversations.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Literal

from proxy.chat import SYSTEM_ROLES, ChatRequest, Message, encode
from proxy.chat.cache_marks import unmarked
from proxy.context import Identity

ANONYMOUS = Identity(tenant="anonymous")
"""The identity of clients without a key, who share one tenant."""

TAG = "x_penstock_task"
"""The key of a message that names its task. No provider knows it: it is taken off before a request is sent."""

SHARED = "shared"
"""The tag of a message that every task sees; so does a message without one."""

LONGEST = 128
"""Characters of a name that is shown to a model."""

Kind = Literal["user", "agent", "task"]

_OTHER_KEYS = ("api-key", "x-api-key")
"""Headers besides `authorization` in which SDKs send their key."""

_NOTHING: Mapping[str, Any] = {}


def identify(headers: Mapping[str, str], request: ChatRequest | None, tenant: str | None = None) -> Identity:
    """Return the identity of a request, from the client's key (unless `tenant` is known), headers and body.

    All its parts are hashes, which reveal no key and no name. Unnamed conversations with the same first messages share
    one identity. Without a request only headers count, and parts that they do not name are empty.
    """
    tenant = tenant or tenant_of(headers)
    rest: Mapping[str, Any] = _NOTHING if request is None else request.rest
    metadata = rest.get("metadata")
    data: Mapping[str, Any] = metadata if isinstance(metadata, dict) else _NOTHING
    user = headers.get("x-penstock-user") or first_of(rest, "safety_identifier", "user") or first_of(data, "user_id")
    agent = first_of(headers, "x-penstock-agent", "x-claude-code-agent-id") or first_of(data, "agent", "agent_id")
    task = headers.get("x-penstock-task") or first_of(data, "task", "task_id") or _tagged(request)
    named = first_of(headers, "x-penstock-session", "x-claude-code-session-id")
    named = named or first_of(data, "session_id", "conversation_id", "thread_id") or first_of(rest, "conversation")
    session = session_key(named) if named else "" if request is None else _unnamed(request)
    return Identity(
        tenant, session, key_of("user", tenant, user), key_of("agent", tenant, agent), key_of("task", tenant, task)
    )


def tenant_of(headers: Mapping[str, str]) -> str:
    """Return the tenant of a client's key. If several headers hold keys, the tenant depends on all of them."""
    key = headers.get("authorization")
    others = [f"{name}\0{value}" for name in _OTHER_KEYS if (value := headers.get(name))]
    if others:
        key = "\0".join((key or "", *others))
    return _hash(key.encode(errors="surrogateescape")) if key else ANONYMOUS.tenant


def tenant_named(name: str) -> str:
    """Return the tenant of a name in the configuration. No header yields the same one: none can contain a NUL byte."""
    return _hash(b"tenant\0" + name.encode())


def session_key(name: str) -> str:
    """Return the session id of a conversation with this name. Use it only together with its tenant."""
    return f"{Identity.NAMED}{_hash(name.encode(errors='surrogateescape'))}"


def _unnamed(request: ChatRequest) -> str:
    opening = _opening(request)
    key = text_of(request.rest.get("prompt_cache_key"))
    if key:
        opening = b"%d\0%b%b" % (len(key), key.encode(errors="surrogateescape"), opening)
    return f"opening-{_hash(opening)}"


def _opening(request: ChatRequest) -> bytes:
    """Return the first user message and the system messages before it. Later messages do not change the result."""
    system: list[bytes] = []
    for message in request.messages:
        role = message.get("role")
        if role == "user":
            return b"\0".join([*system, unmarked(message).raw])
        if role in SYSTEM_ROLES:
            system.append(unmarked(message).raw)
    return b"\0".join([*system, b""])


def _tagged(request: ChatRequest | None) -> str:
    text = None if request is None else request.last_user_message
    return "" if text is None else tag_of(text)


def _hash(text: bytes) -> str:
    return blake2b(text, digest_size=16).hexdigest()


def key_of(kind: Kind, tenant: str, name: str) -> str:
    """Return what stands for a name in everything that is kept; empty for an empty one."""
    if not name:
        return ""
    digest = _hash(f"{tenant}\0{kind}\0{name}".encode(errors="surrogatepass"))
    return f"{kind}-{digest}"


def text_of(value: Any) -> str:
    """Return the text of a body's field, or its JSON if it is no text; empty for null."""
    if isinstance(value, str):
        return value
    return "" if value is None else encode(value).decode(errors="replace")


def first_of(fields: Mapping[str, Any], *keys: str) -> str:
    """Return the first name that one of these fields gives; empty where none does."""
    for key in keys if fields else ():
        if key in fields and (name := text_of(fields[key])):
            return name
    return ""


def may_be_shown(name: str) -> bool:
    """Return whether a name may stand in a prompt: short, on one line, and made of characters that can be seen."""
    return len(name) <= LONGEST and name.isprintable()


def is_tagged(request: ChatRequest) -> bool:
    """Return whether a message is tagged with a task."""
    return request.form.any("tagged", lambda message: TAG in message)


def untagged(request: ChatRequest) -> ChatRequest:
    """Return the request without the tags of its messages; the same one where none has any."""
    if not is_tagged(request):
        return request
    return request.with_messages(message.without(TAG) if TAG in message else message for message in request.messages)


def tag_of(message: Message) -> str:
    """Return the task of a message as it is tagged; empty for one that all see."""
    tag = message.get(TAG)
    return "" if tag is None or tag == SHARED else text_of(tag)
