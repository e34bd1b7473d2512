"""A handler as an ASGI app, the reading of JSON, and the one place where an error becomes an answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qs, quote

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from proxy.access.exchange import ClientGone, Exchange, is_gone
from proxy.access.gate import Handler
from proxy.chat import encode
from proxy.chat.errors import BadRequest, NotKept, PenstockError
from proxy.chat.parse import do_sized
from proxy.http.headers import Headers
from proxy.server.reload import Generation
from proxy.state.store import StoreError
from proxy.wires import wire_at

_log = logging.getLogger("penstock.api")

_JSON = (b"content-type", b"application/json")
NO_STORE = {"cache-control": "no-store"}

Answer = Callable[[Exchange], Awaitable[Any]]
"""Returns the JSON value that answers a request; None where it has been answered."""

_HANDLES = ("/v1/retrieve/{handle}", "/v1/memories/{id}")
"""Routes of which telemetry gets no path: what stands in it would open what it names."""


class Endpoint:
    """A handler as an ASGI app: every error that it raises becomes OpenAI's error body, or an event of the stream."""

    def __init__(
        self, handler: Handler, route: str, generation: Generation, *, spends: bool = True, takes_forms: bool = False
    ) -> None:
        """Without `spends`, serve also those who have nothing left; with `takes_forms`, bodies that are no JSON."""
        gate, server = generation.gate, generation.config.settings.server
        self._handle = partial(gate.serve, handler, spends=spends)
        self._generation, self._largest = generation, int(server.max_body_mib * 2**20)
        self._route, self._takes_forms = route, takes_forms
        self._version = (b"x-penstock-config", generation.config.version.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        generation = self._generation
        http = Exchange(scope, receive, send, generation.intake, self._largest)
        http.own_headers += [self._version, *generation.headers]
        http.seen = generation.telemetry.begin(
            scope["method"],
            self._route,
            http.headers,
            path=None if self._route in _HANDLES else scope["path"],
            request_id=http.request_id,
            config=generation.config.version,
        )
        if http.seen.explains:
            http.own_headers.append((b"x-penstock-explain", f"/v1/explain/{quote(http.request_id)}".encode()))
        await self._serve(http)

    async def _serve(self, http: Exchange) -> None:
        try:
            fault = await self._fault(http)
        finally:
            http.release()
        error = fault if isinstance(fault, PenstockError) else None
        try:
            if error is not None:
                await answer_error(http, error)
        finally:
            status = http.status or (499 if error is None else error.status)
            http.seen.end(499 if fault == "client_gone" else status, error=fault, stream=http.streamed)

    async def _fault(self, http: Exchange) -> PenstockError | str | None:
        """Serve an exchange. Return its error, `client_gone`, or None."""
        try:
            if (browsers := self._generation.browsers) is not None:
                browsers.check(http.scope["method"], http.headers, takes_forms=self._takes_forms)
            await self._handle(http)
        except ClientGone:
            return "client_gone"
        except asyncio.CancelledError:  # the server cuts what is left when its time to stop is over
            return PenstockError("Penstock is stopping; send the request again", code="server_stopping", status=503)
        except (PenstockError, StoreError) as error:
            return as_fault(error).with_traceback(None)  # it would keep all that the request has until a collection
        except Exception as error:
            if is_gone(error):
                return "client_gone"
            fields = {"error": type(error).__name__, "request_id": http.request_id}
            _log.error("unexpected error", exc_info=True, extra={"fields": fields})
            return PenstockError("Penstock failed to handle this request; its log says more", code="internal_error")
        return None


def as_fault(error: PenstockError | StoreError) -> PenstockError:
    """Return the error that clients and operators get, also where the state fails."""
    if isinstance(error, PenstockError):
        return error
    return NotKept(f"the state cannot be read or written right now ({error.cause}); requests go on")


def by_method(**answers: Answer) -> Handler:
    """Return the handler that serves each method by one of these functions, which return JSON values."""

    async def serve(http: Exchange) -> None:
        check_method(http, *answers)
        method = http.scope["method"]
        answer = await answers["GET" if method == "HEAD" else method](http)
        if answer is not None:
            await http.tell(answer)

    return serve


def check_method(http: Exchange, *methods: str) -> None:
    """Raise the 405 for a method that a path does not have. HEAD is one where GET is."""
    allowed = sorted([*methods, *(["HEAD"] if "GET" in methods else [])])
    if http.scope["method"] not in allowed:
        told = f"{http.scope['method']} is not allowed here: use {', '.join(methods)}"
        raise BadRequest(told, status=405, code="method_not_allowed", headers={"allow": ", ".join(allowed)})


def parameters(http: Exchange, *known: str) -> dict[str, str]:
    """Return the parameters of the query string. Raises `BadRequest` for one that is unknown or given twice."""
    try:
        parameters = parse_qs(http.query, keep_blank_values=True, max_num_fields=20, errors="strict")
    except (ValueError, UnicodeDecodeError):
        raise BadRequest("the query string cannot be read", code="invalid_value") from None
    for name, values in parameters.items():
        if name not in known or len(values) > 1:
            told = "is given twice" if name in known else f"is unknown; known: {', '.join(known)}"
            raise BadRequest(f"the parameter {name[:50]!r} {told}", param=name[:50], code="invalid_value")
    return {name: values[0] for name, values in parameters.items()}


class JsonFields(BaseModel):
    """The fields of a JSON object in a request."""

    model_config = ConfigDict(strict=True, extra="forbid")


Fields = TypeVar("Fields", bound=BaseModel)


def parsed(raw: bytes, place: str = "the body") -> Any:
    """Return the JSON value of a body. Raise `BadRequest`."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise BadRequest(f"{place} is not valid JSON", code="invalid_json") from None


async def sent_json(http: Exchange, empty: bytes = b"") -> Any:
    """Return the JSON value of a client's body, and of `empty` where there is none. Raise `BadRequest`."""
    raw = await http.read() or empty
    return await do_sized(len(raw), partial(parsed, raw))


def valid(kind: type[Fields], value: Any, place: str = "") -> Fields:
    """Return the fields of a JSON object, or of a query string. Raise `BadRequest` for the first mistake."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        param = ".".join(filter(None, (place, *(str(part)[:50] for part in first["loc"][:1]))))
        code = "invalid_type" if first["type"].endswith(("_type", "missing")) else "invalid_value"
        # pydantic names the class of ours
        told = "Input should be an object" if first["type"] == "model_type" else first["msg"]
        message = f"{param or 'the body'}: {told.removeprefix('Value error, ')}"
        raise BadRequest(message, param=param or None, code=code) from None


async def read_body(request: Request, most: int = 4 * 2**20) -> bytes:
    """Return the body of an operator's request. Raise `HTTPException` if it has more bytes than `most`."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise HTTPException(413)
    return bytes(body)


async def json_object(request: Request) -> dict[str, Any]:
    """Return the body of an operator's request as a JSON object. Raise `BadRequest` if it is none."""
    value = parsed(await read_body(request))
    if not isinstance(value, dict):
        raise BadRequest("the body must be a JSON object", code="invalid_json")
    return value


def answered(value: Any, status: int = 200) -> Response:
    """Return an answer to an operator in JSON."""
    return Response(encode(value), status, NO_STORE, "application/json")


async def answer_error(http: Exchange, error: PenstockError) -> None:
    """Send an error: with its status, or as an event; another answer under way is left without its end."""
    wire = wire_at(http.scope["path"])
    if http.status is not None:
        if not http.sends_events:
            return
        event = wire.error_event(error)
        if http.names_events and not event.startswith(b"event:"):
            event = b'event: error\ndata: {"type":"error",' + error.body()[1:]
        await http.finish((b"" if http.between_events else b"\n\n") + event + b"\n\n")
        return
    headers: Headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
    await http.respond(error.status, [*headers, _JSON], wire.error(error))
