"""Trusted facts, and the sentences that contradict one. Pure.

A sentence contradicts a fact if it names another object of the same relation of the same subject, or if it has all
words of the fact but another value, name or denial. A doubtful sentence does not. Facts that neither rule reads are for
a judge.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import orjson

from policies.check_facts.relations import Claim, claim, cues, is_named, is_place, lies, name, relation_named
from policies.check_facts.sentences import Plain, compare, plain
from policies.check_facts.values import differ, value
from proxy.chat.annotations import Contradiction
from proxy.text.fold import folded
from proxy.text.json_values import is_json, strings
from proxy.text.sentences import Sentence, behind_openers, in_full, is_stated, sentences
from proxy.text.vocabulary import ENGLISH, IS, NEGATIONS, SPANISH, word_set

LARGEST = 32 * 2**20
"""Bytes that a file of facts may have: some 300,000 facts."""
_MOST_CONCERNED = 3
_BEGINNING = re.compile(r"[^\W_]+|&")
_NAMED = re.compile(r"(?:(?:The|A|An|El|La|Los|Las)\s)?(?:[A-ZÀ-Þ0-9][^\s,(]*\s?(?:of |de |the |la )?)+")
"""The name that a fact begins with."""
_TOKEN = re.compile(r"[^\W_]+(?:['’&.-][^\W_]+)*|&")
_POSSESSIVE = re.compile(r"['’]s$")
_TITLES = word_set("mr mr. mrs mrs. ms ms. dr dr. prof prof. sr sr. sra sra.")


class Fact(NamedTuple):
    """A trusted fact: its words, and where they are known its subject, relation and object."""

    text: str
    subject: str = ""
    relation: str = ""
    object: str = ""
    language: str = ""


class _Mention(NamedTuple):
    name: str
    first: int
    behind: int


_Place = tuple[str, str, str]
"""A subject, a relation and a language."""


class Trusted:
    """Facts, indexed by the names in them. Built once; reading it changes nothing."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        self._text: dict[_Place, str] = {}
        self._objects: dict[_Place, set[str]] = defaultdict(set)
        self._range: dict[tuple[str, str], set[str]] = defaultdict(set)
        """All objects of a relation in a language."""
        self._relations: dict[str, set[tuple[str, str]]] = defaultdict(set)
        """The relations and languages in which a subject has a fact."""
        self._prose: dict[str, list[tuple[frozenset[str], str]]] = defaultdict(list)
        """Facts without a relation, with the words of the name that each begins with, by the first of them."""
        self._plain: dict[tuple[str, ...], list[tuple[Plain, str]]] = defaultdict(list)
        """Sentences of facts by their first words."""
        known = list(facts)
        self.compared = sum([self._add(fact) for fact in known])
        """The number of facts that rules can compare: the others are for a judge."""
        self._names = self._indexed()
        self._first = frozenset(
            _first_of(each)
            for each in {
                *self._names,
                *(folded(read.words[0]) for plains in self._plain.values() for read, _ in plains),
            }
        )
        """The beginnings of all words of which a sentence about a fact has one."""
        self.size = len(known)
        self.digest = blake2b("\0".join(map(repr, known)).encode(), digest_size=16).hexdigest()

    def _add(self, fact: Fact) -> bool:
        is_plain = False
        for each in () if fact.relation else in_full(fact.text):
            read = plain(each)
            if read is not None and is_stated(each):
                self._plain[read.key].append((read, fact.text))
                is_plain = True
        stated = _claim_of(fact)
        if stated is None:
            for each in in_full(fact.text):
                named = _tokens(begins[0]) if (begins := _NAMED.match(each)) else []
                if named:
                    self._prose[named[0]].append((frozenset(named), fact.text))
            return is_plain
        key = (stated.subject, stated.relation, stated.language)
        self._objects[key].add(stated.object)
        self._text.setdefault(key, fact.text)
        self._range[key[1:]].add(stated.object)
        self._relations[stated.subject].add(key[1:])
        return True

    def _indexed(self) -> Mapping[str, Sequence[tuple[str, ...]]]:
        names: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        for each in {*self._relations, *(o for objects in self._range.values() for o in objects)}:
            parts = tuple(_tokens(each))
            if parts and value(each) is None:
                names[parts[0]].add(parts)
        return {first: sorted(all_of, key=len, reverse=True) for first, all_of in names.items()}

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
        tokens = _tokens(sentence)
        written_in, words = _language_of(tokens), frozenset(tokens)
        facts = [text for token in tokens for named, text in self._prose.get(token, ()) if named <= words]
        for one in self._mentions(tokens):
            known = sorted(self._relations.get(one.name, ()))
            facts += [self._text[one.name, relation, lang] for relation, lang in known if lang == written_in]
        return list(dict.fromkeys(fact for fact in facts if fact.rstrip(".") != sentence.rstrip(".")))

    def _contradicting(self, text: str) -> list[tuple[Sentence, str]]:
        """Return the sentences that contradict a fact. Most texts have no word of any, and are read no further."""
        here = self._first.intersection(_BEGINNING.findall(folded(text)))
        near = [each for each in sentences(text) if any(map(folded(each.text).__contains__, here))] if here else []
        return [(each, fact) for each in near if (fact := self._against(each.text)) is not None]

    def _against(self, sentence: str) -> str | None:
        """Return the fact that a sentence contradicts, by itself or behind an opening that names no fact's subject."""
        against = self._stated_against(sentence)
        if against is None:
            for opening, rest in behind_openers(sentence):
                is_about = self._first.intersection(_BEGINNING.findall(folded(opening)))
                against = against or (None if is_about else self._stated_against(rest))
        return against

    def _stated_against(self, sentence: str) -> str | None:
        read, tokens = plain(sentence), _tokens(sentence)
        alike = self._plain.get(read.key, ()) if read is not None else ()
        mentions = self._mentions(tokens)
        if not (alike or any(one.name in self._relations for one in mentions)) or not is_stated(sentence):
            return None
        verdicts = [(compare(read, fact), text) for fact, text in alike] if read is not None else []
        if any(verdict == "agrees" for verdict, _ in verdicts):
            return None
        against = next((text for verdict, text in verdicts if verdict == "contradicts"), None)
        return against or self._by_relation(sentence, tokens, mentions)

    def _by_relation(self, sentence: str, tokens: Sequence[str], mentions: Sequence[_Mention]) -> str | None:
        if any(token in NEGATIONS for token in tokens):
            return None
        written_in = _language_of(tokens)
        for subject in mentions:
            for relation, language in sorted(self._relations.get(subject.name, ())):
                if language != written_in:
                    continue  # the names of one thing differ between languages
                stated = self._stated(subject, relation, language, mentions, tokens, sentence)
                if stated is not None and not self._agrees(subject.name, relation, stated):
                    return self._text[subject.name, relation, language]
        return None

    def _mentions(self, tokens: Sequence[str]) -> list[_Mention]:
        mentions: list[_Mention] = []
        behind = 0
        for at, token in enumerate(tokens):
            if token not in self._names or at < behind:
                continue
            longest = next((n for n in self._names[token] if tuple(tokens[at : at + len(n)]) == n), None)
            if longest:
                behind = at + len(longest)
                mentions.append(_Mention(" ".join(longest), at, behind))
        return mentions

    def _stated(
        self,
        subject: _Mention,
        relation: str,
        language: str,
        mentions: Sequence[_Mention],
        tokens: Sequence[str],
        sentence: str,
    ) -> str | None:
        """Return the object that a sentence gives a subject; None unless it clearly gives one."""
        others = [one for one in mentions if one is not subject and self._may_be(one.name, relation, language)]
        if not others and not is_place(relation):
            stated = claim(sentence)
            if stated is None or stated[:2] != (subject.name, relation) or stated.language != language:
                return None
            return stated.object if value(stated.object) is not None or is_named(sentence, stated.object) else None
        if len(others) != 1:
            return None
        (other,) = others
        if is_place(relation):
            return other.name if lies(tokens, subject[1:], other[1:]) else None
        text = f" {' '.join(tokens)} "
        has_cue = any(f" {cue} " in text for cue in cues(relation))
        return other.name if has_cue and any(token in IS for token in tokens) else None

    def _may_be(self, name: str, relation: str, language: str) -> bool:
        """Return whether a name is known as an object of the relation, or is of the same kind as one that is."""
        objects = self._range[relation, language]
        if name in objects or not is_place(relation):
            return name in objects
        kinds = self._relations.get(name, set())
        return any(kinds & self._relations.get(each, set()) for each in objects)

    def _agrees(self, subject: str, relation: str, stated: str) -> bool:
        """Return whether a fact about the subject, in any language, has this object of the relation or of its like."""
        for known, language in self._relations.get(subject, ()):
            is_like = known == relation or (is_place(known) and is_place(relation))
            if is_like and any(_same(stated, each) for each in self._objects[subject, known, language]):
                return True
        return False


def _claim_of(fact: Fact) -> Claim | None:
    read = claim(fact.text)
    if fact.subject and fact.relation and fact.object:
        language = fact.language or (read.language if read else "en")
        return Claim(name(fact.subject), relation_named(fact.relation), name(fact.object), language)
    return read


def _tokens(text: str) -> list[str]:
    """Return the words of a text, folded, without a possessive `'s`."""
    return [_POSSESSIVE.sub("", token) for token in _TOKEN.findall(folded(text))]


def _first_of(word: str) -> str:
    """Return the beginning of a word that stands in every text with the word in it."""
    begins = _BEGINNING.search(word)
    return begins[0] if begins else word


def _language_of(tokens: Sequence[str]) -> str:
    """Return the language of a sentence by its small words: `en` or `es`."""
    spanish = sum(token in SPANISH for token in tokens)
    return "es" if spanish > sum(token in ENGLISH for token in tokens) else "en"


def _same(one: str, other: str) -> bool:
    """Return whether two names or values may be of one thing: one name has all words of the other."""
    first, second = value(one), value(other)
    if first is not None and second is not None:
        return not differ(first, second)
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
