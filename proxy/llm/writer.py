"""The writer of summaries, a small model at an upstream, and the summary that each cut uses.

Summaries are written in the background, and all replicas share them.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from time import monotonic
from urllib.parse import quote

from proxy.chat import Message, turns
from proxy.chat.blocks import escaped
from proxy.chat.markers import MARKER
from proxy.chat.texts import arguments
from proxy.config.settings import WriterSettings
from proxy.context import Identity, Material, Outage
from proxy.llm.client import SmallModel
from proxy.state.background import BackgroundWork
from proxy.state.cache import Cache
from proxy.state.store import Store, StoreError
from proxy.telemetry.metrics import Metrics
from proxy.text.tables import table
from proxy.upstreams.base import Upstream
from proxy.upstreams.routing import Routes

_log = logging.getLogger("penstock.writer")

_CHARACTERS = 2.5
"""Characters per token of a transcript: few, because identifiers take many tokens."""
_LARGEST = 400_000
"""Characters of the longest transcript, in a window of any size."""
_OVERHEAD = 600
"""Tokens of the instructions."""
_DENSE = 2
"""Least number of bytes per token of a summary."""


class Writer:
    """A writer that asks the configured model. It raises nothing but cancellation."""

    def __init__(self, settings: WriterSettings, routes: Routes, metrics: Metrics) -> None:
        self.settings = settings
        self._model = SmallModel(settings, routes, partial(metrics.of, "writer_tokens"), _log, "no summary was written")
        self._metrics = metrics
        self.authorization = self._model.authorization

    async def write(self, material: Material, headers: Mapping[str, str]) -> str | None:
        """Return the summary of a material, or None without a usable one."""
        text, outcome = await self._model.run(self._written(material, headers))
        self._metrics.of("writer_summaries", outcome).inc()
        return text

    async def _written(self, material: Material, headers: Mapping[str, str]) -> tuple[str | None, str]:
        profile = await self._model.profile()
        most = max(64, min(self.settings.max_tokens, material.size // _DENSE, profile.window // 4))
        room = int((profile.window - most - _OVERHEAD) * _CHARACTERS)
        shown = await asyncio.to_thread(transcript, material.messages, min(_LARGEST, room) - len(material.before))
        asked = prompt(material.before, shown, material.size)
        answer, outcome = await self._model.ask(asked, most, profile, headers)
        if answer is None:
            return None, outcome
        text = await asyncio.to_thread(checked, answer, f"{material.before}\n{shown}", material.size)
        return text, "unusable" if text is None else "written"


_TOKEN = re.compile(
    r"https?://[^\s\"'<>\\)\]]{4,200}|(?:[\w~/$€£#]|(?<!\.)\.)(?:(?:[.:@+-]{0,200}+[\w/])++(?:[.:@+-]{0,200}+%)?|[.:@+-]{0,200}+%)"
)
_TELLING = re.compile(r"\d|\w[_/@]\w|^[~.]*/\w|\w\.[a-z]{2,4}$|[a-z][A-Z]|^[A-Z]{3,}$")
"""The pattern of identifiers, numbers, paths and addresses."""

INSTRUCTIONS: str = table("small_models")["writer"]

_MOST = 4000
"""Characters of one message that are shown at most: its beginning and its end."""
_LEAST = 160
_LONGEST_LINE = 600
_BULLET = re.compile(r"(?:[-*•]|\d{1,2}[.)])\s+")
_NOTHING = re.compile(r"\W*(?:none|nothing|n/?a|ningun[oa]?|nada)\W*", re.IGNORECASE)
_BLOCK_END = re.compile(r"</(?=transcript|earlier|text|kept)", re.IGNORECASE)


def prompt(before: str, shown: str, size: int) -> list[Message]:
    """Return the messages for the small model. `size` is in bytes of its answer."""
    earlier = f"<earlier>\n{inside(before)}\n</earlier>\n" if before else ""
    asked = f"{earlier}<transcript>\n{inside(shown)}\n</transcript>\nWrite the summary now."
    words = max(30, size // 8)
    return [
        Message({"role": "system", "content": INSTRUCTIONS.replace("{words}", str(words))}),
        Message({"role": "user", "content": asked}),
    ]


def transcript(messages: Sequence[Message], limit: int) -> str:
    """Return a conversation as text of at most about `limit` characters: of long messages the two ends, no media."""
    texts = [_as_text(message) for message in messages]
    most = _MOST
    while most > _LEAST and sum(min(len(text), most) for text in texts) > limit:
        most //= 2
    lines = [text if len(text) <= most else f"{text[: most // 2]} [...] {text[-most // 2 :]}" for text in texts]
    whole = "\n".join(lines)
    return whole if len(whole) <= limit else f"{whole[: limit // 4]}\n[...]\n{whole[-(limit * 3 // 4) :]}"


def checked(answer: str, source: str, size: int) -> str | None:
    """Return the lines of an answer's list whose values all stand in its source.

    None where nothing remains, or the answer is longer than `size` bytes or than its source. A line that names a place
    to recall from is left out: that is not its to give.
    """
    if not answer.strip() or len(answer.encode(errors="surrogatepass")) > min(size, len(source)):
        return None
    known = set(words(source))
    lines = map(str.strip, answer.splitlines())
    listed = (_BULLET.sub("", line, count=1) for line in lines if _BULLET.match(line))
    return "\n".join(f"- {escaped(line)}" for line in dict.fromkeys(listed) if is_sound(line, known)) or None


def is_sound(line: str, known: set[str]) -> bool:
    """Return True if a line says something, and all its values are among the known words of its source."""
    if not line or len(line) > _LONGEST_LINE or MARKER in line or _NOTHING.fullmatch(line):
        return False
    return all(word in known for word in words(line) if _TELLING.search(word))


def words(text: str) -> Iterator[str]:
    """Yield the words of a text, without the punctuation around them."""
    for match in _TOKEN.finditer(text):
        yield match[0].strip("./:-'\"")


def _as_text(message: Message) -> str:
    calls = [f"calls {name}" for name in message.called_tools]
    return f"[{message.role}] " + " ".join(filter(None, (message.text, *calls, *arguments(message))))


def inside(text: str) -> str:
    """Return a text that cannot end the block it stands in."""
    return _BLOCK_END.sub(r"<\\/", text)


LONG = 100
"""Turns above which a summary is written in two levels: of blocks, then of their summaries."""
BLOCK = 20
"""Least number of turns in a block."""
_MOST_BLOCKS = 25
"""Largest number of blocks."""
_BLOCK_SIZE = 1500
"""Bytes of a block's summary."""

