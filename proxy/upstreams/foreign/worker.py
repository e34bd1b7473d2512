"""The process that runs litellm: an HTTP server on a Unix socket that answers as OpenAI does.

It has two paths for each upstream: `/NAME/chat/completions`, and `/NAME/ignored` for the fields of a request that the
provider lacks. The first line of standard input holds the settings; the process ends when standard input is closed.
"""

import asyncio
import json
import os
import secrets
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Iterator, Mapping
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import unquote

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler
from multidict import CIMultiDict

from proxy.chat import ChatRequest
from proxy.chat.errors import PenstockError, Unanswered, UpstreamFailed
from proxy.chat.parse import Body
from proxy.config.settings import ForeignUpstream, TelemetrySettings
from proxy.http.client import broken_off
from proxy.telemetry.logs import configure
from proxy.upstreams.base import CHAT, Call, Reply
from proxy.upstreams.completion import Completion, Deltas, spent
from proxy.upstreams.foreign.errors import explain
from proxy.upstreams.foreign.library import (
    LAST_ANSWER,
    LastAnswer,
    arguments,
    knows,
    lacked,
    load,
    misroutes,
    no_such_model,
)
from proxy.upstreams.request_fields import Translation, check_fields
from proxy.upstreams.translated import TranslatedUpstream

NO_KEY = "none"
"""Sent where the client gave no key: for want of any, litellm would take one from the environment."""


class Provider(TranslatedUpstream):
    """One provider behind litellm. The client's arguments pass an allow-list; the answer has OpenAI's form."""

    def __init__(self, name: str, settings: ForeignUpstream) -> None:
        super().__init__(name, settings)
        self.provider = settings.provider
        self._settings = settings
        self._library: Any = None
        self._loading = asyncio.Lock()

    async def _translated(self, call: Call, request: ChatRequest) -> Translation:
        check_fields(request)
        asked, left_out = arguments(request, self.provider)
        library = await self._loaded()
        if misroutes(library, self.provider, request.model):
            raise no_such_model(request.model)
        asked |= self._orders(call.headers.get("authorization", ""))
        return Translation(asked, tuple(sorted(left_out | lacked(library, self.provider, request))))

    async def _answered(self, call: Call, translation: Translation, completion: Completion) -> Reply:
        return await completion.reply(self._deltas(translation.body, completion))

    async def _deltas(self, asked: dict[str, Any], completion: Completion) -> Deltas:
        deadline = asyncio.get_running_loop().time() + self._settings.timeout
        options = {"stream": True, "stream_options": {"include_usage": True}} if completion.stream else {}
        last, source, answer = LastAnswer(), None, ForeignAnswer(completion)
        LAST_ANSWER.set(last)
        try:
            source = await _before(deadline, self._library.acompletion(**asked, **options))
            async with aclosing(_chunks(source, self.name)) as arriving:
                while (chunk := await _before(deadline, anext(arriving, None))) is not None:
                    for delta in answer.deltas(chunk):
                        yield delta
            if not answer.begun:
                raise Unanswered(f"upstream {self.name!r} sent an empty answer")
        except Exception as error:
            raise self._explained(error, asked, last) from None
        finally:
            await _close(source)

    def _orders(self, authorization: str) -> dict[str, Any]:
        """Return the arguments that are the operator's alone, with the client's key if the operator gives none."""
        settings = self._settings
        orders: dict[str, Any] = {key: value.get_secret_value() for key, value in settings.options.items()}
        if settings.api_key is not None:
            orders["api_key"] = settings.api_key.get_secret_value()
        elif not settings.has_own_key:
            kind, _, key = authorization.partition(" ")
            orders["api_key"] = (key.strip() if kind.lower() == "bearer" else "") or NO_KEY
        if settings.base_url is not None:
            orders["api_base"] = settings.base_url
        return {**orders, "timeout": settings.timeout, "num_retries": 0, "max_retries": 0, "drop_params": True}

    def _explained(self, error: Exception, asked: Mapping[str, Any], answer: LastAnswer) -> PenstockError:
        hide = [value.get_secret_value() for value in self._settings.options.values()]
        base_url = self._settings.base_url or ""
        hide += [base_url, base_url.partition("://")[2].partition("/")[0], asked.get("api_key", "")]
        refusal = explain(error, self.name, answer, hide)
        if refusal.status == 401 and asked.get("api_key") == NO_KEY:
            refusal.message = f"no API key was given; upstream {self.name!r} needs one as a bearer token"
        return refusal

    async def _loaded(self) -> Any:
        async with self._loading:
            if self._library is None:
                try:
                    self._library = await asyncio.to_thread(load)
                except ImportError:
                    needs = "needs litellm: pip install 'penstock[foreign]'"
                    raise UpstreamFailed(f"upstream {self.name!r} {needs}") from None
            if not knows(self._library, self.provider):
                raise UpstreamFailed(f"upstream {self.name!r}: litellm has no provider {self.provider!r}")
            return self._library


