"""Sends an exchange to the generation that serves clients, or to the endpoints for operators."""

import re

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.chat.errors import PenstockError, error_body
from proxy.http.headers import request_id
from proxy.server.api.endpoint import NO_STORE, unavailable
from proxy.server.reload import Reloading
from proxy.state.store import StoreError

CHAT = "/v1/chat/completions"
_FOR_CLIENTS = ("/v1", "/chat/", "/models")
"""Prefixes of the paths for clients; all others are for operators."""


class App:
    """The whole app. Chat goes straight to its endpoint, everything else through Starlette's router.

    The router and its two error handlers would take a tenth of the time of a small request.
    """

    def __init__(self, reloading: Reloading, rest: ASGIApp, operators: ASGIApp, own_port: int | None) -> None:
        """Serve clients by `reloading`, `own_port` by `operators`, and the other paths of the main port by `rest`."""
        self._reloading = reloading
        self._rest = rest
        self._operators = operators
        self._own_port = own_port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one exchange. A client's exchange keeps the generation that is current when it begins."""
        if scope["type"] != "http":
            await self._rest(scope, receive, send)
            return
        if self._own_port is not None and (scope.get("server") or ("", 0))[1] == self._own_port:
            await self._operators(scope, receive, send)
            return
        path = scope["path"]
        if "//" in path or path.endswith("/"):  # of a base URL with a slash at its end
            plain = re.sub("//+", "/", path).rstrip("/")
            if plain.startswith(_FOR_CLIENTS):
                path, scope = plain, {**scope, "path": plain}
        if path == CHAT and scope["method"] == "POST":
            await self._reloading.current(scope, receive, send, is_chat=True)
        elif path.startswith(_FOR_CLIENTS):
            await self._reloading.current(scope, receive, send)
        else:
            await self._rest(scope, receive, send)


async def answer_http_error(request: Request, error: Exception) -> Response:
    """Answer the framework's own 404 and 405 with OpenAI's error body."""
    if not isinstance(error, HTTPException):
        raise error
    known = {
        404: ("not_found", f"there is no {request.method} {request.url.path[:200]}; the API is under /v1"),
        405: ("method_not_allowed", f"{request.method} is not allowed here"),
    }
    code, message = known.get(error.status_code, ("http_error", str(error.detail)))
    body = error_body(message, "invalid_request_error", None, code)
    headers = {"x-request-id": request_id(request.headers.get("x-request-id")), **(error.headers or {})}
    return Response(body, error.status_code, headers, "application/json")


async def answer_own_error(request: Request, error: Exception) -> Response:
    """Answer an error of an endpoint for operators."""
    if isinstance(error, StoreError):
        error = unavailable(error)
    if not isinstance(error, PenstockError):
        raise error
    return Response(error.body(), error.status, {**NO_STORE, **error.headers}, "application/json")


ERRORS = {HTTPException: answer_http_error, PenstockError: answer_own_error, StoreError: answer_own_error}
"""Answers to what Starlette's endpoints raise."""