DEADLINES = 5
"""Timeouts of single calls that one summary of many blocks may take in all."""

_AT_ONCE = 2
_WAITING = 32
"""Largest number of drafts under way or waiting. The cuts of further ones use extracts."""
_AGAIN = 60.0
"""Seconds after which a failed draft may be tried again."""
_FRESH = 60.0
"""Seconds for which a settled summary is served from memory."""
_REMEMBERED = 4096

Write = Callable[[Material, Mapping[str, str]], Awaitable[str | None]]
"""A function that returns the summary of a material, or None; it never raises."""
Authorization = Callable[[Upstream, Mapping[str, str]], dict[str, str]]
"""A function that returns the headers of a client, who asks this upstream, that its summaries are written with."""


class DraftService:
    """Drafts of summaries, each written once, and the choice of the summary of a cut. For use on one event loop."""

    def __init__(
        self,
        store: Store,
        write: Write,
        authorization: Authorization,
        *,
        ttl: float,
        deadline: float,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Set up the service; summaries expire `ttl` seconds after their last use, and may take `deadline` seconds."""
        self.authorization = authorization
        self._store, self._write, self._ttl, self._deadline, self._clock = store, write, ttl, deadline, clock
        self._work = BackgroundWork[tuple[str, str]]()
        self.drain, self.aclose = self._work.drain, self._work.aclose
        self._begun: Cache[tuple[str, str], None] = Cache(_REMEMBERED, age=_AGAIN, clock=clock)
        self._settled: Cache[tuple[str, str], tuple[str, float]] = Cache(_REMEMBERED)
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._worker = secrets.token_bytes(16)

    def bind(self, who: Identity, headers: Mapping[str, str], outage: Outage | None = None) -> "BoundDrafts":
        return BoundDrafts(self, _prefix(who.tenant), headers, outage or Outage())

    def forget(self, tenant: str) -> int:
        """Forget the settled summaries of a tenant, cancel its drafts, and return the number of summaries."""
        self._work.forget(_prefix(tenant))
        return self._settled.forget(_prefix(tenant))

    def begin(self, prefix: str, headers: Mapping[str, str], material: Material) -> None:
        """Begin to write a draft, unless it was begun lately, here or in another worker."""
        key = (prefix, material.name)
        if len(self._work) < _WAITING and key not in self._work and key not in self._begun:
            self._begun.put(key, None)
            self._work.begin(self._draft(f"{prefix}draft/{material.name}", material, headers), key)

    async def _draft(self, key: str, material: Material, headers: Mapping[str, str]) -> None:
        try:
            async with self._free, asyncio.timeout(self._deadline):
                mine = await self._store.add(f"{key}/claim", self._worker, ttl=self._deadline)
                if mine != self._worker or await self._store.get(key) is not None:
                    return
                text = await self._in_levels(material, headers)
                if text is not None:
                    await self._store.put(key, text.encode(errors="surrogatepass"), ttl=self._ttl)
        except (StoreError, TimeoutError):
            return  # the cut gets its extract

    async def _in_levels(self, material: Material, headers: Mapping[str, str]) -> str | None:
        """Write a summary; of a long conversation from those of its blocks, or a block itself where that failed."""
        groups = turns(material.messages)
        if len(groups) <= LONG:
            return await self._write(material, headers)
        size = max(BLOCK, ceil(len(groups) / _MOST_BLOCKS))
        messages: list[Message] = []
        for start in range(0, len(groups), size):
            block = [message for group in groups[start : start + size] for message in group]
            part = replace(material, before="", messages=tuple(block), size=_BLOCK_SIZE)
            text = await self._write(part, headers)
            messages += [Message({"role": "user", "content": text})] if text else block
        return await self._write(replace(material, messages=tuple(messages)), headers)

    async def settle(self, prefix: str, outage: Outage, cut: str, draft: str) -> str:
        """Return the summary of a cut: the draft if it was ready at the first use of the cut, else always nothing."""
        now = self._clock()
        text, when = self._settled.get((prefix, cut)) or (None, 0.0)
        if text is not None and now - when < _FRESH:
            return text
        try:
            text = await self._agreed(f"{prefix}cut/{cut}", f"{prefix}draft/{draft}", text)
        except StoreError:
            if text is None:  # the next request asks again
                outage.begun = True
                return ""
            # an outage of the store must not change the prefix, so the last summary is used again
        self._settled.put((prefix, cut), (text, now))
        return text

    async def _agreed(self, key: str, draft: str, used: str | None) -> str:
        value = await self._store.get(key, ttl=self._ttl)
        if value is None and used is not None:  # lost by the store, but not here
            value = await self._store.add(key, used.encode(errors="surrogatepass"), ttl=self._ttl)
        elif value is None:
            ready = await self._store.get(draft)
            value = await self._store.add(key, ready or b"", ttl=self._ttl)
        return value.decode(errors="surrogatepass")


class BoundDrafts:
    """The `Drafts` of a request's context."""

    def __init__(self, service: DraftService, prefix: str, headers: Mapping[str, str], outage: Outage) -> None:
        self.prepare = partial(service.begin, prefix, headers)
        self.settled = partial(service.settle, prefix, outage)


def _prefix(tenant: str) -> str:
    return f"summary/{quote(tenant, safe='')}/"
