"""Whether all of a text is there."""

import re
from typing import Any

from policies.validate_content.content import GOOD, Finding
from proxy.compaction.cut_json import cut_off
from proxy.text.json_values import Pairs

_CUT = 0.4
"""The score of what ends in the middle without a word of it."""
_EMPTY = 0.6
"""The score of nothing: often the answer, such as of a search that finds none."""
_TOLD = 0.8
"""The score of what says itself that there is more: the model knows it as well."""

_PRINTED = ("meta=None content=[", "content=[TextContent(")
_MORE = re.compile(
    r"(?:\.\.\.|…|\[…\]|\[\.\.\.\])\W{0,4}$|\btruncated\b|\b\d+ more (?:lines|items|results|characters|rows|bytes)\b|"
    r"\b(?:output|content|response|text|result) (?:was |has been |is )?(?:cut|clipped|shortened|trimmed)\b|"
    r"\b(?:recortad|truncad)[oa]\b",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_NOTHING = frozenset({"", "[]", "{}", "null", "none", '""', "()", "n/a", "undefined"})
_LARGEST = 1_000_000
"""Characters of JSON that are gone through for its end."""


def completeness(raw: str, text: str, value: Pairs | list[Any] | None, required: tuple[str, ...]) -> Finding:
    """The worst of what there is to say. `raw` is the text in its envelope, `value` what it is as JSON."""
    if text.strip().lower() in _NOTHING:
        return Finding(_EMPTY, "it is empty")
    if (ends := _end(raw, text, value)) is not None:
        told = _MORE.search(raw[-400:]) is not None
        return Finding(_TOLD if told else _CUT, ends)
    if _MORE.search(text[-400:]) is not None:
        return Finding(_TOLD, "it says that there is more")
    missing = _missing(value, required)
    if missing:
        return Finding(1 - len(missing) / len(required), f"{len(missing)} of the {len(required)} members are missing")
    return GOOD


def _end(raw: str, text: str, value: Pairs | list[Any] | None) -> str | None:
    """In what the text ends, if in the middle of something."""
    if raw.startswith(_PRINTED) and not raw.rstrip().endswith((")", "]", "}", "None", "True", "False")):
        return "the result is cut off"
    if value is not None:
        return None
    # an envelope that ends in the middle is there no more once it was taken off
    if any(each[:1] in "{[" and cut_off(each) is not None for each in {raw[:_LARGEST], text[:_LARGEST]} if each):
        return "its JSON is cut off"
    if text.lstrip()[:9].lower().startswith(("<!doctype", "<html")) and "</html" not in text[-2000:].lower():
        return "the page is cut off"
    if sum(1 for _ in _FENCE.finditer(text)) % 2:
        return "a block of code is not closed"
    return None


def _missing(value: Pairs | list[Any] | None, required: tuple[str, ...]) -> list[str]:
    if not required or not isinstance(value, Pairs):
        return []
    names = set(value.names)
    # an error is another answer
    return [] if "error" in names else [name for name in required if name not in names]
