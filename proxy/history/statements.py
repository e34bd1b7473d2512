"""Tell what a user lays down from chatter, sentence by sentence: a logistic regression, fitted to sentences as data.

It reads a sentence's form and the pieces of its words. `benchmarks/fit_statements.py` makes `data/statements.json` of
`data/statements.txt`.
"""

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import pairwise
from math import exp, log2, sqrt
from typing import NamedTuple
from zlib import crc32

from proxy.chat.markers import MARKER

KINDS = ("rule", "fact", "goal", "decision", "none")
"""What a sentence is: a constraint, limit, budget or deadline; a fact about the user; a goal; a decision; nothing."""

SURE = 0.8
"""How likely a sentence that surely lays something down does."""
_FEW = 10
"""Sentences that stay of a text that takes a short form."""
SIZE = 16384
"""Places that the pieces of words are hashed to."""
LONGEST = 300
"""Characters of the longest sentence that is read."""

_READ = 4000
"""What is read of each end of a text, in characters: more is a pasted document."""
_USUAL = 500
"""Characters of a message up to which all of it counts as the user's own words."""
IDEOGRAMS = "\u2e80"
"""From here on scripts set no spaces between words, as a rule."""
_END = re.compile(
    r"""
    (?<=[.!?])
    (?<!^\d\.)(?<!^\d\d\.)(?<!\D\s\d\.)(?<!\D\s\d\d\.)  # a short number may be an ordinal: `am 5. Mai`
    (?<![\s.(][^\W\d_]\.)                               # one letter is short for a word: `p.m.`
    (?!(?:(?<=\s[^\W\d_]{2}\.)|(?<=\s[^\W\d_]{3}\.))\s\d) # so are two or three in front of a number: `Dec. 12`
    \s+
    | (?<=[。！？]) | \n+
    """,
    re.MULTILINE | re.VERBOSE,
)
"""Where a sentence ends."""
_FENCED = re.compile(r"^(```|~~~).*?(?:^\1|\Z)", re.MULTILINE | re.DOTALL)
_BULLET = re.compile(r"^(?:[-*+•>]|\d{1,2}[.)])\s+")
_CODE = re.compile(r"^\[.*\]$|[{}<>=|\\`]|;(?! [^\W\d_])|\w\(|\)\.|^[#@/*]|__|\[[ xX]\]")
"""Signs of code. A semicolon in front of a word is one of prose."""
_QUOTED = re.compile(r"(?<!`)`[^`\n]{1,80}`(?!`)|https?://\S+|<[^\s<>@]{1,80}@[^\s<>@]{1,80}>|(?<=\s)[<>]=?(?=\s?\d)")
"""What is no code in a sentence: a quotation in backticks, an address, a comparison with a number."""
_WORD = re.compile(r"[^\W\d_]+|\d+|[?!¿¡$€£¥%]")
_UNIT = re.compile(r"[$€£¥%]\s?\d|\d\s?(?:[$€£¥%]|[^\W\d_])")
_IDENTIFIER = re.compile(r"\S@\S|://|\w[_/.]\w|\d{4}|[^\W\d_]-?\d")
_LAUGH = re.compile(r"\.\.\.|…|(?:h[aei]|ja|哈){2}", re.IGNORECASE)
_EMOJI = re.compile("[\u2600-\u27bf\U0001f000-\U0001faff]")


class UserSentence(NamedTuple):
    """A sentence of a user's."""

    text: str
    likely: float
    """How likely it lays something down."""


class Model(NamedTuple):
    """The fitted weights."""

    bias: tuple[float, ...]
    """Of each kind."""
    rows: tuple[tuple[float, ...], ...]
    """The weights of each feature of `features`."""


@cache
def model() -> Model:
    """Return what `data/statements.json` says."""
    data = json.loads((files("proxy") / "data" / "statements.json").read_text(encoding="utf-8"))
    width, scale = len(data["bias"]), data["scale"]
    weights = memoryview(b64decode(data["weights"])).cast("b")
    values = [weight * scale for weight in range(256)]  # rows share them: 16,000 take 1 MB
    values[128:] = [(weight - 256) * scale for weight in range(128, 256)]
    rows = (tuple([values[weight] for weight in weights[at : at + width]]) for at in range(0, len(weights), width))
    return Model(tuple(data["bias"]), tuple(rows))


