"""What survives word for word when history leaves: the goal, the user's constraints, the open plan, marked lines."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from proxy.chat import Message

_LONGEST = 600
"""The longest sentence or line that is pinned, in characters."""
_GOAL = 1200
_PLAN = 2000
_SCANNED = 4000
"""What is read of each end of a message, in characters: more is a pasted document."""

_SENTENCE_END = re.compile(r"(?<=[.!?;。！？])\s+|\n+")
_RULE = re.compile(
    r"\b(?:always|never|must|mustn't|do not|don't|cannot|under no circumstances|from now on|at most|at least|"
    r"no more than|only|(?<!want to )make sure(?! i'm)|avoid|siempre|nunca|jamás|debes?|deben|deber[áé]\w*|tienes? que|"
    r"s[oó]lo|solamente|únicamente|evita|asegúrate|a partir de ahora|como máximo|como mínimo)\b|"
    r"^\W*(?:no|not|please no|por favor,? no)\b",
    re.IGNORECASE,
)
_RESTATED = re.compile(
    r"\b(?:(?:the|my|our|new) (?:goal|task|objective|aim)\b|i (?:want|need) you to\b|your task\b|"
    r"what i (?:really )?want\b|"
    r"(?:el|mi|nuestro|nuevo) objetivo\b|(?:la|mi|tu|nueva) tarea\b|(?:quiero|necesito) que\b)",
    re.IGNORECASE,
)
_ITEM = re.compile(r"^[ \t]*(?:[-*+]|\d{1,3}[.)])?[ \t]*\[([ xX✓✔~>-])\][ \t]+\S.*$", re.MULTILINE)
_STATUS = re.compile(r'\\?"status\\?"\s*:\s*\\?"(pending|in_progress|todo|open|not_started|completed|done)')
_CLOSED = frozenset({"x", "X", "✓", "✔", "completed", "done"})
_NESTED = re.compile(r"\([^()]*[+*}][^()]*\)\s*[+*{]|\\[1-9]|\(\?P=")
MARKER = 'recall("'
"""How the place of archived content begins in a text; what the conversation itself says about one is never pinned."""
_TAG = "pinned_context"


@dataclass(frozen=True, slots=True)
class Pins:
    """Texts that stand verbatim in the conversation, the most important kind first."""

    marked: tuple[str, ...] = ()
    """What the operator's patterns name, and system messages from mid-conversation."""
    goal: tuple[str, ...] = ()
    """The first user request, and the latest that states a goal."""
    plan: str | None = None
    """The newest task plan, if anything in it is open."""
    rules: tuple[str, ...] = ()
    """The user's constraints, the newest first."""

    def texts(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.marked, *self.goal, *((self.plan,) if self.plan else ()), *self.rules)

    def without(self, shown: str) -> "Pins":
        """Those that do not stand in a text."""
        return self._only({text for text in self.texts() if text not in shown})

    def within(self, size: int) -> "Pins":
        """Those that fit into so many bytes of UTF-8, in their order of importance."""
        left = size
        kept: set[str] = set()
        for text in self.texts():
            needed = len(text.encode(errors="surrogatepass")) + 3
            if needed <= left:
                kept.add(text)
                left -= needed
        return self._only(kept)

    def _only(self, kept: set[str]) -> "Pins":
        return Pins(
            tuple(text for text in self.marked if text in kept),
            tuple(text for text in self.goal if text in kept),
            self.plan if self.plan in kept else None,
            tuple(text for text in self.rules if text in kept),
        )


def block(texts: Sequence[str]) -> str:
    """Pinned texts as the content of a message."""
    lines = "\n".join("- " + re.sub(rf"</(?={_TAG})", r"<\/", text, flags=re.IGNORECASE) for text in texts)
    return f"<{_TAG}>\nSaid earlier in this conversation and still in force:\n{lines}\n</{_TAG}>"


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

    opening: str = ""
    """The beginning of what a user said."""
    restates: bool = False
    """Whether a user states a goal in it."""
    rules: tuple[str, ...] = ()
    """A user's constraints."""
    sentences: tuple[str, ...] = ()
    """All that a user says."""
    plan: tuple[str, bool] | None = None
    """A task plan, and whether anything in it is open."""


