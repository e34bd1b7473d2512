"""Whether arguments fit a schema: what is checked, and what is not."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.tools.json_schema import LARGEST, MOST, misfits


def of(properties: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties or {}, **more}


CITY = of({"city": {"type": "string"}}, required=["city"])
TREE = {
    "$ref": "#/$defs/node",
    "$defs": {"node": of({"of": {"type": "array", "items": {"$ref": "#/$defs/node"}}, "n": {"type": "integer"}})},
}


@pytest.mark.parametrize(
    ("schema", "arguments", "told"),
    [
        pytest.param(CITY, {}, "'city' is a required property", id="lacks one"),
        pytest.param(CITY, {"city": 3}, "$.city: 3 is not of type 'string'", id="the wrong type"),
        pytest.param(of(additionalProperties=False), {"x": 1}, "'x' was unexpected", id="one too many"),
        pytest.param(TREE, {"of": [{"of": [{"n": "x"}]}]}, "$.of[0].of[0].n", id="deep behind references"),
        pytest.param(of({"a": {"uniqueItems": True}}), {"a": [1, 1]}, "non-unique", id="twice the same"),
        pytest.param({**CITY, "$schema": "http://json-schema.org/draft-04/schema#"}, {}, "'city'", id="an old draft"),
    ],
)
def test_what_does_not_fit_is_told(schema: Any, arguments: Any, told: str) -> None:
    (found,) = misfits(schema, json.dumps(arguments))
    assert told in found


def doubling() -> dict[str, Any]:
    """Each definition twice refers to the next: 2 to the 40 steps."""
    step = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    return {"$ref": "#/$defs/d0", "$defs": {**step, "d40": {"type": "object"}}}


@pytest.mark.parametrize(("schema", "arguments"), [
    pytest.param(CITY, {"city": "Lima", "more": 1}, id="what fits"),
    pytest.param(None, {"x": 1}, id="no schema"),
    pytest.param(of({"x": {"$ref": "http://127.0.0.1:9/x.json"}}), {"x": 1}, id="a reference to the network"),
    pytest.param({"$ref": "#"}, {"x": 1}, id="a reference to itself"),
    pytest.param(of({"x": {"pattern": "^(a+)+$"}}), {"x": "a" * 60 + "!"}, id="an expression that never ends"),
    pytest.param(of(patternProperties={"^(a+)+$": {}}, additionalProperties=False), {"a" * 60 + "!": 1}, id="and in names"),
    pytest.param({"properties": 3}, {"x": 1}, id="no schema at all"),
    pytest.param(CITY, {"x": "a" * LARGEST}, id="arguments that are too large"),
    pytest.param(doubling(), {"x": 1}, id="references that double"),
    pytest.param(of({"a": {"uniqueItems": True}}), {"a": [{"n": n} for n in range(9000)] * 2}, id="a long list"),
])  # fmt: skip
def test_what_cannot_be_checked_fits(schema: Any, arguments: Any) -> None:
    assert misfits(schema, json.dumps(arguments)) == []


def test_what_is_told_is_short() -> None:
    schema = of(required=[f"field_{n}" for n in range(50)], additionalProperties=False)
    found = misfits(schema, json.dumps({"x" * 5000: 1}))
    assert 0 < len(found) <= MOST
    assert all(len(one) <= 300 for one in found)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
keywords = st.sampled_from(["type", "properties", "items", "$ref", "allOf", "not", "enum", "required", "additionalProperties"])  # fmt: skip


@given(st.dictionaries(keywords, json_values, max_size=4), st.dictionaries(st.text(max_size=4), json_values))
def test_it_never_raises(schema: Any, arguments: Any) -> None:
    assert isinstance(misfits(schema, json.dumps(arguments)), list)
