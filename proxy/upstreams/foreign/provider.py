"""Calls of litellm for one provider, in the process of its own."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, suppress
from typing import Any

from proxy.chat import ChatRequest, encode
from proxy.chat.errors import PenstockError, Unanswered, UpstreamFailed
from proxy.config.settings import ForeignUpstream
from proxy.models.usage import read_usage
from proxy.upstreams.base import Reply
from proxy.upstreams.completion import DONE, JSON_HEADERS, STREAM_HEADERS, hold_back, usage, wants_usage
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
from proxy.upstreams.images import Images
from proxy.upstreams.request_fields import check_fields, ignored_fact

NO_KEY = "none"
"""Sent where the client gave no key: for want of any, litellm would take one from the environment."""
BROKE_OFF = "the provider broke off its answer; it may have processed the request"


class Provider:
    """One provider behind litellm. The client's arguments pass an allow-list; the answer has OpenAI's form."""

    def __init__(self, name: str, settings: ForeignUpstream) -> None:
        self.name = name
        self._settings = settings
        self._images = Images(settings, ["http", "https"])
        self._library: Any = None
        self._loading = asyncio.Lock()

    async def send(self, request: ChatRequest, authorization: str) -> Reply:
        """Ask the provider. A stream's reply is held back until its first chunk, so that errors keep their status."""
        check_fields(request)
        asked, left_out = arguments(await self._images.inlined(request), self._settings.provider)
        asked |= self._orders(authorization)
        library = await self._loaded()
        if misroutes(library, self._settings.provider, request.model):
            raise no_such_model(request.model)
        ignored = left_out | lacked(library, self._settings.provider, request)
        facts = ignored_fact(ignored, strict=self._settings.strict_params)
        deadline = asyncio.get_running_loop().time() + self._settings.timeout
        LAST_ANSWER.set(LastAnswer())
        try:
            if not request.stream:
                answer = await _before(deadline, library.acompletion(**asked))
                return Reply(200, list(JSON_HEADERS), encode(whole(answer.model_dump())), facts=facts)
            options = {"stream": True, "stream_options": {"include_usage": True}}
            source = await _before(deadline, library.acompletion(**asked, **options))
            chunks = ForeignStream(show_usage=wants_usage(request.rest))
            events = await hold_back(self._spoken(source, chunks, deadline, asked), facts)
            return Reply(200, list(STREAM_HEADERS), chunks=events, facts=facts)
        except Exception as error:
            raise self._explained(error, asked) from None

    async def ignored(self, request: ChatRequest) -> tuple[str, ...]:
        check_fields(request)
        _, left_out = arguments(request, self._settings.provider)
        return tuple(sorted(left_out | lacked(await self._loaded(), self._settings.provider, request)))

    async def _spoken(
        self, source: Any, chunks: "ForeignStream", deadline: float, asked: Mapping[str, Any]
    ) -> AsyncGenerator[bytes, None]:
        begun = False
        try:
            async with aclosing(_chunks(source)) as arriving:
                while (chunk := await _before(deadline, anext(arriving, None))) is not None:
                    begun = True
                    for event in chunks.events(chunk):
                        yield event
            if not begun:
                raise Unanswered(f"upstream {self.name!r} sent an empty answer")
            for event in chunks.end():
                yield event
            yield DONE
        except Exception as error:
            raise self._explained(error, asked) from None
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

    def _explained(self, error: Exception, asked: Mapping[str, Any]) -> PenstockError:
        hide = [value.get_secret_value() for value in self._settings.options.values()]
        base_url = self._settings.base_url or ""
        hide += [base_url, base_url.partition("://")[2].partition("/")[0], asked.get("api_key", "")]
        refusal = explain(error, self.name, LAST_ANSWER.get() or LastAnswer(), hide)
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
            if not knows(self._library, self._settings.provider):
                raise UpstreamFailed(f"upstream {self.name!r}: litellm has no provider {self._settings.provider!r}")
            return self._library


