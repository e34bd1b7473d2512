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
    order: tuple[str, ...]
    """Those in their order."""
    head: str
    """The first of them that tells something: mostly what it is about."""
    ordinals: frozenset[str]
    """`first`, `second`: which one of several it is about."""
    about: frozenset[str]
    """Those that tell what it is about: without its values, and without words that any request has."""
    names: frozenset[str]
    """The stems of its names: capitalised words that do not begin a sentence."""
    years: frozenset[str]
    """The years that it names."""
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
    never: frozenset[str]
    """What it denies to have ever been done by who says it."""
    verb: str
    """The stem of the verb of that."""
    likes: frozenset[str]
    dislikes: frozenset[str]
    people: frozenset[str]
    """Others that it is about: a wife, a boss, `he`."""
    refused: bool
    """Whether it denies one of its values."""
    first: bool
    """Whether it is about who says it."""
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
    learning: bool
    """Whether it says that something is still to be learnt or done."""
    past: bool
    """Whether, though it may be a question, it says that its author has done or has something."""
    former: bool
    """Whether it is about another one of its author's things: `my old car`."""
    once: bool
    """Whether it says of what it denies when that was."""
    restricted: bool
    """Whether what it denies, it denies of a part only."""


class Said(NamedTuple):
    """What is known of a message."""

    statements: tuple[Statement, ...] = ()
    """Of a user's message."""
    named: frozenset[tuple[str, str, str]] = frozenset()
    """Of an assistant's message: kind, unit and value of what it names."""
    asked: frozenset[str] = frozenset()
    """Of an assistant's message: the kinds of values that it asks for."""
    failed: bool = False
    """Of an assistant's message: whether it says that something could not be had."""
