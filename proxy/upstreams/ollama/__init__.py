"""An Ollama server through its native API: the other one can set neither the context size nor how long a model stays.

`/v1/chat/completions` is translated to `/api/chat`; every other path goes to Ollama's own `/v1` as it is.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from proxy.chat import ChatRequest, encode
from proxy.chat.errors import PenstockError
from proxy.config.settings import ModelSettings, OllamaUpstream, Settings
from proxy.context import ModelProfile
from proxy.http.client import Response
from proxy.models import with_window
from proxy.text.json_values import json_objects, mapping
from proxy.upstreams.base import Abilities, Call, Upstream
from proxy.upstreams.completion import Completion, Deltas, Facts, parsed, timestamp, usage
from proxy.upstreams.ollama.request import translate
from proxy.upstreams.ollama.window import Windows, effective, full_name, loaded, positive, suspected, was_cut
from proxy.upstreams.refusal import LONGEST_MESSAGE, Refused, error_in, words_of
from proxy.upstreams.request_fields import Translation
from proxy.upstreams.translated import TranslatedServer

FORWARDED = ("accept", "content-type", "traceparent", "tracestate")
"""Headers that Ollama gets of a request. The client's credentials are not among them."""

JSON = {"content-type": "application/json"}

LISTING = 3.0
"""Seconds that a server has to list its models; the lists of other upstreams wait for it."""

LACKING = re.compile(r"does not support (tools|thinking)", re.IGNORECASE)
"""The two of a model's abilities that a request can do without."""

ADDRESS = re.compile(r"\b[a-z]+://[^\s\"'<>]+|\b(?:(?:\d{1,3}\.){3}\d{1,3}|localhost)(?::\d+)?", re.IGNORECASE)
"""Addresses, which clients must not learn; Ollama quotes that of its own runner."""

_log = logging.getLogger("penstock.ollama")


def build(upstreams: Mapping[str, OllamaUpstream], settings: Settings) -> dict[str, Upstream]:
    """Return the upstreams of this kind by name, with the context sizes that the configuration gives them."""
    entries = {name: [entry for entry in settings.models if entry.upstream == name] for name in upstreams}
    return {name: Ollama(name, each, partial(_num_ctx, entries[name])) for name, each in upstreams.items()}


def _num_ctx(entries: Iterable[ModelSettings], model: str) -> int | None:
    serving = (e for e in entries if e.model == model or any(fnmatchcase(model, glob) for glob in e.match))
    return next((entry.num_ctx for entry in serving), None)


