"""What services say of themselves."""

from proxy.health import degraded


class Well:
    degraded = None


class Ill:
    degraded = "unreachable"


def test_only_what_does_not_work_is_named() -> None:
    assert degraded({"a": Well(), "b": Ill(), "c": object(), "d": None}) == ["b: unreachable"]
