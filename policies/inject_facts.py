"""Give the model what the user said about themselves, where tools are used."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

from pydantic import Field, field_validator

from proxy.chat import ChatRequest, Message
from proxy.context import Context
from proxy.pins import compiled
from proxy.policy import Decision, Keep, Policy, Rewrite
from proxy.user_facts import SHIPPED, UserFact, block, facts_in, newest

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
            if "value" not in compiled(each).groupindex:
                raise ValueError("each pattern needs a group (?P<value>...)")
        return patterns

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Find what was stated, and place the notes."""
        if not request.tools and not self.always:
            return Keep("no tools are used")
        said = await self._said(ctx)
        left = _left(request, ctx)
        known = newest(fact for place in left for fact in said.get(id(ctx.incoming.messages[place]), ()))
        told: dict[str, str] = {}
        messages: list[Message] = []
        notes = 0
        for message in request.messages:
            if message.role == "user" and known != told and id(message) in said:
                messages += [Message({"role": "user", "content": block(self._newest(known, told))}), _NOTED]
                told = dict(known)
                notes += 1
            messages.append(message)
            known |= newest(said.get(id(message), ()))
        facts = {"user_facts": len(known), "user_fact_notes": notes}
        if not notes:
            return Keep(f"{len(known)} facts, none to repeat", facts)
        return Rewrite(request.with_messages(messages), f"repeated {len(known)} facts in {notes} notes", facts)

    def _newest(self, known: Mapping[str, str], told: Mapping[str, str]) -> dict[str, str]:
        """What a note says: what no earlier one did."""
        new = [(name, value) for name, value in known.items() if told.get(name) != value]
        return dict(new[-self.most :])

    async def _said(self, ctx: Context) -> dict[int, Sequence[UserFact]]:
        """What each user message of the client's states, by the message's id."""
        patterns = {**(SHIPPED if self.shipped else {}), **self.patterns}
        mine = f"user facts {self.shipped} {sorted(self.patterns.items())!r}"
        messages = [message for message in ctx.incoming.messages if message.role == "user"]
        keys = [(mine, message.raw) for message in messages]
        found: dict[int, Sequence[UserFact]] = {}
        for message, key, known in zip(messages, keys, ctx.once.known(keys), strict=True):
            if known is None:
                text = message.text
                known = await ctx.once.of_key(key, len(text), partial(facts_in, text, patterns))
            found[id(message)] = known
        return found


def _left(request: ChatRequest, ctx: Context) -> list[int]:
    """The places of the client's messages that no longer stand in the request."""
    there = {id(message) for message in request.messages}
    return [place for place, message in enumerate(ctx.incoming.messages) if id(message) not in there]
