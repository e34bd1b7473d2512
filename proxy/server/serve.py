"""Runs the server: uvicorn on uvloop and httptools, in one process or several."""

import argparse
import asyncio
import os
import signal
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import httptools
import uvicorn
from uvicorn.lifespan.on import LifespanOn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.supervisors import Multiprocess

from proxy.chat.errors import ConfigError, error_body
from proxy.config.load import load
from proxy.config.settings import Settings
from proxy.gateway.saving import Saving
from proxy.server.admin import is_open
from proxy.server.app import App, create
from proxy.telemetry.metrics import take_out
from proxy.text import counted


def serve(options: argparse.Namespace) -> int:
    """Serve until a stop signal. Return the exit code. Raise `ConfigError`, and `OSError` for a wrong address."""
    config, workers = load(options.config), options.workers
    # until the app hears it: what it would reload is about to be loaded
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    server = config.settings.server
    if options.redact and options.save is None:
        raise ConfigError("--redact removes text from the saved file: name one with --save")
    if options.save is not None:
        Saving(options.save, options.redact).close()  # what is wrong with it is told before anybody is served
        print(f"penstock: what is served is saved in {options.save}, with the text of prompts", flush=True)
    # a stop that was asked for is no failure
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: sys.exit(0))
    # from here on connections are taken; they wait until the app is built
    listeners = [_listen(options.host or server.host, server.port if options.port is None else options.port)]
    bound, admin_port = listeners[0].getsockname()[0], None
    has_page = is_open(config.settings, bound) or (server.admin_key is not None and server.admin_port is None)
    page = f"; the page: {_address(listeners[0])}/ui" if has_page else ""
    print(f"penstock: listening on {_address(listeners[0])}/v1 ({counted(workers, 'worker')}){page}", flush=True)
    if server.admin_port is not None:
        listeners.append(_listen(server.admin_host or options.host or server.host, server.admin_port))
        admin_port = listeners[1].getsockname()[1]
        print(f"penstock: for operators on {_address(listeners[1])}/ui", flush=True)
    # links stay links: a ConfigMap's file is reached by one that is turned to another folder with each change
    build = partial(create, config.path.absolute(), bound, admin_port, options.save, options.redact)
    if workers == 1:
        single = uvicorn.Server(GuardedConfig(build, config.settings, workers))
        single.run(sockets=listeners)
        return 0 if single.started else 1
    with tempfile.TemporaryDirectory(prefix="penstock-metrics-") as shared:
        # counters of all processes are summed up from files; must be set before the metrics library is loaded
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = shared
        build = partial(build, meeting=Path(shared))
        _Workers(GuardedConfig(build, config.settings, workers), sockets=listeners).run()
        return 0


_PATIENCE = 60
"""Seconds without a sign of life after which a worker is killed, with all its streams. uvicorn's 5 are too few on a
busy machine; `/healthz` tells of a worker that is stuck."""


class GuardedConfig(uvicorn.Config):
    """uvicorn's configuration, and the limits of a connection. Each worker calls `build` in its own process."""

    def __init__(self, build: Callable[[], App], settings: Settings, workers: int) -> None:
        super().__init__(
            build,
            factory=True,
            workers=workers,
            loop="uvloop",
            http=Connection,
            ws="none",
            lifespan="on",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(settings.server.keep_alive),
            timeout_worker_healthcheck=_PATIENCE,
            timeout_graceful_shutdown=int(settings.server.drain),
        )
        self.limits = settings.limits

    def load(self) -> None:
        super().load()
        self.lifespan_class = _Life


class _Life(LifespanOn):
    async def shutdown(self) -> None:
        """Close the app, and end the process: a thread that loads a model would hold it for seconds."""
        await super().shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


class _AnyLength(int):
    """The length of a body that ends with its connection: it is never exceeded, and nothing of it is missing."""

    def __lt__(self, other: int) -> bool:
        return False

    def __sub__(self, other: int) -> "_AnyLength":
        return self


