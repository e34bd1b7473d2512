"""Archived content as lines that can be read, numbered and searched."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from proxy.chat import ROLES, Message, called_name
from proxy.chat.attachments import described
from proxy.chat.blocks import escaped
from proxy.compaction.calls import arguments_of, callers
from proxy.compaction.pieces import LONGEST_LINE, packed
from proxy.text.bm25 import Lexical, fits, index

READ = 8 * 2**20
"""Characters of one content that are read; what is behind them is only to be had as a whole."""
_ORIGIN = 200
"""Characters of a call that say where a content came from."""
_MOST = 8
_TALLEST = 12
_LARGEST = 800
"""Lines and characters of a passage, about."""


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """A few lines of a content that fit a query."""

    handle: str
    first: int
    lines: tuple[str, ...]
    of: int
    origin: str = ""
    """The source of the content: the call of a tool."""


def readable(content: str) -> str:
    """Content as text: messages that left as JSON lines say who said what; anything else is as it is."""
    if not content.startswith("{") or len(content) > READ:
        return content
    try:
        found = [orjson.loads(line) for line in content.split("\n") if line]
    except ValueError:
        return content
    return "\n".join(map(_as_text, found)) if all(map(_is_message, found)) else content


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, none longer than `LONGEST_LINE`."""
    lines: list[str] = []
    for line in text[:READ].splitlines():
        if len(line) <= LONGEST_LINE:
            lines.append(line)
        else:
            lines += [line[start : start + LONGEST_LINE] for start in range(0, len(line), LONGEST_LINE)]
    return lines


def origins(messages: Sequence[Message], handle: Callable[[str], str]) -> dict[str, str]:
    """Return the calls that results came from, by the handle of the result's text."""
    found: dict[str, str] = {}
    for place, call in callers(messages, _ORIGIN).items():
        texts = (part["text"] for part in messages[place].parts if isinstance(part.get("text"), str))
        found |= dict.fromkeys(map(handle, (messages[place].text, *texts)), call)
    return found


def best_passages(contents: Sequence[tuple[str, str]], query: str, origins: Mapping[str, str]) -> list[FoundPassage]:
    """Return the passages that fit a query best; the words of a content's origin count, as in `needle in big0`."""
    known = [origins.get(handle, "") for handle, _ in contents]
    shares: list[float] = fits(query, [index(known)]).shares.tolist()
    passages: list[FoundPassage] = []
    weights: list[float] = []
    firsts: set[int] = set()
    for (handle, content), origin, share in zip(contents, known, shares, strict=True):
        firsts.add(len(passages))
        lines = lines_of(readable(content))
        fresh = [
            FoundPassage(handle, start + 1, tuple(lines[start:end]), len(lines), origin)
            for start, end in packed([*map(len, lines)], _LARGEST, _TALLEST)
        ]
        passages += fresh
        weights += [share] * len(fresh)
    scores = Lexical(["\n".join(each.lines) for each in passages]).scores(query)
    top = max(scores, default=0.0) or 1.0
    # of a content that only its origin speaks for, the beginning is enough
    fitting = [at for at, score in enumerate(scores) if score > 0 or (weights[at] and at in firsts)]
    ranked = sorted(fitting, key=lambda at: -scores[at] - top * weights[at])
    best: list[FoundPassage] = []
    shown: set[str] = set()
    for place in ranked:
        passage = passages[place]
        if not shown.issuperset(passage.lines):
            shown.update(passage.lines)
            best.append(passage)
        if len(best) == _MOST:
            break
    return best


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and value.get("role") in ROLES and ("content" in value or "tool_calls" in value)


def _as_text(fields: Mapping[str, Any]) -> str:
    message = Message(fields)
    calls = [f"[calls {called_name(call)}({arguments_of(call)})]" for call in fields.get("tool_calls") or ()]
    text = "\n".join(filter(None, (described(message), *calls)))
    return f"{message.role}: {escaped(text)}"
