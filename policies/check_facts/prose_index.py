"""Facts in prose, found by the names in them. Pure."""

from collections import defaultdict
from collections.abc import KeysView
from itertools import combinations

from policies.check_facts.prose import Prose, is_about
from policies.check_facts.reading import denies
from policies.check_facts.subjects import subject_of

_MOST_WORDS = 4
"""Words of a name of which all parts are looked up; with a longer one all facts are compared that share a word."""


class ProseIndex:
    """Facts in the order in which they were added. Built once; reading it changes nothing."""

    def __init__(self) -> None:
        self._facts: list[Prose] = []
        self._by_word: dict[str, set[int]] = defaultdict(set)
        """By each word of a name."""
        self._about: dict[str, set[int]] = defaultdict(set)
        """By each word of what a fact begins with."""
        self._named: dict[frozenset[str], set[int]] = defaultdict(set)
        """By all words together of a name of what a fact is about."""

    def add(self, fact: Prose) -> None:
        """Add a fact."""
        place = len(self._facts)
        self._facts.append(fact)
        for word in fact.names:
            self._by_word[word].add(place)
        for word in fact.subject or fact.opening:
            self._about[word].add(place)
        for name in (fact.subject, *fact.aliases):
            self._named[name].add(place)

    @property
    def words(self) -> KeysView[str]:
        """The words of all names."""
        return self._by_word.keys()

    def near(self, sentence: str, turned: str) -> list[Prose]:
        """The facts about what a sentence begins with; if it denies something, any that names a part of it.

        `turned` says the same with its subject in front.
        """
        subject = subject_of(turned)
        places = set[int]().union(*(self._by_word.get(word, ()) for word in subject))
        if places and denies(sentence):
            return [self._facts[place] for place in sorted(places)]
        places &= self._candidates(subject) if len(subject) <= _MOST_WORDS else places
        return [self._facts[place] for place in sorted(places) if is_about(subject, self._facts[place])]

    def _candidates(self, subject: frozenset[str]) -> set[int]:
        """The facts that may be about a subject: those that begin with all words of it, or are named by some."""
        found = set.intersection(*(self._about.get(word, set()) for word in subject)) if subject else set[int]()
        for size in range(1, len(subject) + 1):
            for some in combinations(subject, size):
                found |= self._named.get(frozenset(some), set())
        return found
