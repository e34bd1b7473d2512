"""Texts that one agent gives to another, kept for the receiver under the tenant and the receiver's conversation.

Only who gives names the receiver; nobody can ask for what was not given to it. What is given to a conversation as a
whole is for all its agents and tasks, what is given to an agent for all its tasks.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from urllib.parse import quote

import orjson

from proxy.context import Identity, Outage, Share
from proxy.state.store import Store, StoreError

MOST = 100
"""The most texts in one conversation at the same time, for all its agents and tasks together."""

_ANY = "-"
"""Stands for all agents, or all tasks, in a key."""


class TooMany(Exception):
    """As much was given to a conversation as it may hold."""


@dataclass(frozen=True, slots=True)
class Given:
    """A text that was given, with the names of the giver."""

    id: str
    giver: str
    agent: str
    """The names of who gave it, as it calls itself; empty where it has none."""
    task: str
    note: str
    content: str
    created: float

    @property
    def share(self) -> Share:
        named = [f'{kind} "{name}"' for kind, name in (("agent", self.agent), ("task", self.task)) if name]
        return Share(self.id, ", ".join(named) or "another conversation", self.note, self.content)


class Shares:
    """Keeps what is given, over one store. All methods raise `StoreError`."""

    def __init__(self, store: Store, *, ttl: float, clock: Callable[[], float] = time.time) -> None:
        self._store, self._ttl, self._clock = store, ttl, clock

    def bind(self, who: Identity, outage: Outage | None = None) -> "BoundInbox":
        return BoundInbox(self, who, outage or Outage())

    async def give(
        self, giver: Identity, receiver: Identity, *, agent: str, task: str, note: str, content: str
    ) -> Given:
        """Give a text to a receiver of the same tenant; the same twice is one. Raises `TooMany`."""
        parts = [part.encode(errors="surrogatepass") for part in (giver.scope, receiver.scope, note, content)]
        digested = b"".join(b"%d:%b" % (len(part), part) for part in parts)
        gift = Given(
            blake2b(digested, digest_size=16).hexdigest(), giver.scope, agent, task, note, content, self._clock()
        )
        key = f"{_all_of(receiver)}{receiver.agent or _ANY}/{receiver.task or _ANY}/{gift.id}"
        there = await self._store.keys(_all_of(receiver), limit=MOST)
        if key in there:
            return (await self._fetch((key,))).get(key, gift)
        if len(there) >= MOST:
            raise TooMany
        await self._store.put(key, orjson.dumps(asdict(gift)), ttl=self._ttl)
        return gift

    async def received(self, identity: Identity) -> Sequence[Given]:
        found = await self._fetch(await self._keys(identity))
        mine = (given for given in found.values() if given.giver != identity.scope)
        return sorted(mine, key=lambda given: (given.created, given.id))

    async def take_back(self, identity: Identity, id_: str) -> bool:
        keys = await self._store.keys(_all_of(identity), limit=MOST)
        named = [key for key in keys if key.endswith(f"/{id_}")]
        for_it = await self._keys(identity)
        found = await self._fetch(named)
        gone = [key for key, given in found.items() if key in for_it or given.giver == identity.scope]
        await self._store.delete(gone)
        return bool(gone)

    async def _keys(self, identity: Identity) -> list[str]:
        prefix, agents, tasks = _all_of(identity), {_ANY, identity.agent}, {_ANY, identity.task}
        parts = [(key, *key.removeprefix(prefix).split("/")) for key in await self._store.keys(prefix, limit=MOST)]
        return [key for key, agent, task, _ in parts if agent in agents and task in tasks]

    async def _fetch(self, keys: Sequence[str]) -> dict[str, Given]:
        values = await self._store.get_all(keys, ttl=self._ttl)
        read = ((key, _read(value)) for key, value in zip(keys, values, strict=True) if value is not None)
        return {key: given for key, given in read if given is not None}


@dataclass(slots=True)
class BoundInbox:
    """The `Inbox` of a request's context."""

    _shares: Shares
    _identity: Identity
    _outage: Outage

    async def received(self) -> Sequence[Share]:
        try:
            return [given.share for given in await self._shares.received(self._identity)]
        except StoreError:
            self._outage.begun = True
            raise


def _all_of(identity: Identity) -> str:
    return f"share/{quote(identity.tenant, safe='')}/{identity.session}/"


def _read(value: bytes) -> Given | None:
    try:
        return Given(**orjson.loads(value))
    except (ValueError, TypeError):
        return None
