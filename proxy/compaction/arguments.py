"""The payloads in a call's arguments: long strings in a JSON text whose every other byte stays."""

import json
import re
from collections.abc import Iterator, Mapping

from proxy.text.json_values import Pairs, parsed, quoted

_STRING = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")([ \t\n\r]*:)?')


def payloads(arguments: str, over: int) -> Iterator[str]:
    """The strings of a JSON object that are longer than `over`; keys are none."""
    if len(arguments) > over and isinstance(parsed(arguments), Pairs):
        for found in _STRING.finditer(arguments):
            if found[2] is None and len(found[1]) > over:
                text = str(json.loads(found[1]))
                if len(text) > over:
                    yield text


def with_payloads(arguments: str, forms: Mapping[str, str]) -> str:
    """The same arguments with these strings replaced by what stands for them."""

    def replaced(found: re.Match[str]) -> str:
        if found[2] is not None or len(found[1]) < _shortest:
            return found[0]
        form = forms.get(str(json.loads(found[1])))
        return found[0] if form is None else quoted(form)

    _shortest = min(map(len, forms), default=0)
    return _STRING.sub(replaced, arguments)
