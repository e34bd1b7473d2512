"""The ledger: records chained by hashes, so that one that was changed or removed later shows.

Each process has a chain of its own for each conversation. An entry is a record; it has the hash of the entry before it.
"""

import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple

import orjson

from proxy.state.cache import Cache

LEDGER = "ledger"
"""The member of a record with its place in the chain."""

_CHAIN = 800
"""Bytes that the end of a chain takes in this process, its key included."""


class _End(NamedTuple):
    chain: str
    number: int
    hash: str | None
    handles: frozenset[str]


class Ledger:
    """The ends of the chains of this process."""

    def __init__(self, max_bytes: int = 4 * 2**20) -> None:
        self._ends: Cache[tuple[str, str], _End] = Cache(max_bytes)

    def link(self, key: tuple[str, str], handles: Sequence[str]) -> dict[str, Any]:
        """Return the place of the next entry of a tenant's conversation, with the handles that are new in it."""
        end = self._end(key)
        new = [handle for handle in handles if handle not in end.handles]
        return {"chain": end.chain, "number": end.number + 1, "previous": end.hash, "handles": new}

    def add(self, key: tuple[str, str], link: Mapping[str, Any], entry: bytes) -> None:
        handles = self._end(key).handles | {*link["handles"]}
        end = _End(link["chain"], link["number"], hash_of(entry), handles)
        self._ends.put(key, end, _CHAIN + 100 * len(handles))

    def forget(self, tenant: str) -> None:
        self._ends.forget(tenant)

    def _end(self, key: tuple[str, str]) -> _End:
        return self._ends.get(key) or _End(secrets.token_hex(8), 0, None, frozenset())


def hash_of(entry: bytes) -> str:
    """Return the hash of an entry, as the next one has it."""
    return blake2b(entry, digest_size=16).hexdigest()


Chains = Mapping[str, Mapping[int, Sequence[bytes]]]
"""The entries of each chain, by their numbers; of one number there should be one."""


def chains_of(entries: Iterable[bytes]) -> Chains:
    """Return the chains of entries. Raise `ValueError` or `LookupError` for what is no entry."""
    chains: dict[str, dict[int, list[bytes]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        link = (row := orjson.loads(entry))[LEDGER]
        chains[link["chain"]][link["number"]].append(orjson.dumps(row))  # without spaces, as it was hashed
    return chains


def verify(chains: Chains) -> Iterator[str]:
    """Yield the faults of the chains. The oldest entries may be gone: records have a time to live."""
    for chain, entries in chains.items():
        yield from (f"chain {chain}: entry {number} stands twice" for number, same in entries.items() if len(same) > 1)
        for before, number in pairwise(sorted(entries)):
            if number != before + 1:
                yield f"chain {chain}: entry {before + 1} is missing"
            elif orjson.loads(entries[number][0])[LEDGER]["previous"] != hash_of(entries[before][0]):
                yield f"chain {chain}: entry {before} was changed, or the link of entry {number} to it"


def manifest(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield an entry in words: changes of the messages, with the step that made each, new handles, a broken prefix."""
    before, after = row["tokens_before"] or 0, row["tokens_after"] or 0
    yield f"{row['ended']}  turn {row['turn']}  {row['model']}  {before:,} -> {after:,} tokens  {row['request_id']}"
    for change in row["changes"]:
        if change["kind"] != "unchanged":
            place = "new" if change["before"] is None else f"message {change['before']}"
            place += f" to {change['before'] + change['count'] - 1}" if change["count"] > 1 else ""
            by = f" by {change['step']}" if change["step"] else ""
            tokens = f"{change['tokens_before']:,} -> {change['tokens_after']:,} tokens"
            yield f"  {change['kind']}: {place}, {change['role'] or 'several roles'}, {tokens}{by}"
    yield from (f"  why: {step['policy']}: {step['why']}" for step in row["steps"] if step["verdict"] == "rewrite")
    if handles := row[LEDGER]["handles"]:
        yield f"  new handles: {', '.join(handles)}"
    if broken := row["prefix_broken"]:
        yield f"  prefix broken by {broken['step'] or 'the client'}: {broken['lost']:,} tokens are read anew"
