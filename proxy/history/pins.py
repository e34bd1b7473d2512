"""What survives word for word when history leaves: what the user laid down, the open plan, lines that are marked."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from proxy.chat import Message
from proxy.chat.blocks import PINNED, build
from proxy.chat.markers import MARKER
from proxy.history.statements import Classification, UserSentence, sentences

_LONGEST = 600
"""The longest marked line that is pinned, in characters."""
_PLAN = 2000
_SCANNED = 4000
"""What is read of each end of a message, in characters: more is a pasted document."""

KEPT = 0.5
"""How likely a sentence must lay something down to be kept."""
_SURE = 0.8
"""How likely it must be a goal or a constraint to stand under that heading."""
_BANDS = (0.9, 0.7, KEPT)
"""The likelier go first; within a band the newer."""
_ALIKE = 2 / 3
"""The share of their words that two sentences have in common from which on the older repeats the newer."""
_JUDGED = 300
"""Sentences whose vectors are asked for at a cut: the likeliest by their form and words."""
_HOPELESS = 0.03
"""A sentence that is less likely than this by its form and words is not looked at again."""

_LAST = 1 + len(_BANDS)
"""The rank behind all others."""

_WORD = re.compile(r"[\w'’]+")
_ITEM = re.compile(r"^[ \t]*+(?:(?:[-*+]|\d{1,3}[.)])[ \t]*+)?\[([ xX✓✔~>-])\][ \t]+\S.*$", re.MULTILINE)
_STATUS = re.compile(r'\\?"status\\?"\s*:\s*\\?"(pending|in_progress|todo|open|not_started|completed|done)')
_CLOSED = frozenset({"x", "X", "✓", "✔", "completed", "done"})
_FEW = 10
"""Sentences that are kept of a text that takes a short form."""

_NESTED = re.compile(r"\([^()]*[+*}][^()]*\)\s*[+*{]|\\[1-9]|\(\?P=")

Place = tuple[int, int]
"""A sentence: its message, and its place in the message."""


Judged = tuple[Place, UserSentence, Classification]
"""A sentence, where it stands, and what it is taken for."""


class PinnedStatement(NamedTuple):
    """A sentence that the user laid down."""

    place: Place
    text: str
    heading: str
    """`goal` for the newest goal, `rule` for a constraint, where that is sure; else `said`."""


@dataclass(frozen=True, slots=True)
class Pins:
    """Texts that stand verbatim in the conversation."""

    marked: tuple[str, ...] = ()
    """What the operator's patterns name, and system messages from mid-conversation."""
    plan: str | None = None
    """The newest task plan, if anything in it is open."""
    statements: tuple[PinnedStatement, ...] = ()
    """What the user laid down, the most important first."""

    def texts(self) -> tuple[str, ...]:
        """All of them, in the order of importance."""
        return (*self.marked, *((self.plan,) if self.plan else ()), *(each.text for each in self.statements))

    def under(self, *headings: str) -> tuple[str, ...]:
        """The user's statements with one of the headings, in the order of time."""
        return tuple(each.text for each in sorted(self.statements) if each.heading in headings)

    def without(self, shown: str) -> "Pins":
        """Those that do not stand in a text."""
        return self._only({text for text in self.texts() if text not in shown})

    def within(self, size: int) -> "Pins":
        """Those that fit into so many bytes of UTF-8, in their order of importance."""
        kept: set[str] = set()
        for text in self.texts():
            needed = len(text.encode(errors="surrogatepass")) + 3
            if needed <= size:
                kept.add(text)
                size -= needed
        return self._only(kept)

    def _only(self, kept: set[str]) -> "Pins":
        return Pins(
            tuple(text for text in self.marked if text in kept),
            self.plan if self.plan in kept else None,
            tuple(each for each in self.statements if each.text in kept),
        )


def block(pins: Pins) -> Message:
    """Pinned texts as a message."""
    texts = (*pins.marked, *((pins.plan,) if pins.plan else ()), *pins.under("goal", "rule", "said"))
    return build(PINNED, "Said earlier in this conversation, word for word:", ["- " + text for text in texts])


def compiled(pattern: str) -> re.Pattern[str]:
    """An operator's pattern; raises `ValueError` for one that may take more than linear time."""
    if _NESTED.search(pattern):
        raise ValueError(f"pattern {pattern!r} repeats a repetition or refers back: such patterns can take forever")
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise ValueError(f"pattern {pattern!r}: {error}") from None


class Noted(NamedTuple):
    """What a message has that may be pinned: a function of the message alone."""

    sentences: tuple[UserSentence, ...] = ()
    """What a user says that may lay something down."""
    plan: tuple[str, bool] | None = None
    """A task plan, and whether anything in it is open."""


def note(message: Message) -> Noted:
    """Read a message."""
    said = sentences(message.text) if message.get("role") == "user" else ()
    return Noted(tuple(each for each in said if MARKER not in each.text), _plan(message))


def laid_down(text: str) -> tuple[str, ...]:
    """The few sentences of a user's text that surely lay something down, judged by form and words alone."""
    found = [each for each in sentences(text) if each.guess.kept >= _SURE and MARKER not in each.text]
    few = {id(each) for each in sorted(found, key=lambda each: -each.guess.kept)[:_FEW]}
    return tuple(each.text for each in found if id(each) in few)


