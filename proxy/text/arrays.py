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
    """Make numpy compute in the calling thread, unless the operator set how many. Call it before the import.

    Its own threads spin while they wait: beside other work, cosines took four times the CPU and eight times as long.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        for name in _NAMES:
            os.environ.setdefault(name, "1")
