"""Names that stand in a request for what must not leave, and what turns them back in the answer. Pure."""

import json
from collections.abc import Callable, Mapping, Set
from hashlib import blake2b
from typing import Any

from proxy.chat.reasoning import AS_BLOCKS

StandIn = Callable[[str, str], str]
"""Returns the placeholder of a secret, from its kind (a lower-case word) and its text."""

OPENING = "redacted-"
_LETTERS = "bcdfghjkmnpqstvz"
"""No vowels and no digits: a placeholder is neither a word nor a number, and passes as a name of a tool or a user. No
`r` either: no end of one may be the beginning of another."""
_LENGTH = 14

VERBATIM = frozenset({AS_BLOCKS, "reasoning_details", "logprobs"})
"""Fields of an answer that are signed, or about tokens."""

REASONING = ("thinking", "redacted_thinking", "reasoning", "response.reasoning")
"""Beginnings of the types of blocks, items, deltas and events that are reasoning: it goes back as it came."""
_QUOTING = frozenset({"arguments", "partial_json"})
"""Fields of which the text is JSON."""


class Placeholders:
    """Makes placeholders, and knows what each stands for.

    The same secret has the same placeholder wherever the key is the same. Without the key nobody can guess a secret
    from it, also where there are few to choose from, as of phone numbers.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.secrets: dict[str, str] = {}

    def __call__(self, kind: str, secret: str) -> str:
        digest = blake2b(f"{kind}:{secret}".encode(errors="surrogatepass"), key=self._key, digest_size=_LENGTH).digest()
        name = f"{OPENING}{kind}-{''.join(_LETTERS[byte % 16] for byte in digest)}"
        self.secrets[name] = secret
        return name


def kind_of(placeholder: str) -> str:
    """Return the kind of what a placeholder stands for."""
    return placeholder.removeprefix(OPENING).rpartition("-")[0]


class Restoring:
    """Puts secrets back in the place of their placeholders. Only those that stood in the request have any."""

    def __init__(self, secrets: Mapping[str, str], *, as_json: bool = False, quoting: Set[str] = _QUOTING) -> None:
        """With `as_json`, the model's texts are JSON, as those of `quoting` fields always are."""
        self._secrets, self._as_json, self._quoting = secrets, as_json, quoting
        self._lengths = sorted({*map(len, secrets)}, reverse=True)

    def value(self, value: Any, key: str = "") -> Any:
        """Return a part of an answer with all secrets in its texts; the same object where there are none."""
        if isinstance(value, str):
            return self.text(value, key)
        if isinstance(value, list):
            items = [self.value(item, key) for item in value]
            return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        if isinstance(value, Mapping) and key == "input":  # arguments, and no JSON in a string
            return Restoring(self._secrets, quoting=frozenset()).value(value)
        if isinstance(value, Mapping) and not str(value.get("type")).startswith(REASONING):
            pairs = {name: item if name in VERBATIM else self.value(item, name) for name, item in value.items()}
            return pairs if any(item is not value[name] for name, item in pairs.items()) else value
        return value

    def text(self, text: str, key: str = "") -> str:
        """Return a text that stands under a key of an answer with its secrets."""
        at = text.find(OPENING)
        if at < 0:
            return text
        parts, end = list[str](), 0
        while at >= 0:
            name = next((name for size in self._lengths if (name := text[at : at + size]) in self._secrets), None)
            if name is not None:
                secret = self._secrets[name]
                quotes = self._as_json or key in self._quoting
                parts += [text[end:at], json.dumps(secret, ensure_ascii=False)[1:-1] if quotes else secret]
                end = at + len(name)
            at = text.find(OPENING, max(end, at + 1))
        return "".join([*parts, text[end:]]) if parts else text

    def begun(self, text: str) -> int:
        """Return how many characters at the end of a text may be the beginning of a placeholder."""
        most = self._lengths[0] if self._lengths else 0
        for size in range(min(most - 1, len(text)), 0, -1):
            if text[-size] == OPENING[0]:
                end = text[-size:]
                if any(name.startswith(end) for name in self._secrets):
                    return size
        return 0
