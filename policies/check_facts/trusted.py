"""Trusted facts, and the sentences that say otherwise. Pure.

A sentence contradicts a fact if it speaks of the same relation of the same subject and names another object of that
relation, or if both are plain sentences that say different things of one subject. When in doubt, nothing is found: what
agrees with a fact, or names a thing that no fact knows, is left alone. Other facts are prose, for a judge to read.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from policies.check_facts.plain import Plain, compare, plain
from policies.check_facts.quantities import differ, value
from policies.check_facts.relations import Claim, claim, cues, given, is_place, lies, name, relation_named
from proxy.chat.annotations import Contradiction
from proxy.text.fold import folded
from proxy.text.json_strings import is_json, strings
from proxy.text.sentences import Sentence, behind_openers, in_full, is_stated, sentences
from proxy.text.vocabulary import ENGLISH, IS, NEGATIONS, SPANISH, word_set

_MOST_CONCERNED = 3
_BEGINNING = re.compile(r"[^\W_]+|&")
_NAMED = re.compile(r"(?:(?:The|A|An|El|La|Los|Las)\s)?(?:[A-ZÀ-Þ0-9][^\s,(]*\s?(?:of |de |the |la )?)+")
"""The name that a fact begins with."""
_TOKEN = re.compile(r"[^\W_]+(?:['’&.-][^\W_]+)*|&")
_SENTENCE = word_set("by in with who which that has had have is was were from as por en con que tiene fue era")
"""Words that stand in no name."""
_TITLES = word_set("mr mr. mrs mrs. ms ms. dr dr. prof prof. sr sr. sra sra.")
_APOSTROPHE = re.compile(r"['’]")
_POSSESSIVE = re.compile(r"['’]s$")


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


class Trusted:
    """Facts, indexed by the names in them. Built once; reading it changes nothing."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        self._text: dict[tuple[str, str, str], str] = {}
        self._objects: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        """By subject, relation and language."""
        self._range: dict[tuple[str, str], set[str]] = defaultdict(set)
        """All objects of a relation in a language."""
        self._domain: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._relations: dict[str, set[tuple[str, str]]] = defaultdict(set)
        """The relations and languages in which a subject has a fact."""
        self._prose: dict[str, list[tuple[frozenset[str], str]]] = defaultdict(list)
        """Facts in prose with the words of the name that each begins with, by the first of them."""
        self._plain: dict[str, list[tuple[Plain, str]]] = defaultdict(list)
        """Plain sentences with the facts that they are of, by a word of their subject."""
        known = list(facts)
        self.compared = sum([self._add(fact) for fact in known])
        """How many of them rules can compare: the others are for a judge."""
        self._names = self._indexed()
        self._first = frozenset(_first_of(each) for each in {*self._names, *self._plain})
        """The beginnings of all words that a sentence must have one of to be about a fact."""
        self.size = len(known)
        self.digest = blake2b("\0".join(map(repr, known)).encode(), digest_size=16).hexdigest()
        """Stands for all of them."""

    def _add(self, fact: Fact) -> bool:
        is_plain = not fact.relation and self._add_plain(fact.text)
        made = _claim_of(fact)
        if made is None:
            self._add_prose(fact.text)
            return is_plain
        key = (made.subject, made.relation, made.language)
        self._objects[key].add(made.object)
        self._text.setdefault(key, fact.text)
        self._range[made.relation, made.language].add(made.object)
        self._domain[made.relation, made.language].add(made.subject)
        self._relations[made.subject].add((made.relation, made.language))
        return True

    def _add_plain(self, text: str) -> bool:
        found = [plain(each, language_of(_tokens(each))) for each in in_full(text)]
        for read in found:
            if read is not None and read.key:
                self._plain[read.key].append((read, text))
        return any(read is not None and read.key for read in found)

    def _add_prose(self, text: str) -> None:
        for each in in_full(text):
            named = _tokens(begins[0]) if (begins := _NAMED.match(each)) else []
            if named:
                self._prose[named[0]].append((frozenset(named), text))

    def _indexed(self) -> Mapping[str, Sequence[tuple[str, ...]]]:
        found: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        for each in {*self._relations, *(o for objects in self._range.values() for o in objects)}:
            parts = tuple(_tokens(each))
            if parts and value(each) is None:
                found[parts[0]].add(parts)
        return {first: sorted(all_of, key=len, reverse=True) for first, all_of in found.items()}

    def contradicted(self, text: str) -> list[Contradiction]:
        """The sentences of a text that say otherwise than a fact, in order; of JSON, the strings with them."""
        if is_json(text):
            inside = ((start, end, self._said_against(value)) for start, end, value in strings(text))
            return [Contradiction(start, end, fact) for start, end, found in inside for _, fact in found[:1]]
        return [Contradiction(each.start, each.end, fact) for each, fact in self._said_against(text)]

    def unclear(self, text: str) -> list[Contradiction]:
        """Sentences that state something about what a fact is about, and of which rules say neither yes nor no."""
        found: list[Contradiction] = []
        for each in sentences(text):
            concerned = self._concerned(each.text)
            if concerned and is_stated(each.text) and self._against(each.text) is None:
                found += [Contradiction(each.start, each.end, fact) for fact in concerned[:_MOST_CONCERNED]]
        return found

    def _concerned(self, sentence: str) -> list[str]:
        """The facts about what a sentence names, but for those that it repeats."""
        tokens = _tokens(sentence)
        written_in, words = language_of(tokens), frozenset(tokens)
        facts = [text for token in tokens for named, text in self._prose.get(token, ()) if named <= words]
        for one in self._mentions(tokens):
            known = sorted(self._relations.get(one.name, ()))
            facts += [self._text[one.name, relation, lang] for relation, lang in known if lang == written_in]
        return list(dict.fromkeys(fact for fact in facts if fact.rstrip(".") != sentence.rstrip(".")))

    def _said_against(self, text: str) -> list[tuple[Sentence, str]]:
        """The sentences of a text that contradict a fact. Most texts have no word of any, and are read no further."""
        here = self._first.intersection(_BEGINNING.findall(folded(text)))
        near = [each for each in sentences(text) if any(map(folded(each.text).__contains__, here))] if here else []
        return [(each, fact) for each in near if (fact := self._against(each.text)) is not None]

    def _against(self, sentence: str) -> str | None:
        """The fact that a sentence contradicts, by itself or behind an opening that names nothing that facts know."""
        against = self._stated_against(sentence)
        if against is None:
            for opening, rest in behind_openers(sentence):
                is_about = self._first.intersection(_BEGINNING.findall(folded(opening)))
                against = against or (None if is_about else self._stated_against(rest))
        return against

    def _stated_against(self, sentence: str) -> str | None:
        """The fact that a sentence contradicts, if it states anything. What names nothing known costs little."""
        tokens = _tokens(sentence)
        mentions = self._mentions(tokens)
        by_relation = any(one.name in self._relations for one in mentions)
        is_plain = not self._plain.keys().isdisjoint(tokens)
        if not (by_relation or is_plain) or not is_stated(sentence):
            return None
        against = self._by_relation(sentence, tokens, mentions) if by_relation else None
        return against or (self._by_plain(sentence, tokens) if is_plain else None)

    # --- plain sentences --------------------------------------------------------------------------------------------

    def _by_plain(self, sentence: str, tokens: Sequence[str]) -> str | None:
        """The fact that a plain sentence contradicts, unless it agrees with another one."""
        said = plain(sentence, language_of(tokens))
        if said is None:
            return None
        known = [each for token in dict.fromkeys(tokens) for each in self._plain.get(token, ())]
        verdicts = [(compare(said, fact), text) for fact, text in known]
        if any(verdict == "agrees" for verdict, _ in verdicts):
            return None
        return next((text for verdict, text in verdicts if verdict == "contradicts"), None)

    # --- relations --------------------------------------------------------------------------------------------------

    def _by_relation(self, sentence: str, tokens: Sequence[str], mentions: Sequence[_Mention]) -> str | None:
        if any(token in NEGATIONS for token in tokens):
            return None
        written_in = language_of(tokens)
        for subject in mentions:
            for relation, language in sorted(self._relations.get(subject.name, ())):
                if language != written_in:
                    continue  # the names of one thing differ between languages
                said = self._said(subject, relation, language, mentions, tokens, sentence)
                if said is not None and not self._agrees(subject.name, relation, said):
                    return self._text[subject.name, relation, language]
        return None

    def _mentions(self, tokens: Sequence[str]) -> list[_Mention]:
        found: list[_Mention] = []
        behind = 0
        for at, token in enumerate(tokens):
            if token not in self._names or at < behind:
                continue
            longest = next((n for n in self._names[token] if tuple(tokens[at : at + len(n)]) == n), None)
            if longest:
                behind = at + len(longest)
                found.append(_Mention(" ".join(longest), at, behind))
        return found

    def _said(
        self,
        subject: _Mention,
        relation: str,
        language: str,
        mentions: Sequence[_Mention],
        tokens: Sequence[str],
        sentence: str,
    ) -> str | None:
        """The object that a sentence gives a subject; None unless it clearly gives one."""
        others = [one for one in mentions if one is not subject and self._may_be(one.name, relation, language)]
        if not others and not is_place(relation):
            return given(sentence, subject.name, relation, language)
        if len(others) != 1:
            return None
        (other,) = others
        if is_place(relation):
            return other.name if lies(tokens, subject[1:], other[1:]) else None
        plain = f" {' '.join(tokens)} "
        has_cue = any(f" {cue} " in plain for cue in cues(relation))
        rivals = [one for one in mentions if one.name in self._domain[relation, language] and one is not other]
        return other.name if has_cue and len(rivals) == 1 and any(token in IS for token in tokens) else None

    def _may_be(self, name: str, relation: str, language: str) -> bool:
        """Whether a name is known as an object of the relation, or is of the same kind as one that is."""
        objects = self._range[relation, language]
        if name in objects:
            return True
        if not is_place(relation):
            return False
        kinds = self._relations.get(name, set())
        return any(kinds & self._relations.get(each, set()) for each in objects)

    def _agrees(self, subject: str, relation: str, said: str) -> bool:
        """Whether a fact about the subject, in any language, knows this object of the relation or of its like."""
        for what, language in self._relations.get(subject, ()):
            is_like = what == relation or (is_place(what) and is_place(relation))
            if is_like and any(_same(said, each) for each in self._objects[subject, what, language]):
                return True
        return False