async def _before(deadline: float, work: Awaitable[Any]) -> Any:
    """Return the result of work. Raise `TimeoutError` where there is none at a time of the event loop."""
    async with asyncio.timeout_at(deadline):
        return await work


async def _chunks(source: Any, name: str) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the chunks of a stream of litellm's, or its one answer. Raise `Unanswered` if the provider broke it off.

    litellm closes a stream that was cut off with a "stop" of its own making. For most providers it notes the reason in
    `received_finish_reason`. For Gemini it does not, so Gemini's own chunks are read on their way into litellm's
    parser.
    """
    if not hasattr(source, "__anext__"):
        yield source.model_dump()
        return
    if getattr(source, "completion_stream", source) is None:
        await source.fetch_stream()
    ends: list[Any] = []
    stream: Any = getattr(source, "completion_stream", None)
    if hasattr(stream, "handle_accumulated_json_chunk"):
        _mend(stream, ends, name)
    async for chunk in source:
        fields: dict[str, Any] = chunk.model_dump()
        has_ended = ends or getattr(source, "received_finish_reason", source) is not None
        if not has_ended and any(choice.get("finish_reason") for choice in fields.get("choices") or ()):
            raise broken_off(name)
        yield fields


def _mend(stream: Any, ends: list[Any], name: str) -> None:
    """Mend litellm's parser of Gemini's chunks: put the last one in `ends`, and end with a chunk that was cut off.

    litellm goes on to ask for the rest of it behind the end of the stream, without a pause.
    """
    parse, gather = stream.chunk_parser, stream.handle_accumulated_json_chunk

    def parse_noting(chunk: Any) -> Any:
        about = chunk if isinstance(chunk, Mapping) else {}
        is_blocked = (about.get("promptFeedback") or {}).get("blockReason")  # a blocked prompt has no candidates
        if is_blocked or any(candidate.get("finishReason") for candidate in about.get("candidates") or ()):
            ends.append(chunk)
        return parse(chunk)

    def gather_until_end(chunk: str) -> Any:
        if (parsed := gather(chunk=chunk)) is None and not chunk:
            raise broken_off(name)
        return parsed

    stream.chunk_parser, stream.handle_accumulated_json_chunk = parse_noting, gather_until_end


async def _close(source: Any) -> None:
    """Close a stream down to its connection, which litellm's own `aclose` does not reach for every provider."""
    inner = getattr(source, "completion_stream", None)
    for part in (source, inner, *getattr(inner, "__dict__", {}).values()):
        close = getattr(part, "aclose", None)
        if close is not None:
            with suppress(Exception):
                await close()


# --- litellm's answers in OpenAI's exact form: none of its private fields, nothing said twice in a stream ---

HEAD = ("id", "created", "model")
EXTRAS = ("system_fingerprint", "service_tier")
KEYS = ("content", "refusal", "reasoning_content", "annotations", "audio", "images", "function_call")
"""Keys of a message besides role, tool calls and thinking blocks. Claude wants the blocks back, but in a stream their
entries have no index, so that the SDKs' accumulators fail on them."""


