"""Lazy import of numpy, which takes 0.1 s and 15 MB. No other file imports it."""

import os
from functools import cache
from importlib import import_module
from typing import Any

_NAMES = ("OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Environment variables that numpy's matrix libraries read once, when they are loaded."""

Array = Any
"""A numpy array. Its type is not checked: the stubs of numpy would take longer than all other checks."""


@cache
def numpy() -> Any:
    """Return the module, imported on the first call."""
    one_thread()
    return import_module("numpy")


def one_thread() -> None:
    """Make numpy compute matrix products in the calling thread, unless the operator has set the thread count.

    By default numpy uses all processors, and its threads spin while they wait for each other. Beside other work, the
    cosines of 10,000 vectors then took four times the CPU and eight times as long. Call this before numpy is imported.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        for name in _NAMES:
            os.environ.setdefault(name, "1")
