"""What a message states and asks for, in a form that can be compared with what another one says."""

from typing import NamedTuple

from policies.resolve_clashes.clauses import Kind
from policies.resolve_clashes.relations import Relation
from policies.resolve_clashes.values import Value


class Statement(NamedTuple):
    """One thing that a message says."""

    start: int
    """Where it stands in the message's text."""
    end: int
    kind: Kind
    quote: str
    """Its words, as they are quoted."""
    terms: frozenset[str]
    """The stems of its words."""
    telling: frozenset[str]
    """Those that tell something."""
    around: frozenset[str]
    """The stems of the clauses before and behind it."""
    order: tuple[str, ...]
    """The same in their order."""
    head: str
    """The first of them that tells something: mostly what it is about."""
    ordinals: frozenset[str]
    """`first`, `second`: which one of several it is about."""
    about: frozenset[str]
    """Those that tell what it is about: without its values, and without words that any request has."""
    words: frozenset[str]
    """Its words of which there are opposites."""
    poles: frozenset[str]
    """The stems of those."""
    counterparts: frozenset[str]
    """The stems of their opposites."""
    prefixed: frozenset[tuple[str, str]]
    """Stems that may have a denying prefix, each with what is left without it."""
    names: frozenset[str]
    """The stems of its names: capitalised words that do not begin a sentence."""
    years: frozenset[str]
    """The years that it names."""
    times: frozenset[str]
    """Those, and its other words for when something was: `until`, `today`."""
    keys: frozenset[str]
    """Of which it has one in common with whatever contradicts it."""
    values: tuple[Value, ...]
    slots: frozenset[tuple[str, str]]
    """What its values are values of."""
    relations: tuple[Relation, ...]
    replaced: frozenset[str]
    """What it says is not to be any more."""
    negative: bool
    scope: frozenset[str]
    """What is denied: the stems of the words behind the negation."""
    denying: frozenset[str]
    """The stems of words that deny by themselves: `refuse`, `lack`."""
    never: frozenset[str]
    """What it denies to have ever been done by who says it."""
    likes: frozenset[str]
    dislikes: frozenset[str]
    has: frozenset[str]
    lacks: frozenset[str]
    people: frozenset[str]
    """Others that it is about: a wife, a boss, `he`."""
    refused: bool
    """Whether it denies one of its values."""
    nearly: bool
    """Whether it gives a number as a bound or about."""
    first: bool
    """Whether it is about who says it."""
    own: bool
    """Whether it is without doubt."""
    correcting: bool
    """Whether it says that it changes something."""
    updated: bool
    """Whether it says that something is new."""
    following: bool
    """Whether it goes on with what was asked before: `how about Tuesday`."""
    another: bool
    """Whether it asks for something besides."""
    wanting: bool
    """Whether it asks for something to be so."""
    hedged: bool
    done: bool
    """Whether it says that something is or was done."""
    ongoing: bool
    """Whether it says that its author is at something."""
    past_tense: bool
    """Whether it says that its author did something once."""
    universal: bool
    """Whether it denies without exception."""
    learning: bool
    """Whether it says that something is still to be learnt or done."""
    past: bool
    """Whether, though it may be a question, it says that its author has done or has something."""
    unique: bool
    """Whether it says what there is one of only."""
    happens_once: bool
    """Whether it says what happens once to whatever it happens to."""
    every: bool
    """Whether it says something of all, or always."""
    not_every: bool
    """Whether it denies something of all, or says it of some only."""
    former: bool
    """Whether it is about another one of its author's things: `my old car`."""
    once: bool
    """Whether it says of what it denies when that was."""
    described: frozenset[str]
    """The stems of what something is said to be."""
    passive: bool
    """Whether it says by whom something is done."""
    restricted: bool
    """Whether what it denies, it denies of a part only."""
    denies: bool
    """Whether it denies anything, in any way: of two that do not, fewer rules can tell."""


class Said(NamedTuple):
    """What is known of a message."""

    statements: tuple[Statement, ...] = ()
    """Of a user's message."""
    named: frozenset[tuple[str, str, str]] = frozenset()
    """Of an assistant's message: kind, unit and value of what it names."""
    asked: frozenset[str] = frozenset()
    """Of an assistant's message: the kinds of values that it asks for."""
    confirming: bool = False
    """Of an assistant's message: whether it asks if it understood."""
    failed: bool = False
    """Of an assistant's message: whether it says that something could not be had."""