class ForeignAnswer:
    """One answer, whole or in chunks."""

    def __init__(self, completion: Completion) -> None:
        self.begun = False
        self._completion = completion
        self._calls: dict[tuple[int, int], tuple[int, str | None]] = {}
        """By the provider's choice and index: our index of the tool call, and its id."""
        self._calls_made: dict[int, int] = {}
        """The number of tool calls of each choice."""

    def deltas(self, chunk: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield what a chunk adds; nothing for one without news."""
        known = EXTRAS if self.begun else (*EXTRAS, *HEAD)
        self.begun = True
        self._completion.head |= {key: chunk[key] for key in known if chunk.get(key) is not None}
        if chunk.get("usage"):
            self._completion.usage = spent(_known(chunk["usage"]))
        for choice in chunk.get("choices") or ():
            index, source = choice.get("index", 0), choice.get("message") or choice.get("delta") or {}
            keys = (*KEYS, "thinking_blocks") if "message" in choice else KEYS
            delta = {key: source[key] for key in keys if source.get(key)}
            if source.get("tool_calls"):
                delta["tool_calls"] = [self._part(index, call) for call in source["tool_calls"]]
            delta |= {key: choice[key] for key in ("logprobs", "finish_reason") if choice.get(key)}
            if delta:
                yield {"index": index, **delta}

    def _part(self, choice: int, call: Mapping[str, Any]) -> dict[str, Any]:
        """Return a piece of a tool call.

        Only the first has id, type and name, because clients append each piece.
        """
        place, known, function = (choice, call.get("index") or 0), call.get("id"), call.get("function") or {}
        arguments = function.get("arguments") or ""
        if place in self._calls and known in (None, "", self._calls[place][1]):
            return {"index": self._calls[place][0], "function": {"arguments": arguments}}
        index = self._calls_made.get(choice, 0)
        self._calls_made[choice] = index + 1
        self._calls[place] = (index, known)
        # Every call needs an id of its own for its result to name; not every provider gives one.
        id, called = known or f"call_{secrets.token_hex(12)}", {"name": function.get("name") or ""}
        return {"index": index, "id": id, "type": "function", "function": {**called, "arguments": arguments}}


def _known(used: Mapping[str, Any]) -> dict[str, Any]:
    """Return litellm's usage without the details that it does not know."""
    details = used.get("prompt_tokens_details") or {}
    return {**used, "prompt_tokens_details": {name: count for name, count in details.items() if count is not None}}


# --- the server ---


class Worker:
    """The handlers of the two paths."""

    def __init__(self, upstreams: Mapping[str, Any]) -> None:
        self._providers = {
            name: Provider(name, ForeignUpstream.model_validate(each)) for name, each in upstreams.items()
        }
        self._reported = 0.0
        """CPU time that was reported so far."""

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**40, middlewares=[_refuse])  # Penstock has checked the size
        app.router.add_post("/{name}/chat/completions", self._chat)
        app.router.add_post("/{name}/ignored", self._ignored)
        return app

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        provider, call = await self._read(request)
        reply = await provider.send(call)
        headers = self._headers(reply)
        if reply.chunks is None:
            return web.Response(status=reply.status, headers=headers, body=reply.body)
        response = web.StreamResponse(status=reply.status, headers=headers)
        async with aclosing(reply.chunks):
            await response.prepare(request)
            async for chunk in reply.chunks:
                await response.write(chunk)
        return response

    async def _ignored(self, request: web.Request) -> web.StreamResponse:
        provider, call = await self._read(request)
        return web.Response(body=orjson.dumps(await provider.ignored(call)), content_type="application/json")

    async def _read(self, request: web.Request) -> tuple[Provider, Call]:
        chat = Body(await request.read()).parse()
        headers = {name.lower(): value for name, value in request.headers.items()}
        return self._providers[unquote(request.match_info["name"])], Call(CHAT, chat.model, b"", headers, request=chat)

    def _headers(self, reply: Reply) -> CIMultiDict[str]:
        """Return the headers of an answer, its facts among them, and the CPU time since it was reported last."""
        before, self._reported = self._reported, time.process_time()
        facts = {**reply.facts, "cpu_seconds": round(self._reported - before, 6)}
        headers = CIMultiDict((name.decode("latin-1"), value.decode("latin-1")) for name, value in reply.headers)
        headers["x-penstock-facts"] = json.dumps(facts)  # in ASCII
        return headers


@web.middleware
async def _refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except PenstockError as error:
        headers = {**error.headers, "x-penstock-error": type(error).__name__}
        return web.Response(status=error.status, headers=headers, body=error.body(), content_type="application/json")


async def _serve(upstreams: Mapping[str, Any], path: str) -> None:
    runner = web.AppRunner(Worker(upstreams).app(), handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.UnixSite(runner, path).start()
    print(flush=True)  # it listens
    os.dup2(2, 1)  # nobody reads what a library prints from here on: it would wait for that once the pipe is full
    await asyncio.Event().wait()


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)  # nobody waits for the requests under way


def main() -> None:
    """Serve on the socket that the first argument names, until standard input is closed."""
    upstreams, telemetry = orjson.loads(sys.stdin.buffer.readline())
    configure(TelemetrySettings.model_validate(telemetry))
    threading.Thread(target=_end_with_input, daemon=True).start()
    asyncio.run(_serve(upstreams, sys.argv[1]))
