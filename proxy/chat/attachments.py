"""The attachments of a message: files, pictures, sounds."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from proxy.chat import Message

_KINDS = {"image_url": "image", "input_image": "image", "input_audio": "audio", "input_file": "file"}
_TEXTS = ("text", "refusal", "input_text", "output_text")
_LONGEST = 120


def attachments(message: Message) -> list[Mapping[str, Any]]:
    """Return the parts of a message that are no text."""
    if not isinstance(message.get("content"), list):
        return []
    return [part for part in message.parts if part.get("type") not in _TEXTS and not isinstance(part.get("text"), str)]


def described(message: Message) -> str:
    """Return the text of a message, behind it the kind and name of each attachment."""
    return "\n".join(filter(None, (message.text, " ".join(map(label, attachments(message))))))


def label(part: Mapping[str, Any]) -> str:
    """Return what stands for an attachment in a text: `[file lease.pdf]`."""
    kind = str(part.get("type", "attachment"))
    name = next(_names(part, kind), "")
    return f"[{_KINDS.get(kind, kind)}{' ' if name else ''}{' '.join(name.split())[:_LONGEST]}]"


def _names(part: Mapping[str, Any], kind: str) -> Iterator[str]:
    inner = part.get(kind)
    for each in (part, inner):
        if isinstance(each, Mapping):
            for key in ("filename", "name", "title"):
                if isinstance(each.get(key), str) and each[key].strip():
                    yield each[key]
    address = inner.get("url") if isinstance(inner, Mapping) else inner
    if isinstance(address, str) and address.startswith(("http://", "https://")):
        yield urlsplit(address[:2000]).path.rpartition("/")[2]
