"""The forms in which clients speak: read as one view for policies, written back into their own bytes."""

import json
import re
from collections.abc import Mapping

from proxy.chat import encode
from proxy.chat.answer import Answer
from proxy.chat.errors import OVERFLOW, PenstockError, Unanswered
from proxy.chat.parse import Body
from proxy.text.json_values import json_objects
from proxy.wires.chat_round import ChatRound
from proxy.wires.messages import MessagesBody, error_type
from proxy.wires.responses import ResponsesBody
from proxy.wires.rounds import AnswerRound, MessagesRound, ResponsesRound, understanding


class Wire:
    """A form in which clients speak. What upstreams send in it passes as it is; errors are those of OpenAI's chat."""

    def __init__(self, body: type[Body], round: type[AnswerRound]) -> None:
        self.body, self.round = body, round

    def answer(self, body: bytes, *, streamed: bool) -> Answer | None:
        """Return the answer in a body or a whole stream; None where there is none that can be read, as in an error."""
        try:
            with understanding():
                read = self.round.of(body, streamed=streamed).result()
        except Unanswered:
            return None
        return Answer.of(read.message, read.stop) if read.is_answer else None

    def error(self, error: PenstockError) -> bytes:
        """Return the body of an error."""
        return error.body()

    def error_event(self, error: PenstockError) -> bytes:
        """Return the event of a stream that is an error, without its end."""
        return b"data: " + self.error(error)


class MessagesWire(Wire):
    """Anthropic's Messages: its clients are Claude Code and Anthropic's SDKs."""

    def error(self, error: PenstockError) -> bytes:
        """Return the body of an error. Claude Code knows by its words that a prompt is too long."""
        told = f"prompt is too long: {error.message}" if error.code == OVERFLOW else error.message
        details = {"details": {"error_code": error.code}} if error.code else {}
        body = {"type": "error", "error": {"type": error_type(error.status), "message": told, **details}}
        return json.dumps(body, separators=(",", ":")).encode()

    def error_event(self, error: PenstockError) -> bytes:
        return b"event: error\ndata: " + self.error(error)


class ResponsesWire(Wire):
    """OpenAI's Responses: its clients are Codex and the newer frameworks."""

    def error_event(self, error: PenstockError) -> bytes:
        told = {"type": "error", "code": error.code, "message": error.message, "param": error.param}
        return b"event: error\ndata: " + encode({**told, "sequence_number": 0})


WIRES: Mapping[str, Wire] = {
    "chat": Wire(Body, ChatRound),
    "messages": MessagesWire(MessagesBody, MessagesRound),
    "responses": ResponsesWire(ResponsesBody, ResponsesRound),
}

_NATIVE = re.compile(r"(?:/v1)?/(messages|responses)(?:/|$)", re.IGNORECASE)


def wire_at(path: str) -> Wire:
    """Return the wire whose errors the clients of a path read."""
    found = _NATIVE.match(path)
    return WIRES[found[1].lower() if found else "chat"]


_OF_RESPONSES = ("input", "previous_response_id", "conversation", "prompt")
_OF_MESSAGES = ("system", "stop_sequences", "anthropic_version", "output_config", "context_management", "thread")
_BLOCKS = re.compile(rb'"type"\s*:\s*"tool_(?:use|result)"')


def body_of(raw: bytes) -> Body:
    """Return a body in the wire that its fields are of; one that reads alike in two is a chat request."""
    body = Body(raw)
    if body.get("messages") is None and any(body.get(name) is not None for name in _OF_RESPONSES):
        return ResponsesBody(raw)
    offers = any("input_schema" in tool for tool in json_objects(body.get("tools")))
    is_messages = offers or _BLOCKS.search(raw) is not None
    return MessagesBody(raw) if is_messages or any(body.get(name) is not None for name in _OF_MESSAGES) else body
