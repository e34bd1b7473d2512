"""`penstock check`: a configuration is valid, and with `--connect` every server of it answers."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter

from proxy.chat.errors import PenstockError, UpstreamFailed
from proxy.config.embedding_settings import OpenAIEmbedding
from proxy.config.load import Config, load
from proxy.config.settings import ForeignUpstream, OpenAIUpstream
from proxy.config.state_settings import RedisStateSettings
from proxy.server.build import build_backend, build_index, build_stores, build_upstreams
from proxy.state.store import Store
from proxy.upstreams.base import Call, Upstream
from proxy.vectors.backend import EmbeddingFailed
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


@dataclass(frozen=True, slots=True)
class Answered:
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
        if name in litellm and name not in plain:
            untold = "not asked: litellm knows its address, and asks it nothing that costs no tokens"
            yield Answered(f"upstream {name!r}", untold)
        else:
            yield await _within(f"upstream {name!r}", _upstream(name, upstream, keyless=name in plain))
    if isinstance(settings.state, RedisStateSettings):
        yield await _within("state", _service("state", build_stores(settings).store))
    index = build_index(settings)
    if index is not None:
        yield await _within("vectors", _service("vectors", index))
    if isinstance(settings.embedding, OpenAIEmbedding):
        yield await _within("embedding", _embedding(settings.embedding))


async def _within(name: str, asked: Awaitable[Answered]) -> Answered:
    try:
        async with asyncio.timeout(PATIENCE):
            return await asked
    except TimeoutError:
        return Answered(name, f"no answer within {PATIENCE:g} seconds", is_there=False)


async def _upstream(name: str, upstream: Upstream, *, keyless: bool = False) -> Answered:
    named, started = f"upstream {name!r}", perf_counter()
    if upstream.address is None:
        return Answered(named, "not asked: it has no address of its own")
    try:
        reply = await upstream.send(Call("/models", "", b"", {}, method="GET"))
        if reply.chunks is not None:
            await reply.chunks.aclose()
    except UpstreamFailed as error:
        text = error.message.removeprefix(f"the {named} ")
        return Answered(named, f"{text}{f' ({error.cause})' if error.cause else ''}", is_there=False)
    except PenstockError:
        return Answered(named, _took("answers", started))  # it has no list of models
    finally:
        with suppress(OSError):
            await upstream.aclose()
    text = _took(f"answers with status {reply.status}", started)
    if keyless:
        return Answered(named, f"its address {text}; its key is not tried", is_there=reply.status < 500)
    if reply.status in (401, 403):
        return Answered(named, f"{text}: it takes no key but the client's, or refuses its api_key")
    return Answered(named, text, is_there=reply.status < 500)


async def _service(name: str, service: Store | IndexService) -> Answered:
    started = perf_counter()
    try:
        look = getattr(service, "look", None)
        if look is not None:
            await look()
        degraded = getattr(service, "degraded", None)
        return Answered(name, degraded or _took("answers", started), is_there=not degraded)
    finally:
        await service.aclose()


async def _embedding(settings: OpenAIEmbedding) -> Answered:
    backend, started = build_backend(settings), perf_counter()
    try:
        await backend.embed(["penstock"])
        return Answered("embedding", _took("answers", started))
    except EmbeddingFailed as error:
        return Answered("embedding", error.cause, is_there=False)
    finally:
        await backend.aclose()


def _took(text: str, started: float) -> str:
    return f"{text}, {(perf_counter() - started) * 1000:.0f} ms"
