"""Facts about models, in layers: the configuration over litellm's list over our table (`proxy/data/models.json`).

The list is read as data: litellm itself is not imported.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from proxy.config.settings import ModelSettings
from proxy.context import CacheRules, ModelProfile, Prices
from proxy.models.encodings import ALIASES
from proxy.models.families import canonical
from proxy.text.json_values import json_object

_FILE = "model_prices_and_context_window_backup.json"
_STEP = re.compile(r"(?:input|output)_cost_per_token_above_(\d+)k_tokens")
"""The key of a price above so many tokens of the prompt."""
_DATE = re.compile(r"-(?:20\d\d-?\d\d-?\d\d|latest)$")
_CHAT = frozenset({"chat", "completion", "responses"})

ListedModel = Mapping[str, Any]
"""A model of the list. Prices are US dollars per token. Its `max_tokens` has many meanings and is not read."""


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
        spellings = (name, name.lower(), name.rsplit("/", 1)[-1], plain, _DATE.sub("", plain))
        found = (self._entry(spelling) for spelling in spellings)
        return next((entry for entry in found if entry.get("mode") in _CHAT), None)

    def of_provider(self, provider: str) -> list[str]:
        """Return the chat models of a provider, by litellm's name for it, under the provider's own names."""
        named = f'"{provider}"'.encode()
        listed = ((name, self._entry(name)) for name, raw in self._entries.items() if named in bytes(raw))
        chat = [name for name, it in listed if it.get("litellm_provider") == provider and it.get("mode") in _CHAT]
        return list(dict.fromkeys(name.removeprefix(f"{provider}/") for name in chat))

    def _entry(self, name: str) -> ListedModel:
        return json_object(bytes(self._entries.get(name, b"")))

    @cached_property
    def _entries(self) -> dict[str, msgspec.Raw]:
        try:
            data = self.path.read_bytes() if self.path else b"{}"
            entries = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        except (OSError, msgspec.DecodeError):
            return {}
        entries.pop("sample_spec", None)
        return entries


UNKNOWN_WINDOW = 128_000
"""The window of an unknown hosted model. Too small would cut and refuse requests that the provider takes; too large
only lets the provider refuse them itself, as it would without Penstock."""
OLLAMA_WINDOW = 4096
"""The window of a model on Ollama until it is told or found out: what Ollama falls back to, whatever the model was
trained for. Too large here would be cut silently."""
UNKNOWN_OUTPUT = 65_536
UNKNOWN_FACTOR = 1.1
"""Tokens of an unknown model per token of o200k_base, with a margin: newer vocabularies differ by 0 to 10 %."""
USUAL_RESERVE = 4096

_UNKNOWN = {"window": UNKNOWN_WINDOW, "max_output": UNKNOWN_OUTPUT, "factor": UNKNOWN_FACTOR, "source": "default"}
_REMEMBERED = 4096


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

    def find(self, name: str) -> ModelRow | None:
        return next((row for row in self.models for glob in row.match if _matches(name, glob)), None)


def _matches(name: str, glob: str) -> bool:
    """Return whether a glob of the table matches. Few begin as the name does, and most end there: none is compiled."""
    beginning = _beginning(glob)
    return name.startswith(beginning) and (glob == f"{beginning}*" or fnmatchcase(name, glob))


@cache
def _beginning(glob: str) -> str:
    return re.split(r"[*?\[]", glob, maxsplit=1)[0]


@cache
def _table() -> ModelTable:
    return msgspec.json.decode((files("proxy") / "data" / "models.json").read_bytes(), type=ModelTable)


class Models:
    """Resolves names to profiles. Safe to use from any thread."""

    def __init__(self, prices: PriceList | None = None) -> None:
        """`prices` is litellm's list: that of the installed litellm, unless given."""
        self._prices, self.table = prices or PriceList.installed(), _table()
        self._known = lru_cache(_REMEMBERED)(self._resolved)

    def resolve(self, name: str, settings: ModelSettings | None = None, *, ollama: bool = False) -> ModelProfile:
        """Return the profile of a model by its upstream's name; an unknown one gets defaults.

        On Ollama the window is that of the configuration or 4,096, until `with_window` says what the server reports.
        """
        return self._known(name, settings, ollama)

    def encodings(self, entries: Iterable[ModelSettings]) -> frozenset[str]:
        """Return what counts the tokens of the models of some entries; a glob counts as a model of that name."""
        return frozenset(self.resolve(each.model or name, each).encoding for each in entries for name in each.match)

    def _resolved(self, name: str, settings: ModelSettings | None, ollama: bool) -> ModelProfile:
        plain = canonical(name)
        row = self.table.find(plain)
        facts: dict[str, Any] = {**_UNKNOWN}
        if row:
            prices = Prices(*row.prices, *(row.above or ()))
            rest = {"prices": prices, "cache": self.table.caches[row.cache], "source": "table"}
            facts = msgspec.structs.asdict(row) | rest
            del facts["match"], facts["above"]
        facts["binds_reasoning"] = not (ollama or any(_matches(plain, glob) for glob in self.table.unbound))
        if ollama:
            facts |= {"window": OLLAMA_WINDOW, "max_input": None, "max_output": None, "reserve": None}
            facts |= {"prices": Prices(), "cache": CacheRules(), "source": "default"}
        else:
            listed = self._prices.find(name)
            facts |= _of_list(facts, listed) if listed else {}
        facts |= _of_settings(facts, settings, ollama) if settings else {}
        return _profile(name, facts)


