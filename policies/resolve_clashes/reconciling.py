"""Have a judge decide pairs of statements, each once, so that the next request of the conversation gets the same."""

from collections.abc import Mapping, Sequence
from typing import Literal

from policies.resolve_clashes.clashes import Clash
from proxy.chat import Message
from proxy.context import Judge, Memo, settled_verdicts

_MOST = 16
"""Pairs of one request that a judge is asked about, the latest; the others stay as the rules have them."""


async def reconcile(
    clashes: Sequence[Clash],
    messages: Sequence[Message],
    judge: Judge,
    memo: Memo | None,
    *,
    which: Literal["open", "all"],
    sure: float,
    wait: float,
) -> tuple[Sequence[Clash], Mapping[str, int]]:
    """Return the pairs as the judge decides them, and the counts of that.

    It is asked about the pairs that are not solvable, or `all`. Without a verdict that is `sure` they stay as they are.
    """
    pairs = [(each.was.of(messages[each.older].text), each.now.of(messages[each.newer].text)) for each in clashes]
    asked = [pair for pair, each in zip(pairs, clashes, strict=True) if which == "all" or not each.solvable]
    verdicts, counts = await settled_verdicts(
        "reconciled", judge.replacements, asked, memo, sure=sure, wait=wait, most=_MOST
    )
    rest: list[Clash] = []
    for pair, each in zip(pairs, clashes, strict=True):
        verdict = verdicts.get(pair) if which == "all" or not each.solvable else None
        if verdict != "no":
            rest.append(each._replace(solvable=each.solvable or verdict == "yes"))
    return rest, {**counts, "compatible": len(clashes) - len(rest)}
