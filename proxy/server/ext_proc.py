"""The chain beside an inference gateway: a service of Envoy's protocol `ext_proc` in front of `/v1/compress`.

The gateway sends the headers and the whole body of a request, and gets the body that the chain of a running Penstock
made of it. The messages are declared here, with the fields that are used: the protocol never changes their numbers.
"""

import argparse
import asyncio
import logging
import re
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote

from google.protobuf import descriptor_pb2, message_factory
from orjson import loads
from yarl import URL

from proxy.chat.errors import ConfigError, PenstockError, error_body
from proxy.chat.parse import do_sized
from proxy.chat.splice import fields, with_members
from proxy.config.settings import TelemetrySettings
from proxy.http.client import Timeouts, Transport
from proxy.state.warnings import Warnings
from proxy.telemetry.logs import configure

_PACKAGE = "envoy.service.ext_proc.v3"
_KINDS = (
    "request_headers", "response_headers", "request_body", "response_body", "request_trailers", "response_trailers",
)  # fmt: skip
"""The parts of an HTTP request and of its answer, in the order of their fields."""
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "HeaderValue": {"key": (1, "string"), "value": (2, "string"), "raw_value": (3, "bytes")},
    "HeaderMap": {"headers": (1, "*HeaderValue")},
    "HttpHeaders": {"headers": (1, "HeaderMap")},
    "HttpBody": {"body": (1, "bytes"), "end_of_stream": (2, "bool")},
    "HttpTrailers": {},
    "ProcessingRequest": {
        kind: (number, f"Http{kind.rpartition('_')[2].title()}") for number, kind in enumerate(_KINDS, 2)
    },
    "HeaderValueOption": {"header": (1, "HeaderValue")},
    "HeaderMutation": {"set_headers": (1, "*HeaderValueOption")},
    "BodyMutation": {"body": (1, "bytes")},
    "CommonResponse": {"header_mutation": (2, "HeaderMutation"), "body_mutation": (3, "BodyMutation")},
    "Answer": {"response": (1, "CommonResponse")},
    "HttpStatus": {"code": (1, "int32")},
    "ImmediateResponse": {"status": (1, "HttpStatus"), "headers": (2, "HeaderMutation"), "body": (3, "bytes")},
    "ProcessingResponse": {
        **{kind: (number, "Answer") for number, kind in enumerate(_KINDS, 1)},
        "immediate_response": (7, "ImmediateResponse"),
    },
}
"""Fields of the messages: number and type; `*` is a repeated one."""


def _classes() -> tuple[Any, Any]:
    """Return the classes of a call's messages, from a pool of their own, so that other packages may have them too."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="penstock/ext_proc.proto", package=_PACKAGE, syntax="proto3")
    for name, members in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in members.items():
            plain = kind.removeprefix("*")
            label = kinds.LABEL_REPEATED if plain != kind else kinds.LABEL_OPTIONAL
            if plain in _MESSAGES:
                of = {"type": kinds.TYPE_MESSAGE, "type_name": f".{_PACKAGE}.{plain}"}
            else:
                of = {"type": getattr(kinds, f"TYPE_{plain.upper()}")}
            message.field.add(name=field, number=number, label=label, **of)
    made = message_factory.GetMessages([file])
    return made[f"{_PACKAGE}.ProcessingRequest"], made[f"{_PACKAGE}.ProcessingResponse"]


Request, Response = _classes()

METHOD = f"/{_PACKAGE}.ExternalProcessor/Process"
_PATHS = ("/chat/completions", "/messages", "/responses")
_COUNTS = ("/messages/count_tokens", "/responses/input_tokens")
"""Paths that count the tokens of a request: a service that is closed runs the chain for these, too."""
_IGNORED = re.compile(r";[^/]*|/\.?(?=/)")
"""Parts of a path that servers may ignore: parameters, empty segments and those of a dot."""
_CHANGED = ("messages", "system", "input", "instructions", "tools")
"""The fields of an answer of `/v1/compress` that stand in a request."""

_OWN = {"host", "content-length", "connection", "te", "transfer-encoding", "accept-encoding", "expect"}
"""Headers of the gateway's connection, which are not those of the call to Penstock."""

MIB = 1024 * 1024


