"""What each Claude takes, from `proxy/data/anthropic.json`: its first matching line counts."""

from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.resources import files
from typing import Literal

import msgspec

from proxy.models.names import canonical


class ClaudeFeatures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a family of models takes."""

    match: tuple[str, ...]
    thinking: Literal["none", "budget", "adaptive", "always"]
    """Whether a client sets a budget of tokens, or the model thinks as much as it needs, which `always` it does."""
    least: str = "disabled"
    """The type of `thinking` that asks for the least of it."""
    efforts: tuple[str, ...] = ()
    """The values of `output_config.effort`, from the least on; none where the model has no such field."""
    system_messages: bool = False
    """Whether `role: system` may stand among the messages."""
    sampling: bool = True
    """Whether `temperature`, `top_p` and `top_k` may be set."""
    forced_tools: bool = True
    """Whether a tool call can be demanded."""
    structured: bool = True
    """Whether answers and tool calls can be held to a schema."""


@lru_cache(maxsize=1024)
def features_of(model: str) -> ClaudeFeatures:
    """Return what a model takes, by the upstream's name for it; an unknown newer one takes what the newest do."""
    name = canonical(model)
    return next(each for each in _table() if any(fnmatchcase(name, glob) for glob in each.match))


@cache
def _table() -> tuple[ClaudeFeatures, ...]:
    text = (files("proxy") / "data" / "anthropic.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[ClaudeFeatures, ...])
