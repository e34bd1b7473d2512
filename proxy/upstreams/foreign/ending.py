"""Whether a provider's stream came to its end: litellm closes one that was cut off with a "stop" of its own making."""

from collections.abc import Mapping
from typing import Any


class Ending:
    """Looks for the end in what the provider itself sent.

    For most providers litellm notes the reason in `received_finish_reason`. For Gemini it does not, so Gemini's
    own chunks are read on their way into litellm's parser.
    """

    def __init__(self) -> None:
        self._watching = False
        self._seen = False

    async def watch(self, source: Any) -> None:
        """Begin to read what arrives; call it before each chunk. Raises what the provider's first answer raises."""
        if self._watching:
            return
        self._watching = True
        if getattr(source, "completion_stream", self) is None:
            await source.fetch_stream()
        parser = getattr(getattr(source, "completion_stream", None), "chunk_parser", None)
        if parser is not None:
            source.completion_stream.chunk_parser = self._beside(parser)

    def arrived(self, source: Any) -> bool:
        """Whether the provider said that its answer is complete."""
        return self._seen or getattr(source, "received_finish_reason", self) is not None

    def _beside(self, parser: Any) -> Any:
        def parse(chunk: Any) -> Any:
            self._seen = self._seen or _is_last(chunk)
            return parser(chunk)

        return parse


def _is_last(chunk: Any) -> bool:
    """Whether a chunk ends an answer of Gemini's; a blocked prompt has no candidates."""
    if not isinstance(chunk, Mapping):
        return False
    blocked = (chunk.get("promptFeedback") or {}).get("blockReason")
    return bool(blocked) or any(candidate.get("finishReason") for candidate in chunk.get("candidates") or ())
