"""The relevance of tools to a query: by words and by meaning, the company that a tool keeps, and in Spanish too.

A tool's score is the cosine of its text and the query, and a fifth of the share of the query's words that it has. The
groups of the three best gain. Of queries that want a tool the best has `NOTHING` or more in nine cases of ten.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

from proxy.chat import Tool, listed
from proxy.context import Context, Embedder
from proxy.text import arrays
from proxy.text.arrays import Array
from proxy.text.bm25 import Fits, Index, ends, index
from proxy.text.language import english
from proxy.text.tables import lines

NOTHING = 0.28
"""A tool with a lower score is not about the query."""
_WORDS = 0.2
"""The score of all words of a query."""
_ALONE = 0.6
"""The same where there is no vector: as much as a close meaning."""
_GROUP = 0.3
"""The part of a leader's score that the tools of its group gain."""
_LEADERS = 3
EACH = 20
"""The cost of looking at a tool, as characters."""
LONGEST = 600
"""Characters of a query that are read, half from each end: the vector of so many takes some 15 ms."""


class Pool(NamedTuple):
    """Tools that are ready to be ranked."""

    digest: str
    """Stands for their definitions, groups and examples."""
    texts: tuple[str, ...]
    """The texts that have a vector: one for each tool, and the examples behind them."""
    owners: tuple[int, ...]
    words: Index
    """Of a text for each tool."""
    groups: tuple[str, ...]


class Relevance(NamedTuple):
    """The relevance of each tool to a query."""

    scores: tuple[float, ...]
    is_complete: bool
    """True if every vector was there; the next time it may be otherwise."""
    has_meaning: bool


async def pooled(
    tools: Sequence[Tool], ctx: Context, examples: Mapping[str, Sequence[str]], groups: Mapping[str, Sequence[str]]
) -> Pool:
    """Return tools made ready, once for the same definitions. `groups` are globs of names, by the group's name."""
    raws = listed(tools).raws
    size = sum(map(len, raws))
    # bytes know their hash, which whoever counted tokens asked for; a digest of 500 tools takes half a millisecond
    key = ("tools", hash(raws), len(raws), size, _cache_key(examples, groups))
    return await ctx.once.of_key(key, size, partial(_pool, tuple(tools), examples, groups))


async def relevance(query: str, pool: Pool, ctx: Context, wait: float) -> Relevance:
    """Return how well each tool fits a query."""
    query = ends(query, LONGEST)
    gloss = english(query)
    asked = [query] if gloss is None else [query, gloss]
    size = EACH * len(pool.words.lengths)
    numpy = arrays.numpy()

    def by_words() -> Array:
        return numpy.maximum.reduce([Fits(each, [pool.words]).shares for each in asked])

    shares = await ctx.once.run(size, by_words)
    if (embedder := ctx.services.embedder) is None:
        return Relevance(_with_groups((_ALONE * shares).tolist(), pool.groups), is_complete=True, has_meaning=False)
    by_meaning = await together([_by_meaning(each, pool, embedder, wait) for each in asked], embedder)
    cosines, is_known = numpy.fmax.reduce(by_meaning), ~numpy.isnan(by_meaning)
    scores = numpy.where(is_known.any(axis=0), numpy.maximum(0.0, cosines) + _WORDS * shares, _ALONE * shares)
    return Relevance(_with_groups(scores.tolist(), pool.groups), bool(is_known.all()), bool(is_known.any()))


async def noise(pool: Pool, ctx: Context, wait: float) -> float | None:
    """Return how far the scores of unwanted tools lie apart; None while there are no vectors."""
    embedder = ctx.services.embedder
    if embedder is None:
        return None
    key = ("tool noise", pool.digest, embedder.name)
    known: float | None = ctx.once.known([key])[0]
    if known is None:
        known = await embedder.noise(pool.texts, wait=wait)
        if known is not None:
            ctx.once.remember(key, known)
    return known


async def together(work: Sequence[Coroutine[Any, Any, Any]], embedder: Embedder | None) -> Sequence[Any]:
    """Return what each gives, worked out at the same time if vectors are waited for; else none needs a task."""
    return [await each for each in work] if embedder is None or len(work) == 1 else await asyncio.gather(*work)


async def _by_meaning(query: str, pool: Pool, embedder: Embedder, wait: float) -> Array:
    """Return the cosine of each tool's nearest text; not a number where none has a vector."""
    numpy = arrays.numpy()
    cosines = numpy.full(len(pool.words.lengths), numpy.nan)
    near = await embedder.similarities(query, pool.texts, wait=wait)
    numpy.fmax.at(cosines, numpy.array(pool.owners, int), numpy.array(near, float))
    return cosines


