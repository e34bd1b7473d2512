"""OpenAI's chat completions."""

from typing import ClassVar

from proxy.chat.answer import Answer, read_answer
from proxy.chat.parse import Body
from proxy.wires.base import Wire


class ChatWire(Wire):
    """The form that policies see, too."""

    name: ClassVar = "chat"
    body: ClassVar = Body

    def answer(self, body: bytes, *, streamed: bool) -> Answer | None:
        return read_answer(body, streamed=streamed)
