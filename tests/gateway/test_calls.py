"""Whose a streamed tool call is."""

from typing import Any

import pytest

from proxy.gateway.calls import Calls


def delta(index: Any = None, id: str | None = None, name: str | None = None, arguments: str = "") -> dict[str, Any]:
    entry: dict[str, Any] = {} if index is None else {"index": index}
    if id is not None:
        entry["id"] = id
    return {**entry, "function": {**({} if name is None else {"name": name}), "arguments": arguments}}


def sort(*entries: dict[str, Any]) -> tuple[list[Any], Calls]:
    calls = Calls(frozenset({"recall"}))
    return [shown for entry in entries for shown in calls.sort([entry])], calls


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param(
            [delta(0, "a", "x"), delta(0, arguments="{"), delta(1, "b", "x"), delta(0, arguments="}")], id="plain"
        ),
        pytest.param([delta(1, "a", "x"), delta(1, arguments="{}")], id="from one on"),
        pytest.param([delta(0, "a", "x", "{}"), delta(0, "b", "x", "{}")], id="the same index for all"),
        pytest.param([delta(None, "a", "x", "{}"), delta(None, "b", "x", "{}")], id="no index"),
        pytest.param([delta(0, "a", "x", "{"), delta(0, "a", "x", "}")], id="repeated names"),
    ],
)
def test_calls_of_the_client_stay_as_they_are(entries: list[dict[str, Any]]) -> None:
    shown, _ = sort(*entries)
    assert len(shown) == len(entries)
    assert all(one is other for one, other in zip(shown, entries, strict=True))


@pytest.mark.parametrize(
    ("entries", "indexes"),
    [
        pytest.param([delta(0, "r", "recall"), delta(1, "a", "x"), delta(1, arguments="{}")], [0], id="behind an internal one"),
        pytest.param([delta(0, "a", "x"), delta(1, "r", "recall"), delta(2, "b", "x"), delta(0, arguments="{}")], [0, 0, 1], id="around one: it waits"),
        pytest.param([delta(0, "r"), delta(1, "a", "x"), delta(0, name="recall"), delta(1, arguments="{}")], [0, 0], id="the name comes late"),
        pytest.param([delta(0, "b"), delta(1, "a", "x"), delta(0, name="x"), delta(1, arguments="{}")], [0, 1, 0], id="late, and the client's"),
        pytest.param([delta(0, "a", "x"), delta(0, "r", "recall"), delta(0, "b", "x")], [0, 1], id="the same index for all"),
        pytest.param([delta(None, "r", "recall"), delta(None, "a", "x"), delta(None, arguments="{}")], [0], id="no index"),
    ],
)  # fmt: skip
def test_indexes_are_contiguous(entries: list[dict[str, Any]], indexes: list[int]) -> None:
    shown, calls = sort(*entries)
    assert [entry["index"] for entry in [*shown, *calls.remaining()]] == indexes


def test_a_call_is_put_together() -> None:
    null: dict[str, Any] = {"index": 0, "id": None, "function": {"name": None, "arguments": "1}"}}
    signed = delta(0, "r", "recall", '{"a":') | {"type": "function", "extra": {"signature": "s"}}
    shown, calls = sort(signed, null, delta(0, "r", "recall", ""))

    assert shown == []
    assert calls.whole == [
        {
            "index": 0,
            "id": "r",
            "function": {"name": "recall", "arguments": '{"a":1}'},
            "type": "function",
            "extra": {"signature": "s"},
        }
    ]


def test_deltas_without_a_name_are_held_until_the_end() -> None:
    shown, calls = sort(delta(0, "q"), delta(0, arguments="{}"))
    assert shown == []
    assert calls.waiting
    assert calls.remaining() == [delta(0, "q", arguments="{}")], "in one piece"
    assert not calls.waiting
