"""`penstock ledger show | verify`: what left a conversation, and the proof that no record of it was changed since."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

import orjson

from proxy.chat.errors import ConfigError, PenstockError
from proxy.config.load import load
from proxy.config.settings import Settings, StateSettings
from proxy.server.build import build_stores
from proxy.telemetry.ledger import LEDGER, chains_of, hash_of, manifest, verify
from proxy.telemetry.record_table import Filters, rows
from proxy.text import counted


def show_ledger(options: argparse.Namespace) -> int:
    """Print the entries of a conversation, or of all; as JSON lines for `verify` if the command line says so."""
    for entry in _recorded(load(options.config).settings, Filters(conversation=options.conversation)):
        if options.json:
            print(entry.decode())
        elif LEDGER in (row := orjson.loads(entry)):
            print("\n".join(manifest(row)))
    return 0


def verify_ledger(options: argparse.Namespace) -> int:
    """Print the last hash of each chain. Return 1 if there are faults, which are printed in its place."""
    if options.file is None:
        entries = _recorded(load(options.config).settings, Filters())
    else:
        entries = options.file.read_bytes().splitlines()
    try:
        chains = chains_of(entries)
        faults = [*verify(chains)]
    except (ValueError, LookupError, TypeError, AttributeError):
        raise PenstockError(f"{options.file}: no ledger; make one with: penstock ledger show --json") from None
    hashes = {hash_of(entry) for chain in chains.values() for same in chain.values() for entry in same}
    faults += [f"no entry has the hash {head}" for head in options.head if head not in hashes]
    for fault in faults:
        print(f"penstock: {fault}", file=sys.stderr)
    if faults:
        return 1
    for chain, numbered in chains.items():
        last = max(numbered)
        print(f"{chain}  entries {min(numbered)} to {last}  head {hash_of(numbered[last][0])}")
    print(f"{counted(len(hashes), 'record')} as written")
    return 0


def _recorded(settings: Settings, filters: Filters) -> Sequence[bytes]:
    state = settings.state
    if isinstance(state, StateSettings) and state.kind == "memory":
        raise ConfigError("these records end with their process; set state.directory, or Redis, to keep a ledger")

    if not settings.records.keep:
        raise ConfigError("records: off keeps no ledger")

    async def read() -> Sequence[bytes]:
        stores = build_stores(settings)
        try:
            return await stores.records.ask(rows, filters)
        finally:
            await stores.records.aclose()
            await stores.store.aclose()

    return asyncio.run(read())
