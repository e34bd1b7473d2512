"""Conversations for these tests: the texts of a user, with or without those of the assistant in between."""

from collections.abc import Sequence
from pathlib import Path

from policies.resolve_clashes.clashes import Clash, Turn, compare
from policies.resolve_clashes.statements import statements
from proxy.chat import Message
from tests.talk import assistant, user


def pairs(name: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the pairs of a file: those of which the later takes the place of the earlier, and those that both hold."""
    rows = [line for line in _lines(name) if line]
    return [_two(row, " => ") for row in rows if " => " in row], [_two(row, " & ") for row in rows if " & " in row]


def _two(row: str, by: str) -> tuple[str, str]:
    older, newer = row.split(by)
    return older, newer


def dialogues(name: str) -> list[tuple[list[str], set[tuple[int, int]]]]:
    """Return the texts of each dialogue of a file, and which message takes the place of which."""
    rows = [line.partition(" : ") for line in _lines(name)]
    return [(said.split(" | "), {_places(each) for each in which.split() if each != "-"}) for which, _, said in rows]


def _places(each: str) -> tuple[int, int]:
    older, newer = each.split(">")
    return int(older), int(newer)


def _lines(name: str) -> list[str]:
    text = (Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if not line.startswith("#")]


def turns(messages: Sequence[Message]) -> list[Turn]:
    return [statements(message.text) for message in messages if message.role == "user"]


def clashing(*said: str) -> list[Clash]:
    """Return the clashes of a conversation in which the user and the assistant speak in turn, the user first."""
    messages = [user(text) if place % 2 == 0 else assistant(text) for place, text in enumerate(said)]
    every = turns(messages)
    found = [clash for each in compare(every, [None] * len(every)) for clash in each]
    return [clash._replace(older=2 * clash.older, newer=2 * clash.newer) for clash in found]
