"""Products of matrices are computed in the thread that asks for them."""

import os

_NAMES = ("OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""What numpy's libraries for matrices read, once, when they are loaded."""


def one_thread() -> None:
    """Say so to numpy, which must not have been imported yet; the operator's own values win.

    By itself it uses all processors. They wait for each other busily: beside other work, the cosines of 10,000 vectors
    took four times the computing and eight times as long.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        for name in _NAMES:
            os.environ.setdefault(name, "1")