def with_window(profile: ModelProfile, window: int, source: str) -> ModelProfile:
    """Return the profile with a window that was found out, as from a running Ollama. The reserve follows it."""
    known = {item.name: getattr(profile, item.name) for item in fields(ModelProfile)}
    known |= {"window": window, "source": source}
    if profile.reserve == _usual_reserve(profile.window, profile.max_output):
        known["reserve"] = None
    if profile.max_output >= profile.window:
        known["max_output"] = None
    return _profile(profile.name, known)


def _of_list(facts: Mapping[str, Any], listed: ListedModel) -> dict[str, Any]:
    """Return what litellm's list says over the table.

    Its `max_input_tokens` is the prompt's limit for some models, the window for others: a figure as large as our
    table's window is read as the window, a smaller one as the limit where our table knows one.
    """
    # figures that are missing, or so odd that they must be a mistake, are none
    read, written = (int(_number(listed, f"max_{side}_tokens")) for side in ("input", "output"))
    has_limits = 0 < written <= read
    result: dict[str, Any] = {"source": "litellm"} if has_limits or facts["source"] != "default" else {}
    if has_limits:
        result |= {"window": read, "max_output": written}
        if facts.get("max_input") and read >= facts["window"]:
            result |= {"max_input": read - written}
        elif facts.get("max_input"):
            result |= {"window": read + written, "max_input": read}
    if {"input_cost_per_token", "output_cost_per_token"} <= listed.keys():
        result["prices"] = _prices(listed)
    price, cached = _number(listed, "input_cost_per_token"), _number(listed, "cache_read_input_token_cost")
    if price and cached:
        rules = facts["cache"] if facts.get("cache", CacheRules()).ttl else CacheRules(minimum=1024, ttl=300)
        entered = _number(listed, "cache_creation_input_token_cost")
        write = round(entered / price, 4) if entered else rules.write
        result["cache"] = replace(rules, read=round(cached / price, 4), write=write)
    return result


def _number(listed: ListedModel, name: str) -> float:
    value = listed.get(name)
    return value if isinstance(value, int | float) else 0


def _prices(listed: ListedModel) -> Prices:
    """Return the prices, and those above the first step that the list has."""
    step = min((int(found[1]) for found in map(_STEP.fullmatch, listed) if found), default=0)
    names = [f"{side}_cost_per_token" for side in ("input", "output")]
    usual = [_number(listed, name) for name in names]
    above = [_number(listed, f"{name}_above_{step}k_tokens") or low for name, low in zip(names, usual, strict=True)]
    each = [round(price * 1e6, 6) for price in (*usual, *(above if step else (0.0, 0.0)))]
    return Prices(each[0], each[1], step * 1000, each[2], each[3])


def _of_settings(facts: Mapping[str, Any], settings: ModelSettings, ollama: bool) -> dict[str, Any]:
    own = settings.model_dump(include={"max_output", "reserve"}, exclude_none=True)
    window = settings.num_ctx or settings.window if ollama else settings.window
    if window is not None:
        # the table's reserve may be too much of a smaller window
        reserve = facts.get("reserve")
        fitting = reserve if reserve is not None and reserve <= window // 4 else None
        own = {"window": window, "max_input": None, "reserve": fitting} | own
    own |= _counting(facts, settings)
    plain = {name: getattr(settings, name) for name in ("prices", "binds_reasoning", "cache")}
    own |= {name: value for name, value in plain.items() if value is not None}
    if settings.tokenizer is not None:
        own["names_tokenizer"] = True
    is_known = not ollama and facts["source"] != "default"
    if window is not None or (is_known and own.keys() - {"binds_reasoning", "names_tokenizer"}):
        own["source"] = "config"
    return own


def _counting(facts: Mapping[str, Any], settings: ModelSettings) -> dict[str, Any]:
    """Return how the configuration says to count; another tokenizer than the table's is nowhere taken for exact."""
    if settings.tokenizer is not None and settings.tokenizer != facts.get("encoding"):
        return {"encoding": settings.tokenizer, "factor": settings.factor or 1.0, "exact": False}
    if settings.factor is not None:
        exact = bool(facts.get("exact")) and settings.factor == facts.get("factor")
        return {"factor": settings.factor, "exact": exact}
    return {}


def _usual_reserve(window: int, max_output: int) -> int:
    return min(max_output, USUAL_RESERVE, window // 10)


def _profile(name: str, facts: Mapping[str, Any]) -> ModelProfile:
    known = dict(facts)
    window = known["window"]
    if known.get("max_input") and known["max_input"] >= window:
        known["max_input"] = None
    known["max_output"] = min(known.get("max_output") or window, window)
    usual, reserve = _usual_reserve(window, known["max_output"]), known.get("reserve")
    known["reserve"] = usual if reserve is None else min(reserve, window - 1)
    encoding = known.get("encoding", "o200k_base")
    known["encoding"] = ALIASES.get(encoding, encoding)  # equal ones share memory and counts
    known["name"] = name
    return ModelProfile(**known)
