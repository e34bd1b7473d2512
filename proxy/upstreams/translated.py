"""Upstreams that chats are translated for. All their other paths pass as they are."""

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from proxy.chat import ChatRequest
from proxy.chat.errors import NotFound, Unanswered
from proxy.config.settings import AnthropicUpstream, OllamaUpstream, Translated
from proxy.http.client import Response
from proxy.text.json_values import json_object
from proxy.upstreams.base import CHAT, Call, Reply, Upstream, connect
from proxy.upstreams.completion import Completion, Deltas, encoded
from proxy.upstreams.images import Images
from proxy.upstreams.refusal import Refused, advice
from proxy.upstreams.request_fields import ignored_fact


@dataclass(frozen=True, slots=True)
class Translation:
    """A request in the form of a server's own API."""

    body: dict[str, Any]
    ignored: tuple[str, ...]
    """The client's fields that the server, or this model, does not support, sorted."""
    countable: bool = True
    """Our count of the prompt compares with the server's."""


class TranslatedUpstream(Upstream):
    """An upstream that translates chat requests, and the answers back."""

    def __init__(self, name: str, settings: Translated, schemes: Collection[str]) -> None:
        """Connect nothing yet; `schemes` are those of image addresses that the server does not read itself."""
        self.name = name
        self._strict = settings.strict_params
        self._images = Images(settings, schemes)

    async def send(self, call: Call) -> Reply:
        """Ask the model. A stream is held back until there is something to say, so that errors keep their status.

        Raise `BadRequest` for what cannot be translated, and the server's refusals as errors of OpenAI's kind. Facts,
        which for a stream are complete at its end: the tokens as the server counted them, `ignored` (a list of fields
        with commas), `error` (a code), and those of the server's own.
        """
        if call.request is None or call.path != CHAT:
            return await self._pass(call)
        translation = await self._translated(call, await self._images.inlined(call.request))
        completion = Completion(call, ignored_fact(translation.ignored, strict=self._strict))
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


class TranslatedServer(TranslatedUpstream):
    """A server with an API of its own."""

    address: str
    relayed: ClassVar[tuple[bytes, ...]] = ()
    """The beginnings of headers of an answer that its clients read."""

    def __init__(self, name: str, settings: AnthropicUpstream | OllamaUpstream, schemes: Collection[str]) -> None:
        super().__init__(name, settings, schemes)
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
        response = await self._post(call, encoded(body))
        if response.status >= 400:
            raise self._refusal(json_object(await response.read()), call, response.status, advice(response.headers))
        if response.status != 200:
            raise Unanswered(f"the upstream answered with status {response.status}")
        return response

    def _broke_off(self) -> Unanswered:
        return Unanswered(f"the upstream {self.name!r} broke off its answer; it may have processed the request")

    # --- the server's own ---

    @abstractmethod
    async def _post(self, call: Call, body: bytes) -> Response:
        """Send a translated body, and wait for the head of the answer. Raise `UpstreamFailed`."""

    @abstractmethod
    def _refusal(self, body: Mapping[str, Any], call: Call, status: int, again: Mapping[str, str]) -> Refused:
        """Return the error in a body; `again` are the headers that tell when to try again."""

    @abstractmethod
    def _deltas(self, response: Response, completion: Completion, call: Call, translation: Translation) -> Deltas:
        """Yield what an answer adds to the message. Raise the error in a part of it."""
