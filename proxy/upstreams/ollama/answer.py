"""Ollama's answers, whole or as NDJSON lines, in OpenAI's exact form, and what they tell about how it went."""

import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from proxy.chat import encode
from proxy.chat.sse import ByteStream, split_lines
from proxy.upstreams.completion import Facts, parsed, usage

DURATIONS = {"load_ms": "load_duration", "prompt_ms": "prompt_eval_duration", "answer_ms": "eval_duration"}
"""Facts in milliseconds, and where Ollama says them, in nanoseconds."""


class OllamaAnswer:
    """Reads the lines of one answer."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._ids: set[str] = set()
        self._calls = 0

    def deltas(self, line: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return what a line, or a whole answer, adds to the message."""
        message = _mapping(line.get("message"))
        listed = message.get("tool_calls")
        calls = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        parts = {
            "reasoning_content": _text(message.get("thinking")),
            "content": _text(message.get("content")),
            "tool_calls": [self._call(call) for call in calls],
        }
        made: list[dict[str, Any]] = [{name: part} for name, part in parts.items() if part]
        if scores := _scores(line):
            # They are those of the whole line; whoever adds them up must meet them once.
            made[:1] = [{**(made[0] if made else {}), "logprobs": scores}]
        return made

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

    def finish_reason(self, line: Mapping[str, Any]) -> str:
        """Return OpenAI's reason: `length` also behind a tool call, because another call may have been cut off."""
        if line.get("done_reason") == "length" or self._facts.get("truncated"):
            return "length"
        return "tool_calls" if self._calls else "stop"

    def usage(self, line: Mapping[str, Any], counted: int | None) -> dict[str, Any]:
        """Note the figures in the last line, and return OpenAI's `usage`.

        Ollama leaves out zeros, as older servers did with a prompt that was still in their cache. The prompt is then
        reported by our count, if there is one, but not noted as a fact: facts are the server's own figures.
        """
        prompt, answer = used(line)
        if prompt:
            self._facts["prompt_tokens"] = prompt
        self._facts["completion_tokens"] = answer
        for name, source in DURATIONS.items():
            if nanoseconds := _count(line.get(source)):
                self._facts[name] = round(nanoseconds / 1e6, 3)
        return usage(prompt or counted or 0, answer)


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
