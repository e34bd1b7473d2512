"""Validation errors of pydantic in plain words: each with its line and the right value."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from proxy.config.checks import suggest
from proxy.config.document import Document, Place
from proxy.config.settings import classes_of

_UNIONS = ("embedding", "state", "auth", "vectors")
_PERCENT = re.compile(r"\s*(\d{1,3}(?:\.\d+)?)\s*%\s*")


def add_mistakes(document: Document, place: Place, error: ValidationError, kind: type[BaseModel]) -> None:
    """Add to the document each mistake in the settings at a place, which are of this class."""
    # of a misspelt key that is needed, the one that is there helps more than the one that is missing
    mistakes = sorted(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
    meant: set[Place] = set()
    for each in mistakes:
        if each["type"] == "too_short" and any(
            other["loc"][: len(each["loc"])] == each["loc"] != other["loc"] for other in mistakes
        ):
            continue  # what would be in it is wrong, and is told
        steps = _keys_of(each["loc"])
        where, parent = (*place, *steps), (*place, *steps[:-1])
        if each["type"] == "extra_forbidden":
            known = _siblings(kind, each["loc"])
            document.add(where, f"unknown key; {(hint := suggest(str(steps[-1]), known))}")
            meant |= {(*parent, name) for name in known if f"{name!r}?" in hint}
        elif each["type"].startswith("union_tag"):
            document.add(where, _unknown_kind(each.get("ctx", {})))
        elif not (each["type"] == "missing" and where in meant):
            document.add(where if each["type"] == "missing" else document.known(where), _in_words(each))


def _keys_of(loc: Iterable[str | int]) -> Place:
    """Return the keys of the file, without pydantic's names for members of unions."""
    steps = list(loc)
    if steps[:1] == ["upstreams"] and len(steps) > 3:
        del steps[2]
    if steps and steps[0] in _UNIONS and len(steps) > 2:
        del steps[1]
    return tuple(steps)


def _unknown_kind(ctx: Mapping[str, Any]) -> str:
    kinds = [tag.strip("' ") for tag in ctx.get("expected_tags", "").split(",") if tag]
    kind = ctx.get("tag")
    return f"unknown kind {kind!r}; {suggest(str(kind), kinds)}" if kind else "needs a kind: echo, openai, ..."


def _in_words(error: Mapping[str, Any]) -> str:
    message = str(error["msg"]).removeprefix("Value error, ")
    return message[0].lower() + message[1:] + _share(error)


def _share(error: Mapping[str, Any]) -> str:
    number: Any = error.get("input")
    ctx = error.get("ctx") or {}
    if isinstance(number, str) and error["type"] in ("float_parsing", "int_parsing"):
        found = _PERCENT.fullmatch(number)
        return f"; did you mean {float(found[1]) / 100:g}?" if found else ""
    bound = ctx.get("le", ctx.get("lt"))
    # the bound of a whole number is an int
    is_percent = isinstance(number, int | float) and isinstance(bound, float) and bound <= 2 <= number <= 100
    return f"; did you mean {number / 100:g}?" if is_percent else ""


def _siblings(kind: type[BaseModel], loc: Iterable[str | int]) -> list[str]:
    classes, is_entry = [kind], False
    for part in list(loc)[:-1]:
        field = None if is_entry else next((each.model_fields.get(str(part)) for each in classes), None)
        if field is not None:
            classes = [*classes_of(field.annotation, BaseModel)]
            is_entry = get_origin(field.annotation) in (dict, tuple)  # its key or index comes next
        elif is_entry:
            is_entry = False
        else:  # pydantic's name of a member of a union
            classes = [each for each in classes if part in get_args(each.model_fields["kind"].annotation)]
    return list(classes[0].model_fields)
