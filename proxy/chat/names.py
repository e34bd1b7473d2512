"""Names that clients give: of users, agents and tasks, and the tag that says to which task a message belongs.

A name counts within its tenant only, and is kept as a hash of both: so it may be any text, of any length, and what is
stored under it tells nobody the name.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Literal

from proxy.chat import ChatRequest, Message, encode

TAG = "x_penstock_task"
"""The key of a message that names its task. No provider knows it: it is taken off before a request is sent."""

SHARED = "shared"
"""The tag of a message that every task sees; so does a message without one."""

LONGEST = 128
"""Characters of a name that is shown to a model."""

Kind = Literal["user", "agent", "task"]


def key_of(kind: Kind, tenant: str, name: str) -> str:
    """Return what stands for a name in everything that is kept; empty for an empty one."""
    if not name:
        return ""
    digest = blake2b(f"{tenant}\0{kind}\0{name}".encode(errors="surrogatepass"), digest_size=16)
    return f"{kind}-{digest.hexdigest()}"


def text_of(value: Any) -> str:
    """Return the text of a body's field, or its JSON if it is no text; empty for null."""
    if isinstance(value, str):
        return value
    return "" if value is None else encode(value).decode(errors="replace")


def first_of(fields: Mapping[str, Any], *keys: str) -> str:
    """Return the first name that one of these fields gives; empty where none does."""
    for key in keys:
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
