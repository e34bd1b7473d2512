"""Whether a sentence says that one thing lies in another, by the words around and between the two. Pure."""

from collections.abc import Sequence

from proxy.text.vocabulary import AT, FINDS, HOLDS, LAID, LIES, NEAR, PLACES

_LONGEST = 8
_ARTICLES = frozenset(["the", "el", "la", "los", "las"])
_ONE = frozenset(["a", "an", "una", "un"])
_OF = frozenset(["of", "de", "del"])
_CONTINENT = frozenset(["continent", "continente"])


def lies(tokens: Sequence[str], inner: tuple[int, int], outer: tuple[int, int]) -> bool:
    """Whether the folded tokens of a sentence say that the name at `inner` lies in that at `outer`.

    Both are where a name begins and what is behind it.
    """
    if outer[1] <= inner[0]:
        return _holds(tokens[outer[1] : inner[0]], tokens[: outer[0]])
    gap = tokens[inner[1] : outer[0]]
    if len(gap) > _LONGEST or set(gap) & NEAR:
        return False
    rest = _without_kind(gap)
    if len(rest) == 1:
        return rest[0] in LAID and bool(set(tokens[: inner[0]]) & FINDS)
    return bool(rest) and gap[0] in LIES | _ONE | {"se"} and _ends_in_place(rest, gap[0] in _ONE)


def _ends_in_place(rest: Sequence[str], is_aside: bool) -> bool:
    """`is a city of`, `is located in`; of an aside, `a city in`."""
    if rest[-1] not in AT:
        return False
    return rest[-2] in PLACES if is_aside or rest[-1] in _OF else True


def _holds(gap: Sequence[str], before: Sequence[str]) -> bool:
    """`Norway contains the city of Oslo`, `Norway is home to Oslo`, `En Noruega se encuentra Oslo`."""
    rest = [token for token in gap if token not in _ARTICLES]
    while rest and rest[-1] in _OF | PLACES:
        rest.pop()
    if len(rest) == 1 and rest[0] in HOLDS:
        return True
    if rest in (["is", "home", "to"], ["is", "where"], ["es", "donde", "esta"], ["es", "donde", "se", "encuentra"]):
        return True
    is_inside = bool(before) and [each for each in before if each not in _ARTICLES][-1:] in (["in"], ["en"])
    return is_inside and rest in (
        ["se", "encuentra"], ["se", "halla"], ["esta"], ["queda"], ["lies"], ["you", "find"], ["you", "can", "find"],
        ["one", "finds"], ["one", "can", "find"], ["you", "will", "find"],
    )  # fmt: skip


def _without_kind(gap: Sequence[str]) -> list[str]:
    """A gap without articles and without `continent of` at its end."""
    rest = [token for token in gap if token not in _ARTICLES]
    while len(rest) > 1 and rest[-1] in _OF and rest[-2] in _CONTINENT:
        del rest[-2:]
    if len(rest) > 1 and rest[-1] in _CONTINENT | PLACES and rest[-2] in AT:
        rest.pop()  # `in the country Chad`
    return rest