async def _before(deadline: float, work: Awaitable[Any]) -> Any:
    """Return the result of work. Raise `TimeoutError` where there is none at a time of the event loop."""
    async with asyncio.timeout_at(deadline):
        return await work


def _is_last(chunk: Any) -> bool:
    """Return whether a chunk ends an answer of Gemini's; a blocked prompt has no candidates."""
    if not isinstance(chunk, Mapping):
        return False
    blocked = (chunk.get("promptFeedback") or {}).get("blockReason")
    return bool(blocked) or any(candidate.get("finishReason") for candidate in chunk.get("candidates") or ())


def _mend(stream: Any, note_end: Callable[[], None]) -> None:
    """Mend litellm's parser of Gemini's chunks: note the last one, and end with a chunk that was cut off.

    litellm goes on to ask for the rest of it behind the end of the stream, without a pause.
    """
    parse, gather = stream.chunk_parser, stream.handle_accumulated_json_chunk

    def parse_noting(chunk: Any) -> Any:
        if _is_last(chunk):
            note_end()
        return parse(chunk)

    def gather_until_end(chunk: str) -> Any:
        if (parsed := gather(chunk=chunk)) is None and not chunk:
            raise Unanswered(BROKE_OFF)
        return parsed

    stream.chunk_parser, stream.handle_accumulated_json_chunk = parse_noting, gather_until_end


async def _chunks(source: Any) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the chunks of a stream of litellm's. Raise `Unanswered` if the provider broke off its answer.

    litellm closes a stream that was cut off with a "stop" of its own making. For most providers it notes the reason in
    `received_finish_reason`. For Gemini it does not, so Gemini's own chunks are read on their way into litellm's
    parser.
    """
    ended = asyncio.Event()
    if getattr(source, "completion_stream", source) is None:
        await source.fetch_stream()
    stream: Any = getattr(source, "completion_stream", None)
    if hasattr(stream, "handle_accumulated_json_chunk"):
        _mend(stream, ended.set)
    async for chunk in source:
        fields: dict[str, Any] = chunk.model_dump()
        has_ended = ended.is_set() or getattr(source, "received_finish_reason", source) is not None
        if not has_ended and any(choice.get("finish_reason") for choice in fields.get("choices") or ()):
            raise Unanswered(BROKE_OFF)
        yield fields


async def _close(source: Any) -> None:
    """Close a stream down to its connection, which litellm's own `aclose` does not reach for every provider."""
    inner = getattr(source, "completion_stream", None)
    for part in (source, inner, *getattr(inner, "__dict__", {}).values()):
        close = getattr(part, "aclose", None)
        if close is not None:
            with suppress(Exception):
                await close()


# --- litellm's answers in OpenAI's exact form: none of its private fields, nothing said twice in a stream ---

EXTRAS = ("system_fingerprint", "service_tier")
MESSAGE_KEYS = ("reasoning_content", "thinking_blocks", "annotations", "audio", "images", "function_call")
"""Keys of a message besides role, content, refusal and tool calls. Claude wants `thinking_blocks` back."""

DELTA_KEYS = ("content", "refusal", "reasoning_content", "annotations", "audio", "images", "function_call")
"""The same for a delta. No `thinking_blocks`: the SDKs' accumulators fail on a list whose entries have no index."""


