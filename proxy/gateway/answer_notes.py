"""Notes on what was wrong with the model's answers, left for the next request of the conversation.

An answer is looked at when it has ended, from a copy of its bytes, in a thread: no client waits for it. A note has one
kind; for some time there is no other of that kind, and after a longer one it is gone. What fails here is done without.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

import orjson

from proxy.chat import ChatRequest
from proxy.context import Correction, Identity, Outage
from proxy.gateway.relay import Copying
from proxy.models.usage import Usage
from proxy.policy import AnswerObserver
from proxy.state.background import BackgroundWork
from proxy.state.store import Store, StoreError
from proxy.state.threads import Threads
from proxy.upstreams.base import Reply
from proxy.wires import WIRES

_log = logging.getLogger("penstock.corrections")

LARGEST = 256 * 1024
"""Bytes of an answer that are kept to be looked at; a larger one is not looked at."""

_MOST = 64
"""Answers that are looked at or wait for it; what comes on top is not."""


class CorrectionService:
    """Looks at answers and keeps the notes. For use on one event loop."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self.store = store
        self.clock = clock
        self.threads = Threads("answers")
        self._looking = BackgroundWork[str]()

    def bind(
        self, who: Identity, observers: Sequence[AnswerObserver], outage: Outage | None = None
    ) -> "BoundCorrections":
        prefix = f"correction/{quote(who.tenant, safe='')}/{quote(who.scope, safe='')}/"
        return BoundCorrections(self, prefix, observers, outage or Outage())

    def look(self, notes: "BoundCorrections", sent: ChatRequest, body: bytes | None, reply: Reply, _: Usage) -> None:
        if reply.status == 200 and body and len(self._looking) < _MOST:
            self._looking.begin(self._look(notes, sent, body, streamed=reply.chunks is not None))

    async def settled(self) -> None:
        await self._looking.drain()

    async def aclose(self) -> None:
        """Stop; what was not looked at by then never is."""
        await self._looking.aclose()
        self.threads.shutdown(wait=False, cancel_futures=True)

    async def _look(self, notes: "BoundCorrections", sent: ChatRequest, body: bytes, *, streamed: bool) -> None:
        work = partial(_find, sent, body, notes.observers, streamed=streamed)
        try:
            for observer, found in await asyncio.get_running_loop().run_in_executor(self.threads, work):
                for kind, sentence in found.items():
                    await notes.leave(kind, sentence, observer)
        except StoreError as error:
            _log.warning("correction not kept", extra={"fields": {"cause": error.cause}})
        except Exception as error:  # answers are anybody's: what cannot be looked at is let pass, and is said
            _log.warning("answer not looked at", extra={"fields": {"fault": type(error).__name__}})


@dataclass(frozen=True, slots=True)
class BoundCorrections:
    """The `Corrections` of a request's context."""

    service: CorrectionService
    _prefix: str
    observers: Sequence[AnswerObserver]
    _outage: Outage

    async def pending(self, kinds: Collection[str]) -> Sequence[Correction]:
        keys = [f"{self._prefix}note/{kind}" for kind in sorted(kinds)]
        try:
            values = await asyncio.gather(*map(self.service.store.get, keys))
        except StoreError:
            self._outage.begun = True
            return ()
        return [Correction(*orjson.loads(value)) for value in values if value is not None]

    async def leave(self, kind: str, sentence: str, observer: AnswerObserver) -> None:
        """Leave a note, unless one of its kind was left within the cooldown. Raises `StoreError`."""
        store = self.service.store
        cool = f"{self._prefix}cool/{kind}"
        if await store.get(cool) is not None:
            return
        name = f"{kind}-{self.service.clock():.3f}"
        # of several workers that find the same at once, the first leaves it
        if await store.add(cool, name.encode(), ttl=observer.cooldown) == name.encode():
            await store.put(f"{self._prefix}note/{kind}", orjson.dumps([name, sentence]), ttl=observer.expiry)

    def watch(self, sent: ChatRequest) -> Copying:
        """Return what has an answer looked at once it has ended."""
        return Copying(LARGEST, partial(self.service.look, self, sent))


def _find(
    sent: ChatRequest, body: bytes, observers: Sequence[AnswerObserver], *, streamed: bool
) -> list[tuple[AnswerObserver, Mapping[str, str]]]:
    answer = WIRES[sent.wire].answer(body, streamed=streamed)
    return [] if answer is None else [(observer, observer.find(sent, answer)) for observer in observers]
