"""Our own table of models, `proxy/data/models.json`, for what litellm's list lacks and where litellm is absent."""

from fnmatch import fnmatchcase
from importlib.resources import files

import msgspec

from proxy.context import CacheRules


class ModelRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the table. Prices are US dollars per million tokens, input and output."""

    match: tuple[str, ...]
    window: int
    max_output: int
    max_input: int | None = None
    reserve: int | None = None
    encoding: str = "o200k_base"
    factor: float = 1.0
    exact: bool = False
    prices: tuple[float, float] = (0.0, 0.0)
    above: tuple[int, float, float] | None = None
    """The tokens of prompt above which the whole request costs more, and the prices above it."""
    cache: str = "none"


class ModelTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole table."""

    caches: dict[str, CacheRules]
    unbound: tuple[str, ...]
    """Models of which signed reasoning is known not to be bound to what stood before it, up to the versions from which
    on it is; all others count as bound."""
    models: tuple[ModelRow, ...]

    def is_bound(self, name: str) -> bool:
        """Whether signed reasoning of a model, by its canonical name, may be bound to what stood before it."""
        return not any(fnmatchcase(name, glob) for glob in self.unbound)

    def find(self, name: str) -> ModelRow | None:
        """The first line that matches a canonical name."""
        return next((row for row in self.models if any(fnmatchcase(name, glob) for glob in row.match)), None)


def load_table() -> ModelTable:
    """Read the table that ships with the package."""
    return msgspec.json.decode((files("proxy") / "data" / "models.json").read_bytes(), type=ModelTable)
