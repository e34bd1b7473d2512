"""litellm's list of models, read as data: litellm itself is not imported."""

import re
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path

import msgspec

from proxy.models.families import canonical

_FILE = "model_prices_and_context_window_backup.json"
_ABOVE = ("input_cost_above", "output_cost_above")
_STEP = re.compile(rb'"(input|output)_cost_per_token_above_(\d+)k_tokens": *([0-9.eE+-]+)')
_DATE = re.compile(r"-(?:20\d\d-?\d\d-?\d\d|latest)$")
_CHAT = frozenset({"chat", "completion", "responses"})


class ListedModel(msgspec.Struct, frozen=True):
    """A model of the list. Prices are US dollars per token. Its `max_tokens` has many meanings and is not read."""

    max_input_tokens: float | None = None
    max_output_tokens: float | None = None
    input_cost_per_token: float | None = None
    output_cost_per_token: float | None = None
    cache_read_input_token_cost: float | None = None
    cache_creation_input_token_cost: float | None = None
    mode: str | None = None
    litellm_provider: str | None = None
    above: int = 0
    """The prompt's tokens above which the whole request costs more; 0 where there is no such step."""
    input_cost_above: float | None = None
    output_cost_above: float | None = None

    @property
    def limits(self) -> tuple[int, int] | None:
        """Input and output tokens; None where they are missing, or so odd that they must be a mistake."""
        read, written = int(self.max_input_tokens or 0), int(self.max_output_tokens or 0)
        return (read, written) if 0 < written <= read else None


@dataclass(frozen=True)
class PriceList:
    """The list, read on first use in some milliseconds; entries are only parsed when they are asked for."""

    path: Path | None

    @classmethod
    @cache
    def installed(cls) -> "PriceList":
        """Return the list of the installed litellm; an empty one where there is none."""
        spec = find_spec("litellm")
        return cls(Path(spec.origin).with_name(_FILE) if spec and spec.origin else None)

    def find(self, name: str) -> ListedModel | None:
        plain = canonical(name)
        for spelling in (name, name.lower(), name.rsplit("/", 1)[-1], plain, _DATE.sub("", plain)):
            raw = self._entries.get(spelling)
            found = None if raw is None else _parsed(raw)
            if found is not None and found.mode in _CHAT:
                return found
        return None

    def of_provider(self, provider: str) -> list[str]:
        """Return the chat models of a provider, by litellm's name for it, under the provider's own names."""
        named = f'"{provider}"'.encode()
        listed = ((name, _parsed(raw)) for name, raw in self._entries.items() if named in bytes(raw))
        chat = [name for name, it in listed if it and it.litellm_provider == provider and it.mode in _CHAT]
        return list(dict.fromkeys(name.removeprefix(f"{provider}/") for name in chat))

    @cached_property
    def _entries(self) -> dict[str, msgspec.Raw]:
        try:
            data = self.path.read_bytes() if self.path else b"{}"
            entries = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        except (OSError, msgspec.DecodeError):
            return {}
        entries.pop("sample_spec", None)
        return entries


def _parsed(raw: msgspec.Raw) -> ListedModel | None:
    try:
        listed = msgspec.json.decode(raw, type=ListedModel)
        steps = {(int(step), kind): float(price) for kind, step, price in _STEP.findall(bytes(raw))}
    except (msgspec.DecodeError, ValueError):
        return None
    if not steps:
        return listed
    first = min(step for step, _ in steps)
    above = (steps.get((first, kind)) for kind in (b"input", b"output"))
    return msgspec.structs.replace(listed, above=first * 1000, **dict(zip(_ABOVE, above, strict=True)))
