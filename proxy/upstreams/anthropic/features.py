"""The features of each Claude, from `proxy/data/anthropic.json`: the first matching row counts."""

from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.resources import files
from typing import Literal

import msgspec

from proxy.models.names import canonical


class ClaudeFeatures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The features of a family of models."""

    match: tuple[str, ...]
    thinking: Literal["none", "budget", "adaptive", "always"]
    """`budget`: a client sets a budget of tokens. `adaptive`: the model thinks as much as it needs. `always`: so it
    does in every answer."""
    least: str = "disabled"
    """The type of `thinking` that asks for the least of it."""
    efforts: tuple[str, ...] = ()
    """The values of `output_config.effort`, from the least on; none where the model has no such field."""
    system_messages: bool = False
    """`role: system` may stand among the messages."""
    sampling: bool = True
    """`temperature`, `top_p` and `top_k` may be set."""
    forced_tools: bool = True
    """A tool call can be demanded."""
    structured: bool = True
    """Answers and tool calls can be held to a schema."""


@lru_cache(maxsize=1024)
def features_of(model: str) -> ClaudeFeatures:
    """Return the features of a model by the upstream's name; an unknown model has those of the newest."""
    name = canonical(model)
    return next(each for each in _table() if any(fnmatchcase(name, glob) for glob in each.match))


@cache
def _table() -> tuple[ClaudeFeatures, ...]:
    text = (files("proxy") / "data" / "anthropic.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[ClaudeFeatures, ...])
