"""A server that speaks OpenAI's API and does what the name of the model says.

`plain/rate-limited@7` is the scenario `rate-limited`; what stands before the last slash is for the proxy's routing,
what follows `@` keeps the counts of callers apart. Names without a scenario get a good answer.

    GET  /_count?model=NAME   how many requests for this model came in, and how many callers left before the end
    GET  /_last?model=NAME    headers and body of the last one
"""

import argparse
import asyncio
import base64
import json
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager

from aiohttp import web

from tests.clients import answers
from tests.clients.answers import Json, Refused
from tests.loopback import serving
from tests.scripted import event
from tests.wires import openai_server

PAUSE = 0.15
"""Seconds between two chunks of a slow stream."""

MODELS = [f"{chain}/{name}" for chain in ("plain", "steps", "small", "asked") for name in ("chat", "gpt-5")]

Handler = Callable[["Seen", web.Request], Awaitable[web.StreamResponse]]


class Seen:
    """A request for a model, parsed."""

    def __init__(self, raw: bytes) -> None:
        try:
            body = json.loads(raw)
        except ValueError:
            raise Refused(400, "We could not parse the JSON body of your request.", None) from None
        if not isinstance(body, dict):
            raise Refused(400, "The body must be an object.", "invalid_type")
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise Refused(400, "you must provide a model parameter", None, "model")
        self.body: Json = body
        self.model = model

    @property
    def scenario(self) -> str:
        return self.model.rpartition("/")[2].partition("@")[0]


