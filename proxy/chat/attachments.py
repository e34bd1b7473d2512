"""The attachments of a message: files, pictures, sounds."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from proxy.chat import Message

_KINDS = {"image_url": "image", "input_image": "image", "input_audio": "audio", "input_file": "file"}
_TEXTS = ("text", "refusal", "input_text", "output_text")
_LONGEST = 120
IMAGES = frozenset({"image_url", "input_image", "image"})
SOUNDS = frozenset({"input_audio", "audio"})
FILES = frozenset({"file", "input_file", "document"})
_OF_RESULTS = IMAGES | SOUNDS | FILES


def attachments(message: Message) -> list[Mapping[str, Any]]:
    """Return the parts of a message that are no text and that a message of the user may have.

    These are the user's own, and pictures, sounds and files in results of tools. What the provider put into an answer,
    such as calls of its own tools, may stand nowhere else.
    """
    kinds = _OF_RESULTS if message.role == "tool" else () if message.role != "user" else None
    return [part for part in _parts(message) if kinds is None or part.get("type") in kinds]


def described(message: Message) -> str:
    """Return the text of a message, behind it the kind and name of each part that is no text."""
    return "\n".join(filter(None, (message.text, " ".join(map(label, _parts(message))))))


def label(part: Mapping[str, Any]) -> str:
    """Return what stands for an attachment in a text: `[file lease.pdf]`."""
    kind = str(part.get("type", "attachment"))
    name = next(_names(part, kind), "")
    return f"[{_KINDS.get(kind, kind)}{' ' if name else ''}{' '.join(name.split())[:_LONGEST]}]"


def _parts(message: Message) -> list[Mapping[str, Any]]:
    if not isinstance(message.get("content"), list):
        return []
    return [part for part in message.parts if part.get("type") not in _TEXTS and not isinstance(part.get("text"), str)]


def _names(part: Mapping[str, Any], kind: str) -> Iterator[str]:
    places = [each for each in (part, part.get(kind), part.get("source")) if isinstance(each, Mapping)]
    yield from _strings(places, "filename", "name", "title")
    for address in _strings(places, "url", "image_url", "file_url"):
        if address.startswith(("http://", "https://")):
            yield urlsplit(address[:2000]).path.rpartition("/")[2]
    yield from _strings(places, "file_id")


def _strings(places: Iterable[Mapping[str, Any]], *keys: str) -> Iterator[str]:
    values = (each.get(key) for each in places for key in keys)
    return (value for value in values if isinstance(value, str) and value.strip())
