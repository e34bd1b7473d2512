"""A handler as an ASGI app, and the one place where an error becomes an answer."""

import asyncio
import logging
from functools import partial
from urllib.parse import quote

from starlette.types import Receive, Scope, Send

from proxy.access.browsers import Browsers
from proxy.access.exchange import ClientGone, Exchange, Intake, is_gone
from proxy.access.gate import Gate, Handler
from proxy.chat.errors import BadRequest, PenstockError
from proxy.http.headers import Headers
from proxy.identity import tenant_of
from proxy.telemetry import Telemetry
from proxy.telemetry.observation import Observation

_log = logging.getLogger("penstock.api")

_JSON = (b"content-type", b"application/json")


class Endpoint:
    """A handler as an ASGI app: every error that it raises becomes OpenAI's error body, or an event of the stream."""

    def __init__(
        self,
        handler: Handler,
        telemetry: Telemetry,
        route: str,
        *,
        shows_path: bool = True,
        headers: Headers | None = None,
        config: str = "",
        gate: Gate | None = None,
        spends: bool = True,
        browsers: Browsers | None = None,
        takes_forms: bool = False,
        intake: Intake | None = None,
    ) -> None:
        """Without `shows_path`, telemetry gets the route alone: a handle in the path would open what it names.

        `headers` go out with every answer; whoever gave the list may add to it later. `config` is the version of the
        configuration that serves the exchange. A `gate` says who comes in; without one everybody does. What `spends`
        nothing is open to those who have nothing left. `browsers` says what web pages may not ask; a handler that
        `takes_forms` also gets bodies that are no JSON. An `intake` bounds what is received at the
        same time.
        """
        self._has_gate = gate is not None
        self._handle = handler if gate is None else partial(gate.serve, handler, spends=spends)
        self._browsers = browsers
        self._takes_forms = takes_forms
        self._telemetry = telemetry
        self._route = route
        self._shows_path = shows_path
        self._headers = [] if headers is None else headers
        self._config = config
        self._intake = intake

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        http = Exchange(scope, receive, send, self._intake)
        http.own_headers += self._headers
        path = scope["path"] if self._shows_path else None
        seen = self._telemetry.begin(
            scope["method"],
            self._route,
            http.headers,
            path=path,
            request_id=http.request_id,
            tenant="" if self._has_gate else tenant_of(http.headers),  # the gate knows better
            config=self._config,
        )
        if seen.explains:
            http.own_headers.append((b"x-penstock-explain", f"/v1/explain/{quote(http.request_id)}".encode()))
        await self._serve(http, seen)

    async def _let_in(self, http: Exchange, seen: Observation) -> None:
        if self._browsers is not None:
            self._browsers.check(http.scope["method"], http.headers, takes_forms=self._takes_forms)
        await self._handle(http, seen)

    async def _serve(self, http: Exchange, seen: Observation) -> None:
        fault: PenstockError | str | None = None
        try:
            await self._let_in(http, seen)
        except ClientGone:
            fault = "client_gone"
        except asyncio.CancelledError:  # the server cuts what is left when its time to stop is over
            fault = PenstockError("Penstock is stopping; send the request again", code="server_stopping", status=503)
        except PenstockError as error:
            fault = error.with_traceback(None)  # it would keep all that the request has until the next collection
        except Exception as error:
            if is_gone(error):
                fault = "client_gone"
                return
            fields = {"error": type(error).__name__, "request_id": http.request_id}
            _log.error("unexpected error", exc_info=True, extra={"fields": fields})
            fault = PenstockError("Penstock failed to handle this request; its log says more", code="internal_error")
        finally:
            if not isinstance(fault, PenstockError):
                seen.end(499 if fault else http.status or 499, error=fault, stream=http.streamed)
        if isinstance(fault, PenstockError):
            try:
                await answer_error(http, fault)
            finally:
                seen.end(http.status or fault.status, error=fault, stream=http.streamed)


def check_method(http: Exchange, *methods: str) -> None:
    """Raise the 405 for a method that a path does not have. HEAD is one where GET is."""
    allowed = [*methods, *(["HEAD"] if "GET" in methods else [])]
    if http.scope["method"] not in allowed:
        told = f"{http.scope['method']} is not allowed here: use {', '.join(methods)}"
        raise BadRequest(told, status=405, code="method_not_allowed", headers={"allow": ", ".join(allowed)})


async def answer_error(http: Exchange, error: PenstockError) -> None:
    """Tell the client what went wrong: with a status while there is none yet, else with an event that SDKs raise.

    Any other answer is left without its end: the server closes the connection, so the client knows.
    """
    if http.status is not None:
        if not http.sends_events:
            return
        body = error.body()
        data = b'event: error\ndata: {"type":"error",' + body[1:] if http.names_events else b"data: " + body
        await http.finish((b"" if http.between_events else b"\n\n") + data + b"\n\n")
        return
    headers: Headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
    await http.respond(error.status, [*headers, _JSON], error.body())
