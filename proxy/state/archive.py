"""Originals of what leaves the context: content-addressed, and stored once for each tenant.

A session claims a content by a key of its own; without it, the content is not the session's. The tenant as a whole
finds each of its contents.

A marker that leaves with a request names content that is in the store: `keep` has written it, or has seen it there
within the last minute, and the store protects for longer what was used. Each request looks up the first of
what was seen: where that is gone, say with a removed directory, so may be the rest.
"""

import asyncio
import logging
import time
import zlib
from base64 import b32encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from re import compile as pattern
from urllib.parse import quote

from proxy.context import Identity, Outage
from proxy.state.cache import Cache, SharedLimit
from proxy.state.store import PASSING, Store, StoreError
from proxy.state.warnings import Warnings

logger = logging.getLogger("penstock.archive")

HANDLE = pattern(r"[a-z2-7]{20}")

INLINE = 32 * 1024
"""Content that is hashed on the event loop, in characters: at most 0.1 ms."""

_SEEN = 500
"""Bytes that a key takes."""
_FRESH = 60.0
"""Seconds, well below the store's protected time, for which what was seen there is not looked up."""
_WORTH_COMPRESSING = 1024
_PLAIN, _DEFLATED = b"\0", b"\1"


def handle_of(content: str) -> str:
    """Return the handle of content, a pure function of it: 100 bits of its BLAKE2b hash, in 20 letters and digits.

    Finding content for a given handle takes 2^100 attempts. Making a pair that shares one takes 2^50; whoever does
    harms only the session that both were sent to.
    """
    digest = blake2b(content.encode(errors="surrogatepass"), digest_size=13).digest()
    return b32encode(digest)[:20].decode().lower()