def _claim_of(fact: Fact) -> Claim | None:
    read = claim(fact.text)
    if fact.subject and fact.relation and fact.object:
        language = fact.language or (read.language if read else "en")
        relation = relation_named(fact.relation)
        return Claim(name(fact.subject), relation, name(fact.object), language)
    return read if read is not None and all(_is_name(each) for each in (read.subject, read.object)) else None


def _is_name(text: str) -> bool:
    """Whether the subject or object of a claim may be a name or value, and not a part of a longer sentence."""
    parts = text.split()
    return len(parts) <= 6 and not set(parts) & _SENTENCE


def _tokens(text: str) -> list[str]:
    """The words of a text, folded; a possessive `'s` is none."""
    plain = folded(text)
    tokens = _TOKEN.findall(plain)
    return [_POSSESSIVE.sub("", token) for token in tokens] if _APOSTROPHE.search(plain) else tokens


def _first_of(word: str) -> str:
    """What a word begins with that stands in every text with the word in it, whatever is blanked out there."""
    found = _BEGINNING.search(word)
    return found[0] if found else word


def language_of(tokens: Sequence[str]) -> str:
    """The language of a sentence by its small words: `en` or `es`."""
    spanish = sum(token in SPANISH for token in tokens)
    return "es" if spanish > sum(token in ENGLISH for token in tokens) else "en"


def _same(one: str, other: str) -> bool:
    """Whether two names or values may be of one thing: one name has all words of the other."""
    first, second = value(one), value(other)
    if first is not None and second is not None:
        return not differ(first, second)
    left, right = (
        {word for word in name.split() if len(word.rstrip(".")) > 1 and word not in _TITLES} for name in (one, other)
    )
    return left <= right or right <= left
