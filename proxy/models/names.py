"""The many spellings of a model's name."""

import re
from collections.abc import Iterator

_REGION = re.compile(r"^(?:us|eu|apac|au|jp|ca|global|us-gov)\.")
_VENDOR = re.compile(r"^(?:anthropic|meta|mistral|amazon|cohere|ai21|qwen|openai|moonshotai|moonshot|minimax|google)\.")
_REVISION = re.compile(r"-v\d+:\d+(?::\w+)?$")
_DATE = re.compile(r"-(?:20\d\d-?\d\d-?\d\d|latest)$")


def canonical(name: str) -> str:
    """Return the bare name in lower case: `openrouter/anthropic/Claude-X` is `claude-x`, `qwen3:8b` is `qwen3-8b`."""
    text = name.strip().lower()
    if text.startswith("ft:"):
        text = text.split(":")[1]
    text = text.rsplit("/", 1)[-1].replace("@", "-")
    text = _VENDOR.sub("", _REGION.sub("", text))
    return _REVISION.sub("", text).replace("deepseek.", "deepseek-").replace(":", "-")


def spellings(name: str) -> Iterator[str]:
    """Yield the names under which a price list may have a model, the most specific first; some come twice."""
    yield name
    yield name.lower()
    yield name.rsplit("/", 1)[-1]
    yield canonical(name)
    yield _DATE.sub("", canonical(name))
