"""Trusted facts, and the sentences that contradict one. Pure.

A sentence contradicts a fact if it names another object of the same relation of the same subject, in English and
Spanish (`data/facts/forms.txt`), or if it has all words of the fact but another value, name or denial, in any language.
A doubtful sentence does not. Facts that neither rule reads are for a judge.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Literal, NamedTuple

import orjson

from proxy.chat.annotations import Contradiction
from proxy.text.fold import INNER, IS, NATIONS, NOT_ONE, PLACE_RELATIONS, RELATIONS, folded, stem, word_set, words
from proxy.text.json_values import is_json, strings
from proxy.text.sentences import LEAD, Sentence, is_stated, sentences
from proxy.text.tables import pattern_lists, sections
from proxy.text.values import value

_LONGEST = 160
"""Characters of a sentence that is compared with facts."""


# --- sentences with a relation ---

_IN = "in"
"""The relation to a place."""
_PATTERNS = [
    (language, re.compile(f"^(?:{form})$", re.IGNORECASE))
    for language, forms in pattern_lists("facts/forms").items()
    for form in forms
]
_KINDS = "city|town|country|state|continent|island|region|ciudad|pueblo|pais|estado|continente|isla|region"
_HEAD = re.compile(rf"^(?:(?:the |an? |el |la |los |las |un |una )?(?:(?:{_KINDS}) (?:of |de |del )?(?=\S))?)")


class Claim(NamedTuple):
    """A relation of a subject to an object: `armenia`, `capital`, `yerevan`. All folded."""

    subject: str
    relation: str
    object: str
    language: str
    """`en` or `es`: the names of one thing differ between them."""


@lru_cache(maxsize=4096)
def claim(sentence: str) -> Claim | None:
    """Return the claim that a sentence makes as a whole."""
    if len(sentence) > _LONGEST:
        return None
    text = " ".join(sentence.strip(" \t\n-*•").rstrip(".!… ").split())
    for language, pattern in _PATTERNS:
        match = pattern.match(text)
        read = _read_claim(match.groupdict(), language) if match else None
        if read is not None:
            return read
    return None


def _read_claim(part: dict[str, str | None], language: str) -> Claim | None:
    subject, place, relation = name(part["s"] or ""), part.get("p"), folded(part.get("r") or "")
    if place is not None:
        kind = folded(part.get("k") or "")
        return Claim(subject, f"{_IN} {kind}".strip(), name(place), language)
    if {relation.split()[0], relation.split()[-1]} & NOT_ONE and relation_named(relation) not in RELATIONS.values():
        return None
    return Claim(subject, relation_named(relation), name(part.get("o") or ""), language)


def is_named(sentence: str, object: str) -> bool:
    """Return whether an object in a sentence is written like a name or a number, not like a description."""
    plain = folded(sentence)
    at = plain.find(object)
    if at < 0 or object in NATIONS or len(plain) != len(sentence):
        return False
    words = sentence[at : at + len(object)].split()
    return all(word[0].isupper() or word[0].isdigit() or word in INNER for word in words)


def relation_named(text: str) -> str:
    """Return one name for a relation, whatever a file or a sentence calls it."""
    plain = folded(text).strip()
    core = plain.removesuffix(" city").removeprefix("ciudad ")
    return RELATIONS.get(plain) or RELATIONS.get(core) or plain


def is_place(relation: str) -> bool:
    """Return whether a relation says where something lies: `in city`, `located_in`, `continent`."""
    return relation in PLACE_RELATIONS or relation.startswith(f"{_IN} ")


def name(text: str) -> str:
    """Return a name as it is compared: folded, without articles and without its kind."""
    plain = " ".join(re.sub(r"[()]", " ", folded(text)).split()).strip(" .'\"")
    return _HEAD.sub("", plain, count=1)


# --- sentences with the words of a fact ---

Verdict = Literal["agrees", "contradicts", "unclear"]

_FEWEST = 3
"""Words of such a sentence."""
_BOTH = 2
"""Words that two sentences begin with in common."""
_AROUND = ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2))
"""Words in common, in front and behind, with which a difference may be a value: of `May 3` and `June 3` the day."""

_ASIDE = re.compile(r"[();\x00]")
_TABLE = sections("facts/words")
_ARTICLES, _DENIALS, _AUXILIARIES, _BY = (
    word_set(" ".join(_TABLE[name])) for name in ("articles", "denials", "auxiliaries", "by")
)


class Plain(NamedTuple):
    """A sentence as it is compared."""

    words: tuple[str, ...]
    """As written, without articles."""
    stems: tuple[str, ...]
    key: tuple[str, ...]
    """The first stems, denials aside: any sentence that is compared with it begins so."""


@lru_cache(maxsize=4096)
def plain(sentence: str) -> Plain | None:
    """Return a sentence as it is compared; None for a long one, or one with something in brackets."""
    if len(sentence) > _LONGEST or _ASIDE.search(sentence):
        return None
    words = [word for each in sentence.strip("-*• ").split() if (word := each.strip(".,:!…\"'"))]
    words = [word for word in words if folded(word) not in _ARTICLES]
    if len(words) < _FEWEST:
        return None
    forms = [folded(word).replace("’", "'") for word in words]
    stems = tuple(map(stem, forms))
    return Plain(tuple(words), stems, tuple(map(stem, _bare(forms)[:_BOTH])))


def compare(sentence: Plain, fact: Plain) -> Verdict:
    """Return how a sentence stands to a fact that begins alike."""
    if sentence.stems == fact.stems:
        return "agrees"
    most = min(len(sentence.stems), len(fact.stems))
    front = next((n for n in range(most) if sentence.stems[n] != fact.stems[n]), most)
    rest = most - front
    back = next((n for n in range(rest) if sentence.stems[-1 - n] != fact.stems[-1 - n]), rest)
    mine, theirs = slice(front, len(sentence.stems) - back), slice(front, len(fact.stems) - back)
    if _is_denial(sentence.words[mine], fact.words[theirs]):
        return "contradicts"
    verdict = _by_value(sentence, fact, mine, theirs)
    if verdict == "unclear" and not back and front and folded(fact.words[front - 1]) in IS | _BY:
        return _by_name(sentence.words[mine], fact.words[theirs])
    return verdict


def _is_denial(sentence: Sequence[str], known: Sequence[str]) -> bool:
    """Return whether one of two differences is the other, denied."""
    one, other = ([folded(word).replace("’", "'") for word in words] for words in (sentence, known))
    denials = sum(word in _DENIALS or word.endswith("n't") for word in (*one, *other))
    return denials == 1 and [*map(stem, _bare(one))] == [*map(stem, _bare(other))]


def _bare(forms: Sequence[str]) -> list[str]:
    bare = (form.removesuffix("n't") for form in forms)
    return [form for form in bare if form not in _DENIALS and form not in _AUXILIARIES]


def _by_value(sentence: Plain, fact: Plain, mine: slice, theirs: slice) -> Verdict:
    if mine.start == mine.stop or theirs.start == theirs.stop:
        return "unclear"
    for front, back in _AROUND:
        if mine.start < front or len(sentence.words) - mine.stop < back:
            continue
        one = " ".join(sentence.words[mine.start - front : mine.stop + back])
        other = " ".join(fact.words[theirs.start - front : theirs.stop + back])
        stated = value(one)
        known = value(other) if stated is not None else None
        if stated is not None and known is not None:
            is_part = one.startswith(f"{other}.") or other.startswith(f"{one}.")  # 15.4 is a 15
            return "contradicts" if stated.differs(known) and not is_part else "agrees"
    return "unclear"


def _by_name(sentence: Sequence[str], known: Sequence[str]) -> Verdict:
    if not all(each and all(word[0].isupper() for word in each) for each in (sentence, known)):
        return "unclear"
    one, other = {*map(folded, sentence)}, {*map(folded, known)}
    return "agrees" if one & other or not NATIONS.keys().isdisjoint(one | other) else "contradicts"


# --- facts ---

LARGEST = 32 * 2**20
"""Bytes that a file of facts may have: some 300,000 facts."""
_MOST_CONCERNED = 3
_PRONOUN = re.compile(r"(?:He|She|It|They)\s")
"""The beginning of a sentence that says nothing without the one before it."""
_BEGINNING = re.compile(r"[^\W_]+|&")
_NAMED = re.compile(r"(?:(?:The|A|An|El|La|Los|Las)\s)?(?:[A-ZÀ-Þ0-9][^\s,(]*\s?(?:of |de |the |la )?)+")
"""The name that a fact begins with."""
_TITLES = word_set("mr mr. mrs mrs. ms ms. dr dr. prof prof. sr sr. sra sra.")


class Fact(NamedTuple):
    """A trusted fact: its words, and where they are known its subject, relation and object."""

    text: str
    subject: str = ""
    relation: str = ""
    object: str = ""
    language: str = ""


class Trusted:
    """Facts, indexed by the names in them. Built once; reading it changes nothing."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        self._claims: dict[str, list[tuple[Claim, str]]] = defaultdict(list)
        """The relations of each subject, with the facts that state them."""
        self._range: dict[tuple[str, str], set[str]] = defaultdict(set)
        """All objects of a relation in a language."""
        self._about: dict[str, list[tuple[frozenset[str], str]]] = defaultdict(list)
        """Facts with the words of the name that each is about, by the first of them."""
        self._plain: dict[tuple[str, ...], list[tuple[Plain, str]]] = defaultdict(list)
        """Sentences of facts by their first words."""
        known = list(facts)
        self.compared = sum([self._add(fact) for fact in known])
        """The number of facts that rules can compare: the others are for a judge."""
        begin = [folded(read.words[0]) for plains in self._plain.values() for read, _ in plains]
        every = ((word, _BEGINNING.search(word)) for word in (*self._claims, *begin))
        self._first = frozenset(first[0] if first else word for word, first in every)
        """The beginnings of all words of which a sentence about a fact has one."""
        self.size = len(known)
        self.digest = blake2b("\0".join(map(repr, known)).encode(), digest_size=16).hexdigest()

    def _add(self, fact: Fact) -> bool:
        full = [each.text for each in sentences(fact.text) if not _PRONOUN.match(each.text)]
        read = [] if fact.relation else [each for sentence in full if is_stated(sentence) and (each := plain(sentence))]
        for each in read:
            self._plain[each.key].append((each, fact.text))
        stated = _claim_of(fact)
        if stated is not None:
            self._claims[stated.subject].append((stated, fact.text))
            self._range[stated.relation, stated.language].add(stated.object)
        names = (
            [stated.subject] if stated is not None else [begins[0] for each in full if (begins := _NAMED.match(each))]
        )
        for tokens in filter(None, map(words, names)):
            self._about[tokens[0]].append((frozenset(tokens), fact.text))
        return stated is not None or bool(read)

    def contradicted(self, text: str) -> list[Contradiction]:
        """Return the sentences of a text that contradict a fact, in order; of JSON, the strings with them."""
        if is_json(text):
            inside = ((start, end, self._contradicting(string)) for start, end, string in strings(text))
            return [Contradiction(start, end, fact) for start, end, found in inside for _, fact in found[:1]]
        return [Contradiction(each.start, each.end, fact) for each, fact in self._contradicting(text)]

    def unclear(self, text: str) -> list[Contradiction]:
        """Return the sentences about a fact's subject of which rules say neither yes nor no."""
        candidates: list[Contradiction] = []
        for each in sentences(text):
            concerned = self._concerned(each.text)
            if concerned and is_stated(each.text) and self._against(each.text) is None:
                candidates += [Contradiction(each.start, each.end, fact) for fact in concerned[:_MOST_CONCERNED]]
        return candidates

    def _concerned(self, sentence: str) -> list[str]:
        """Return the facts about a sentence's names, but for those that it repeats."""
        said = words(sentence)
        there = frozenset(said)
        facts = [text for word in said for named, text in self._about.get(word, ()) if named <= there]
        return list(dict.fromkeys(fact for fact in facts if fact.rstrip(".") != sentence.rstrip(".")))

    def _contradicting(self, text: str) -> list[tuple[Sentence, str]]:
        """Return the sentences that contradict a fact. Most texts have no word of any, and are read no further."""
        here = self._first.intersection(_BEGINNING.findall(folded(text)))
        near = [each for each in sentences(text) if any(map(folded(each.text).__contains__, here))] if here else []
        return [(each, fact) for each in near if (fact := self._against(each.text)) is not None]

    def _against(self, sentence: str) -> str | None:
        """Return the fact that a sentence contradicts, by itself or behind an opening that adds nothing."""
        sentence = LEAD.sub("", sentence)
        read, stated = plain(sentence), claim(sentence)
        alike = self._plain.get(read.key, ()) if read is not None else ()
        if not (alike or (stated is not None and stated.subject in self._claims)) or not is_stated(sentence):
            return None
        verdicts = [(compare(read, fact), text) for fact, text in alike] if read is not None else []
        if any(verdict == "agrees" for verdict, _ in verdicts):
            return None
        against = next((text for verdict, text in verdicts if verdict == "contradicts"), None)
        return against or (self._by_claim(stated, sentence) if stated is not None else None)

    def _by_claim(self, stated: Claim, sentence: str) -> str | None:
        """Return the fact about the same relation of the same subject, if it has another object, in any language."""
        where, every = is_place(stated.relation), self._claims.get(stated.subject, ())
        alike = [
            each for each in every if each[0].relation == stated.relation or (where and is_place(each[0].relation))
        ]
        if any(_same(stated.object, known.object) for known, _ in alike):
            return None
        is_clear = not where and (value(stated.object) is not None or is_named(sentence, stated.object))
        for known, text in alike:
            # the names of one thing differ between languages
            is_known = is_clear or stated.object in self._range[known.relation, known.language]
            if known.language == stated.language and is_known:
                return text
        return None


