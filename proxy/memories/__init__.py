"""Memories of users: short texts, each with its kind, sources, age and confidence.

    endpoints, select_memories ─ service ─ table (the rows in the store)
                                         └ relevance (their vectors, and how well they help with a question)

A memory has an owner: a user of a tenant, or the tenant as a whole. Nothing of one owner is ever shown to another, but
a tenant's own memories are there for all of its users. It may have a scope: then it is there for the requests of one
session, agent or task only, and never becomes one with a memory of another scope.
"""

import unicodedata
from base64 import b32encode
from collections.abc import Callable
from hashlib import blake2b
from itertools import product
from re import compile as pattern
from typing import NamedTuple
from urllib.parse import quote, unquote

import msgspec

KIND = pattern(r"[a-z][a-z_]{0,30}")
"""A kind: `fact`, `preference`, `note`, `episode`."""
ID = pattern(r"[a-z2-7]{20}")

HISTORY = 8
"""Earlier texts that a memory keeps."""
SOURCES = 16
"""Sources that a memory keeps; of more the latest."""
_ALL = "all"
_KINDS = ("session", "agent", "task")


class Owner(NamedTuple):
    """The owner of memories: a user, or with an empty user a tenant as a whole."""

    tenant: str
    user: str
    """A hash that stands for the user (`Identity.user`), so it may be part of a key."""
    scope: str | None = ""
    """One scope (`scope_of`); empty for memories without one, None for all, to read or remove them."""

    @property
    def whole(self) -> "Owner":
        return self._replace(scope=None)

    @property
    def key(self) -> str:
        """The owner with all scopes in keys."""
        return f"{quote(self.tenant, safe='')}/{self.user or _ALL}"

    @classmethod
    def of(cls, key: str) -> "Owner":
        tenant, _, part = key.partition("/")
        return cls(unquote(tenant), "" if part == _ALL else part, None)


def scope_of(session: str = "", agent: str = "", task: str = "") -> str:
    """Return the scope of a session, agent and task, each as in `Identity`: a hash, empty without any name."""
    names = (session, agent, task)
    if not any(names):
        return ""
    kinds = "".join(kind[0] for kind, name in zip(_KINDS, names, strict=True) if name)
    return f"{kinds}-{blake2b(chr(0).join(names).encode(), digest_size=16).hexdigest()}"


def scopes_seen(session: str, agent: str, task: str) -> list[str]:
    """Return the scopes that a request of this session, agent and task sees; the empty one, of all, first."""
    return [scope_of(*names) for names in product(*(("", name) if name else ("",) for name in (session, agent, task)))]


def kinds_of(scope: str) -> tuple[str, ...]:
    """Return the names that a scope is limited by: `session`, `agent`, `task`."""
    return tuple(kind for kind in _KINDS if kind[0] in scope.partition("-")[0])


class ReplacedText(msgspec.Struct, frozen=True, array_like=True):
    """A text in whose place a newer one stands."""

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
    """Its origin, as the application says."""
    created: float
    updated: float
    confidence: float
    """From 0 to 1."""
    expires: float | None = None
    earlier: tuple[ReplacedText, ...] = ()
    """The texts that were merged into it, the latest first."""
    scope: str = ""
    """The requests that it is for (`scope_of`); empty for all of the owner's."""

    @property
    def texts(self) -> dict[str, str]:
        """Its text and those that were merged into it, by their ids."""
        return {**{each.id: each.text for each in self.earlier}, self.id: self.text}


class Draft(NamedTuple):
    """A memory to be added."""

    text: str
    kind: str = "fact"
    sources: tuple[str, ...] = ()
    confidence: float = 1.0
    created: float | None = None
    """Now, if not given."""
    expires: float | None = None


Count = Callable[[str, str, int], None]
"""Adds to a metric: its name, its label (empty for none), and how much."""


def id_of(text: str, scope: str = "") -> str:
    """Return the id of a text in a scope; texts that differ in case, spacing or the last dot alone have the same."""
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(" .!")
    digest = blake2b((plain or text).encode(errors="surrogatepass"), digest_size=13, key=scope.encode()).digest()
    return b32encode(digest)[:20].decode().lower()


def is_over(memory: Memory, now: float) -> bool:
    """Return whether a memory has expired."""
    return memory.expires is not None and memory.expires <= now
