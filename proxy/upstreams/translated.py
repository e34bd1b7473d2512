"""Upstreams that chats are translated for. All their other paths pass as they are."""

from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing, suppress
from typing import Any, ClassVar, Protocol

from yarl import URL

from proxy.chat import ChatRequest
from proxy.chat.errors import NotFound, PenstockError
from proxy.chat.sse import split_lines
from proxy.config.settings import AnthropicUpstream, OllamaUpstream, Translated
from proxy.http.client import Response, broken_off
from proxy.text.json_values import json_object
from proxy.upstreams.base import CHAT, Call, Reply, Upstream, connect, relay
from proxy.upstreams.completion import Completion, Deltas, encoded, parsed
from proxy.upstreams.images import Images
from proxy.upstreams.refusal import LONGEST_MESSAGE, Refused, advice, error_in, refused, status_of, words_of
from proxy.upstreams.request_fields import Translation


class TranslatedUpstream(Upstream):
    """An upstream that translates chat requests, and the answers back."""

    unread: ClassVar[tuple[str, ...]] = ("http", "https")
    """The schemes of image addresses that the server does not read itself."""

    def __init__(self, name: str, settings: Translated) -> None:
        """Connect nothing yet."""
        self.name = name
        self._strict = settings.strict_params
        self._images = Images(settings, self.unread)

    async def send(self, call: Call) -> Reply:
        """Ask the model. A stream is held back until there is something to say, so that errors keep their status.

        Raise `BadRequest` for what cannot be translated, and the server's refusals as errors of OpenAI's kind. Facts,
        which for a stream are complete at its end: the tokens as the server counted them, `ignored` (a list of fields
        with commas), and those of the server's own.
        """
        if call.request is None or call.path != CHAT:
            return await self._pass(call)
        translation = await self._translated(call, await self._images.inlined(call.request))
        completion = Completion(call, translation.fact(strict=self._strict))
        return await self._answered(call, translation, completion)

    async def ignored(self, call: Call) -> tuple[str, ...]:
        return () if call.request is None or call.path != CHAT else (await self._translated(call, call.request)).ignored

    async def aclose(self) -> None:
        await self._images.aclose()

    @abstractmethod
    async def _translated(self, call: Call, request: ChatRequest) -> Translation:
        """Raise `BadRequest` for what has no form there."""

    @abstractmethod
    async def _answered(self, call: Call, translation: Translation, completion: Completion) -> Reply:
        """Ask the model, and return the completion of its answer."""

    async def _pass(self, call: Call) -> Reply:
        """Forward a call to the server's own `/v1`, and relay its answer as it is."""
        raise NotFound(f"upstream {self.name!r} serves only /v1{CHAT}")


class ServerAnswer(Protocol):
    """Reads an answer: the lines of a stream, or one body."""

    @property
    def is_over(self) -> bool:
        """True once the last part was read."""

    def deltas(self, part: Mapping[str, Any]) -> Iterable[Mapping[str, Any] | None]:
        """Return what a part adds to the message. Raise `UpstreamFailed` for a malformed one."""


class TranslatedServer(TranslatedUpstream):
    """A server with an API of its own."""

    address: str
    path: ClassVar[str]
    """The path of its chat."""
    server: ClassVar[str]
    """Its name in errors."""
    relayed: ClassVar[tuple[bytes, ...]] = ()
    """The beginnings of headers of an answer that its clients read."""
    line: ClassVar[bytes] = b""
    """The beginning of lines of a stream that say something."""

    def __init__(self, name: str, settings: AnthropicUpstream | OllamaUpstream) -> None:
        super().__init__(name, settings)
        self.address = settings.base_url
        self._key = None if settings.api_key is None else settings.api_key.get_secret_value()
        self._transport = connect(name, settings)

    async def aclose(self) -> None:
        await self._transport.aclose()
        await super().aclose()

    async def _answered(self, call: Call, translation: Translation, completion: Completion) -> Reply:
        response = await self._ask(call, translation.body)
        headers = [(name, value) for name, value in response.headers if name.startswith(self.relayed)]
        return await completion.reply(self._deltas(response, completion, call, translation), headers)

    async def _ask(self, call: Call, body: Mapping[str, Any]) -> Response:
        """Return the answer to a translated request. Raise the server's refusal."""
        response = await self._request("POST", self.path, self._headers(call, own=True), encoded(body))
        if response.status >= 400:
            raise self._refusal(json_object(await response.read()), call, response.status, advice(response.headers))
        return response

    async def _request(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """Send a request and wait for the head of its answer; `path` is encoded. Raise `UpstreamFailed`."""
        return await self._transport.request(method, URL(f"{self.address}{path}", encoded=True), headers, body)

    async def _pass(self, call: Call) -> Reply:
        headers = self._headers(call, own=False)
        return await relay(await self._request(call.method, f"/v1{call.target}", headers, call.body or None))

    async def _read(self, response: Response, answer: ServerAnswer, call: Call, *, is_stream: bool) -> Deltas:
        """Yield what an answer adds to the message. Raise the error in a part, and `Unanswered` for one cut off."""
        async with aclosing(self._parts(response, is_stream=is_stream)) as parts:
            async for part in parts:
                if part.get("error") is not None:
                    raise self._refusal(
                        part, call, status_of({**error_in(part), "status": part.get("status")}) or 500, {}
                    )
                for delta in answer.deltas(part):
                    yield delta
                if answer.is_over:
                    break
            else:
                raise broken_off(self.name)
            with suppress(PenstockError):
                async for _ in parts:
                    pass  # a connection can be used again if its answer was read to the end

    async def _parts(self, response: Response, *, is_stream: bool) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the lines of a stream, or the body of a whole answer. Closing it closes the answer."""
        if not is_stream:
            yield parsed(await response.read(), self.server)
            return
        async with aclosing(split_lines(response)) as lines:
            async for line in lines:
                if line.startswith(self.line):
                    yield parsed(line.removeprefix(self.line), self.server)

    def _refusal(self, body: Mapping[str, Any], call: Call, status: int, again: Mapping[str, str]) -> Refused:
        """Return the error in a body; `again` are the headers that tell when to try again."""
        text = words_of(error_in({"error": None, **body}))[:LONGEST_MESSAGE]
        return refused(status, text, call, is_own=body.get("error") is not None, headers=again)

    # --- the server's own ---

    @abstractmethod
    def _headers(self, call: Call, *, own: bool) -> Mapping[str, str]:
        """Return the headers that the server gets: with a body of its `own`, or with the client's."""

    @abstractmethod
    def _deltas(self, response: Response, completion: Completion, call: Call, translation: Translation) -> Deltas:
        """Yield what the answer adds to the message, and set the completion's usage."""
