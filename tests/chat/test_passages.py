from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.chat.passages import WHOLE, passages

TEXTS = st.lists(st.sampled_from(["word ", "A sentence ends. ", "\n", "\n\n", "# Title\n", "x" * 900, "é" * 50])).map(
    "".join
)


def parts(text: str) -> list[str]:
    return [part.of(text) for part in passages(text)]


@given(TEXTS)
def test_passages_are_slices_in_order_and_leave_out_white_space_only(text: str) -> None:
    found = passages(text)
    assert all(one.end <= two.start for one, two in pairwise(found))
    assert "".join("".join(parts(text)).split()) == "".join(text.split())
    assert all(part == part.strip() and part for part in parts(text))


@given(TEXTS)
def test_no_passage_is_too_long(text: str) -> None:
    assert all(len(part) <= 2400 for part in parts(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  short  ", ["short"]),
        ("a" * WHOLE, ["a" * WHOLE]),
        ("b" * 1300 + "\n\n" + "c" * 500, ["b" * 1300, "c" * 500]),
        ("\n\n".join("d" * 250 for _ in range(6)), ["d" * 250 + "\n\n" + "d" * 250] * 3),
    ],
)
def test_paragraphs_are_joined_while_they_are_short(text: str, expected: list[str]) -> None:
    assert parts(text) == expected


def test_a_long_paragraph_is_cut_between_sentences() -> None:
    text = "This sentence has forty characters here. " * 100
    found = parts(text)
    assert all(part.endswith(".") and part.startswith("This") for part in found)
    assert [len(part) for part in found] == [614] * 5 + [1024], "the end is no longer than two others"


def test_a_long_paragraph_without_spaces_is_cut_between_sentences() -> None:
    assert all(part.endswith("。") for part in parts("札幌の天気は晴れです。" * 400))
