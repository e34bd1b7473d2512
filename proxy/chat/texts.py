"""The texts of a message, on their way to the form that is sent."""

from collections.abc import Iterator
from dataclasses import dataclass

from proxy.chat import Message


@dataclass(slots=True)
class Text:
    """One text of a tool result or of another message."""

    message: int
    """The place of its message in the group."""
    part: int | None
    """Its place among the parts of the content; None where the content is a string."""
    original: str
    sent: str
    """As it is sent first."""
    form: str | None = None
    """The short form that may replace it once it was read."""
    sent_tokens: int = 0
    form_tokens: int = 0
    """The tokens that it has as its form, or as it is where there is none."""
    prefix_tokens: int = 0
    """The tokens at the beginning that the form has in common with what was sent."""


def texts_of(place: int, message: Message, role: str = "tool") -> Iterator[Text]:
    """Yield the texts of a message if it has this role; images and other parts are none."""
    if message.role == role:
        content = message.get("content")
        if isinstance(content, str):
            yield Text(place, None, content, content)
        elif isinstance(content, list):
            for part, item in enumerate(content):
                if item.get("type") == "text" and isinstance(item.get("text"), str):
                    yield Text(place, part, item["text"], item["text"])


def with_text(message: Message, *texts: Text) -> Message:
    """Return the message with some of its texts as they are sent."""
    if not texts:
        return message
    if texts[0].part is None:
        return message.with_changes(content=texts[-1].sent)
    parts = list(message["content"])
    for text in texts:
        if text.part is not None:
            parts[text.part] = {**parts[text.part], "text": text.sent}
    return message.with_changes(content=parts)


def arguments(message: Message) -> Iterator[str]:
    """Return the JSON texts of the calls that a message makes."""
    for call in message.get("tool_calls") or ():
        inner = call.get("function")
        if isinstance(inner, dict) and isinstance(inner.get("arguments"), str):
            yield inner["arguments"]