def note(message: Message) -> Noted:
    """Read a message."""
    plan = _plan(message)
    if message.get("role") != "user":
        return Noted(plan=plan)
    text = message.text
    restates = _RESTATED.search(text[:_SCANNED]) is not None
    return Noted(_opening(text), restates, tuple(_rules(text)), tuple(_sentences(text)), plan)


def pinned(
    gone: Sequence[Message],
    kept: Sequence[Message],
    patterns: Sequence[re.Pattern[str]] = (),
    noted: Callable[[Message], Noted] = note,
) -> Pins:
    """What of the messages that leave must survive; `kept` are those that stay and were there when it was decided.

    `noted` gives what `note` does, from memory where there is one.
    """
    users = [noted(message) for message in gone if message.get("role") == "user"]
    goal = tuple(dict.fromkeys(_goals(users)))
    said = {text for one in kept for text in noted(one).sentences} if users else set()
    rules = [text for one in reversed(users) for text in one.rules if text not in said]
    marked = [message.text for message in gone if message.is_system and 0 < len(message.text) <= _PLAN]
    marked += [line for message in gone for line in _marked(message, patterns)] if patterns else []
    inside = "\n".join(goal)
    return Pins(
        marked=tuple(dict.fromkeys(marked)),
        goal=goal,
        plan=None if any(noted(message).plan is not None for message in kept) else _open_plan(map(noted, gone[::-1])),
        rules=tuple(text for text in dict.fromkeys(rules) if text not in inside),
    )


def arguments(message: Message) -> Iterator[str]:
    """The JSON texts of the calls that a message makes."""
    for call in message.get("tool_calls") or ():
        inner = call.get("function")
        if isinstance(inner, dict) and isinstance(inner.get("arguments"), str):
            yield inner["arguments"]


def _goals(users: Sequence[Noted]) -> Iterator[str]:
    if users:
        yield users[0].opening
    for one in reversed(users[1:]):
        if one.restates:
            yield one.opening
            return


def _opening(text: str) -> str:
    """A text, or the whole sentences at its beginning where it is long."""
    text = text.strip()
    if len(text) <= _GOAL:
        return text
    ends = [end.start() for end in _SENTENCE_END.finditer(text[:_GOAL])]
    return text[: ends[-1] if ends else _GOAL]


def _ends(text: str) -> tuple[str, ...]:
    return (text,) if len(text) <= 2 * _SCANNED else (text[:_SCANNED], text[-_SCANNED:])


def _sentences(text: str) -> Iterator[str]:
    for part in _ends(text):
        for sentence in _SENTENCE_END.split(part):
            stripped = sentence.strip()
            if stripped:
                yield stripped


def _rules(text: str) -> Iterator[str]:
    if not any(_RULE.search(part) for part in _ends(text)):
        return
    for sentence in _sentences(text):
        if (
            len(sentence) <= _LONGEST
            and not sentence.endswith("?")
            and MARKER not in sentence
            and _RULE.search(sentence)
        ):
            yield sentence


def _marked(message: Message, patterns: Sequence[re.Pattern[str]]) -> Iterator[str]:
    for part in _ends(message.text):
        for line in part.splitlines():
            if 0 < len(line.strip()) <= _LONGEST and any(pattern.search(line) for pattern in patterns):
                yield line.strip()


def _open_plan(newest_first: Iterator[Noted]) -> str | None:
    found = next((one.plan for one in newest_first if one.plan is not None), None)
    return found[0] if found is not None and found[1] else None


def _plan(message: Message) -> tuple[str, bool] | None:
    """The plan in a message and whether anything in it is open: a list with boxes, or JSON with states."""
    for text in (message.text, *arguments(message)):
        if len(text) > 2 * _SCANNED or ("[" not in text and "status" not in text):
            continue
        items = list(_ITEM.finditer(text))
        if len(items) > 1:
            block = text[items[0].start() : items[-1].end()]
            return block[:_PLAN], any(item[1] not in _CLOSED for item in items)
        states = _STATUS.findall(text)
        if len(states) > 1 and len(text) <= _PLAN:
            return text, any(state not in _CLOSED for state in states)
    return None
