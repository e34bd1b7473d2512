"""Counting tokens: memoised by content, off the event loop where it is much, corrected by what providers report."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from threading import Lock
from typing import Any, NamedTuple

from msgspec.structs import replace

from proxy.chat import SYSTEM_ROLES, ChatRequest, JsonObject, Message, Tool, listed
from proxy.context import Identity, Memo, ModelProfile, TokenCount
from proxy.models.counting import REPLY_FRAME, Tally, count_tool
from proxy.models.encodings import ALIASES, SHIPPED, Encoder, characters, load_encoder
from proxy.models.families import Family, family
from proxy.state.cache import REMEMBERED, Cache, SharedLimit
from proxy.state.threads import Lanes
from proxy.work_time import current_work

logger = logging.getLogger("penstock.tokens")

INLINE_BYTES = 32 * 1024
"""New content that is counted on the event loop, in bytes: about 1.5 ms with a vocabulary of OpenAI's."""
SLOW_INLINE_BYTES = 4 * 1024
"""The same for a `tokenizer.json`, which is about eight times slower."""

_ENTRY = 250
"""Bytes that a remembered count takes."""
_PIECE = 500
"""Messages whose bytes are asked for at once: those that steps made are not written yet."""

_ESTIMATED, _TEXT_BITS, _TEXT_MASK = 1, 31, 2**31 - 1


class TokenService:
    """The vocabularies, the memo and the calibration; `bind` gives a counter for one model and tenant."""

    def __init__(self, *, load: Callable[[str], Encoder] = load_encoder, limit: SharedLimit | int = REMEMBERED) -> None:
        self.calibration = Calibration()
        self.memo: Cache[int, int] = Cache(limit)
        self._load = load
        self._loading = Lock()
        self.encoders: dict[str, Encoder] = {}
        self.failed: set[str] = set()
        """The encodings that could not be loaded: characters are counted in their place."""
        self.lanes = Lanes("tokens")

    def bind(self, who: Identity, profile: ModelProfile) -> "BoundTokens":
        """Return a counter for a model. It costs microseconds: make one for each request, which so has one measure."""
        return BoundTokens(self, profile, who.tenant)

    async def bind_conversation(self, who: Identity, profile: ModelProfile, memo: Memo, size: int) -> "BoundTokens":
        """Return a counter with the correction that a conversation began with, on all replicas: no cut of it moves.

        A newer one takes its place where prompts are much longer than that says, or where one was refused. `size` is
        the body's, in bytes: below a quarter of the window nothing is cut, and the newest correction is as good.
        """
        bound = self.bind(who, profile)
        newest, refused = bound.ratio, self.calibration.refusal(bound.key)
        name = f"tokens/{profile.name}"
        if size <= profile.window or (profile.exact and newest == 1.0):
            return bound
        settled = float(await memo.settle(name, str(newest)))
        while newest != 1.0 and newest > settled * (1.0 if refused > settled else FAR):
            settled = float(await memo.settle(f"{name}/{settled}", str(newest)))
        return BoundTokens(self, profile, who.tenant, settled)

    async def warm(self, encodings: Iterable[str]) -> None:
        """Load vocabularies in the background. One that fails is logged, and counted by characters from then on."""
        loop = asyncio.get_running_loop()
        for name in encodings:
            for load in (self.encoder, family):  # the patterns of families are compiled
                await loop.run_in_executor(self.lanes.threads[0], load, name)

    def close(self) -> None:
        self.lanes.close()

    def encoder(self, encoding: str) -> Encoder:
        """Return the encoder of a name, loaded once. Blocks while it loads: call it in a thread. It never raises."""
        name = ALIASES.get(encoding, encoding)
        found = self.encoders.get(name)
        if found is not None:  # without the lock: the event loop must not wait while another vocabulary is loaded
            return found
        with self._loading:
            if name not in self.encoders:
                try:
                    self.encoders[name] = self._load(name)
                except Exception as error:  # whatever a file or a library has wrong, requests go on
                    logger.warning("no tokenizer %r, counting four characters as a token: %s", name, error)
                    self.failed.add(name)
                    self.encoders[name] = characters
            return self.encoders[name]

    async def run(self, tenant: str, size: int, work: Callable[[], list[int]]) -> list[int]:
        work_time = current_work()
        running = self.lanes.submit(tenant, size, work_time.measured(work))
        return await work_time.job_done(asyncio.wrap_future(running))


