"""What a conversation costs, request by request: what a step saves is held against it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from proxy.context import CacheRules


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a request that the cache sees as a whole: the tool block, or one message."""

    key: object
    """Equal for equal bytes: the bytes themselves, or a hash."""
    tokens: int


def shared_tokens(before: Sequence[Piece], after: Sequence[Piece]) -> int:
    """The tokens of the longest prefix that two requests have in common, piece by piece."""
    same = takewhile(lambda pair: pair[0].key == pair[1].key, zip(before, after, strict=False))
    return sum(piece.tokens for _, piece in same)


def request_cost(rules: CacheRules, before: Sequence[Piece] | None, after: Sequence[Piece]) -> float:
    """What a request costs after another of the same conversation, in input tokens.

    `before` is None where nothing is in the cache: the first request, or one after a pause longer than `rules.ttl`.
    """
    shared = 0 if before is None else shared_tokens(before, after)
    return rules.prompt_cost(shared, sum(piece.tokens for piece in after))
