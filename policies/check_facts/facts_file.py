"""Files of trusted facts: one a line, as a sentence or as JSON with subject, relation and object."""

from collections.abc import Iterator
from pathlib import Path

import orjson

from policies.check_facts.trusted import Fact

LARGEST = 32 * 2**20
"""Bytes that a file may have: some 300,000 facts."""


def read_facts(path: Path) -> tuple[Fact, ...]:
    """The facts of a file. Raises `ValueError` that says which line is wrong and why, and never the line itself."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"the file of facts is larger than {LARGEST // 2**20} MiB")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"the file of facts cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("the file of facts is not UTF-8") from None
    return tuple(_facts(text))


def _facts(text: str) -> Iterator[Fact]:
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        yield _fact(line, number) if line.startswith("{") else Fact(line)


def _fact(line: str, number: int) -> Fact:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise ValueError(f"line {number} of the file of facts begins like JSON and is none") from None
    names = ("text", "subject", "relation", "object", "lang")
    values = [row.get(name) or "" for name in names]
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"line {number} of the file of facts: {', '.join(names)} must be strings")
    text, subject, relation, found, language = values
    if not text and not (subject and relation and found):
        raise ValueError(f"line {number} of the file of facts needs a text, or subject, relation and object")
    return Fact(text or f"{subject}: {relation}: {found}", subject, relation, found, language)
