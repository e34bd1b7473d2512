import os

import pytest

from proxy.vectors.packing import one_thread, pack

NAMES = ("OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS")


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that what a test sets is taken back
        monkeypatch.delenv(name)


def test_products_use_one_thread() -> None:
    one_thread()
    assert [os.environ.get(name) for name in NAMES] == ["1", "1", "1", None]


def test_what_the_operator_says_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    one_thread()
    assert os.environ["OPENBLAS_NUM_THREADS"] == "4"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    one_thread()
    assert "OPENBLAS_NUM_THREADS" not in os.environ


def test_it_is_said_before_numpy_is_imported() -> None:
    pack([[1.0, 0.0]])
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
