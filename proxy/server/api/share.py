"""The endpoint by which one agent gives another something of its context: `/v1/context/share`."""

from collections.abc import Mapping
from typing import Any

from proxy.access.exchange import Exchange
from proxy.chat import ROLES, encode
from proxy.chat.errors import BadRequest, NotFound, NotKept
from proxy.chat.names import LONGEST, key_of, may_be_shown
from proxy.chat.parse import Body
from proxy.context import Identity
from proxy.gateway.prepare import Services
from proxy.identity import session_key
from proxy.server.api.endpoint import check_method
from proxy.state.inbox import Given, TooMany
from proxy.state.store import StoreError
from proxy.telemetry.observation import Observation
from proxy.tools.originals import readable

LARGEST = 256 * 1024
"""Bytes of UTF-8 that may be given at once."""

LONGEST_NOTE = 500
"""Characters of a note."""

_NAMES = ("session", "agent", "task")


class Sharing:
    """`POST` gives, `GET` shows what was given to the caller, `DELETE` takes it back."""

    def __init__(self, services: Services) -> None:
        self._shares, self._archives = services.shares, services.archives

    async def serve(self, http: Exchange, seen: Observation) -> None:
        """Answer one request of any method."""
        method, id_ = http.scope["method"], http.scope["path_params"].get("id", "").strip("/")
        check_method(http, "GET", "DELETE" if id_ else "POST")
        try:
            if method == "POST":
                answer = await self._give(http)
            elif method == "DELETE":
                answer = await self._taken_back(http, id_)
            else:
                answer = await self._shown(http, id_)
        except StoreError:
            raise NotKept("what is shared cannot be kept or read now; try again") from None
        await http.tell(answer)

    async def _give(self, http: Exchange) -> Mapping[str, Any]:
        body = await http.body()
        own = _names(http.headers)
        said = _object(body.get("from") or {}, "from")
        if any(own[name] and said[name] and own[name] != said[name] for name in _NAMES):
            raise BadRequest("`from` and the headers name different ones", param="from", code="invalid_sender")
        own = {name: own[name] or said[name] for name in _NAMES}
        to = _object(body.get("to"), "to")
        giver, receiver = _identity(http, own), _identity(http, {**to, "session": to["session"] or own["session"]})
        if giver.scope == receiver.scope:
            raise BadRequest("`to` must name another session, agent or task", param="to", code="invalid_receiver")
        for name in ("agent", "task"):
            _check_shown(own[name], f"from.{name}")
        note = _note(body.get("note"))
        async with http.watch():
            content = await self._content(body, giver)
            try:
                share = await self._shares.give(
                    giver, receiver, agent=own["agent"], task=own["task"], note=note, content=content
                )
            except TooMany:
                told = "too much was shared with this conversation and not taken back"
                raise BadRequest(told, param="to", code="too_many_shares", status=409) from None
        return {"id": share.id, "object": "context.share", "bytes": len(content.encode())}

    async def _shown(self, http: Exchange, id_: str) -> Mapping[str, Any]:
        async with http.watch():
            found = [_entry(share) for share in await self._shares.received(_identity(http, _names(http.headers)))]
        if not id_:
            return {"object": "list", "data": found}
        entry = next((entry for entry in found if entry["id"] == id_), None)
        if entry is None:
            raise _unknown()
        return entry

    async def _taken_back(self, http: Exchange, id_: str) -> Mapping[str, Any]:
        async with http.watch():
            if not await self._shares.take_back(_identity(http, _names(http.headers)), id_):
                raise _unknown()
        return {"id": id_, "object": "context.share", "deleted": True}

    async def _content(self, body: Body, giver: Identity) -> str:
        """Return the text to give: the content itself, messages as text, or the content of the giver's own handle."""
        fields = {name: body.get(name) for name in ("content", "messages", "handle")}
        given = {name: value for name, value in fields.items() if value is not None}
        if len(given) != 1:
            raise BadRequest("exactly one of content, messages and handle is needed", code="invalid_content")
        ((name, value),) = given.items()
        if name == "messages":
            text = _transcript(value)
        elif not isinstance(value, str) or not value.strip():
            raise BadRequest(f"{name} must be a text", param=name, code="invalid_type")
        else:
            text = value if name == "content" else await self._original(value, giver)
        if len(text.encode()) > LARGEST:
            raise BadRequest(f"at most {LARGEST:,} bytes can be shared", param=name, code="too_large", status=413)
        return text

    async def _original(self, handle: str, giver: Identity) -> str:
        found = await self._archives.bind(giver).fetch(handle)
        if found is None:
            told = "nothing is kept under this handle for this session, agent and task, or no longer"
            raise NotFound(told, param="handle", code="unknown_handle")
        return readable(found).encode(errors="replace").decode()


def _names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers.get(f"x-penstock-{name}", "") for name in _NAMES}


def _object(value: Any, place: str) -> dict[str, str]:
    """Return the names in an object of the body."""
    if not isinstance(value, dict):
        raise BadRequest(f"{place} must be an object with session, agent or task", param=place, code="invalid_type")
    for name, given in value.items():
        if name not in _NAMES:
            raise BadRequest(f"{place}.{name} is unknown: it may have {', '.join(_NAMES)}", param=place)
        if given is not None and not isinstance(given, str):
            raise BadRequest(f"{place}.{name} must be a text", param=f"{place}.{name}", code="invalid_type")
    return {name: value.get(name) or "" for name in _NAMES}


def _identity(http: Exchange, names: Mapping[str, str]) -> Identity:
    """Whom names mean within the tenant of the request."""
    if not names["session"]:
        told = "name the session: by the header x-penstock-session"
        raise BadRequest(told, param="x-penstock-session", code="session_required")
    tenant = http.tenant
    return Identity(
        tenant,
        session_key(names["session"]),
        agent=key_of("agent", tenant, names["agent"]),
        task=key_of("task", tenant, names["task"]),
    )


def _check_shown(name: str, place: str) -> None:
    if not may_be_shown(name):
        told = f"{place} is shown to the receiver: it must be printable, and {LONGEST} characters at most"
        raise BadRequest(told, param=place, code="invalid_name")


def _note(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > LONGEST_NOTE:
        raise BadRequest(f"note must be a text of at most {LONGEST_NOTE} characters", param="note", code="invalid_note")
    return value.strip()


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
