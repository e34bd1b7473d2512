"""Ollama's answers, whole or as NDJSON lines, in OpenAI's exact form, and what they tell about how it went."""

import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from proxy.chat import encode
from proxy.chat.sse import ByteStream, split_lines
from proxy.upstreams.completion import DONE, Completion, nonsense, parsed, usage

Facts = dict[str, str | int | float | bool]

DURATIONS = {"load_ms": "load_duration", "prompt_ms": "prompt_eval_duration", "answer_ms": "eval_duration"}
"""Facts in milliseconds, and where Ollama says them, in nanoseconds."""


class OllamaAnswer:
    """One answer on its way to the client: it makes the events or the body, and fills `facts` once it is done."""

    def __init__(self, model: str, facts: Facts, *, show_usage: bool, counted: int | None = None) -> None:
        """Begin an answer. `counted` are the prompt's tokens by our count, reported if Ollama leaves its own out."""
        self._completion = Completion(model)
        self.facts = facts
        self._show_usage = show_usage
        self._counted = counted
        self._begun = False
        self._ids: set[str] = set()
        self._calls = 0
        self.done = False
        """The last line has been read."""

    def whole(self, line: Mapping[str, Any]) -> bytes:
        """Return the body of an answer that was not streamed. Raise `UpstreamFailed` for a body without one."""
        said = _mapping(line.get("message"))
        if not said:
            raise nonsense("Ollama")
        content, thinking, calls = _text(said.get("content")), _text(said.get("thinking")), self._calls_in(said)
        message: dict[str, Any] = {"content": content if content or not calls else None}
        if thinking:
            message["reasoning_content"] = thinking
        if calls:
            # The index places a call in a stream and is no part of a whole one.
            message["tool_calls"] = [{key: part for key, part in call.items() if key != "index"} for call in calls]
        used = self._end(line)
        return self._completion.whole(message, self._finish_reason(line), used, _scores(line))

    def events(self, line: Mapping[str, Any]) -> bytes:
        """Return the events for one line, the last ones and `[DONE]` included.

        Nothing for a line without news, and for all lines behind the last one.
        """
        if self.done:
            return b""
        deltas = self._deltas(_mapping(line.get("message")))
        events = [self._completion.chunk(delta) for delta in deltas]
        if scores := _scores(line):
            # They are those of the whole line; whoever adds them up must meet them once.
            events[:1] = [self._completion.chunk(deltas[0] if deltas else {}, logprobs=scores)]
        self.done = line.get("done") is True
        if self.done:
            used = self._end(line)
            events.append(self._completion.chunk({}, self._finish_reason(line)))
            if self._show_usage:
                events.append(self._completion.usage_chunk(used))
            events.append(DONE)
        if events and not self._begun:
            self._begun = True
            events.insert(0, self._completion.first())
        return b"".join(events)

    def _deltas(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        parts = {
            "reasoning_content": _text(message.get("thinking")),
            "content": _text(message.get("content")),
            "tool_calls": self._calls_in(message),
        }
        return [{name: part} for name, part in parts.items() if part]

    def _calls_in(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        listed = message.get("tool_calls")
        return [self._call(call) for call in listed if isinstance(call, dict)] if isinstance(listed, list) else []

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Return a tool call, which Ollama never sends in pieces.

        The index is counted here, because Ollama's may repeat.
        """
        function = _mapping(call.get("function"))
        known = _text(call.get("id"))
        if not known or known in self._ids:
            # Older servers give no ids; results could not be told apart without.
            known = f"call_{secrets.token_hex(12)}"
        self._ids.add(known)
        index, self._calls = self._calls, self._calls + 1
        called = {"name": _text(function.get("name")), "arguments": _arguments(function.get("arguments"))}
        return {"index": index, "id": known, "type": "function", "function": called}

    def _finish_reason(self, line: Mapping[str, Any]) -> str:
        """Return OpenAI's reason: `length` also behind a tool call, because another call may have been cut off."""
        if line.get("done_reason") == "length" or self.facts.get("truncated"):
            return "length"
        return "tool_calls" if self._calls else "stop"

    def _end(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """Note the figures in the last line, and return OpenAI's `usage`.

        Ollama leaves out zeros, as older servers did with a prompt that was still in their cache. The prompt is then
        reported by our count, if there is one, but not noted as a fact: facts are the server's own figures.
        """
        prompt, answer = used(line)
        if prompt:
            self.facts["prompt_tokens"] = prompt
        self.facts["completion_tokens"] = answer
        for name, source in DURATIONS.items():
            if nanoseconds := _count(line.get(source)):
                self.facts[name] = round(nanoseconds / 1e6, 3)
        return usage(prompt or self._counted or 0, answer)


def used(line: Mapping[str, Any]) -> tuple[int, int]:
    """Return the tokens of prompt and answer in the last line; 0 for those that it leaves out."""
    return _count(line.get("prompt_eval_count")), _count(line.get("eval_count"))


async def lines(chunks: ByteStream) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the lines of an NDJSON stream. Closing it closes `chunks`."""
    async with aclosing(split_lines(chunks)) as source:
        async for line in source:
            yield parsed(line, "Ollama")


def _scores(line: Mapping[str, Any]) -> dict[str, Any] | None:
    listed = line.get("logprobs")
    if not isinstance(listed, list) or not listed:
        return None
    content = []
    for item in listed:
        token = _mapping(item)
        others = token.get("top_logprobs")
        top = [_score(_mapping(other)) for other in others] if isinstance(others, list) else []
        content.append({**_score(token), "top_logprobs": top})
    return {"content": content, "refusal": None}


def _score(token: Mapping[str, Any]) -> dict[str, Any]:
    return {"token": _text(token.get("token")), "logprob": token.get("logprob"), "bytes": token.get("bytes")}


def _arguments(arguments: Any) -> str:
    """Return the arguments as the JSON text that OpenAI's clients parse."""
    if isinstance(arguments, str):
        return arguments
    return encode({} if arguments is None else arguments).decode()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
