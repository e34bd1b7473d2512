"""Give the model what the user said about themselves, where tools are used."""

import re
from collections.abc import Mapping, Sequence, Set
from functools import partial
from typing import ClassVar, Self

from pydantic import Field, field_validator, model_validator

from proxy.chat import ChatRequest, Message
from proxy.context import Context
from proxy.lineage import of_client
from proxy.pins import compiled
from proxy.policy import Decision, Keep, Policy, Rewrite
from proxy.user_facts import UserFact, block, facts_in, newest, outline, shipped, whole

_NOTED = Message({"role": "assistant", "content": "Noted."})


class InjectFacts(Policy):
    """Repeat names, user names, places, preferences and deadlines that the user stated, next to where they are needed.

    Patterns find them in the user's own messages, in English and Spanish; no model is asked. The newest value of each
    wins. A note goes in front of a user message when facts were stated that no earlier note has, or when the message
    that stated them left the context: so a note never changes, and the prompt cache holds. It is data in the user's
    role.
    """

    may_grow: ClassVar[bool] = True
    gives_way: ClassVar[bool] = True
    prefix_breaks_per_turn: ClassVar[float] = 0.1

    patterns: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Further patterns by the name of the fact: `Editor: ["\\bi use (?P<value>vim|emacs)"]`. The group `value` is what
    is kept; another group can stand in the name in braces: `{service} username`."""

    shipped: bool = True
    """Whether the patterns that come with Penstock are used too."""

    always: bool = False
    """Whether requests without tools get the facts too."""

    most: int = Field(default=20, ge=1, le=200)
    """The most facts in a note; the newest are kept."""

    @field_validator("patterns")
    @classmethod
    def _patterns_have_a_value(cls, patterns: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for each in (pattern for every in patterns.values() for pattern in every):
            compiled(outline(each))
            if "value" not in _groups(whole(each)):
                raise ValueError("each pattern needs a group (?P<value>...)")
        return patterns

    @model_validator(mode="after")
    def _shipped_patterns_are_read(self) -> Self:
        """With the configuration, so that no request waits for the file."""
        if self.shipped:
            shipped()
        return self

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Find what was stated, and place the notes."""
        if not request.tools and not self.always:
            return Keep("no tools are used")
        said = await self._said(ctx)
        left = _left(request, ctx)
        known = newest(fact for place in left for fact in said.get(place, ()))
        told: dict[str, str] = {}
        findings: list[str] = []
        messages: list[Message] = []
        notes = 0
        sent = of_client(request.messages, ctx.incoming.messages)
        for place, message in enumerate(request.messages):
            theirs = sent.get(place)
            itself = newest(said.get(theirs, ())) if theirs is not None else {}
            # what the message says anew is not told in its older form
            due = {name: value for name, value in known.items() if name not in itself and told.get(name) != value}
            if message.role == "user" and due and theirs is not None and theirs in said:
                mine = self._newest(due)
                messages += [Message({"role": "user", "content": block(mine)}), _NOTED]
                findings += _findings(mine, theirs, said, set(left))
                told |= due
                notes += 1
            messages.append(message)
            known |= itself
        facts = {"user_facts": len(known), "user_fact_notes": notes}
        if not notes:
            return Keep(f"{len(known)} facts, none to repeat", facts)
        why = f"repeated {len(known)} facts in {notes} notes"
        return Rewrite(request.with_messages(messages), why, facts, findings)

    def _newest(self, due: Mapping[str, str]) -> dict[str, str]:
        """What a note says: the last of what no earlier one did."""
        return dict(list(due.items())[-self.most :])

    async def _said(self, ctx: Context) -> dict[int, Sequence[UserFact]]:
        """What each user message of the client's states, by the message's place."""
        patterns = {**(shipped() if self.shipped else {}), **self.patterns}
        mine = f"user facts {self.shipped} {sorted(self.patterns.items())!r}"
        places = [place for place, message in enumerate(ctx.incoming.messages) if message.role == "user"]
        keys = [(mine, ctx.incoming.messages[place].raw) for place in places]
        found: dict[int, Sequence[UserFact]] = {}
        for place, key, known in zip(places, keys, ctx.once.known(keys), strict=True):
            if known is None:
                text = ctx.incoming.messages[place].text
                known = await ctx.once.of_key(key, len(text), partial(facts_in, text, patterns))
            found[place] = known
        return found


def _groups(pattern: str) -> Mapping[str, int]:
    try:
        return re.compile(pattern).groupindex
    except re.error as error:
        raise ValueError(f"pattern {pattern!r}: {error}") from None


def _findings(noted: Mapping[str, str], end: int, said: Mapping[int, Sequence[UserFact]], left: Set[int]) -> list[str]:
    """Where each fact of a note before the client's message `end` was last stated, and why it is repeated."""
    where: dict[str, tuple[int, str]] = {}
    for place in [*sorted(left), *(place for place in range(end) if place not in left)]:
        where |= {fact.name: (place, fact.kind) for fact in said.get(place, ())}
    told: list[str] = []
    for place, kind in sorted(where[name] for name in noted if name in where):
        why = "that message left the context" if place in left else "no earlier note has it"
        told.append(f'messages[{place}] states "{kind}", repeated before messages[{end}]: {why}')
    return told


def _left(request: ChatRequest, ctx: Context) -> list[int]:
    """The places of the client's messages that no longer stand in the request.

    Of one that stands in a short form the facts are in the note in front of the next one, as of any other.
    """
    there = set(of_client(request.messages, ctx.incoming.messages).values())
    return [place for place in range(len(ctx.incoming.messages)) if place not in there]
