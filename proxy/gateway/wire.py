"""The wires that clients speak. Between `read` and `write` every request and answer is in the form of chat completions.

Upstreams speak that form as well. So a further wire translates a body when it reads it and an answer when it writes
it, and shares everything in between: `Pipeline.serve` takes it as it takes this one.
"""

from dataclasses import replace
from typing import Protocol

from proxy.chat.parse import Body
from proxy.models.usage import without_usage
from proxy.upstreams.base import Call, Reply


class Wire(Protocol):
    """A form of requests and answers."""

    def read(self, raw: bytes) -> Body:
        """Return the body of a request. Raises `BadRequest` for one that is none."""

    def write(self, call: Call, reply: Reply) -> Reply:
        """Return the answer to a call as the client gets it; closing its stream closes that of `reply`."""


class ChatWire:
    """OpenAI's chat completions: bytes that nobody has to change pass as they are."""

    def read(self, raw: bytes) -> Body:
        return Body(raw)

    def write(self, call: Call, reply: Reply) -> Reply:
        """Return the answer, without the usage that the client did not ask for."""
        if call.hide_usage and reply.chunks is not None:
            return replace(reply, chunks=without_usage(reply.chunks))
        return reply
