"""`penstock check`: a configuration is valid, and with `--connect` every server of it answers."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable
from contextlib import suppress
from time import perf_counter

from proxy.chat.errors import PenstockError, UpstreamFailed
from proxy.config.load import Config, load
from proxy.config.settings import ForeignUpstream, OpenAIEmbedding, OpenAIUpstream, RedisStateSettings
from proxy.server.build import build_backend, build_index, build_stores, build_upstreams
from proxy.state.store import Store
from proxy.upstreams.base import Call, Upstream
from proxy.vectors.backend import Backend, EmbeddingFailed
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
    if isinstance(settings.state, RedisStateSettings):
        store = build_stores(settings).store
        are_there.append(await _answers("state", _service(store), store))
    if (index := build_index(settings)) is not None:
        are_there.append(await _answers("vectors", _service(index), index))
    if isinstance(settings.embedding, OpenAIEmbedding):
        backend = build_backend(settings.embedding)
        are_there.append(await _answers("embedding", _embedding(backend), backend))
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


async def _service(service: Store | IndexService) -> str:
    if (look := getattr(service, "look", None)) is not None:
        await look()
    if degraded := getattr(service, "degraded", None):
        raise ConnectionError(degraded)
    return "answers"


async def _embedding(backend: Backend) -> str:
    await backend.embed(["penstock"])
    return "answers"
