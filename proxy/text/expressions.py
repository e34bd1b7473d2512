"""A regular expression in its parts, as the standard library reads it. Pure."""

from collections.abc import Iterable
from re import _parser  # type: ignore[attr-defined]
from typing import Any

Part = tuple[str, Any]
"""Its kind, and what is in it: a `LITERAL` has its character, a `BRANCH` or an `IN` its alternatives, a `REPEAT` how
often it comes at least and at most and its parts, an `ASSERT` or an `ASSERT_NOT` its parts. Of others there is the
name alone, such as `AT_BOUNDARY` or `CATEGORY_DIGIT`. What is in a group follows what is in front of it.
"""


def parts(pattern: str, flags: int = 0) -> list[Part]:
    """What follows each other in a pattern."""
    return _parts(_parser.parse(pattern, flags))


def _parts(sequence: Iterable[tuple[Any, Any]]) -> list[Part]:
    return [part for kind, inside in sequence for part in _of(str(kind), inside)]


def _of(kind: str, inside: Any) -> list[Part]:
    match kind, inside:
        case "LITERAL", code:
            return [(kind, chr(code))]
        case "AT" | "CATEGORY", what:
            return [(str(what), None)]
        case "IN", members:
            return [(kind, [[member] for member in _parts(members)])]
        case "BRANCH", (_, alternatives):
            return [(kind, list(map(_parts, alternatives)))]
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT", (least, most, inner):
            return [("REPEAT", (least, most, _parts(inner)))]
        case "ASSERT" | "ASSERT_NOT", (_, inner):
            return [(kind, _parts(inner))]
        case ("SUBPATTERN", (*_, inner)) | ("ATOMIC_GROUP", inner):
            return _parts(inner)
    return [(kind, None)]
