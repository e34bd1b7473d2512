"""Saves what was served to a file that `penstock replay` reads: only where the operator asks for it.

A line is a request with what the upstream reported, what was sent where a chain changed it, and the answer where the
vendor stores it (Responses), because the next request has only what came since. Names of users, sessions and
tenants are hashes. What a guard took out of a request is not in it either.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from proxy.chat import ChatRequest, encode, with_fields
from proxy.chat.errors import ConfigError
from proxy.chat.folds import Folds
from proxy.chat.parse import Body
from proxy.chat.strings import changed
from proxy.context import Identity
from proxy.gateway.prepare import Asked, Prepared
from proxy.gateway.relay import Copying
from proxy.identity import identify
from proxy.models.usage import Usage
from proxy.state.threads import Threads
from proxy.state.warnings import Warnings
from proxy.upstreams.base import Reply
from proxy.wires.rounds import ResponsesRound

REDACTED = "[redacted]"

_LONGEST = 1024 * 1024
"""Bytes of a stored response that is saved with its request."""

_MOST = 256
"""Requests that wait to be written; what comes on top is not saved."""

_NAMING = ("user", "safety_identifier", "metadata", "prompt_cache_key")

_log = logging.getLogger("penstock.saving")


class Saving:
    """Appends to a file, in a thread of its own; no request waits for it."""

    def __init__(self, path: Path, patterns: Sequence[str] = ()) -> None:
        """Return what matches one of the patterns is written as `[redacted]`. Raises `ConfigError`, and `OSError`."""
        try:
            self._patterns = [re.compile(pattern) for pattern in patterns]
        except re.error as error:
            raise ConfigError(f"--redact: {error.pattern!r} is no pattern: {error}") from None
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._threads = Threads("saving")
        self._waiting = 0
        self._warnings = Warnings(_log, "request not saved")

    def save(self, line: Callable[[], bytes]) -> None:
        """Append a line, which is made in the thread."""
        if self._waiting >= _MOST:
            self._warnings.warn(cause="the disk is behind")
            return
        self._waiting += 1
        self._threads.submit(partial(self._write, line))

    def watch(self, prepared: Prepared, body: Body, asked: Asked) -> Copying:
        """Return what saves a request once it is answered, and the answer where the vendor stores it."""

        def ended(answer: bytes | None, reply: Reply, usage: Usage) -> None:
            at = datetime.now(UTC).isoformat(timespec="milliseconds")

            def line() -> bytes:
                row = self._line(prepared, body, asked, at, usage)
                if answer:
                    row += b',"response":' + self.answer(answer, streamed=reply.chunks is not None)
                return row + b"}\n"

            if reply.status == 200:
                self.save(line)

        is_stored = body.wire == "responses" and body.get("store") is not False
        return Copying(_LONGEST if is_stored else 0, ended)

    def _line(self, prepared: Prepared, body: Body, asked: Asked, at: str, usage: Usage) -> bytes:
        done = prepared.rewritten
        came = body.parse() if done is None else done.sent
        who = identify(asked.headers, came, asked.caller.tenant)
        if done is not None and done.is_guarded:
            came = done.ctx.incoming
        row = {"at": at, "conversation": f"{who.tenant[:12]}/{who.scope}", "headers": _names(who)}
        line = encode({**row, "usage": _usage(usage)})[:-1] + b',"request":' + self.shown(came)
        if done is not None and done.outcome.request is not came:
            line += b',"sent":' + self.shown(done.outcome.request)
        return line

    def close(self) -> None:
        self._threads.shutdown(wait=True)
        os.close(self._file)

    def _write(self, line: Callable[[], bytes]) -> None:
        try:
            os.write(self._file, line())  # at once, so that lines of several workers do not mix
        except Exception as error:  # saving is an extra: what fails here stops no request
            self._warnings.warn(cause=type(error).__name__)
        finally:
            self._waiting -= 1

    def shown(self, request: ChatRequest) -> bytes:
        """Return a request in one line; if nothing is redacted, byte for byte, because handles are made of it."""
        # in a thread: the conversation's own folds are the event loop's
        request = with_fields(request.without(*_NAMING), folds=Folds())
        if self._patterns:
            request = request.with_messages(message.with_texts(self._redacted) for message in request.messages)
        raw = request.encode()
        return encode(json.loads(raw)) if b"\n" in raw or b"\r" in raw else raw

    def answer(self, body: bytes, *, streamed: bool) -> bytes:
        """Return a response that the vendor stores: the requests that continue it do not carry its content."""
        response = ResponsesRound.of(body, streamed=streamed).response
        return encode(changed({key: response.get(key) for key in ("id", "output")}, self._redacted))

    def _redacted(self, text: str) -> str:
        for pattern in self._patterns:
            text = pattern.sub(REDACTED, text)
        return text


def _names(who: Identity) -> dict[str, str]:
    """Return the names of a request as its headers would give them; each is a hash already."""
    session = who.session if who.is_named else ""
    names = {"session": session, "user": who.user, "agent": who.agent, "task": who.task}
    return {f"x-penstock-{name}": value for name, value in names.items() if value}


def _usage(usage: Usage) -> dict[str, Any]:
    found: dict[str, Any] = {"prompt_tokens": usage.input, "completion_tokens": usage.output}
    if usage.cached is not None:
        found["prompt_tokens_details"] = {"cached_tokens": usage.cached}
    return {name: value for name, value in found.items() if value is not None}
