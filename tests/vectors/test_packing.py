"""Vectors as bytes and back."""

import math
import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.text import arrays
from proxy.text.arrays import one_thread
from proxy.vectors.packing import dimension, pack
from tests.vectors.made import similarities

NUMBERS = st.floats(-100, 100, allow_subnormal=False).filter(lambda number: abs(number) > 1e-3)
ROWS = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(NUMBERS, min_size=width, max_size=width), min_size=2, max_size=6)
)


def cosine(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True)) / math.hypot(*one) / math.hypot(*other)


@given(ROWS)
def test_cosines_are_those_of_the_numbers(rows: list[list[float]]) -> None:
    query, *texts = rows
    found = similarities(pack([query]), [pack([text]) for text in texts])
    assert found == pytest.approx([cosine(query, text) for text in texts], abs=2e-3)
    assert all(near is not None and -1 <= near <= 1 for near in found)


@given(ROWS)
def test_a_text_of_several_vectors_is_as_near_as_the_nearest(rows: list[list[float]]) -> None:
    query, *texts = rows
    whole = similarities(pack([query]), [pack(texts), None, pack(texts[:1])])
    parts = similarities(pack([query]), [pack([text]) for text in texts])
    assert whole[0] == pytest.approx(max(near for near in parts if near is not None), abs=1e-6)
    assert whole[1] is None
    assert whole[2] == pytest.approx(parts[0], abs=1e-6)


def test_other_dimensions_and_no_vectors_have_no_similarity() -> None:
    query = pack([[1.0, 0.0]])
    broken = [None, b"", b"\x01", b"\x02abc", b"\0"]
    assert similarities(query, [*broken, query, pack([[1.0, 0.0, 0.0]])]) == [None] * 5 + [1.0, None]
    assert similarities(b"", [query]) == [None]
    assert similarities(b"broken", [query]) == [None]
    assert similarities(query, []) == []
    assert similarities(query, [b"\1\xff\xff\xff\xff"]) == [None]


@pytest.mark.parametrize("rows", [
    [], [[]], [1.0], [[0.0, 0.0]], [[math.nan, 1.0]], [[math.inf, 1.0]], [["x"]], [[None]], [[1.0], [1.0, 2.0]], [[{}]],
])  # fmt: skip
def test_what_is_no_vector_is_refused(rows: object) -> None:
    with pytest.raises(ValueError):
        pack(rows)


def test_the_dimension_is_known_from_the_bytes() -> None:
    assert dimension(pack([[1.0] * 384] * 3)) == 384
    assert len(pack([[1.0] * 384])) == 769
    assert [dimension(packed) for packed in (b"", b"\0", b"\1", b"\3abc")] == [0, 0, 0, 0]


NAMES = ("OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS")


@pytest.mark.parametrize(("given_", "expected"), [
    ({}, ["1", "1", "1", None]),
    ({"OPENBLAS_NUM_THREADS": "4"}, ["4", "1", "1", None]),
    ({"OMP_NUM_THREADS": "3"}, [None, None, None, "3"]),
])  # fmt: skip
@pytest.mark.parametrize("work", [one_thread, lambda: pack([[1.0, 0.0]])], ids=["asked", "before numpy is imported"])
def test_products_use_one_thread_unless_the_operator_says_otherwise(
    given_: dict[str, str], expected: list[str | None], work: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that what a test sets is taken back
        monkeypatch.delenv(name)
    for name, value in given_.items():
        monkeypatch.setenv(name, value)
    arrays.numpy.cache_clear()
    work()
    assert [os.environ.get(name) for name in NAMES] == expected
