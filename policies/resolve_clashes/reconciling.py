"""Have a judge decide pairs of statements, each once, so that the next request of the conversation gets the same."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Literal

from policies.resolve_clashes.clashes import Clash
from proxy.chat import Message
from proxy.context import Context, Pair

_MOST = 16
"""Pairs of one request that a judge is asked about, the latest; the others stay as the rules have them."""

_NEWER, _BOTH, _OPEN = "newer", "both", "open"
"""The decisions: the later one holds, or both do, or the pair stays as the rules have it."""


async def reconcile(
    clashes: Sequence[Clash],
    messages: Sequence[Message],
    ctx: Context,
    *,
    which: Literal["open", "all"],
    sure: float,
    wait: float,
) -> tuple[tuple[Clash, ...], Mapping[str, int]]:
    """Return the pairs as the judge decides them, and the counts of that.

    It is asked about the pairs that are not solvable, or `all`. Without a verdict that is `sure` they stay as they are.
    """
    asked = [each for each in clashes if which == "all" or not each.solvable]
    pairs = [_texts(each, messages) for each in asked]
    keys = [_key(pair) for pair in pairs]
    known = dict(zip(keys, await ctx.memo.known(keys) if ctx.memo is not None else [None] * len(keys), strict=True))
    new = {key: pair for key, pair in zip(keys, pairs, strict=True) if known[key] is None}
    latest = list(new)[-_MOST:]
    verdicts: Sequence[float | None] = ()
    if latest and ctx.judge is not None:
        verdicts = await ctx.judge.replacements([new[key] for key in latest], wait=wait)
    verdict_of = dict(zip(latest, verdicts, strict=True))
    for key in new:
        decision = _decision(verdict_of.get(key), sure)
        known[key] = await ctx.memo.settle(key, decision) if ctx.memo is not None else decision
    decision_of = {id(each): known[key] for each, key in zip(asked, keys, strict=True)}
    rest = tuple(
        each._replace(solvable=each.solvable or decision_of.get(id(each)) == _NEWER)
        for each in clashes
        if decision_of.get(id(each)) != _BOTH
    )
    unanswered = sum(each is None for each in verdicts)
    return rest, {"judged": len(latest), "unanswered": unanswered, "compatible": len(clashes) - len(rest)}


def _decision(verdict: float | None, sure: float) -> str:
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
