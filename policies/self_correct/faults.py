"""Plain faults of an answer: empty, another language, no JSON, arguments that do not fit, a refusal again.

Each finding is a sentence for the model. It names tools and the places of a schema, and quotes nothing else. Pure.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from proxy.chat import ChatRequest, Message, Tool, encode
from proxy.chat.answer import Answer
from proxy.text.bm25 import terms
from proxy.text.language import NAMES, language, named
from proxy.text.tables import patterns

CUT_OFF = frozenset({"length", "content_filter", "error"})
"""Finish reasons of answers that are not all there: they are nobody's mistake."""

_WORDS = 12
"""Words of an answer whose language counts."""
_SAID = 3
"""User messages that are read for the user's language."""
_EARLIER = 6
"""Earlier answers that are compared."""
_SAME = 0.8
"""The share of their words that two refusals have in common."""
_REFUSES = re.compile(patterns("refusals")["refuses"], re.IGNORECASE | re.DOTALL)
_MISSING = re.compile(r"'([\w.-]{1,64})' is a required property\Z")
_PLACE = re.compile(r"[\w.$\[\]-]{1,80}")
_NAME = re.compile(r"[\w.-]{1,64}")


def faults(sent: ChatRequest, answer: Answer, kinds: frozenset[str]) -> dict[str, str]:
    """Return the kinds of faults, each with a sentence for the model; none for an answer that was cut off."""
    if answer.finish in CUT_OFF:
        return {}
    found = {kind: check(sent, answer) for kind, check in _CHECKS.items() if kind in kinds}
    return {kind: sentence for kind, sentence in found.items() if sentence is not None}


def _empty(sent: ChatRequest, answer: Answer) -> str | None:
    if answer.finish != "stop" or not answer.is_empty:
        return None
    return "An answer of yours was empty. Always answer in words, or call a tool."


def _language(sent: ChatRequest, answer: Answer) -> str | None:
    if len(answer.text.split()) < _WORDS or sent.rest.get("response_format") is not None:
        return None
    asked = [each.text for each in sent.messages if each.get("role") == "user"][-_SAID:]
    operator = [message.text for message in sent.messages if message.is_system]
    if not asked:
        return None
    # each message for itself as well: that somebody changes the language is no mistake of the model's
    wanted = {code for text in (*asked, "\n".join(asked)) if (code := language(text)) is not None}
    used = language(answer.text)
    if len(wanted) != 1 or used is None or used in wanted:
        return None
    # whoever speaks of another language than their own, or of translation, may want another one
    if any(named(text) - wanted for text in (*asked, *operator)):
        return None
    name = NAMES[wanted.pop()]
    message = f"The user writes {name}, and an answer of yours was in {NAMES[used]}."
    # a letter to somebody else may rightly be in theirs: the model has seen what was asked for
    return f"{message} Answer in the user's language, unless they wanted another one."


def _json(sent: ChatRequest, answer: Answer) -> str | None:
    asked = sent.rest.get("response_format")
    kind = asked.get("type") if isinstance(asked, Mapping) else None
    if kind not in ("json_object", "json_schema") or not answer.text.strip() or answer.calls:
        return None
    if not _is_json(answer.text):
        return "An answer of yours had to be JSON and was not. Answer with the JSON alone, without anything around it."
    described = asked.get("json_schema") if isinstance(asked, Mapping) else None
    schema = described.get("schema") if kind == "json_schema" and isinstance(described, Mapping) else None
    where = _misfits(schema, answer.text)
    return f"An answer of yours did not fit the JSON schema that was asked for: {where}." if where else None


def _arguments(sent: ChatRequest, answer: Answer) -> str | None:
    tools = {tool.name: tool for tool in sent.tools}
    for name, arguments in answer.calls:
        tool = tools.get(name)
        if tool is None or not _NAME.fullmatch(name):
            continue
        given = arguments.strip() or "{}"
        if not _is_json(given):
            return f"A call of yours to {name} had arguments that are not JSON."
        if where := _misfits(_parameters(tool), given):
            return f"A call of yours to {name} did not fit its parameters: {where}."
    return None


def _refusal(sent: ChatRequest, answer: Answer) -> str | None:
    now = _refused(answer.refusal, answer.text)
    if now is None:
        return None
    before = [message for message in sent.messages if message.get("role") == "assistant"][-_EARLIER:]
    if not any((then := _refused(_said(one, "refusal"), one.text)) and _alike(then, now) for one in before):
        return None
    return "You gave the same refusal more than once. Say what you can do instead, or what you need for it."


_CHECKS: Mapping[str, Callable[[ChatRequest, Answer], str | None]] = {
    "empty": _empty,
    "language": _language,
    "json": _json,
    "arguments": _arguments,
    "refusal": _refusal,
}

KINDS = tuple(_CHECKS)
"""The kinds of faults that are looked for."""


def _refused(refusal: str, text: str) -> frozenset[str] | None:
    """Return the terms of a refusal; None for any other answer."""
    said = refusal.strip() or (text.strip() if _REFUSES.match(text) else "")
    return frozenset(terms(said[:2000])) or None if said else None


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) >= _SAME * len(one | other)


def _said(message: Message, key: str) -> str:
    value = message.get(key)
    return value if isinstance(value, str) else ""


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


def _parameters(tool: Tool) -> Any:
    function = tool.get("function")
    return function.get("parameters") if isinstance(function, Mapping) else None


def _misfits(schema: Any, data: str) -> str:
    """Return where and how JSON does not fit, without its values; empty where it does or may."""
    if not isinstance(schema, Mapping):
        return ""
    from proxy.tools.json_schema import misfits

    wrong: list[str] = []
    known = encode(schema).decode()
    for each in misfits(schema, data):
        place, _, what = each.partition(": ")
        missing = _MISSING.search(what)
        # a place is named by its keys, and those that the schema has not got are the model's own
        place = place if _PLACE.fullmatch(place) and all(f'"{key}"' in known for key in _keys(place)) else "$"
        wrong.append(f"{place} lacks {missing[1]}" if missing else f"{place} is not as it must be")
    return "; ".join(dict.fromkeys(wrong))


def _keys(place: str) -> list[str]:
    return [key for key in re.findall(r"[\w-]+", place) if not key.isdigit()]