class Scripted:
    """The server, and what it remembers of its callers."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()
        self._left: Counter[str] = Counter()
        self._last: dict[str, Json] = {}
        self._scenarios: dict[str, Handler] = {
            "overflow": _overflow,
            "rate-limited": _rate_limited,
            "missing": _missing,
            "broken": _broken,
            "cut": _cut,
            "slow": self._slow,
            "hanging": self._hanging,
        }
        self._paths: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
            "/_count": self._report_count,
            "/_last": self._report_last,
            "/chat/completions": self._chat,
            "/embeddings": self._embeddings,
            "/responses": self._responses,
            "/audio/transcriptions": self._transcriptions,
            "/models": _models,
        }

    async def answer(self, http: web.Request) -> web.StreamResponse:
        """Answer any request."""
        try:
            path = http.path.removeprefix("/v1")
            if path in self._paths:
                return await self._paths[path](http)
            return _json(_described(path.removeprefix("/models/")))
        except Refused as refused:
            return _json(refused.body, refused.status)
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
            # a field of another type than expected: to tell which one is beyond a script
            return _json(answers.error("Invalid type in the body.", "invalid_type"), 400)

    async def _report_count(self, http: web.Request) -> web.Response:
        model = http.query["model"]
        return web.json_response({"count": self._count[model], "left": self._left[model]})

    async def _report_last(self, http: web.Request) -> web.Response:
        return web.json_response(self._last.get(http.query["model"]))

    async def _seen(self, http: web.Request) -> Seen:
        """The request, which is remembered."""
        raw = await http.read()
        seen = Seen(raw)
        self._count[seen.model] += 1
        headers = {name.lower(): value for name, value in http.headers.items()}
        body = raw.decode("utf-8", "replace")
        self._last[seen.model] = {"path": http.path_qs, "headers": headers, "body": body}
        return seen

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        seen = await self._seen(http)
        if seen.scenario in self._scenarios:
            return await self._scenarios[seen.scenario](seen, http)
        return await _good(seen, http)

    async def _slow(self, seen: Seen, http: web.Request) -> web.StreamResponse:
        with self._noticing(seen.model):
            response = await _opened(http)
            for part in answers.stream(seen.body):
                await response.write(part)
                await asyncio.sleep(PAUSE)
            return response

    async def _hanging(self, seen: Seen, http: web.Request) -> web.StreamResponse:
        with self._noticing(seen.model):
            await asyncio.sleep(20)
            return await _good(seen, http)

    @contextmanager
    def _noticing(self, model: str) -> Iterator[None]:
        """Count a caller that leaves while it is open."""
        try:
            yield
        except (asyncio.CancelledError, ConnectionError):
            self._left[model] += 1
            raise

    async def _embeddings(self, http: web.Request) -> web.StreamResponse:
        seen = await self._seen(http)
        texts = seen.body["input"] if isinstance(seen.body["input"], list) else [seen.body["input"]]
        numbers = [0.25, -0.5, 1.0]
        packed = base64.b64encode(struct.pack("<3f", *numbers)).decode()
        vector = packed if seen.body.get("encoding_format") == "base64" else numbers
        data = [{"object": "embedding", "index": index, "embedding": vector} for index in range(len(texts))]
        used = {"prompt_tokens": 3, "total_tokens": 3}
        return _json({"object": "list", "data": data, "model": seen.model, "usage": used})

    async def _transcriptions(self, http: web.Request) -> web.StreamResponse:
        form = await http.post()
        audio, model = form["file"], form["model"]
        assert isinstance(audio, web.FileField)
        assert isinstance(model, str)
        return _json({"text": f"{len(audio.file.read())} bytes for {model}"})

    async def _responses(self, http: web.Request) -> web.StreamResponse:
        seen = await self._seen(http)
        item = {"id": "msg_1", "status": "completed", **openai_server.message("heard you")}
        whole = {
            "id": "resp_1", "object": "response", "created_at": 1_760_000_000, "model": "scripted-2026-01-01",
            "status": "completed", "output": [item], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        }  # fmt: skip
        if not seen.body.get("stream"):
            return _json(whole)
        named = [
            f"event: {each['type']}\n".encode() + event({**each, "sequence_number": number})
            for number, each in enumerate(openai_server.stream_events(whole))
        ]
        return await _sent(http, named)


def _json(body: Json, status: int = 200, headers: Json | None = None) -> web.Response:
    known = {"x-request-id": "req_upstream", "openai-processing-ms": "12", "openai-version": "2020-10-01"}
    return web.json_response(body, status=status, headers={**known, **(headers or {})})


async def _opened(http: web.Request) -> web.StreamResponse:
    headers = {"Content-Type": "text/event-stream; charset=utf-8", "x-request-id": "req_upstream"}
    response = web.StreamResponse(headers=headers)
    await response.prepare(http)
    return response


async def _sent(http: web.Request, parts: Iterable[bytes]) -> web.StreamResponse:
    response = await _opened(http)
    for part in parts:
        await response.write(part)
    return response


async def _good(seen: Seen, http: web.Request) -> web.StreamResponse:
    answers.check(seen.body)
    if seen.body.get("stream") is True:
        return await _sent(http, answers.stream(seen.body))
    return _json(answers.whole(seen.body))


async def _overflow(seen: Seen, http: web.Request) -> web.StreamResponse:
    raise Refused(
        400,
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens. "
        "Please reduce the length of the messages.",
        "context_length_exceeded",
        "messages",
    )


async def _rate_limited(seen: Seen, http: web.Request) -> web.StreamResponse:
    body = answers.error("Rate limit reached.", "rate_limit_exceeded", None, "requests")
    return _json(body, 429, {"retry-after-ms": "20", "retry-after": "1"})


async def _missing(seen: Seen, http: web.Request) -> web.StreamResponse:
    message = f"The model `{seen.model}` does not exist or you do not have access to it."
    raise Refused(404, message, "model_not_found")


async def _broken(seen: Seen, http: web.Request) -> web.StreamResponse:
    error = answers.error("The server had an error.", "server_error", None, "server_error")
    return await _sent(http, [*answers.stream(seen.body)[:3], event(error)])


async def _cut(seen: Seen, http: web.Request) -> web.StreamResponse:
    response = await _sent(http, answers.stream(seen.body)[:3])
    await asyncio.sleep(PAUSE)
    if http.transport is not None:
        http.transport.abort()
    return response


async def _models(http: web.Request) -> web.StreamResponse:
    return _json({"object": "list", "data": [_described(name) for name in MODELS]})


def _described(name: str) -> Json:
    return {"id": name, "object": "model", "created": 1_760_000_000, "owned_by": "scripted"}


async def _serve() -> None:
    async with serving(Scripted().answer) as address:
        print(f"scripted upstream: listening on {address}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    asyncio.run(_serve())