class _Received:
    """The parts of a body as they come in: a single one, as most are, is never copied. uvicorn copies it twice."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def __iadd__(self, part: bytes) -> "_Received":
        self._parts.append(part)
        return self

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __bytes__(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


class _Cycle(RequestResponseCycle):
    """A request and its answer, of which head and body are one write where the body is whole.

    uvicorn writes twice, and looks at each header by itself.
    """

    _start: Any = None
    """The head of the answer, until the first part of its body is there."""

    async def send(self, message: Any) -> None:
        """Take a part of the answer."""
        if message["type"] == "http.response.start" and not self.response_started:
            self.response_started, self._start = True, message
            return
        if (start := self._start) is not None:
            self._start = None
            if self._write(start, message):
                return
            self.response_started = False
            await super().send(start)
            if self.more_body and not self.keep_alive:  # the answer ends the connection before the request is over
                self.transport = _Lingering(self.transport)  # type: ignore[assignment]
        await super().send(message)

    def _write(self, start: Any, message: Any) -> bool:
        """Write a whole answer, and return True; False for a stream, or for an answer that is not a plain one."""
        is_whole = not (message.get("more_body") or self.disconnected or self.flow.write_paused)
        if not is_whole or not self.keep_alive or self.scope["method"] == "HEAD":
            return False
        headers, body, status = self.default_headers + start["headers"], message["body"], start["status"]
        names, values = zip(*headers, strict=True)
        name, value = b"".join(names), b"".join(values)
        is_plain = name.islower() and not name.translate(None, _NAMES) and not value.translate(None, _VALUES)
        # nothing else may say where the answer ends
        is_plain &= names.count(b"content-length") == 1 and values[names.index(b"content-length")] == b"%d" % len(body)
        if not is_plain or b"transfer-encoding" in names or b"connection" in names:
            return False
        lines = b"\r\n".join(map(b": ".join, headers))
        self.transport.write(b"%b%b\r\n\r\n%b" % (STATUS_LINE[status], lines, body))
        self.waiting_for_100_continue, self.response_complete = False, True
        self.message_event.set()
        self.on_response()
        return True


_NAMES, _VALUES = (
    bytes(each for each in range(256) if not odd.match(bytes([each]))) for odd in (HEADER_RE, HEADER_VALUE_RE)
)
"""The bytes that names and values of headers may have."""


class _Lingering:
    """A transport that is closed only when the client has had time to read its answer."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.write = transport.write
        self.close = transport.get_protocol().linger  # type: ignore[attr-defined]


_LINGER = 2.0
"""Seconds for which a refused request is still read."""