def _with_groups(scores: Sequence[float], groups: Sequence[str]) -> tuple[float, ...]:
    leaders = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)[:_LEADERS]
    gained: dict[str, float] = {}
    for place in leaders:
        if groups[place]:
            gained[groups[place]] = max(gained.get(groups[place], 0.0), _GROUP * scores[place])
    if not gained:
        return tuple(scores)
    return tuple([score + gained.get(group, 0.0) for score, group in zip(scores, groups, strict=True)])


def _pool(tools: Sequence[Tool], examples: Mapping[str, Sequence[str]], groups: Mapping[str, Sequence[str]]) -> Pool:
    texts = [text_of(tool) for tool in tools]
    phrases = [[one for glob, each in examples.items() if matches(tool.name, [glob]) for one in each] for tool in tools]
    return Pool(
        _digest(tools, _cache_key(examples, groups)),
        (*(text.meaning for text in texts), *(one for each in phrases for one in each)),
        (*range(len(tools)), *(place for place, each in enumerate(phrases) for _ in each)),
        index("\n".join((text.words, *each)) for text, each in zip(texts, phrases, strict=True)),
        grouped(tools, groups),
    )


def _cache_key(examples: Mapping[str, Sequence[str]], groups: Mapping[str, Sequence[str]]) -> str:
    return repr((list(examples.items()), list(groups.items())))


def _digest(tools: Sequence[Tool], phrases: str) -> str:
    digest = blake2b(phrases.encode(), digest_size=16)
    for tool in tools:
        digest.update(b"%d " % len(tool.raw))
        digest.update(tool.raw)
    return digest.hexdigest()


_PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+")
_DESCRIPTION = 1200
"""Characters of a description that are read for its meaning: what a tool is for stands at the beginning."""
_NAMES = 24
_DEPTH = 4
"""Levels of nested parameters that are read. A `$ref` is not followed: it may lead back to itself."""
_MOST_WORDS = 8_000


class ToolText(NamedTuple):
    """The texts of a tool definition."""

    meaning: str
    """Its name as words, its description, the names of its parameters: short enough for a sentence model."""
    words: str
    """All of its words: parameters' descriptions and the values they may have, too."""


def text_of(tool: Tool) -> ToolText:
    """Return the texts of a function, or of a custom tool, which has no parameters; either may lack its description."""
    inner = next((tool[kind] for kind in ("function", "custom") if isinstance(tool.get(kind), Mapping)), tool)
    about = inner.get("description")
    about = about if isinstance(about, str) else ""
    parameters = list(_parameters(inner.get("parameters"), _DEPTH))
    name = spaced(tool.name)
    names = ", ".join(spaced(each) for each, _ in parameters[:_NAMES])
    meaning = f"{name}: {about[:_DESCRIPTION]}" + (f" ({names})" if names else "")
    words = "\n".join([name, name, about, *(f"{spaced(each)} {says}" for each, says in parameters)])
    return ToolText(meaning, words[:_MOST_WORDS])


def spaced(name: str) -> str:
    """Return a name as words: `listOpen_issues` as `list Open issues`."""
    return " ".join(part for part in _PARTS.split(name) if part)


def _parameters(schema: Any, depth: int) -> Iterator[tuple[str, str]]:
    """Return the parameters of a JSON schema, those of nested objects too, with what is said about each."""
    if depth == 0 or not isinstance(schema, Mapping):
        return
    properties = schema.get("properties")
    for name, each in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(each, Mapping):
            texts = [each.get("description"), *(values if isinstance(values := each.get("enum"), list) else ())]
            yield str(name), " ".join(text for text in texts if isinstance(text, str))
            yield from _parameters(each, depth - 1)
    yield from _parameters(schema.get("items"), depth - 1)


_MOST = 0.5
"""The share of all tools that a prefix may have: one that nearly all have tells nothing."""
_VERBS = frozenset(lines("tool_verbs"))


def grouped(tools: Sequence[Tool], groups: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the group of each tool, empty for a lone one. `groups` are globs of names, by the group's name."""
    prefixes = [_prefix(tool.name) for tool in tools]
    often = Counter(prefixes)
    group_of_each: list[str] = []
    for tool, prefix in zip(tools, prefixes, strict=True):
        own = next((name for name, globs in groups.items() if matches(tool.name, globs)), None)
        shared = f"prefix {prefix}" if prefix and 1 < often[prefix] <= _MOST * len(tools) else ""
        group_of_each.append(f"group {own}" if own else shared)
    return tuple(group_of_each)


def matches(name: str, globs: Sequence[str]) -> bool:
    """Return whether a tool's name matches one of some globs."""
    return any(fnmatchcase(name, glob) for glob in globs)


def _prefix(name: str) -> str:
    """Return the beginning of a name, its server or subject: `mcp github` of `mcp__github__list_issues`."""
    server, _, rest = name.rpartition("__")
    if server and rest:
        return spaced(server).lower()
    first, _, more = spaced(name).lower().partition(" ")
    return first if more and first not in _VERBS else ""
