"""The last line of a shortened text: how much of it stands here, and the handle of the whole."""

import re

_MARKER = re.compile(
    r'\n\[shortened(?: to fit)?: (\d{1,12}) of (\d{1,12}) characters; recall\("([^"\n]{1,256})"\) has the whole\]'
)
_NAMED = re.compile(rb'recall\(\\?"([a-z2-7]{20})\\?"\)')
"""The form of a handle in JSON."""
MARKER = 'recall("'
"""The beginning of a reference to archived content; what the conversation says about one is never pinned."""
SHORTENED = "[shortened"
"""The beginning of the last line of a shortened text."""
_LONGEST = 400
MARKER_TOKENS = 28
"""About the tokens of the line that ends a form."""

_TO_FIT = f"\n{SHORTENED} to fit: "


def shortened(form: str, original: int, handle: str, *, to_fit: bool = False) -> str:
    """Return a form with its last line; `original` is the length of the text it stands for.

    `to_fit` says that the text was never sent as it was, because it did not fit the window.
    """
    start = _TO_FIT if to_fit else f"\n{SHORTENED}: "
    return f'{form}{start}{len(form)} of {original} characters; recall("{handle}") has the whole]'


def is_to_fit(text: str) -> bool:
    """Return whether a text was shortened before the model read it, because it did not fit."""
    return _TO_FIT in text[-_LONGEST:] and is_shortened(text)


def is_shortened(text: str) -> bool:
    """Return whether a text ends in a marker that fits it. One that does not fit is content like any other."""
    return marked_handle(text) is not None


def marked_handle(text: str) -> str | None:
    """Return the handle of the marker at a text's end, if it fits the text. It may be forged: ask the archive."""
    start = text.rfind(f"\n{SHORTENED}", max(0, len(text) - _LONGEST))
    match = _MARKER.fullmatch(text, start) if start >= 0 else None
    return match[3] if match is not None and int(match[1]) == start < int(match[2]) else None


def named_handles(raw: bytes) -> list[str]:
    """Return the handles that a JSON text names, each once, in order."""
    return [handle.decode() for handle in dict.fromkeys(_NAMED.findall(raw))]
