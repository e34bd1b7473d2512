"""The interface of a wire to the gateway: one form of requests, answers and errors."""

from typing import ClassVar

from proxy.chat.answer import Answer, read_answer
from proxy.chat.errors import PenstockError
from proxy.chat.parse import Body


class Wire:
    """A form in which clients speak. What upstreams send in it passes as it is."""

    name: ClassVar[str]
    body: ClassVar[type[Body]]

    def answer(self, body: bytes, *, streamed: bool) -> Answer | None:
        """Return the answer in a body or a whole stream; None where there is none, such as in an error."""
        raise NotImplementedError

    def error(self, error: PenstockError) -> bytes:
        """Return the body of an error."""
        return error.body()

    def error_event(self, error: PenstockError) -> bytes:
        """Return the event of a stream that is an error, without its end."""
        return b"data: " + self.error(error)


class ChatWire(Wire):
    """OpenAI's chat completions, the form that policies see, too."""

    name: ClassVar = "chat"
    body: ClassVar = Body

    def answer(self, body: bytes, *, streamed: bool) -> Answer | None:
        return read_answer(body, streamed=streamed)