class Processor:
    """Answers the gateway's calls. What Penstock cannot do in time passes unchanged, unless the service is closed."""

    def __init__(self, to: str, *, patience: float, limit: int, closed: bool = False) -> None:
        """`to` is the address of a Penstock, `patience` in seconds for each body, `limit` in bytes of a body."""
        self._to = URL(f"{to.rstrip('/')}/v1/compress")
        self.patience, self.limit = patience, limit
        self._transport = Transport("penstock", Timeouts(patience, patience))
        self._closed = closed
        self._warnings = Warnings(logging.getLogger("penstock.ext_proc"), "a request passes without its chain")

    async def process(self, requests: AsyncIterator[Any], context: object) -> AsyncIterator[Any]:
        """Answer each message of a call, in order. A call is one HTTP request of the gateway."""
        headers: Mapping[str, str] = {}
        is_whole = True
        async for request in requests:
            (kind,) = [each.name for each, _ in request.ListFields() if each.name in _KINDS] or ["request_headers"]
            answer = Response(**{kind: {}})
            if kind == "request_headers":
                came = reversed(request.request_headers.headers.headers)  # of several of one name the first counts
                headers = {each.key.lower(): each.raw_value.decode("latin-1") or each.value for each in came}
            elif kind == "request_body":
                # a body in pieces is one that the gateway was told to stream: no piece of it is a request
                is_whole = is_whole and request.request_body.end_of_stream
                if _is_for(headers, (*_PATHS, *_COUNTS) if self._closed else _PATHS):
                    answer = await self._of_body(headers, request.request_body.body, is_whole=is_whole)
            yield answer

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def _of_body(self, headers: Mapping[str, str], body: bytes, *, is_whole: bool) -> Any:
        is_plain = headers.get("content-encoding", "identity") == "identity"
        if is_whole and is_plain and len(body) <= self.limit:
            return await self._rewritten(headers, body)
        return self._passed("in pieces" if not is_whole else "too large" if is_plain else "encoded")

    def _passed(self, cause: str) -> Any:
        self._warnings.warn(cause=cause)
        if not self._closed:
            return Response(request_body={})
        return _refusal(503, error_body(f"the chain did not run: {cause}", "server_error"))

    async def _rewritten(self, headers: Mapping[str, str], body: bytes) -> Any:
        passed = {name: value for name, value in headers.items() if not name.startswith(":") and name not in _OWN}
        try:
            async with asyncio.timeout(self.patience):
                reply = await self._transport.request("POST", self._to, passed, body)
                status, answer = reply.status, await reply.read()
            if status == 200:
                made = await do_sized(len(body) + len(answer), partial(_spliced, body, answer))
                return Response(request_body=_changed(made, len(body)))
        except (PenstockError, TimeoutError, ValueError) as error:
            return self._passed(type(error).__name__)
        if status == 404 and not self._closed:  # a model that the gateway knows, and Penstock does not
            return Response(request_body={})
        return _refusal(status, answer) if 400 <= status < 500 else self._passed(str(status))


def _is_for(headers: Mapping[str, str], paths: tuple[str, ...]) -> bool:
    path = _IGNORED.sub("", unquote(headers.get(":path", "").partition("?")[0]).lower())
    return headers.get(":method") == "POST" and path.rstrip("/").endswith(paths)


def _spliced(body: bytes, answer: bytes) -> bytes:
    """Return the client's body with what the chain changed. Raise `ValueError` for what is no JSON object."""
    had, has = fields(body), fields(answer)
    known = {**{name: has[name] for name in _CHANGED if name in has}, **fields(has.get("fields", b"{}"))}
    # a list that means the same keeps the client's own white space
    changes = {name: value for name, value in known.items() if loads(value) != loads(had.get(name, b"[]"))}
    return with_members(body, changes)


def _changed(body: bytes, before: int) -> dict[str, Any]:
    """Return the answer to a body; the gateway wants its new length where that is another."""
    length = {"header": {"key": "content-length", "raw_value": str(len(body)).encode()}}
    sized = {"header_mutation": {"set_headers": [length]}} if len(body) != before else {}
    return {"response": {**sized, "body_mutation": {"body": body}}}


def _refusal(status: int, body: bytes) -> Any:
    kind = {"header": {"key": "content-type", "raw_value": b"application/json"}}
    return Response(immediate_response={"status": {"code": status}, "headers": {"set_headers": [kind]}, "body": body})


def serve_beside(options: argparse.Namespace) -> None:
    """Serve as the command line says: `penstock ext-proc`."""
    configure(TelemetrySettings())
    processor = Processor(options.to, patience=options.timeout, limit=options.max_mib * MIB, closed=options.closed)
    tell = partial(print, f"penstock: ext_proc for {options.to}, on port", flush=True)
    asyncio.run(serve(options.listen, processor, tell))


async def serve(
    listen: str, processor: Processor, started: Callable[[int], None], stop: asyncio.Event | None = None
) -> None:
    """Serve until a stop signal, or until `stop` is set; call `started` with the port. Raise `ConfigError`."""
    try:
        import grpc  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError("ext-proc needs gRPC: pip install 'penstock[grpc]'") from None
    if stop is None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    call = grpc.stream_stream_rpc_method_handler(
        processor.process, request_deserializer=Request.FromString, response_serializer=Response.SerializeToString
    )
    service, _, method = METHOD[1:].partition("/")
    largest = [(f"grpc.max_{way}_message_length", processor.limit + MIB) for way in ("receive", "send")]
    server = grpc.aio.server(options=largest)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: call}),))
    try:
        port = server.add_insecure_port(listen)
    except RuntimeError as error:
        raise ConfigError(f"cannot listen on {listen}: {error}") from None
    await server.start()
    started(port)
    await stop.wait()
    await server.stop(processor.patience)
    await processor.aclose()
