"""Calls of litellm for one provider, in the process of its own."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any

from proxy.chat import ChatRequest, encode
from proxy.chat.errors import PenstockError, Unanswered, UpstreamFailed
from proxy.config.settings import ForeignUpstream
from proxy.upstreams.base import Reply
from proxy.upstreams.completion import DONE, JSON_HEADERS, STREAM_HEADERS, hold_back, wants_usage
from proxy.upstreams.foreign.answer import ForeignStream, whole
from proxy.upstreams.foreign.errors import explain
from proxy.upstreams.foreign.library import arguments, knows, lacked, load, misroutes, no_such_model
from proxy.upstreams.images import Images
from proxy.upstreams.request_fields import check_fields, ignored_fact

NO_KEY = "none"
"""Sent where the client gave no key: for want of any, litellm would take one from the environment."""


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
        try:
            if not request.stream:
                async with asyncio.timeout_at(deadline):
                    answer = await library.acompletion(**asked)
                return Reply(200, list(JSON_HEADERS), encode(whole(answer.model_dump())), facts=facts)
            options = {"stream": True, "stream_options": {"include_usage": True}}
            async with asyncio.timeout_at(deadline):
                source = await library.acompletion(**asked, **options)
            chunks = ForeignStream(show_usage=wants_usage(request.rest))
            events = await hold_back(self._spoken(source, chunks, deadline, asked), facts)
            return Reply(200, list(STREAM_HEADERS), chunks=events, facts=facts)
        except Exception as error:
            refusal = self._explained(error, asked)
        if isinstance(refusal, UpstreamFailed):
            raise refusal
        headers = [(key.encode(), value.encode()) for key, value in refusal.headers.items()]
        return Reply(refusal.status, [*JSON_HEADERS, *headers], refusal.body(), facts=facts)

    async def ignored(self, request: ChatRequest) -> tuple[str, ...]:
        """Return the fields that litellm or the provider does not support. Raise `BadRequest` as `send` does."""
        check_fields(request)
        _, left_out = arguments(request, self._settings.provider)
        return tuple(sorted(left_out | lacked(await self._loaded(), self._settings.provider, request)))

    async def _spoken(
        self, source: Any, chunks: ForeignStream, deadline: float, asked: Mapping[str, Any]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the client's events of a stream. Raise errors in OpenAI's terms."""
        begun, ending = False, Ending()
        try:
            while (chunk := await _next(source, ending, deadline)) is not None:
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
        refusal = explain(error, self.name, hide)
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


class Ending:
    """A look-out for the end of a stream in the provider's own chunks.

    litellm closes a stream that was cut off with a "stop" of its own making. For most providers it notes the reason in
    `received_finish_reason`. For Gemini it does not, so Gemini's own chunks are read on their way into litellm's
    parser.
    """

    def __init__(self) -> None:
        self._watching = False
        self._seen = False

    async def watch(self, source: Any) -> None:
        """Begin to read what arrives; call it before each chunk. Raise what the provider's first answer raises."""
        if self._watching:
            return
        self._watching = True
        if getattr(source, "completion_stream", self) is None:
            await source.fetch_stream()
        parser = getattr(getattr(source, "completion_stream", None), "chunk_parser", None)
        if parser is not None:
            source.completion_stream.chunk_parser = self._beside(parser)

    def arrived(self, source: Any) -> bool:
        """Return whether the provider said that its answer is complete."""
        return self._seen or getattr(source, "received_finish_reason", self) is not None

    def _beside(self, parser: Any) -> Any:
        def parse(chunk: Any) -> Any:
            self._seen = self._seen or _is_last(chunk)
            return parser(chunk)

        return parse


def _is_last(chunk: Any) -> bool:
    """Return whether a chunk ends an answer of Gemini's; a blocked prompt has no candidates."""
    if not isinstance(chunk, Mapping):
        return False
    blocked = (chunk.get("promptFeedback") or {}).get("blockReason")
    return bool(blocked) or any(candidate.get("finishReason") for candidate in chunk.get("candidates") or ())


async def _next(source: Any, ending: Ending, deadline: float) -> dict[str, Any] | None:
    """Return the next chunk, or None at the end. Raise `UpstreamFailed` if the provider broke off its answer."""
    async with asyncio.timeout_at(deadline):
        await ending.watch(source)
        chunk = await anext(source, None)
    if chunk is None:
        return None
    fields: dict[str, Any] = chunk.model_dump()
    if any(choice.get("finish_reason") for choice in fields.get("choices") or ()) and not ending.arrived(source):
        raise Unanswered("the provider broke off its answer; it may have processed the request")
    return fields


async def _close(source: Any) -> None:
    """Close a stream down to its connection, which litellm's own `aclose` does not reach for every provider."""
    inner = getattr(source, "completion_stream", None)
    for part in (source, inner, *getattr(inner, "__dict__", {}).values()):
        close = getattr(part, "aclose", None)
        if close is not None:
            with suppress(Exception):
                await close()