def _claim_of(fact: Fact) -> Claim | None:
    read = claim(fact.text)
    if fact.subject and fact.relation and fact.object:
        language = fact.language or (read.language if read else "en")
        return Claim(name(fact.subject), relation_named(fact.relation), name(fact.object), language)
    return read


def _same(one: str, other: str) -> bool:
    """Return whether two names or values may be of one thing: one name has all words of the other."""
    first, second = value(one), value(other)
    if first is not None and second is not None:
        return not first.differs(second)
    left, right = (
        {word for word in name.split() if len(word.rstrip(".")) > 1 and word not in _TITLES} for name in (one, other)
    )
    return left <= right or right <= left


# --- files ---


def read_facts(path: Path) -> tuple[Fact, ...]:
    """Return the facts of a file: one a line, a sentence or JSON.

    Raise `ValueError` that names the wrong line and the reason, and never the line itself.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"the file of facts is larger than {LARGEST // 2**20} MiB")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"the file of facts cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("the file of facts is not UTF-8") from None
    return tuple(_facts(text))


def _facts(text: str) -> Iterator[Fact]:
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line and not line.startswith("#"):
            yield _fact(line, number) if line.startswith("{") else Fact(line)


def _fact(line: str, number: int) -> Fact:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise ValueError(f"line {number} of the file of facts begins like JSON and is none") from None
    names = ("text", "subject", "relation", "object", "lang")
    values = [row.get(name) or "" for name in names]
    if not all(isinstance(each, str) for each in values):
        raise ValueError(f"line {number} of the file of facts: {', '.join(names)} must be strings")
    text, subject, relation, target, language = values
    if not text and not (subject and relation and target):
        raise ValueError(f"line {number} of the file of facts needs a text, or subject, relation and object")
    return Fact(text or f"{subject}: {relation}: {target}", subject, relation, target, language)
