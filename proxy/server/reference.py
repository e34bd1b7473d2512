"""Makes the JSON Schema of the configuration, for editors, and its documentation, both from the classes."""

import argparse
import inspect
import json
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from pydantic import TypeAdapter

from proxy.config.load import policy_class, policy_names
from proxy.config.settings import Settings, classes_of
from proxy.policy import Policy, When

_VARIABLE = {"type": "string", "pattern": r"\$\{.+\}", "description": "A variable, filled in before it is checked."}
_SHOWN_BY_DEFAULT = {"string", "integer", "number", "boolean", "`1`"}
"""Types that a default shows: the page leaves them out."""


def print_reference(options: argparse.Namespace) -> None:
    """Print the schema, or with `--markdown` the documentation."""
    print(config_markdown() if options.markdown else config_schema(), end="")


def config_schema() -> str:
    """Return the JSON Schema (draft 2020-12) of `config.yaml`."""
    schema = Settings.model_json_schema()
    steps: dict[str, Any] = {}
    for name in policy_names():
        policy = policy_class(name).model_json_schema()
        schema["$defs"] |= policy.pop("$defs", {})
        steps[name] = {"anyOf": [policy, {"type": "null"}]}
    step = {
        "type": "object",
        "description": "One policy with its settings.",
        "properties": steps,
        "patternProperties": {r"\.": {"type": ["object", "null"]}},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    chain = {"anyOf": [{"type": "array", "items": step}, {"type": "null"}]}
    schema["properties"]["chains"]["additionalProperties"] = chain
    complete = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Penstock's config.yaml",
        **_with_variables(schema),
    }
    return json.dumps(complete, indent=2) + "\n"


def _with_variables(node: Any) -> Any:
    """Return the schema with a `${VARIABLE}` allowed wherever a number or a truth value stands."""
    if isinstance(node, list):
        return [_with_variables(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {key: _with_variables(value) for key, value in node.items()}
    if made.get("type") not in ("integer", "number", "boolean"):
        return made
    outside = {key: made.pop(key) for key in ("title", "description", "default") if key in made}
    return {"anyOf": [made, _VARIABLE], **outside}


def config_markdown() -> str:
    """Return the page `docs/configuration.md`."""
    lines = [
        "# Configuration",
        "",
        "Every key of `config.yaml`, with its default, or else its type. Made by `penstock schema --markdown`; the",
        "JSON Schema beside it by `penstock schema`.",
        "",
        "Scalar values may use `${NAME}`, `${NAME:-default}` and `${file:/path}`; `$$` is a dollar. Unknown or",
        "duplicate keys and wrong values stop the start, with file, line and what would be right: `penstock check`.",
    ]
    titles: dict[str, str] = {}
    for kind, title in _sections().items():
        lines += ["", f"## {title}", "", inspect.cleandoc(kind.__doc__ or "")]
        lines += ["", *entries] if (entries := _list(title, kind, titles)) else []
    lines += ["", "# Policies", "", "Every policy takes these keys:", "", *_entries(Policy)]
    lines += ["", "`when` has these conditions; all that are given must hold:", "", *_entries(When)]
    for name in policy_names():
        policy = policy_class(name)
        lines += ["", f"## {name}", "", inspect.cleandoc(policy.__doc__ or ""), ""]
        entries = _entries(policy, without=Policy.model_fields)
        lines += entries or ["No settings."]
    return "\n".join(lines) + "\n"


def _sections() -> dict[type[Any], str]:
    """Return each class of settings, with the key under which it stands and its kind as the title."""
    titles: dict[type[Any], str] = {Settings: "The file"}
    for key, field in Settings.model_fields.items():
        under = [each for each in classes_of(field.annotation) if not issubclass(each, Policy)]
        for kind in under:
            chosen = kind.__pydantic_fields__.get("kind")
            if chosen is None or not chosen.is_required():
                titles[kind] = key
            else:
                titles[kind] = f"{key}: kind: {get_args(chosen.annotation)[0]}"
        for kind in under:
            for name, inner in kind.__pydantic_fields__.items():
                titles |= {each: f"{key}: {name}" for each in classes_of(inner.annotation) if each not in titles}
    return titles


def _list(title: str, kind: type[Any], titles: dict[str, str]) -> list[str]:
    """Return the settings of a section. An entry that an earlier section has is named only, with that section."""
    new: list[str] = []
    shared: dict[str, list[str]] = {}
    for name in kind.__pydantic_fields__:
        entry = _entry(name, kind)
        if name == "kind" and kind.__pydantic_fields__[name].is_required():
            continue  # the title names it
        if titles.setdefault(entry, title) == title:
            new.append(entry)
        else:
            shared.setdefault(titles[entry], []).append(f"`{name}`")
    return [*new, *(f"- {', '.join(names)}: as in *{other}*." for other, names in shared.items())]


def _entries(kind: type[Any], without: Iterable[str] = ()) -> list[str]:
    left_out = set(without)
    return [_entry(name, kind) for name in kind.__pydantic_fields__ if name not in left_out]


def _entry(name: str, kind: type[Any]) -> str:
    field = kind.__pydantic_fields__[name]
    whole = TypeAdapter(kind).json_schema()
    schema = whole["properties"][name]
    words = _type(schema, whole.get("$defs", {}))
    if field.is_required():
        words = f"{words}, required"
    elif (value := schema.get("default")) not in (None, []) and not isinstance(value, dict):
        default = f"`{json.dumps(float(value) if words == 'number' else value)}`"
        words = default if words in _SHOWN_BY_DEFAULT else f"{words}, {default}"
    text = " ".join((field.description or "").split())
    return f"- `{name}` ({words}): {text}"


def _type(schema: Mapping[str, Any], classes: Mapping[str, Any]) -> str:
    """Return the type of a setting in words. A class of settings is its title, or the kind that selects it."""
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return _either(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema or "oneOf" in schema:
        options = [_type(option, classes) for option in schema.get("anyOf", schema.get("oneOf", ()))]
        return _either(dict.fromkeys(option for option in options if option not in ("null", "list of any")))
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        kind = classes[name].get("properties", {}).get("kind", {}).get("const")
        return f"`kind: {kind}`" if kind else name.removesuffix("Settings").removesuffix("Rules").lower()
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}), classes)}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"mapping to {_type(schema['additionalProperties'], classes)}"
    return str(kind)


def _either(options: Iterable[str]) -> str:
    *most, last = options
    return f"{', '.join(most)} or {last}" if most else last