def whole(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a completion with OpenAI's keys only."""
    return {
        **_head(answer, "chat.completion"),
        "choices": [_choice(choice) for choice in answer["choices"]],
        "usage": spent(answer.get("usage") or {}),
        **{key: answer[key] for key in EXTRAS if answer.get(key) is not None},
    }


def spent(used: Mapping[str, Any]) -> dict[str, Any]:
    """Return OpenAI's `usage`; the prompt's tokens include those read from and written to the provider's cache."""
    details = {name: count for name, count in (used.get("prompt_tokens_details") or {}).items() if count is not None}
    read = read_usage({**used, "prompt_tokens_details": details})
    counts = {"cached": read.cached or 0, "written": read.written or 0, "reasoning": read.reasoning or 0}
    return usage(read.input or 0, read.output or 0, **counts)


def _head(answer: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {"id": answer["id"], "object": kind, "created": answer["created"], "model": answer["model"]}


def _choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    said = choice["message"]
    message = {"role": "assistant", "content": said.get("content"), "refusal": said.get("refusal")}
    message |= {key: said[key] for key in MESSAGE_KEYS if said.get(key)}
    if said.get("tool_calls"):
        message["tool_calls"] = [_call(call) for call in said["tool_calls"]]
    return {
        "index": choice.get("index", 0),
        "message": message,
        "logprobs": choice.get("logprobs"),
        "finish_reason": choice.get("finish_reason"),
    }


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    # Every call needs an id of its own for its result to name; not every provider gives one.
    return {
        "id": call.get("id") or f"call_{secrets.token_hex(12)}",
        "type": "function",
        "function": {"name": function.get("name") or "", "arguments": function.get("arguments") or ""},
    }


class ForeignStream:
    """One stream: it turns litellm's chunks into OpenAI's events and gathers the usage."""

    def __init__(self, *, show_usage: bool) -> None:
        self._show_usage = show_usage
        self._begun: set[int] = set()
        self._calls: dict[tuple[int, int], tuple[int, str | None]] = {}
        """By the provider's choice and index: our index of the tool call, and its id."""
        self._calls_made: dict[int, int] = {}
        """The number of tool calls of each choice."""
        self._head: dict[str, Any] = {}
        self._usage: dict[str, Any] | None = None

    def events(self, chunk: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield the events for a chunk; none for one without news."""
        self._head = self._head or _head(chunk, "chat.completion.chunk")
        if chunk.get("usage"):
            self._usage = spent(chunk["usage"])
        choices = [clean for choice in chunk.get("choices") or () if (clean := self._choice(choice))]
        if choices:
            extras = {key: chunk[key] for key in EXTRAS if chunk.get(key) is not None}
            hidden = {"usage": None} if self._show_usage else {}
            yield _event({**self._head, "choices": choices, **extras, **hidden})

    def end(self) -> Iterator[bytes]:
        if self._show_usage and self._usage:
            yield _event({**self._head, "choices": [], "usage": self._usage})

    def _choice(self, choice: Mapping[str, Any]) -> dict[str, Any] | None:
        index = choice.get("index", 0)
        delta = self._delta(index, choice.get("delta") or {})
        reason, logprobs = choice.get("finish_reason"), choice.get("logprobs")
        if not delta and reason is None and not logprobs:
            return None
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}

    def _delta(self, index: int, source: Mapping[str, Any]) -> dict[str, Any]:
        delta: dict[str, Any] = {}
        if index not in self._begun:
            self._begun.add(index)
            delta = {"role": "assistant", "content": "", "refusal": None}
        delta |= {key: source[key] for key in DELTA_KEYS if source.get(key)}
        if source.get("tool_calls"):
            delta["tool_calls"] = [self._part(index, call) for call in source["tool_calls"]]
        return delta

    def _part(self, choice: int, call: Mapping[str, Any]) -> dict[str, Any]:
        """Return a piece of a tool call.

        Only the first has id, type and name, because clients append each piece.
        """
        place, known = (choice, call.get("index") or 0), call.get("id")
        if place in self._calls and known in (None, "", self._calls[place][1]):
            arguments = (call.get("function") or {}).get("arguments") or ""
            return {"index": self._calls[place][0], "function": {"arguments": arguments}}
        index = self._calls_made.get(choice, 0)
        self._calls_made[choice] = index + 1
        self._calls[place] = (index, known)
        return {"index": index, **_call(call)}


def _event(fields: Mapping[str, Any]) -> bytes:
    return b"data: " + encode(fields) + b"\n\n"
