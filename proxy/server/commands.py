"""Commands that serve nothing: `penstock check`, `ledger show`, `ledger verify` and `new-policy`.

`check` says that a configuration is valid, and with `--connect` that every server of it answers. `ledger` shows what
left a conversation, and proves that no record of it was changed since.
"""

import argparse
import asyncio
import logging
import re
import sys
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from string import Template
from time import perf_counter

import orjson

from proxy.chat.errors import ConfigError, PenstockError, UpstreamFailed
from proxy.config.load import Config, load
from proxy.config.settings import (
    ForeignUpstream,
    OpenAIEmbedding,
    OpenAIUpstream,
    RedisStateSettings,
    Settings,
    StateSettings,
)
from proxy.server.build import build_backend, build_index, build_stores, build_upstreams
from proxy.state.store import Store
from proxy.telemetry.ledger import chains_of, hash_of, manifest, verify
from proxy.telemetry.record_table import Filters, rows
from proxy.text import counted
from proxy.upstreams.base import Call, Upstream
from proxy.vectors.base import Backend, EmbeddingFailed
from proxy.vectors.index import IndexService

PATIENCE = 10.0
"""Seconds that a server has to answer."""


def check_configuration(options: argparse.Namespace) -> int:
    """Load the configuration, and print its warnings. Return 1 if a server does not answer."""
    config = load(options.config)
    settings = config.settings
    for warning in config.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    chains = ", ".join(f"{name} {len(steps)}" for name, steps in settings.chains.items())
    counts = f"upstreams: {len(settings.upstreams)}; model entries: {len(settings.models)}; steps per chain: {chains}"
    print(f"{config.path}: good ({counts}; version {config.version})")
    return asyncio.run(connect(config)) if options.connect else 0


async def connect(config: Config) -> int:
    """Ask each server once, and print its answer. Return 1 if one is missing. The questions cost and change nothing."""
    logging.getLogger("penstock.http").addHandler(logging.NullHandler())  # its warnings say less than the lines here
    settings, are_there = config.settings, list[bool]()
    litellm = {name: each for name, each in settings.upstreams.items() if isinstance(each, ForeignUpstream)}
    # litellm has no question that costs nothing: only an address of the operator's own is asked, and not by litellm
    addresses = {name: each.base_url for name, each in litellm.items() if each.base_url is not None}
    plain = {name: OpenAIUpstream(kind="openai", base_url=url, keyless=True) for name, url in addresses.items()}
    asked = settings.model_copy(update={"upstreams": {**settings.upstreams, **plain}})
    for name, upstream in build_upstreams(asked).items():
        named = f"upstream {name!r}"
        if name in litellm and name not in plain:
            print(f"{named}: not asked: litellm knows its address, and asks it nothing that costs no tokens")
        elif upstream.address is None:
            print(f"{named}: not asked: it has no address of its own")
        else:
            are_there.append(await _answers(named, _upstream(upstream, keyless=name in plain), upstream))
    store = build_stores(settings).store if isinstance(settings.state, RedisStateSettings) else None
    backend = build_backend(settings.embedding) if isinstance(settings.embedding, OpenAIEmbedding) else None
    for named, service in (("state", store), ("vectors", build_index(settings)), ("embedding", backend)):
        if service is not None:
            are_there.append(await _answers(named, _service(service), service))
    return 0 if all(are_there) else 1


async def _answers(name: str, question: Awaitable[str], server: Upstream | Store | IndexService | Backend) -> bool:
    started, is_there = perf_counter(), False
    try:
        async with asyncio.timeout(PATIENCE):
            text = await question
        text, is_there = f"{text}, {(perf_counter() - started) * 1000:.0f} ms", True
    except TimeoutError:
        text = f"no answer within {PATIENCE:g} seconds"
    except UpstreamFailed as error:
        text = error.message.removeprefix(f"the {name} ") + (f" ({error.cause})" if error.cause else "")
    except (ConnectionError, EmbeddingFailed) as error:
        text = getattr(error, "cause", str(error))
    finally:
        with suppress(OSError):
            await server.aclose()
    print(f"{name}: {text}", file=sys.stdout if is_there else sys.stderr, flush=True)
    return is_there


async def _upstream(upstream: Upstream, *, keyless: bool) -> str:
    try:
        reply = await upstream.send(Call("/models", "", b"", {}, method="GET"))
        if reply.chunks is not None:
            await reply.chunks.aclose()
    except UpstreamFailed:
        raise
    except PenstockError:
        return "answers"  # it has no list of models
    text = f"answers with status {reply.status}"
    if reply.status >= 500:
        raise ConnectionError(text)
    if keyless:
        return f"its address {text}; its key is not tried"
    is_refused = reply.status in (401, 403)
    return f"{text}: it takes no key but the client's, or refuses its api_key" if is_refused else text


async def _service(service: Store | IndexService | Backend) -> str:
    if isinstance(service, Backend):
        await service.embed(["penstock"])
    elif (look := getattr(service, "look", None)) is not None:
        await look()
    if degraded := getattr(service, "degraded", None):
        raise ConnectionError(degraded)
    return "answers"


def show_ledger(options: argparse.Namespace) -> int:
    """Print the entries of a conversation, or of all; as JSON lines for `verify` if the command line says so."""
    entries = _recorded(load(options.config).settings, Filters(conversation=options.conversation))
    if options.conversation is not None and not entries:
        raise PenstockError(f"no record of a conversation {options.conversation!r}; its id is on the page")
    for entry in entries:
        print(entry.decode() if options.json else "\n".join(manifest(orjson.loads(entry))))
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
        if options.file is not None and not chains:
            raise LookupError
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


def write_policy(options: argparse.Namespace) -> None:
    """Write the files of a new policy. Raise `ConfigError` for a name that is none, and where a file exists."""
    *folders, last = parts = options.name.split(".")
    here = not folders and Path("tests/policies").is_dir()  # in a checkout of Penstock
    are_modules = all(re.fullmatch("[a-z][a-z0-9_]*", each) and not iskeyword(each) for each in parts)
    if not are_modules or not (folders or here):
        raise ConfigError(f"{options.name!r} is not a valid policy name; write it like my_company.redact_names")
    module = f"policies.{last}" if here else options.name
    folder = Path(*module.split(".")[:-1])
    names = {
        "name": options.name,
        "module": module,
        "class": "".join(part.capitalize() for part in last.split("_")),
        "top": module.partition(".")[0],
        "project": options.name.replace(".", "-").replace("_", "-"),
    }
    paths = {"policy": folder / f"{last}.py", "test": ("tests" if here else ".") / folder / f"test_{last}.py"}
    if options.package:
        paths |= {
            "pyproject": Path("pyproject.toml"),
            "config": Path("config.yaml"),
            "conversations": Path("conversations.jsonl"),
            "workflow": Path(".github/workflows/checks.yml"),
        }
    for path in paths.values():
        if path.exists():
            raise ConfigError(f"{path} exists already")
    for template, path in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        text = files("proxy").joinpath(f"data/new_policy/{template}.txt").read_text(encoding="utf-8")
        path.write_text(Template(text).substitute(names), encoding="utf-8")
    print(f"created {', '.join(map(str, paths.values()))}; run the test: python -m pytest {paths['test']}")
    print(f"add it to a chain of the configuration: - {options.name}: {{}}")
