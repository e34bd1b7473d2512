"""Pairs of statements that a judge decides: each once, so that the next request of the conversation says the same."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Literal, NamedTuple

from policies.resolve_clashes.dialogue import Clash
from proxy.chat import Message
from proxy.context import Context, Pair

_MOST = 16
"""Pairs of one request that a judge is asked about, the latest; of the others the rules' word stands."""

_NEWER, _BOTH, _OPEN = "newer", "both", "open"
"""What was decided: the later one holds, or both do, or what the rules say stands."""


class Reconciled(NamedTuple):
    """What a judge made of the pairs that rules have found."""

    clashes: tuple[Clash, ...]
    """Those that are left, each solvable where it is decided which of the two holds."""
    compatible: int
    """Pairs that are none, because both statements hold."""
    judged: int
    """Pairs that the judge was asked about now."""
    unanswered: int
    """Those of them that it gave no verdict on, in time or at all."""


async def reconciled(
    clashes: Sequence[Clash],
    messages: Sequence[Message],
    ctx: Context,
    *,
    which: Literal["open", "all"],
    sure: float,
    wait: float,
) -> Reconciled:
    """Decide the pairs that are not solvable, or `all`. Without a verdict that is `sure` they stay as they are."""
    asked = [each for each in clashes if which == "all" or not each.solvable]
    pairs = [_texts(each, messages) for each in asked]
    keys = [_key(pair) for pair in pairs]
    known = dict(zip(keys, await ctx.memo.known(keys) if ctx.memo is not None else [None] * len(keys), strict=True))
    new = {key: pair for key, pair in zip(keys, pairs, strict=True) if known[key] is None}
    latest = list(new)[-_MOST:]
    found = dict(zip(latest, await _verdicts([new[key] for key in latest], ctx, wait), strict=True))
    for key in new:
        decided = _decided(found.get(key), sure)
        known[key] = await ctx.memo.settle(key, decided) if ctx.memo is not None else decided
    decided_of = {id(each): known[key] for each, key in zip(asked, keys, strict=True)}
    left = tuple(
        each._replace(solvable=each.solvable or decided_of.get(id(each)) == _NEWER)
        for each in clashes
        if decided_of.get(id(each)) != _BOTH
    )
    silent = sum(each is None for each in found.values())
    return Reconciled(left, len(clashes) - len(left), len(latest), silent)


async def _verdicts(pairs: Sequence[Pair], ctx: Context, wait: float) -> Sequence[float | None]:
    if not pairs or ctx.judge is None:
        return [None] * len(pairs)
    return await ctx.judge.replacements(pairs, wait=wait)


def _decided(verdict: float | None, sure: float) -> str:
    if verdict is None or 1 - sure < verdict < sure:
        return _OPEN
    return _NEWER if verdict >= sure else _BOTH


def _texts(clash: Clash, messages: Sequence[Message]) -> Pair:
    older = messages[clash.older].text[clash.older_start : clash.older_end]
    return older, messages[clash.newer].text[clash.newer_start : clash.newer_end]


def _key(pair: Pair) -> str:
    digest = blake2b(digest_size=16)
    for text in pair:
        digest.update(text.encode(errors="surrogatepass") + b"\0")
    return f"reconciled/{digest.hexdigest()}"
