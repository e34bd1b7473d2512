from typing import Any

import pytest

from proxy.chat.errors import BadRequest
from proxy.upstreams.request_fields import ChatFields, check_fields

FIELDS = [*ChatFields.__annotations__]

GOOD: dict[str, list[Any]] = {
    "stop": ["a", ["a", "b"]],
    "tool_choice": ["auto", {"type": "function"}],
    "stream": [True, False],
    "n": [1, 128],
    "temperature": [0, 1.5],
    "metadata": [{}],
    "modalities": [["text"]],
    "user": ["me"],
}


@pytest.mark.parametrize("name", FIELDS)
def test_null_is_as_good_as_absent(name: str) -> None:
    check_fields({name: None})


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in GOOD.items() for value in values])
def test_the_right_type_passes(name: str, value: Any) -> None:
    check_fields({name: value})


@pytest.mark.parametrize("name", FIELDS)
def test_a_wrong_type_is_named_by_its_place(name: str) -> None:
    wrong: Any = object()
    with pytest.raises(BadRequest) as caught:
        check_fields({name: wrong})
    assert caught.value.param == name
    assert caught.value.code == "invalid_type"


@pytest.mark.parametrize(
    ("name", "value"),
    [("stream", "true"), ("stream", 1), ("max_tokens", 1.5), ("max_tokens", True), ("n", 0), ("n", -1)],
)
def test_near_misses_are_misses(name: str, value: Any) -> None:
    with pytest.raises(BadRequest):
        check_fields({name: value})


def test_unknown_fields_are_left_alone() -> None:
    check_fields({"x_anything": object(), "top_k": "many"})
