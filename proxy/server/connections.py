"""`penstock check`: a configuration is valid, and with `--connect` every server of it answers."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from time import perf_counter
from typing import NamedTuple

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
    return asyncio.run(_print_answers(config)) if options.connect else 0


async def _print_answers(config: Config) -> int:
    code = 0
    async for answered in connect(config):
        print(answered, file=sys.stdout if answered.is_there else sys.stderr, flush=True)
        code = code if answered.is_there else 1
    return code


class Answered(NamedTuple):
    """A server's answer, or the reason for none."""

    name: str
    text: str
    is_there: bool = True

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


async def connect(config: Config) -> AsyncIterator[Answered]:
    """Ask each server once, and yield what came of it. The questions cost nothing and change nothing."""
    settings = config.settings
    litellm = {name: each for name, each in settings.upstreams.items() if isinstance(each, ForeignUpstream)}
    # litellm has no question that costs nothing: only an address of the operator's own is asked, and not by litellm
    addresses = {name: each.base_url for name, each in litellm.items() if each.base_url is not None}
    plain = {name: OpenAIUpstream(kind="openai", base_url=url, keyless=True) for name, url in addresses.items()}
    asked = settings.model_copy(update={"upstreams": {**settings.upstreams, **plain}})
    for name, upstream in build_upstreams(asked).items():
        named = f"upstream {name!r}"
        if name in litellm and name not in plain:
            yield Answered(named, "not asked: litellm knows its address, and asks it nothing that costs no tokens")
        elif upstream.address is None:
            yield Answered(named, "not asked: it has no address of its own")
        else:
            yield await _answer(named, _upstream(upstream, keyless=name in plain), upstream)
    if isinstance(settings.state, RedisStateSettings):
        store = build_stores(settings).store
        yield await _answer("state", _service(store), store)
    if (index := build_index(settings)) is not None:
        yield await _answer("vectors", _service(index), index)
    if isinstance(settings.embedding, OpenAIEmbedding):
        backend = build_backend(settings.embedding)
        yield await _answer("embedding", _embedding(backend), backend)


async def _answer(name: str, question: Awaitable[str], server: Upstream | Store | IndexService | Backend) -> Answered:
    started = perf_counter()
    try:
        async with asyncio.timeout(PATIENCE):
            text = await question
        return Answered(name, f"{text}, {(perf_counter() - started) * 1000:.0f} ms")
    except TimeoutError:
        return Answered(name, f"no answer within {PATIENCE:g} seconds", is_there=False)
    except UpstreamFailed as error:
        text = error.message.removeprefix(f"the {name} ")
        return Answered(name, f"{text}{f' ({error.cause})' if error.cause else ''}", is_there=False)
    except (ConnectionError, EmbeddingFailed) as error:
        return Answered(name, getattr(error, "cause", str(error)), is_there=False)
    finally:
        with suppress(OSError):
            await server.aclose()


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