class Archives:
    """Makes archives over one store, and remembers what it has recently seen there."""

    def __init__(
        self,
        store: Store,
        *,
        ttl: float = 30 * 86400.0,
        largest: int = 64 * 2**20,
        limit: SharedLimit | int = 2**24,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.ttl = ttl
        self.largest = largest
        self.wrote: Callable[[], None] = lambda: None
        """Is called for each new content."""
        # by the prefixes of content and claim, handle, and the store's losses: what was seen before one is not found
        self.seen: Cache[tuple[str, str, str, int], None] = Cache(limit, age=min(_FRESH, ttl / 10), clock=clock)
        self._warnings = Warnings(logger, "archive failed", clock)

    def bind(self, who: Identity, outage: Outage | None = None) -> "BoundArchive":
        """Return the archive of a conversation; one without a name lists only what this object kept or used."""
        claims = f"claim/{_owner(who.tenant)}{_part(who.scope)}/"
        return BoundArchive(self, _contents(who.tenant), claims, None if who.is_named else {}, outage or Outage())

    async def find(self, tenant: str, handle: str) -> str | None:
        """Return the content of a handle from any session of a tenant, or None. Raises `StoreError`."""
        return await self.fetch(handle, _contents(tenant))

    async def fetch(self, handle: str, contents: str, *claims: str) -> str | None:
        """Return the content of a handle, which is a use; None if it is gone, or a claim. Raises `StoreError`."""
        handle = handle.strip().lower()
        if not HANDLE.fullmatch(handle):
            return None
        packed, keys = None, [prefix + handle for prefix in (contents, *claims)]
        try:
            packed, *claimed = await self.store.get_all(keys, ttl=self.ttl)
            if packed is None or None in claimed:
                return None
            return await asyncio.to_thread(_unpacked, packed, handle, self.largest)
        except StoreError as error:
            self.warn("fetch", error)
            if packed is None:
                raise
            return None

    async def forget(self, tenant: str) -> int:
        deleted = 0
        for prefix in (_contents(tenant), f"claim/{_owner(tenant)}"):
            while keys := await self.store.keys(prefix):
                await self.store.delete(keys)
                deleted += len(keys) if prefix == _contents(tenant) else 0
        self.forget_seen(tenant)
        return deleted

    def forget_seen(self, tenant: str) -> int:
        """Forget what of a tenant's was seen in the store, because somebody deletes it there."""
        return self.seen.forget(_contents(tenant))

    async def check(self, key: str) -> None:
        """Forget what was seen unless one key of it is still there: the store may have been removed or replaced."""
        try:
            if await self.store.get(key) is not None:
                return
        except StoreError as error:
            if error.cause in PASSING:
                return
        self.seen.clear()

    def warn(self, action: str, error: StoreError) -> None:
        self._warnings.warn(action=action, cause=error.cause)


@dataclass(slots=True)
class BoundArchive:
    """The `Archive` of one tenant and session. A handle of another one names nothing here."""

    _archives: Archives
    _contents: str
    _claims: str
    _own: dict[str, None] | None = None
    _outage: Outage = field(default_factory=Outage)
    failed: bool = False
    """Something could not be kept, and may be at another time."""
    _is_checked: bool = False

    async def keep(self, content: str) -> str | None:
        """Store content durably, or touch it, and return its handle; None, and a line in the log, where that fails."""
        archives = self._archives
        handle = handle_of(content) if len(content) <= INLINE else await asyncio.to_thread(handle_of, content)
        self._note(handle)
        if await self._fresh([handle]):
            return handle
        losses = archives.store.losses
        try:
            if not await self._use([handle]):
                packed = await asyncio.to_thread(_packed, content, archives.largest)
                await archives.store.put_all(
                    {self._contents + handle: packed, self._claims + handle: b""}, ttl=archives.ttl
                )
                archives.wrote()
                self._see(handle, losses)
        except StoreError as error:
            archives.warn("keep", error)
            self.failed = self.failed or error.cause != "too_large"
            return None
        return handle

    async def fetch(self, handle: str) -> str | None:
        return await self._archives.fetch(handle, self._contents, self._claims)

    def handle(self, content: str) -> str:
        return handle_of(content)

    async def touch(self, handles: Iterable[str]) -> frozenset[str]:
        """Use what handles name, where a conversation carries them without their content; those that are there."""
        known = [each for each in dict.fromkeys(handles) if HANDLE.fullmatch(each)]
        fresh = await self._fresh(known)
        self._note(*known)
        used = frozenset[str]()
        try:
            if rest := [each for each in known if each not in fresh]:
                used = await self._use(rest)
        except StoreError as error:
            self._archives.warn("touch", error)
            self.failed = self._outage.begun = True
        return used | await self._fresh(fresh)

    async def _use(self, handles: Sequence[str]) -> frozenset[str]:
        """Use contents and the claims to them, and return the handles of those that are there."""
        archives, losses = self._archives, self._archives.store.losses
        keys = {handle: {self._contents + handle, self._claims + handle} for handle in handles}
        touched = await archives.store.touch([*chain(*keys.values())], ttl=archives.ttl)
        there = [handle for handle in handles if keys[handle] <= touched]
        for handle in there:
            self._see(handle, losses)
        return frozenset(there)

    def _see(self, handle: str, losses: int) -> None:
        """Remember that content is in the store, which had lost values so often when it was asked."""
        self._archives.seen.put((self._contents, self._claims, handle, losses), None, _SEEN)

    def _seen(self, handles: Iterable[str]) -> frozenset[str]:
        """Return those whose content was in the store so recently that it is not looked up."""
        losses = self._archives.store.losses
        keys = [(self._contents, self._claims, handle, losses) for handle in handles]
        return frozenset([key[2] for key in self._archives.seen.present(keys)])

    async def _fresh(self, handles: Iterable[str]) -> frozenset[str]:
        """Return those that are not looked up; the first of them is, once for each request."""
        fresh = self._seen(handles)
        if fresh and not self._is_checked:
            await self._archives.check(self._claims + next(iter(fresh)))
            self._is_checked, fresh = True, self._seen(fresh)
        return fresh

    async def handles(self, limit: int) -> tuple[str, ...]:
        archives = self._archives
        if self._own is not None:
            return tuple(reversed(self._own))[:limit]
        try:
            keys = await archives.store.keys(self._claims, limit=limit, latest=True)
        except StoreError as error:
            archives.warn("search", error)
            raise
        return tuple(key.removeprefix(self._claims) for key in keys)

    def _note(self, *handles: str) -> None:
        if self._own is not None:
            self._own |= dict.fromkeys(handles)


@lru_cache(1024)
def _owner(tenant: str) -> str:
    return f"{quote(tenant, safe='')}/"


def _contents(tenant: str) -> str:
    return f"archive/{_owner(tenant)}"


def _part(session: str) -> str:
    return blake2b(session.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _packed(content: str, largest: int) -> bytes:
    data = content.encode(errors="surrogatepass")
    if len(data) > largest:
        raise StoreError("too_large")
    deflated = zlib.compress(data, 1) if len(data) > _WORTH_COMPRESSING else data
    return _DEFLATED + deflated if len(deflated) < 0.9 * len(data) else _PLAIN + data


def _unpacked(packed: bytes, handle: str, largest: int) -> str:
    kind, data = packed[:1], packed[1:]
    try:
        if kind == _DEFLATED:
            data = zlib.decompressobj().decompress(data, largest)
        content = data.decode(errors="surrogatepass")
    except (zlib.error, UnicodeDecodeError) as error:
        raise StoreError("corrupted") from error
    if kind not in (_PLAIN, _DEFLATED) or handle_of(content) != handle:  # also where it was cut at the bound
        raise StoreError("corrupted")
    return content
