import re
from typing import Any

import pytest

from proxy.text.expressions import parts


@pytest.mark.parametrize(
    ("pattern", "read"),
    [
        ("né", [("LITERAL", "n"), ("LITERAL", "é")]),
        (r"^\b$", [("AT_BEGINNING", None), ("AT_BOUNDARY", None), ("AT_END", None)]),
        ("(?P<who>a)(?:b)(?>c)", [("LITERAL", "a"), ("LITERAL", "b"), ("LITERAL", "c")]),
        ("ab|ac.", [("LITERAL", "a"), ("BRANCH", [[("LITERAL", "b")], [("LITERAL", "c"), ("ANY", None)]])]),
        (r"[a\d-]", [("IN", [[("LITERAL", "a")], [("CATEGORY_DIGIT", None)], [("LITERAL", "-")]])]),
        (r"[^a-z]", [("IN", [[("NEGATE", None)], [("RANGE", None)]])]),
        ("a{2,3}(?:b)??", [("REPEAT", (2, 3, [("LITERAL", "a")])), ("REPEAT", (0, 1, [("LITERAL", "b")]))]),
        (r"(?!a)(?<=\w)", [("ASSERT_NOT", [("LITERAL", "a")]), ("ASSERT", [("IN", [[("CATEGORY_WORD", None)]])])]),
        (r"(.)\1", [("ANY", None), ("GROUPREF", None)]),
    ],
)
def test_a_pattern_is_read_as_the_standard_library_does(pattern: str, read: list[Any]) -> None:
    assert parts(pattern) == read


def test_flags_count() -> None:
    assert parts("a b # c", re.VERBOSE) == parts("ab")
