"""The load of `benchmarks.soak`: which answers of the proxy it takes for failures, and when."""

from typing import Any

import pytest

from benchmarks.soak_load import Clients, Upstream
from proxy.chat.errors import NotInTime, PenstockError, UpstreamFailed

LATE = NotInTime("a step that shortens was late")
FAULT = PenstockError("Penstock failed", code="internal_error")
NO_SESSION: Any = None


@pytest.mark.parametrize(
    ("error", "may_be_late", "is_expected"),
    [
        (LATE, True, True),
        (LATE, False, False),
        (UpstreamFailed("it broke off"), False, True),
        (FAULT, True, False),
        (FAULT, False, False),
    ],
)
def test_only_what_is_the_upstreams_doing_is_expected(
    error: PenstockError, may_be_late: bool, is_expected: bool
) -> None:
    clients = Clients("", NO_SESSION, Upstream(1), 1, "admin")
    clients.may_be_late = may_be_late
    assert clients._outcome(error.status, error.body()) == (f"{error.status} {error.code}", is_expected)
