"""Checks of arguments against a JSON schema, by a library that is imported where a call is checked.

Nothing is fetched, no regular expression is run, and the work is bounded. What cannot be checked fits.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any

import orjson
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend, validator_for
from referencing import Registry

MOST = 3
LARGEST = 200_000
"""Characters of arguments that are checked; more than that takes too long."""
_MOST_REFERENCES = 5_000
"""References that one check follows. A schema whose references double at each step would take for ever."""
_MOST_UNIQUE = 500
"""Items that are compared with each other."""
_LONGEST = 300
"""Characters of one misfit: the library quotes the arguments in it."""

Found = Iterator[ValidationError]


def misfits(schema: Any, arguments: str) -> list[str]:
    """Why arguments, a JSON text, do not fit a schema, in words for the model; empty where they do or may."""
    if not isinstance(schema, Mapping) or len(arguments) > LARGEST:
        return []
    kind = _bounded(validator_for(schema, default=Draft202012Validator))
    try:
        found = kind(schema, registry=Registry()).iter_errors(orjson.loads(arguments))
        return [f"{error.json_path}: {error.message}"[:_LONGEST] for error in islice(found, MOST)]
    except Exception:
        # a type that nobody knows, a reference to nowhere or to itself: schemas of tools are often not quite right
        return []


def _bounded(kind: Any) -> Any:
    """Return a kind of validator without what is slow or unsafe, which counts the references that it follows."""
    left = iter(range(_MOST_REFERENCES))

    def counted(follow: Any) -> Any:
        def following(validator: Any, target: Any, instance: Any, schema: Any) -> Found:
            if next(left, None) is None:
                raise OverflowError("too many references")
            yield from follow(validator, target, instance, schema)

        return following

    known = kind.VALIDATORS
    references = {name: counted(known[name]) for name in ("$ref", "$dynamicRef", "$recursiveRef") if name in known}
    return extend(_safe(kind), references)


@cache
def _safe(kind: Any) -> Any:
    known = kind.VALIDATORS

    def additional(validator: Any, rule: Any, instance: Any, schema: Mapping[str, Any]) -> Found:
        # which properties are additional depends on regular expressions then
        return (
            iter(())
            if "patternProperties" in schema
            else known["additionalProperties"](validator, rule, instance, schema)
        )

    def unique(validator: Any, rule: Any, instance: Any, schema: Any) -> Found:
        large = isinstance(instance, list) and len(instance) > _MOST_UNIQUE
        return iter(()) if large else known["uniqueItems"](validator, rule, instance, schema)

    unsafe = ("pattern", "patternProperties", "unevaluatedProperties", "unevaluatedItems")
    return extend(
        kind, {**dict.fromkeys(unsafe, lambda *_: iter(())), "additionalProperties": additional, "uniqueItems": unique}
    )
