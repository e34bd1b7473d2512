"""The short form of a user's large text that was read: their own words, and an outline of what they pasted."""

import re
from collections.abc import Iterator

from proxy.chat.markers import MARKER
from proxy.compaction.form import ShortForm
from proxy.compaction.lines import short_form
from proxy.compaction.pieces import parts
from proxy.history.reading import sentences

_SMALL = 2500
"""A part of so many characters stays whole."""
_OWN = 1500
"""Characters at each end of a text without marks that count as the user's own words."""
_NEAR = 300
_LONGEST = 400
_ASKS = 20
_WORTH = 0.75
"""A preview longer than this share of the text is none."""
_OPENS = re.compile(r"\s{0,3}(?:(```+|~~~+)|<([A-Za-z][\w.-]{0,40})(?:\s[^<>]{0,300})?>\s*$)")
_ASKED = re.compile(r"[?？؟]\s*$")


def preview(text: str) -> ShortForm | None:
    """Return the preview of a text; None if it would hardly be shorter."""
    found = list(divided(text))
    short = "\n".join(
        _shortened(part, marked=marked, head=0 if place else _OWN, tail=0 if place < len(found) - 1 else _OWN)
        for place, (part, marked) in enumerate(found)
    )
    said = list(dict.fromkeys(one for one in _asked(text) if one not in short))
    if said:
        short = "\n".join([short, "[word for word, from what is left out:]", *(f"- {one}" for one in said)])
    return ShortForm.of(short, text) if len(short) < _WORTH * len(text) else None


def divided(text: str) -> Iterator[tuple[str, bool]]:
    """Divide a text into pieces; the flag is True for a document that the user marked as one."""
    lines = text.split("\n")
    last = {line.strip(): place for place, line in enumerate(lines) if line.lstrip()[:2] in ("</", "``", "~~")}
    start = place = 0
    while place < len(lines):
        opened = _OPENS.match(lines[place])
        closer = (opened[1] or f"</{opened[2]}>") if opened else ""
        if opened is None or last.get(closer, 0) <= place:
            place += 1
            continue
        end = next(at for at in range(place + 1, len(lines)) if lines[at].strip() == closer)
        if place > start:
            yield "\n".join(lines[start:place]), False
        yield "\n".join(lines[place : end + 1]), True
        start = place = end + 1
    if start < len(lines):
        yield "\n".join(lines[start:]), False


def _shortened(part: str, *, marked: bool, head: int, tail: int) -> str:
    if marked and len(part) > _SMALL:
        first, _, rest = part.partition("\n")
        body, _, last = rest.rpartition("\n")
        return "\n".join((first, _document(body), last))
    if len(part) <= _SMALL and (marked or head or tail or len(part) <= _OWN):
        return part
    # both ends go on to the end of a line near by
    end = part.find("\n", head, head + _NEAR) if head else -1
    start = part.rfind("\n", max(0, len(part) - tail - _NEAR), len(part) - tail) if tail else -1
    first, middle, last = parts(part, max(head, end), tail if start < 0 else len(part) - start - 1)
    return "\n".join(one for one in (first, _document(middle.strip("\n")), last) if one) if middle else part


def _document(text: str) -> str:
    return short_form(text) or text


def _asked(text: str) -> Iterator[str]:
    said = "\n".join(part for part, marked in divided(text) if not marked)
    bare = (each.strip().lstrip("-*•> ") for each in sentences(said))
    asked = [one for one in bare if 1 < len(one) <= _LONGEST and _ASKED.search(one) and MARKER not in one]
    # the user's words stand at the ends of what they paste
    yield from asked if len(asked) <= _ASKS else (*asked[: _ASKS // 2], *asked[-_ASKS // 2 :])
