"""The text of a configuration file without its secrets."""

import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, SecretStr

from proxy.config.document import literal_parts, with_masks
from proxy.config.settings import Settings

_LOGIN = re.compile(r"://[^/?#]*:[^/?#@]+@")
"""In an address: a user and a password."""


def masked(text: str, settings: Settings) -> str:
    """Return the text with a mask for each value of a secret setting, and for each address with a password.

    Comments that quote one go. `${NAME}` stays, because its value is not in the text.
    """
    secrets = {value for value in _secrets(settings) if value}
    shown = with_masks(text, lambda value: _is_secret(value, secrets))
    lines = [line if not _tells(line, secrets) else line.partition("#")[0] + "# ***" for line in shown.split("\n")]
    return "\n".join(lines)


def _tells(line: str, secrets: set[str]) -> bool:
    """Return whether a comment quotes a secret; a short one would be found everywhere."""
    comment = line.partition("#")[2]
    return bool(comment) and any(len(each) >= 8 and each in comment for each in secrets)


def _is_secret(value: str, secrets: set[str]) -> bool:
    """Return whether a value is a secret, or is one once its variables are filled in."""
    parts = literal_parts(value)
    if not any(parts):
        return False
    if _LOGIN.search("".join(parts)):
        return True
    pattern = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
    return any(pattern.fullmatch(each) for each in secrets)


def _secrets(value: Any) -> Iterator[str]:
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets(getattr(value, name))
    elif isinstance(value, dict):
        for each in value.values():
            yield from _secrets(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _secrets(each)