def sentences(text: str) -> tuple[UserSentence, ...]:
    """The sentences of what a user wrote that may lay something down: no code, no questions, nothing too long."""
    text = text.strip()
    # a sentence of a long message is less likely the user's own word to the assistant
    penalty = max(0.0, log2(len(text) / _USUAL)) / 2 if text else 0.0
    found = {
        one: UserSentence(one, _likelihood(one, penalty))
        for one in split(text)
        if len(one) <= LONGEST and one[-1] not in "?？؟:：" and is_prose(one)
    }
    return tuple(found.values())


def laid_down(text: str) -> tuple[str, ...]:
    """The few sentences of a user's text that surely lay something down."""
    found = [each for each in sentences(text) if each.likely >= SURE and MARKER not in each.text]
    few = {id(each) for each in sorted(found, key=lambda each: -each.likely)[:_FEW]}
    return tuple(each.text for each in found if id(each) in few)


def split(text: str, most: int = _READ) -> Iterator[str]:
    """The sentences of both ends of a text, without what stands in fences of code, and without bullets."""
    for part in (text,) if len(text) <= 2 * most else (text[:most], text[-most:]):
        for one in _END.split(_FENCED.sub("\n", part)):
            if stripped := _BULLET.sub("", one.strip()):
                yield stripped


def is_prose(sentence: str) -> bool:
    """Whether a sentence reads like something said, not like code, a heading, or a sign."""
    sentence = _QUOTED.sub("", sentence)
    letters = sum(map(str.isalpha, sentence))
    words = len(sentence.split())
    is_said = words > 1 or any(char >= IDEOGRAMS for char in sentence)
    return is_said and letters * 2 >= len(sentence) and not _CODE.search(sentence)


def features(sentence: str) -> dict[int, float]:
    """The features of a sentence, by their places: its form, then the pieces of its words, hashed."""
    form = (
        "?" in sentence or "¿" in sentence,
        "!" in sentence or "¡" in sentence,
        any(map(str.isdigit, sentence)),
        _UNIT.search(sentence) is not None,
        min(len(sentence), 200) / 100,
        len(sentence.split()) <= 3,
        _LAUGH.search(sentence) is not None,
        _IDENTIFIER.search(sentence) is not None,
        ":" in sentence,
        sentence[:1].islower(),
        _EMOJI.search(sentence) is not None,
        any(map(str.isupper, sentence[1:])),
        "," in sentence,
    )
    found = {place: FORM * value for place, value in enumerate(form) if value}
    pieces = set(_pieces(sentence.lower()))
    weight = 1 / sqrt(len(pieces)) if pieces else 0.0
    for piece in pieces:
        place = len(form) + crc32(piece.encode(errors="surrogatepass")) % SIZE
        found[place] = weight
    return found


FORM = 0.3
"""How much a feature of form weighs beside those of words, before the fit."""


def _pieces(sentence: str) -> Iterator[str]:
    """Words, pairs of neighbours, how the sentence begins, and sequences of four letters within words."""
    words = ["0" if word.isdigit() else word for word in _WORD.findall(sentence)]
    yield from words
    yield "^" + " ".join(words[:1])
    yield "^" + " ".join(words[:2])
    for one, other in pairwise(words):
        yield f"{one} {other}"
    for word in words:
        size = 2 if word[0] >= IDEOGRAMS else 4
        bounded = f"<{word}>"
        for start in range(max(1, len(bounded) - size + 1)):
            yield bounded[start : start + size]


def _likelihood(sentence: str, penalty: float) -> float:
    known = model()
    alike: dict[float, list[tuple[float, ...]]] = {}
    for place, value in features(sentence).items():  # all pieces of a sentence have one value
        alike.setdefault(value, []).append(known.rows[place])
    scores = known.bias
    for value, rows in alike.items():
        scores = tuple(
            [score + value * each for score, each in zip(scores, map(sum, zip(*rows, strict=True)), strict=True)]
        )
    odd = sum(exp(score - scores[-1]) for score in scores[:-1]) * exp(-penalty)
    return odd / (1 + odd)
