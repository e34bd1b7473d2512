"""numpy, where it is first used: it takes 0.1 s and 15 MB. The only file that imports it."""

import os
from functools import cache
from importlib import import_module
from typing import Any

_NAMES = ("OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""What its libraries for matrices read, once, when they are loaded."""

Array = Any
"""A numpy array. Its type is not checked: the stubs of numpy would take longer than all else."""


@cache
def numpy() -> Any:
    """The library."""
    one_thread()
    return import_module("numpy")


def one_thread() -> None:
    """Have products of matrices computed in the thread that asks for them; the operator's own values win.

    By itself numpy uses all processors. They wait for each other busily: beside other work, the cosines of 10,000
    vectors took four times the computing and eight times as long. It must not have been imported yet.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        for name in _NAMES:
            os.environ.setdefault(name, "1")