class BoundTokens:
    """The counter of one model and tenant for one request: its correction is read once, sizes are kept by identity."""

    def __init__(self, service: TokenService, profile: ModelProfile, tenant: str, ratio: float | None = None) -> None:
        self._service = service
        self._profile = profile
        self._encoding = encoding = ALIASES.get(profile.encoding, profile.encoding)
        self._family: Family = family(profile.name)
        # it is the model's own, counts characters anyway, or is what the operator wants
        if encoding not in SHIPPED or encoding == "chars" or profile.names_tokenizer:
            self._family = replace(self._family, digits=False, scripts=False)
        self._inline = INLINE_BYTES if encoding in SHIPPED else SLOW_INLINE_BYTES
        self.key = (tenant, profile.name, encoding, profile.factor)
        self.ratio = ratio = service.calibration.ratio(self.key) if ratio is None else ratio
        """The correction; the newest unless the caller has one."""
        # until a refusal shows that the server is another than the one whose rules are published
        self._exact = profile.exact and ratio == 1.0
        self._scale = profile.factor * ratio
        scope = (tenant, encoding, self._family)
        self._message, self._tool = hash((scope, "message")), hash((scope, "tool"))
        self._known: dict[int, tuple[object, Any]] = {}
        """The figures of requests, messages and lists, by an identity that stays their own because they are held."""

    async def count(self, request: ChatRequest) -> TokenCount:
        known = self._known.get(id(request))
        if known is None:
            known = self._known[id(request)] = (request, await self._count(request))
        count: TokenCount = known[1]
        return count

    async def _count(self, request: ChatRequest) -> TokenCount:
        further = _further_prompt(request)
        sizes, (each, estimated) = await self._sizes_of(request), await self._tool_set(request.tools)
        tools = sum(each)
        if further:
            more = await self._values(further, self._tool)
            tools += sum(map(self._size, more))
            estimated = estimated or any(value & _ESTIMATED for value in more)
        if further or each:
            tools += self._scaled(self._family.tools_frame)
        exact = self._exact and self._encoding not in self._service.failed
        exact = exact and not (sizes.estimated or estimated)
        return TokenCount(sizes.system, tools, sizes.total - sizes.system + self._scaled(REPLY_FRAME), exact)

    async def _sizes_of(self, request: ChatRequest) -> "_Sizes":
        """Return the sizes of a request's messages; those that an earlier request had are not looked up again."""
        form, name = request.form, ("sizes", self._message, self._scale)
        known: _Sizes | None = form.known(name)
        if known is None:
            count, before = form.resume(name, _Sizes())
            new = request.messages[count:]
            values = await self._values(new, self._message)
            if (more := form.settled - count) > 0:
                before = before.with_messages(new[:more], values, self._size)
                form.settle(name, before)
                new, values = new[more:], values[more:]
            known = form.keep(name, before.with_messages(new, values, self._size))
        self._known[id(request.messages)] = request.messages, known.each
        return known

    async def sizes(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Return the tokens of each message, its framing included: those of `count`, less the framing of the reply."""
        known = self._known
        if (of_all := known.get(id(messages))) is not None:
            sizes: tuple[int, ...] = of_all[1]
            return sizes
        if new := [message for message in messages if id(message) not in known]:
            values = await self._values(new, self._message)
            known.update({id(each): (each, self._size(value)) for each, value in zip(new, values, strict=True)})
        return tuple([known[id(message)][1] for message in messages])

    async def tool_sizes(self, tools: Sequence[Tool]) -> tuple[int, ...]:
        """Return the tokens of each tool definition, without the instructions that come with any tools at all."""
        return (await self._tool_set(tools))[0]

    async def _tool_set(self, tools: Sequence[Tool]) -> tuple[tuple[int, ...], bool]:
        """Return the sizes of tools, and whether one is estimated. Most requests have the tools of an earlier one."""
        known: list[tuple[tuple[int, ...], bool]] = listed(tools).derive((self._tool, self._scale), list)
        if not known:
            values = await self._values(tools, self._tool)
            known.append((tuple(map(self._size, values)), any(value & _ESTIMATED for value in values)))
        return known[0]

    def observe(self, request: ChatRequest, counted: TokenCount, reported: int) -> None:
        """Learn from reported prompt tokens, but not for exact models, nor from images, sound or files."""
        if not self._exact and not request.form.any("media", _has_media):
            self._service.calibration.observe(self.key, self._uncorrected(counted), reported)

    def refused(self, counted: TokenCount, least: int) -> None:
        self._service.calibration.refused(self.key, self._uncorrected(counted), least)

    def _uncorrected(self, counted: TokenCount) -> float:
        return counted.total * self._profile.factor / self._scale

    async def _values(self, items: Sequence[JsonObject], scope: int) -> list[int]:
        raws: list[bytes] = []
        for start in range(0, len(items), _PIECE):
            await current_work().let_others_run()
            raws += map(_raw, items[start : start + _PIECE])
        keys = [hash((scope, raw)) for raw in raws]
        values = self._service.memo.get_each(keys)
        new = [index for index, value in enumerate(values) if value is None]
        if new:
            encoding, service = self._encoding, self._service

            def work() -> list[int]:
                encode, found = service.encoder(encoding), []
                for index in new:
                    found.append(self._measured(items[index], scope, encode))
                    service.memo.put(keys[index], found[-1], _ENTRY)  # here: what a cancelled request paid for is kept
                return found

            size = sum(len(raws[index]) for index in new)
            inline = encoding in service.encoders and size <= self._inline
            made = work() if inline else await service.run(self.key[0], size, work)
            for index, value in zip(new, made, strict=True):
                values[index] = value
        return [value for value in values if value is not None]

    def _measured(self, item: Mapping[str, Any], scope: int, encode: Encoder) -> int:
        tally = Tally(encode, self._family)
        if scope == self._message:
            tally.message(item)
        else:
            count_tool(tally, item)
        return tally.media << _TEXT_BITS + 1 | max(0, tally.text) << 1 | tally.estimated

    def _size(self, value: int) -> int:
        text = value >> 1 & _TEXT_MASK
        return (text if self._scale == 1.0 else self._scaled(text)) + (value >> _TEXT_BITS + 1)

    def _scaled(self, tokens: int) -> int:
        return tokens if self._scale == 1.0 else int(tokens * self._scale + 0.5)


class _Sizes(NamedTuple):
    each: tuple[int, ...] = ()
    total: int = 0
    system: int = 0
    estimated: bool = False

    def with_messages(self, messages: Sequence[Message], values: Sequence[int], size: Callable[[int], int]) -> "_Sizes":
        """Return those of further messages behind them; `values` are their packed counts."""
        sizes = [size(value) for value, _ in zip(values, messages, strict=False)]
        roles = [str(message.get("role")) for message in messages[: len(sizes)]]
        system = sum([one for one, role in zip(sizes, roles, strict=True) if role in SYSTEM_ROLES])
        estimated = self.estimated or any([value & _ESTIMATED for value in values[: len(sizes)]])
        return _Sizes((*self.each, *sizes), self.total + sum(sizes), self.system + system, estimated)


def _raw(item: JsonObject) -> bytes:
    try:
        return item.raw
    except (TypeError, ValueError, RecursionError):  # made by a policy, of something that JSON cannot hold
        return repr(item).encode(errors="backslashreplace")


def _further_prompt(request: ChatRequest) -> tuple[JsonObject, ...]:
    """Return the other parts of a prompt: deprecated functions, and the answer's JSON Schema."""
    rest = request.rest
    functions, answer = rest.get("functions"), rest.get("response_format")
    found = [JsonObject(item) for item in functions if isinstance(item, dict)] if isinstance(functions, list) else []
    if isinstance(answer, dict) and isinstance(answer.get("json_schema"), dict):
        found.append(JsonObject({"schema": answer["json_schema"]}, rest.raw("response_format")))
    return tuple(found)


def _has_media(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    plain = (None, "text", "input_text", "output_text", "refusal", "thinking", "tool_result", "tool_use")
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") not in plain for part in content
    )


FRAMING = 32
"""Tokens that a template or hidden instructions may add or spare: so much of a difference teaches nothing."""
LOWEST, HIGHEST = 0.5, 3.0
"""A ratio beyond this is no tokenizer's: the prompt was cut, or something was added to it. It is not learned from."""
WEIGHT = 0.1
PATIENCE = 8
"""Ratios to see before the correction moves again."""
STEP = 0.05
"""The correction is a multiple of this, and moves only when the mean is further away than this."""
SHORT = 1.25
"""The ratio of reported to counted tokens from which a count is far too low."""
FAR = 1.2
"""A conversation keeps its correction while the newest one is at most so many times as high."""
LIMIT = 4096


@dataclass(slots=True)
class _Learned:
    size: float = 0.0
    mean: float = 1.0
    seen: int = 0
    since_move: int = 0
    ratio: float = 1.0
    refused: float = 0.0


class Calibration:
    """The ratio of reported to counted tokens, one per key, in rare, coarse steps: each moves cuts and costs the cache.

    It is a multiple of 0.05 and moves when the running mean is more than 5 % away and eight more requests were seen, at
    once where a prompt twice as large as any before was counted short by a fifth, or for a refusal. Safe in any thread.
    """

    def __init__(self) -> None:
        self._learned: Cache[tuple[object, ...], _Learned] = Cache(LIMIT)
        self._lock = Lock()

    def ratio(self, key: tuple[object, ...]) -> float:
        learned = self._learned.get(key)
        return 1.0 if learned is None else learned.ratio

    def refusal(self, key: tuple[object, ...]) -> float:
        """Return the ratio that the last refusal taught; 0 if there was none."""
        learned = self._learned.get(key)
        return 0.0 if learned is None else learned.refused

    def observe(self, key: tuple[object, ...], counted: float, reported: int) -> None:
        """Learn from one request: its tokens as counted without correction, and as the provider reported them."""
        more = reported - counted
        ratio = 1 + (more - max(-FRAMING, min(FRAMING, more))) / max(1, counted)
        if not LOWEST <= ratio <= HIGHEST:
            return
        with self._lock:
            learned = self._of(key)
            is_short = counted > 2 * learned.size and ratio > SHORT * learned.ratio
            learned.size = max(learned.size, counted)
            learned.seen = 1 if is_short else learned.seen + 1
            learned.since_move += 1
            learned.mean += (ratio - learned.mean) * max(WEIGHT, 1 / learned.seen)
            if (is_short or learned.since_move >= PATIENCE) and abs(learned.mean / learned.ratio - 1) > STEP:
                learned.ratio = round(round(learned.mean / STEP) * STEP, 2)
                learned.since_move = 0

    def refused(self, key: tuple[object, ...], counted: float, least: int) -> None:
        """Learn from a request that was refused as too long, and had at `least` so many tokens."""
        ratio = min(HIGHEST, ceil(least / max(1, counted) / STEP) * STEP)
        with self._lock:
            learned = self._of(key)
            learned.refused = round(ratio, 2)
            if ratio > learned.ratio:
                learned.size = max(learned.size, counted)
                learned.mean = learned.ratio = learned.refused
                learned.seen, learned.since_move = 1, 0

    def _of(self, key: tuple[object, ...]) -> _Learned:
        learned = self._learned.get(key)
        if learned is None:
            learned = _Learned()
            self._learned.put(key, learned)
        return learned