class Connection(HttpToolsProtocol):
    """A client's connection, closed if the client is too slow or sends too many headers; uvicorn bounds neither.

    Requests that arrive in one piece, as almost all do, start no timer.
    """

    def __init__(self, config: GuardedConfig, *arguments: Any, **options: Any) -> None:
        super().__init__(config, *arguments, **options)
        self._limits = config.limits
        self._part: Literal["head", "body", "none"] = "head"
        """The part of a request that is awaited."""
        self._head = 0
        self._completed = False
        self._timed = "none"
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._refused = False
        self._refusal = b""
        """The answer to the refused request, sent behind the answers to the requests before."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await("head")

    def connection_lost(self, exc: Exception | None) -> None:
        self._await("none")
        self._stop_writing_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._head += len(data)
        self._completed = False
        self._unset_keepalive_if_required()
        self._parse(data)
        if self._refused:
            return
        if self._part == "head":
            if self._completed:
                self._head = self._head_size()  # what is here of it; the rest of the bytes were other requests
            if self._head > self._limits.max_header_bytes:
                self._refuse(431, "request_header_fields_too_large", "the request's headers are too large")
        else:
            self._head = 0
            if self._part == "body" and len(self.cycle.body) > HIGH_WATER_LIMIT and not self.cycle.response_complete:
                self.flow.pause_reading()
        if self._part != self._timed or (self._head and self._head == len(data)):
            self._await(self._part)

    def _parse(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest and not self._refused:
            try:
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserError:
                self.send_400_response("")
            except httptools.HttpParserUpgrade as end:
                rest = rest[end.args[0] :]
                if not self._refused:
                    self._ignore_upgrade()

    def _ignore_upgrade(self) -> None:
        """Parse the request's head again without its `upgrade` header, with which the parser would read no body."""
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self._parse(b"\r\n".join(lines) + b"\r\n\r\n")

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP with a JSON error; uvicorn would write text, even in the middle of an answer."""
        self._refuse(400, "malformed_request", "this is not valid HTTP/1.1")

    def on_message_begin(self) -> None:
        self._part = "head"
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._head > self._limits.max_header_bytes and self._head_size() > self._limits.max_header_bytes:
            self._refuse(431, "request_header_fields_too_large", "the request's headers are too large")
            return
        names = [*map(itemgetter(0), self.headers)]
        if names.count(b"host") != 1 and (b"host" in names or self.parser.get_http_version() == "1.1"):
            self.send_400_response("")
        elif b"sec-websocket-key" in names:
            self._refuse(426, "websocket_not_supported", "there are no WebSockets here; use HTTP", "upgrade: HTTP/1.1")
        elif self.parser.get_method() == b"CONNECT":
            self._refuse(405, "method_not_allowed", "CONNECT is not allowed here")
        elif not self.parser.should_upgrade():
            self._part = "body"
            awaited = [each[1].lower() for each in self.headers if each[0] == b"expect"] if b"expect" in names else ()
            self.expect_100_continue = b"100-continue" in awaited
            super().on_headers_complete()
            self.cycle.__class__ = _Cycle
            if self.parser.get_http_version() == "1.0":  # uvicorn would send it chunks, which it does not know
                self.cycle.chunked_encoding, self.cycle.expected_content_length = False, _AnyLength()
            self.headers = deque(maxlen=0)  # type: ignore[assignment]  # drops trailers, the headers behind a body

    def on_body(self, body: bytes) -> None:
        if not (self._refused or self.cycle.response_complete):
            if not isinstance(self.cycle.body, _Received):  # uvicorn has a new one for what comes next
                self.cycle.body = _Received()  # type: ignore[assignment]
            self.cycle.body += body
            self.cycle.message_event.set()

    def on_message_complete(self) -> None:
        if not self._refused and self._part == "body":
            self._part = "none"
            self._completed = True
            super().on_message_complete()

    def on_response_complete(self) -> None:
        was_last = not self.pipeline
        super().on_response_complete()
        if was_last and self._refusal and not self.transport.is_closing():
            self.transport.write(self._refusal)
            self.linger()

    def linger(self) -> None:
        """Send no more, drop what the client still sends, and close after a while; at once, its answer would be lost.

        A connection that is closed with unread bytes is reset, and the client's system drops what it has not read.
        """
        self._refused = True
        self._await("none")
        self.flow.resume_reading()
        self.transport.write_eof()
        self._reading = self.loop.call_later(_LINGER, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(self._limits.write_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_writing_timer()
        super().resume_writing()

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _await(self, part: Literal["head", "body", "none"]) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        self._timed = part
        if part != "none" and not self._refused:
            self._reading = self.loop.call_later(self._patience(part), self._late)

    def _patience(self, part: Literal["head", "body"]) -> float:
        if part == "body":
            return self._limits.body_timeout
        # a connection on which nothing was said yet is as idle as one between two requests
        return self._limits.header_timeout if self._head else self.timeout_keep_alive

    def _late(self) -> None:
        if self._part == "head" and not self._head:
            self.transport.close()  # it has not begun to say anything
        else:
            self._refuse(408, "request_timeout", f"the request's {self._part} did not come in time")

    def _refuse(self, status: int, code: str, message: str, header: str = "") -> None:
        """Answer in place of the app, behind earlier answers, and close; send nothing in this request's own."""
        self._refused = True
        self._await("none")
        cycle = self.cycle
        waits = bool(self.pipeline) or (cycle is not None and self._part != "body" and not cycle.response_complete)
        if self._part == "body":
            if self.pipeline:
                self.pipeline.popleft()  # the refused one
            elif cycle is not None and cycle.response_started:
                self.transport.abort()
                return
        body = error_body(message, "invalid_request_error", None, code)
        head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
        head += f"{header}\r\n" if header else ""
        self._refusal = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{head}\r\n".encode() + body
        if not waits:
            self.transport.write(self._refusal)
            self.linger()

    def _stop_writing_timer(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen there: {error.strerror}", f"{host}:{port}") from None
    listener.listen(2048)
    listener.set_inheritable(True)
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Workers(Multiprocess):
    def init_processes(self) -> None:
        super().init_processes()
        self._let_go()

    def terminate_all(self) -> None:
        """Stop the workers, and close the listener here: nobody would answer its connections."""
        for listener in self.sockets:
            listener.close()
        super().terminate_all()

    def keep_subprocess_alive(self) -> None:
        """Replace workers that have died, and take what these did out of the shared gauges: killed, they could not."""
        before = {worker.pid for worker in self.processes}
        super().keep_subprocess_alive()
        self._let_go()
        for pid in before - {worker.pid for worker in self.processes}:
            take_out(pid, os.environ["PROMETHEUS_MULTIPROC_DIR"])

    def _let_go(self) -> None:
        """Close what workers answer by: held here too, it would hide the end of one that is asked for a sign."""
        for worker in self.processes:
            worker.child_conn.close()

    def handle_hup(self) -> None:
        """Tell the workers to reload. uvicorn would replace each one, and wait for its last stream."""
        for worker in self.processes:
            # one that still starts would die of the signal, and reads the file as it is now
            if worker.pid is not None and worker.is_ready(timeout=1):
                os.kill(worker.pid, signal.SIGHUP)
