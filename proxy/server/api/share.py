"""The endpoint by which one agent gives another something of its context: `/v1/context/share`."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from proxy.access.exchange import Exchange
from proxy.chat import ROLES, encode
from proxy.chat.errors import BadRequest, NotFound
from proxy.chat.parse import Body
from proxy.context import Identity
from proxy.gateway.prepare import Services
from proxy.identity import LONGEST, identify, may_be_shown
from proxy.server.api.endpoint import JsonFields, sent_json, valid
from proxy.state.inbox import Given, TooMany
from proxy.tools.slicing import readable

LARGEST = 256 * 1024
"""Bytes of UTF-8 that may be given at once."""

_NAMES = ("session", "agent", "task")
_Names = dict[Literal["session", "agent", "task"], str | None]


class _Share(JsonFields):
    sender: _Names | None = Field(default=None, alias="from")
    to: _Names
    note: Annotated[str, Field(max_length=500)] | None = None
    content: Annotated[str, Field(pattern=r"\S")] | None = None
    messages: list[Any] | None = None
    handle: str | None = None


class Sharing:
    """`POST` gives, `GET` shows what was given to the caller, `DELETE` takes it back."""

    def __init__(self, services: Services) -> None:
        self._shares, self._archives = services.shares, services.archives

    async def give(self, http: Exchange) -> Mapping[str, Any]:
        asked, headers = valid(_Share, await sent_json(http)), _names(http.headers)
        named, to = (
            dict.fromkeys(_NAMES, "") | {name: value for name, value in each.items() if value}
            for each in (asked.sender or {}, asked.to)
        )
        if any(headers[name] and named[name] and headers[name] != named[name] for name in _NAMES):
            raise BadRequest("`from` and the headers name different ones", param="from", code="invalid_sender")
        own = {name: headers[name] or named[name] for name in _NAMES}
        giver, receiver = _identity(http, own), _identity(http, {**to, "session": to["session"] or own["session"]})
        if giver.scope == receiver.scope:
            raise BadRequest("`to` must name another session, agent or task", param="to", code="invalid_receiver")
        for name in ("agent", "task"):
            if not may_be_shown(own[name]):
                message = f"from.{name} is shown to the receiver: it must be printable, of {LONGEST} characters at most"
                raise BadRequest(message, param=f"from.{name}", code="invalid_name")
        content, note = await self._content(asked, giver), (asked.note or "").strip()
        try:
            share = await self._shares.give(
                giver, receiver, agent=own["agent"], task=own["task"], note=note, content=content
            )
        except TooMany:
            told = "too much was shared with this conversation and not taken back"
            raise BadRequest(told, param="to", code="too_many_shares", status=409) from None
        return {"id": share.id, "object": "context.share", "bytes": len(content.encode())}

    async def received(self, http: Exchange) -> Mapping[str, Any]:
        return {"object": "list", "data": [*map(_entry, await self._shares.received(_reader(http)))]}

    async def get(self, http: Exchange) -> Mapping[str, Any]:
        for share in await self._shares.received(_reader(http)):
            if share.id == _id(http):
                return _entry(share)
        raise _unknown()

    async def take_back(self, http: Exchange) -> Mapping[str, Any]:
        if not await self._shares.take_back(_reader(http), _id(http)):
            raise _unknown()
        return {"id": _id(http), "object": "context.share", "deleted": True}

    async def _content(self, asked: _Share, giver: Identity) -> str:
        """Return the text to give: the content itself, messages as text, or the content of the giver's own handle."""
        ways = {"content": asked.content, "messages": asked.messages, "handle": asked.handle}
        sent = [name for name, value in ways.items() if value is not None]
        if len(sent) != 1:
            raise BadRequest("exactly one of content, messages and handle is needed", code="invalid_content")
        if asked.messages is not None:
            text = _transcript(asked.messages)
        elif asked.content is not None:
            text = asked.content
        else:
            original = await self._archives.bind(giver).fetch(asked.handle or "")
            if original is None:
                told = "nothing is kept under this handle for this session, agent and task, or no longer"
                raise NotFound(told, param="handle", code="unknown_handle")
            text = readable(original).encode(errors="replace").decode()
        if len(text.encode()) > LARGEST:
            raise BadRequest(f"at most {LARGEST:,} bytes can be shared", param=sent[0], code="too_large", status=413)
        return text


def _names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers.get(f"x-penstock-{name}", "") for name in _NAMES}


def _id(http: Exchange) -> str:
    return str(http.scope["path_params"]["id"]).strip("/")


def _identity(http: Exchange, names: Mapping[str, str]) -> Identity:
    """Whom names mean within the tenant of the request."""
    if not names["session"]:
        told = "name the session: by the header x-penstock-session"
        raise BadRequest(told, param="x-penstock-session", code="session_required")
    return identify({f"x-penstock-{name}": value for name, value in names.items()}, None, http.caller.tenant)


def _reader(http: Exchange) -> Identity:
    return _identity(http, _names(http.headers))


def _transcript(value: Any) -> str:
    """Return messages as text: who said what. Raises `BadRequest` where they are none."""
    messages = Body(encode({"model": "none", "messages": value})).parse().messages
    if any(message.role not in ROLES for message in messages):
        raise BadRequest("messages must have roles", param="messages", code="invalid_type")
    return readable("\n".join(encode({"content": None, **message}).decode() for message in messages))


def _entry(share: Given) -> dict[str, Any]:
    return {
        "id": share.id,
        "object": "context.share",
        "from": {name: value for name, value in (("agent", share.agent), ("task", share.task)) if value},
        "note": share.note,
        "content": share.content,
        "created": int(share.created),
    }


def _unknown() -> NotFound:
    return NotFound("nothing of this id was shared with this session, agent and task", code="unknown_share")
