"""What is remembered about users: short texts, each with its kind, sources, age and confidence.

    endpoints, select_memories ─ service ─ shelves (the store: what counts) and vectors (the index: rebuilt from them)

A memory has an owner: a user of a tenant, or the tenant as a whole. Nothing of one owner is ever shown to another, but
that what belongs to a tenant as a whole is there for all of its users.
"""

import unicodedata
from base64 import b32encode
from hashlib import blake2b
from re import compile as pattern
from typing import NamedTuple
from urllib.parse import quote

import msgspec

KIND = pattern(r"[a-z][a-z_]{0,30}")
"""What a kind looks like: `fact`, `preference`, `note`, `episode`."""
ID = pattern(r"[a-z2-7]{20}")
"""What an id looks like."""

HISTORY = 8
"""Earlier texts that a memory keeps."""
SOURCES = 16
"""Sources that a memory keeps; of more the latest."""


class Owner(NamedTuple):
    """Whose memories: a user's, or with an empty user what belongs to a tenant as a whole."""

    tenant: str
    user: str
    """What stands for the user (`Identity.user`): a hash, so it may be part of a key."""

    @property
    def part(self) -> str:
        """Stands for the user in keys."""
        return self.user or "all"

    @property
    def key(self) -> str:
        """Stands for the owner in keys."""
        return f"{quote(self.tenant, safe='')}/{self.part}"


class Earlier(msgspec.Struct, frozen=True, array_like=True):
    """A text that a newer one took the place of."""

    id: str
    text: str
    created: float


class Memory(msgspec.Struct, frozen=True, array_like=True):
    """One memory. Times are in seconds since 1970."""

    id: str
    """A hash of the text, so the same text is the same memory."""
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
    earlier: tuple[Earlier, ...] = ()
    """The texts that were merged into it, the latest first."""

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


def id_of(text: str) -> str:
    """The id of a text: the same for texts that differ in case, spacing and the dot at the end alone."""
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(" .!")
    digest = blake2b((plain or text).encode(errors="surrogatepass"), digest_size=13).digest()
    return b32encode(digest)[:20].decode().lower()


def is_over(memory: Memory, now: float) -> bool:
    """Whether a memory has expired."""
    return memory.expires is not None and memory.expires <= now