def candidates(gone: Sequence[Noted], kept: Sequence[Noted]) -> dict[Place, UserSentence]:
    """The sentences of messages that leave which may lay something down, the likeliest first, each once.

    `kept` are the messages that stay: what stands there is not said twice.
    """
    seen = {each.text.casefold() for one in kept for each in one.sentences}
    found: list[tuple[float, Place, UserSentence]] = []
    for message in range(len(gone) - 1, -1, -1):
        for place, each in enumerate(gone[message].sentences):
            likely = each.guess.kept
            if likely >= _HOPELESS and each.text.casefold() not in seen:
                seen.add(each.text.casefold())
                found.append((likely, (message, place), each))
    return {place: each for _, place, each in sorted(found, reverse=True)[:_JUDGED]}


def chosen(verdicts: Sequence[Judged], size: int) -> tuple[PinnedStatement, ...]:
    """What is kept of the sentences in about so many bytes, the most important first.

    Sure constraints and the newest goal come first, then the likelier, then the newer. Of sentences that are nearly
    alike the newest counts for all; the others come last, and those that say nothing else are left out.
    """
    kept = sorted((each for each in verdicts if each[2].kept >= KEPT), reverse=True)
    newest = next((place for place, _, verdict in kept if _is_sure(verdict, "goal")), None)
    found: list[PinnedStatement] = []
    for _, (place, sentence, verdict) in sorted(_ranked(kept, newest), key=lambda each: each[0]):
        needed = len(sentence.text.encode(errors="surrogatepass")) + 3
        if needed <= size:
            size -= needed
            is_rule = _is_sure(verdict, "rule")
            found.append(
                PinnedStatement(place, sentence.text, "goal" if place == newest else "rule" if is_rule else "said")
            )
    return tuple(found)


def _is_sure(verdict: Classification, kind: str) -> bool:
    return verdict.kind == kind and verdict.sure >= _SURE


def _ranked(newest_first: Sequence[Judged], goal: Place | None) -> list[tuple[int, Judged]]:
    """Each sentence with its rank, the lowest first; without those whose words all stand in a newer one like it."""
    ranks: dict[int, int] = {}
    words: dict[int, frozenset[str]] = {}
    repeats: list[Judged] = []
    for place, each in enumerate(newest_first):
        own = frozenset(_WORD.findall(each[1].text.casefold()))
        newer = next((other for other, others in words.items() if _is_alike(own, others)), None)
        if newer is None:
            ranks[place], words[place] = _rank(each, goal), own
            continue
        ranks[newer] = min(ranks[newer], _rank(each, goal))
        if not own <= words[newer]:
            repeats.append(each)
    return [*((rank, newest_first[place]) for place, rank in ranks.items()), *((_LAST, each) for each in repeats)]


def _is_alike(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) >= _ALIKE * len(one | other)


def _rank(each: Judged, goal: Place | None) -> int:
    place, _, verdict = each
    if verdict.kept >= _SURE and (place == goal or _is_sure(verdict, "rule")):
        return 0
    return 1 + next(band for band, least in enumerate(_BANDS) if verdict.kept >= least)


def standing(
    gone: Sequence[Message], noted: Sequence[Noted], kept: Sequence[Noted], patterns: Sequence[re.Pattern[str]]
) -> Pins:
    """The open plan and the marked lines of messages that leave; `noted` are what `note` says of them."""
    marked = [message.text for message in gone if message.is_system and 0 < len(message.text) <= _PLAN]
    marked += [line for message in gone for line in _marked(message, patterns)] if patterns else []
    plan = next((each.plan for each in (*kept[::-1], *noted[::-1]) if each.plan is not None), None)
    stays = any(each.plan is not None for each in kept)
    return Pins(tuple(dict.fromkeys(marked)), plan[0] if plan is not None and plan[1] and not stays else None)


def with_statements(pins: Pins, statements: Sequence[PinnedStatement]) -> Pins:
    """The pins and what the user laid down that does not stand in them."""
    inside = "\n".join(pins.texts())
    return replace(pins, statements=tuple(each for each in statements if each.text not in inside))


def arguments(message: Message) -> Iterator[str]:
    """The JSON texts of the calls that a message makes."""
    for call in message.get("tool_calls") or ():
        inner = call.get("function")
        if isinstance(inner, dict) and isinstance(inner.get("arguments"), str):
            yield inner["arguments"]


def _marked(message: Message, patterns: Sequence[re.Pattern[str]]) -> Iterator[str]:
    text = message.text
    for part in (text,) if len(text) <= 2 * _SCANNED else (text[:_SCANNED], text[-_SCANNED:]):
        for line in part.splitlines():
            if 0 < len(line.strip()) <= _LONGEST and any(pattern.search(line) for pattern in patterns):
                yield line.strip()


def _plan(message: Message) -> tuple[str, bool] | None:
    """The plan in a message and whether anything in it is open: a list with boxes, or JSON with states."""
    for text in (message.text, *arguments(message)):
        if len(text) > 2 * _SCANNED or ("[" not in text and "status" not in text):
            continue
        items = list(_ITEM.finditer(text))
        if len(items) > 1:
            found = text[items[0].start() : items[-1].end()]
            return found[:_PLAN], any(item[1] not in _CLOSED for item in items)
        states = _STATUS.findall(text)
        if len(states) > 1 and len(text) <= _PLAN:
            return text, any(state not in _CLOSED for state in states)
    return None