class Ollama(TranslatedServer):
    """An Ollama server. A model always runs with the configured context size.

    No request changes it, because the server would have to load the model anew. Facts of an answer are also
    `truncated`, `load_ms`, `prompt_ms` and `answer_ms`.
    """

    provider, server, path = "ollama", "Ollama", "/api/chat"
    abilities = Abilities(limits_answers=False)

    def __init__(self, name: str, settings: OllamaUpstream, num_ctx: Callable[[str], int | None]) -> None:
        """`num_ctx` gives the configured context size, in tokens, of an upstream's model name."""
        super().__init__(name, settings)
        self._num_ctx = num_ctx
        self._keep_alive = settings.keep_alive
        self._always = {"accept-encoding": "identity"}
        if self._key is not None:
            self._always["authorization"] = f"Bearer {self._key}"
        self._windows = Windows(self._ask_server)

    async def _translated(self, call: Call, request: ChatRequest) -> Translation:
        return translate(request, num_ctx=self._num_ctx(call.model), keep_alive=self._keep_alive)

    def _headers(self, call: Call, *, own: bool) -> Mapping[str, str]:
        kept = {name: call.headers[name] for name in FORWARDED if name in call.headers}
        return {**kept, **self._always, **(JSON if own else {})}

    async def profile(self, known: ModelProfile) -> ModelProfile:
        """Return the profile with the window that the server gives the model. Wait a second at most for its report.

        Without a report, the configuration counts, else Ollama's own default of 4096 tokens.
        """
        configured = self._num_ctx(known.name)
        report = await self._windows.report(known.name)
        otherwise = known.window if known.source == "config" else None
        window = effective(report, configured=configured, otherwise=otherwise)
        spoken = report.loaded or report.modelfile or (report.trained and (configured or window == report.trained))
        return with_window(known, window, "ollama" if spoken else known.source)

    async def models(self, headers: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the models on the server; empty if it does not answer.

        The trained context length is not reported, because a model rarely runs with it.
        """
        try:
            async with asyncio.timeout(LISTING):
                listed = json_objects((await self._ask_server("GET", "/api/tags") or {}).get("models"))
                running = loaded(await self._ask_server("GET", "/api/ps")) if listed else {}
        except TimeoutError:
            return []
        described = (self._described(model, running) for model in listed)
        return [model for model in described if model is not None]

    async def _ask_server(self, method: str, path: str, body: Any = None) -> Mapping[str, Any] | None:
        try:
            asked = None if body is None else encode(body)
            response = await self._request(method, path, {**self._always, **JSON}, asked)
            answer = await response.read()
            return parsed(answer, self.server) if response.status == 200 else None
        except PenstockError:
            return None

    async def _deltas(self, response: Response, completion: Completion, call: Call, translation: Translation) -> Deltas:
        answer = OllamaAnswer(completion.facts)
        async with aclosing(self._read(response, answer, call, is_stream=completion.stream)) as deltas:
            async for delta in deltas:
                yield delta
        await self._check(answer.last, call, translation, completion.facts)
        completion.usage = answer.usage(call.counted.total if call.counted else None)
        yield {"finish_reason": answer.finish_reason}

    async def _check(self, line: Mapping[str, Any], call: Call, translation: Translation, facts: Facts) -> None:
        """Note that the server has answered, and if it has cut the prompt."""
        self._windows.answered(call.model)
        window = self._num_ctx(call.model)
        if call.profile is not None and (window is None or call.profile.source == "ollama"):
            window = call.profile.window
        evaluated, answered = used(line)
        counted = await call.count(suspected(window)) if translation.countable else None
        limit = translation.body.get("options", {}).get("num_predict")
        if was_cut(counted, evaluated, answered, window, limit):
            facts["truncated"] = True
            fields = {"model": call.model, "counted": counted and counted.total, "evaluated": evaluated}
            _log.warning("prompt was truncated by the server", extra={"fields": {**fields, "window": window}})

    def _refusal(self, body: Mapping[str, Any], call: Call, status: int, again: Mapping[str, str]) -> Refused:
        if body.get("error") is None:
            return super()._refusal(body, call, status, again)
        text = ADDRESS.sub("***", words_of(error_in(body)))[:LONGEST_MESSAGE]
        if lacking := LACKING.search(text):
            thinks = call.request is not None and "think" in call.request.rest
            field = "tools" if lacking[1].lower() == "tools" else "think" if thinks else "reasoning_effort"
            return Refused(text, 400, code="unsupported_parameter", param=field)
        return super()._refusal({"error": text}, call, status, again)

    def _described(self, model: Mapping[str, Any], running: Mapping[str, int]) -> dict[str, Any] | None:
        name = model.get("name") or model.get("model")
        if not isinstance(name, str):
            return None
        entry = {"id": name, "object": "model", "created": timestamp(model.get("modified_at")), "owned_by": "ollama"}
        trained = positive(mapping(model.get("details")).get("context_length"))
        length = self._num_ctx(name) or running.get(full_name(name))
        return entry if length is None else {**entry, "context_length": min(length, trained or length)}


# --- answers, whole or as NDJSON lines, in OpenAI's exact form, and what they tell about how it went ---

DURATIONS = {"load_ms": "load_duration", "prompt_ms": "prompt_eval_duration", "answer_ms": "eval_duration"}
"""Facts in milliseconds, and where Ollama says them, in nanoseconds."""


class OllamaAnswer:
    """Reads the lines of one answer."""

    def __init__(self, facts: Facts) -> None:
        self.last: Mapping[str, Any] = {}
        """The last line so far."""
        self._facts = facts
        self._ids: set[str] = set()
        self._calls = 0

    @property
    def is_over(self) -> bool:
        return self.last.get("done") is True

    def deltas(self, line: Mapping[str, Any]) -> list[dict[str, Any]]:
        self.last = line
        message = mapping(line.get("message"))
        parts = {
            "reasoning_content": _text(message.get("thinking")),
            "content": _text(message.get("content")),
            "tool_calls": [self._call(call) for call in json_objects(message.get("tool_calls"))],
        }
        deltas: list[dict[str, Any]] = [{name: part} for name, part in parts.items() if part]
        if tokens := json_objects(line.get("logprobs")):
            content = [
                {**_score(token), "top_logprobs": [_score(other) for other in json_objects(token.get("top_logprobs"))]}
                for token in tokens
            ]
            # They are those of the whole line; whoever adds them up must meet them once.
            deltas[:1] = [{**(deltas[0] if deltas else {}), "logprobs": {"content": content, "refusal": None}}]
        return deltas

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Return a tool call, which Ollama never sends in pieces.

        The index is counted here, because Ollama's may repeat.
        """
        function = mapping(call.get("function"))
        known = _text(call.get("id"))
        if not known or known in self._ids:
            # Older servers give no ids; results could not be told apart without.
            known = f"call_{secrets.token_hex(12)}"
        self._ids.add(known)
        index, self._calls = self._calls, self._calls + 1
        given = function.get("arguments")
        arguments = given if isinstance(given, str) else encode({} if given is None else given).decode()
        called = {"name": _text(function.get("name")), "arguments": arguments}
        return {"index": index, "id": known, "type": "function", "function": called}

    @property
    def finish_reason(self) -> str:
        """OpenAI's reason: `length` also behind a tool call, because another call may have been cut off."""
        if self.last.get("done_reason") == "length" or self._facts.get("truncated"):
            return "length"
        return "tool_calls" if self._calls else "stop"

    def usage(self, counted: int | None) -> dict[str, Any]:
        """Note the figures in the last line, and return OpenAI's `usage`.

        Ollama leaves out zeros, as older servers did with a prompt that was still in their cache. The prompt is then
        reported by our count, if there is one, but not noted as a fact: facts are the server's own figures.
        """
        prompt, answer = used(self.last)
        if prompt:
            self._facts["prompt_tokens"] = prompt
        self._facts["completion_tokens"] = answer
        for name, source in DURATIONS.items():
            if nanoseconds := positive(self.last.get(source)):
                self._facts[name] = round(nanoseconds / 1e6, 3)
        return usage(prompt or counted or 0, answer)


def used(line: Mapping[str, Any]) -> tuple[int, int]:
    """Return the tokens of prompt and answer in the last line; 0 for those that it leaves out."""
    return positive(line.get("prompt_eval_count")) or 0, positive(line.get("eval_count")) or 0


def _score(token: Mapping[str, Any]) -> dict[str, Any]:
    return {"token": _text(token.get("token")), "logprob": token.get("logprob"), "bytes": token.get("bytes")}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
