"""What is remembered about users: short texts, each with its kind, sources, age and confidence.

    endpoints, select_memories ─ service ─ shelves (the store: what counts) and vectors (the index: rebuilt from them)
                                         └ search

A memory has an owner: a user of a tenant, or the tenant as a whole. Nothing of one owner is ever shown to another, but
that what belongs to a tenant as a whole is there for all of its users. It may have a scope: then it is there for the
requests of one session, agent or task only, and never becomes one with a memory of another scope.
"""

import unicodedata
from base64 import b32encode
from hashlib import blake2b
from itertools import product
from re import compile as pattern
from typing import NamedTuple, Protocol
from urllib.parse import quote, unquote

import msgspec

KIND = pattern(r"[a-z][a-z_]{0,30}")
"""What a kind looks like: `fact`, `preference`, `note`, `episode`."""
ID = pattern(r"[a-z2-7]{20}")
"""What an id looks like."""

HISTORY = 8
"""Earlier texts that a memory keeps."""
SOURCES = 16
"""Sources that a memory keeps; of more the latest."""
_ALL = "all"
_KINDS = ("session", "agent", "task")


class Owner(NamedTuple):
    """Whose memories: a user's, or with an empty user what belongs to a tenant as a whole."""

    tenant: str
    user: str
    """What stands for the user (`Identity.user`): a hash, so it may be part of a key."""
    scope: str | None = ""
    """Those of one scope (`scope_of`); empty for those without one, None for all, to read or remove them."""

    @property
    def whole(self) -> "Owner":
        """The owner with all scopes."""
        return self._replace(scope=None)

    @property
    def part(self) -> str:
        """Stands for the user in keys."""
        return self.user or _ALL

    @property
    def key(self) -> str:
        """Stands for the owner with all scopes in keys."""
        return f"{quote(self.tenant, safe='')}/{self.part}"

    @classmethod
    def of(cls, key: str) -> "Owner":
        """The owner with all scopes whom a key stands for."""
        tenant, _, part = key.partition("/")
        return cls(unquote(tenant), "" if part == _ALL else part, None)


def scope_of(session: str = "", agent: str = "", task: str = "") -> str:
    """The scope of a session, agent and task, each as in `Identity`, or empty for any; a hash, empty without all."""
    names = (session, agent, task)
    if not any(names):
        return ""
    kinds = "".join(kind[0] for kind, name in zip(_KINDS, names, strict=True) if name)
    return f"{kinds}-{blake2b(chr(0).join(names).encode(), digest_size=16).hexdigest()}"


def scopes_seen(session: str, agent: str, task: str) -> list[str]:
    """The scopes whose memories a request of this session, agent and task sees; the empty one, of all, first."""
    return [scope_of(*names) for names in product(*(("", name) if name else ("",) for name in (session, agent, task)))]


def kinds_of(scope: str) -> tuple[str, ...]:
    """What a scope is limited by: `session`, `agent`, `task`."""
    return tuple(kind for kind in _KINDS if kind[0] in scope.partition("-")[0])


class ReplacedText(msgspec.Struct, frozen=True, array_like=True):
    """A text that a newer one took the place of."""

    id: str
    text: str
    created: float


class Memory(msgspec.Struct, frozen=True, array_like=True):
    """One memory. Times are in seconds since 1970."""

    id: str
    """A hash of the text and the scope, so the same text is the same memory."""
    text: str
    kind: str
    sources: tuple[str, ...]
    """Where it comes from, as the application says."""
    created: float
    updated: float
    """When it was last said."""
    confidence: float
    """How sure it is, from 0 to 1."""
    expires: float | None = None
    earlier: tuple[ReplacedText, ...] = ()
    """The texts that were merged into it, the latest first."""
    scope: str = ""
    """For whose requests it is (`scope_of`); empty for all of the owner's."""

    def text_of(self, id: str) -> str | None:
        """The text under this or an earlier id."""
        if id == self.id:
            return self.text
        return next((each.text for each in self.earlier if each.id == id), None)


class Draft(NamedTuple):
    """A memory to be added."""

    text: str
    kind: str = "fact"
    sources: tuple[str, ...] = ()
    confidence: float = 1.0
    created: float | None = None
    """Now, if not given."""
    expires: float | None = None


class MemoryObserver(Protocol):
    """Who counts what becomes of memories."""

    def changed(self, change: str, count: int) -> None:
        """So many were `added`, `repeated`, `merged`, `aggregated`, `deleted`, `expired`, `evicted` or `refused`."""

    def wrote(self, size: int) -> None:
        """So many bytes were stored."""

    def searched(self, found_by: str) -> None:
        """They were searched: by `meaning`, by `words`, or it `failed`."""

    def lost(self, what: str) -> None:
        """A `page` is no longer in the store, or a `user` made room for another one."""


class Untold:
    """Counts nothing."""

    def changed(self, change: str, count: int) -> None:
        """Pass it over."""

    def wrote(self, size: int) -> None:
        """Pass it over."""

    def searched(self, found_by: str) -> None:
        """Pass it over."""

    def lost(self, what: str) -> None:
        """Pass it over."""


def id_of(text: str, scope: str = "") -> str:
    """The id of a text in a scope: the same for texts that differ in case, spacing and the dot at the end alone."""
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(" .!")
    digest = blake2b((plain or text).encode(errors="surrogatepass"), digest_size=13, key=scope.encode()).digest()
    return b32encode(digest)[:20].decode().lower()


def is_over(memory: Memory, now: float) -> bool:
    """Whether a memory has expired."""
    return memory.expires is not None and memory.expires <= now
