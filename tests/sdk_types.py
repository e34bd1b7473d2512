"""Values of the types of an SDK, with a marker in one place after the other."""

from collections.abc import Iterable, Iterator
from types import UnionType
from typing import Any, Literal, Required, Union, get_args, get_origin

from hypothesis import strategies as st
from typing_extensions import get_type_hints, is_typeddict

MARK = "marker.4711@example.com"


def example(kind: Any) -> Any:
    """The smallest value of a type of the SDK."""
    origin, parts = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True).items()
        return {key: example(get_args(each)[0]) for key, each in hints if str(get_origin(each)) == str(Required)}
    if origin is Literal:
        return parts[0]
    if origin in (Union, UnionType):
        return example(parts[0])
    if origin in (list, Iterable) or str(origin) == "<class 'collections.abc.Iterable'>":
        return [example(parts[0])]
    return {str: "x", int: 1, float: 1.0, bool: True}.get(kind, {} if origin is dict or kind is dict else None)


def planted(kind: Any, path: str) -> Iterator[tuple[str, Any]]:
    """A value for each string in a type: with the marker there alone, and its path."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is str or origin is Literal:
        yield path, MARK
    elif origin is dict or kind is dict:
        yield from {f"{path}.*": {"key": [MARK]}, f"{path} (a key)": {MARK: 1}}.items()
    elif origin in (Union, UnionType):
        for place, each in enumerate(parts):
            yield from planted(each, f"{path}|{place}" if len(parts) > 2 else path)
    elif is_typeddict(kind):
        for key, each in get_type_hints(kind).items():
            yield from ((where, {**example(kind), key: value}) for where, value in planted(each, f"{path}.{key}"))
    elif parts:
        yield from ((where, [value]) for where, value in planted(parts[0], f"{path}[]"))


def values_of(kind: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a type of the SDK: of the fields that may be left out, it has two at most."""
    origin, parts = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        return _objects(kind, depth + 1)
    if origin is Literal:
        return st.sampled_from(parts)
    if origin in (Union, UnionType):
        return st.sampled_from(parts).flatmap(lambda part: values_of(part, depth))
    if origin is not None and parts and origin is not dict and "Mapping" not in str(origin):
        return st.lists(values_of(parts[0], depth), min_size=1, max_size=1 if depth > 1 else 4)
    if kind is dict or origin is not None:
        return st.dictionaries(st.text(max_size=5), st.one_of(st.text(max_size=5), st.integers()), max_size=2)
    plain = {int: st.integers(0, 10**6), float: st.floats(0, 1), bool: st.booleans(), type(None): st.none()}
    return plain.get(kind, st.text(st.characters(exclude_categories=["Cs"]), max_size=20))


@st.composite
def _objects(draw: st.DrawFn, kind: Any, depth: int) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    needed = [key for key, each in hints.items() if str(get_origin(each)) == str(Required)]
    others = sorted(hints.keys() - set(needed))
    chosen = draw(st.lists(st.sampled_from(others), max_size=2, unique=True)) if others else []
    bare = get_type_hints(kind)
    return {key: draw(values_of(bare[key], depth)) for key in (*needed, *chosen)}
