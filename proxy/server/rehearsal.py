"""Runs the configured chains before the first request, so that everything they need is loaded."""

from collections.abc import Iterable

from proxy.context import Identity
from proxy.gateway.chain import run
from proxy.gateway.signed import Steps
from proxy.models.tokens import TokenService
from proxy.state.cache import OnceService
from proxy.testing import context, lifelike, profile
from proxy.vectors.embedding import EmbeddingService

_WHO = Identity("rehearsal")
_WAIT = 30.0
"""Seconds that the vectors of small talk may take."""


async def rehearse(
    chains: Iterable[Steps], tokens: TokenService, once: OnceService, embedding: EmbeddingService | None
) -> None:
    """Run each chain over a made-up conversation with 40 tools that needs a cut. Nothing is sent or kept.

    This loads the code, tables and patterns of the steps, the embedding model, and its vectors of small talk.
    """
    request, counter = lifelike(), tokens.bind(_WHO, profile())
    window = (await counter.count(request)).total
    for steps in chains:
        await run(steps, context(request, window=window, tokens=counter, once=once.bind(_WHO)))
    if embedding is not None:
        await embedding.ready()
        await embedding.bind(_WHO).floor("What was it?", wait=_WAIT)
        embedding.forget(_WHO.tenant)
    once.forget(_WHO.tenant)
