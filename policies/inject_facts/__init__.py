"""Give the model what the user said about themselves, where tools are used."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import ClassVar, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from policies.inject_facts.patterns import Ready, UserFact, block, facts_in, merged, outline, ready, shipped, whole
from proxy.chat import ChatRequest, Message
from proxy.chat.blocks import FACTS, injected, placed
from proxy.chat.provenance import added, of_client
from proxy.context import Context, find_in_each
from proxy.economics import room
from proxy.history.pins import compiled
from proxy.policy import Decision, Keep, Policy, Rewrite, Stage
from proxy.text import counted
from proxy.text.sentences import sentences


class InjectFacts(Policy):
    """Repeat names, user names, places, preferences and deadlines that the user stated, next to where they are needed.

    Patterns find them in the user's own messages, in English and Spanish. The newest value of each wins; of allergies,
    diets and preferences all stay. A note goes in front of a user message when facts were stated that no earlier note
    has, or when the message that stated them left. It never changes, so the prompt cache holds. It is data in the
    user's role.
    """

    stage: ClassVar = Stage.RESTORES
    may_grow: ClassVar[bool] = True
    gives_way: ClassVar[bool] = True
    prefix_breaks_per_turn: ClassVar[float] = 0.1

    patterns: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Further patterns by the name of the fact: `Editor: ["\\bi use (?P<value>vim|emacs)"]`. The group `value` is the
    fact's value; another group can stand in the name in braces: `{service} username`."""

    shipped: bool = True
    """Use the patterns that come with Penstock too."""

    always: bool = False
    """Give the facts to requests without tools too."""

    most: int = Field(default=20, ge=1, le=200)
    """The most facts in a note; the newest stay."""

    _looked_for: tuple[str, Ready] = PrivateAttr()
    """The patterns, and a name that stands for them."""

    @field_validator("patterns")
    @classmethod
    def _patterns_have_a_value(cls, patterns: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for each in (pattern for every in patterns.values() for pattern in every):
            compiled(outline(each))
            if "value" not in _groups(whole(each)):
                raise ValueError(f"pattern {each!r} needs a group (?P<value>...)")
        return patterns

    @model_validator(mode="after")
    def _patterns_are_ready(self) -> Self:
        """With the configuration, so that no request waits for the file."""
        patterns = {**(shipped() if self.shipped else {}), **self.patterns}
        digest = blake2b(repr(list(patterns.items())).encode(errors="surrogatepass"), digest_size=16).hexdigest()
        self._looked_for = f"user facts {digest}", ready(patterns)
        return self

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        if not request.tools and not self.always:
            return Keep("no tools are used")
        facts_at = await self._stated_facts(ctx)
        if own := injected(request.messages, added(request, ctx.incoming), FACTS):
            request = request.with_messages(each for n, each in enumerate(request.messages) if n not in own)
        sent = of_client(request, ctx.incoming)
        # of a message that stands in a short form the facts are in the note in front of the next one, as of any other
        there = {*sent.values()} if facts_at else set[int]()
        departed = dict.fromkeys(place for place in facts_at if place not in there)
        known = merged(fact for place in departed for fact in facts_at[place])
        repeated: dict[str, str] = {}
        findings: list[str] = []
        blocks: dict[int, list[Message]] = {}
        where = _stated_last(departed, facts_at)
        texts = [(at, request.messages[at].text) for at in added(request, ctx.incoming)]
        is_open = True  # what was stated in messages that left is due before the first one
        for place, at in sent.items() if facts_at else ():
            is_user = request.messages[place].role == "user"
            if at not in facts_at and not (is_open and is_user and ctx.incoming.messages[at].role == "user"):
                continue
            is_open = at in facts_at
            itself = merged(facts_at.get(at, ()))
            shown = [text for before, text in texts if before < place]
            # a value that the message states anew is not repeated in its older form
            due = {
                name: value
                for name, value in known.items()
                if name not in itself
                and repeated.get(name) != value
                and not _stands(value, ctx.incoming.messages[where[name][0]].text, shown)
            }
            if is_user and due:
                mine = dict(list(due.items())[-self.most :])
                blocks[place] = [block(mine)]
                findings += _findings(mine, at, where, departed)
                repeated |= due
            known = merged(facts_at.get(at, ()), known)
            where |= _stated_last([at], facts_at)
        notes = await _within(await room(request, ctx), blocks, ctx) if blocks else {}
        facts = {"user_facts": len(known), "user_fact_notes": len(notes)}
        if not notes:
            return Keep(f"{counted(len(known), 'fact')}, {'no room for them' if blocks else 'none to repeat'}", facts)
        why = f"repeated {counted(len(known), 'fact')} in {counted(len(notes), 'note')}"
        return Rewrite(request.with_messages(placed(request.messages, notes)), why, facts, findings)

    async def _stated_facts(self, ctx: Context) -> dict[int, Sequence[UserFact]]:
        """Return the facts in the client's user messages, by the message's place; only of those that state any."""
        name, patterns = self._looked_for

        def stated(message: Message) -> tuple[UserFact, ...]:
            return facts_in(message.text, patterns) if message.role == "user" else ()

        return await find_in_each(ctx.incoming.folds, ctx.once, name, stated, ctx.incoming.messages)


async def _within(tokens: int, blocks: Mapping[int, list[Message]], ctx: Context) -> dict[int, list[Message]]:
    fitting: dict[int, list[Message]] = {}
    for place, notes in sorted(blocks.items(), key=lambda each: -each[0]):
        tokens -= sum(await ctx.tokens.sizes(notes))
        if tokens < 0:
            break
        fitting[place] = notes
    return fitting


def _stands(value: str, stated: str, shown: Iterable[str]) -> bool:
    """Return whether the sentence that stated a value stands in a summary, or in a block of an earlier step."""
    where = [text for text in shown if value in text]
    return bool(where) and any(value in each.text and each.text in text for each in sentences(stated) for text in where)


def _groups(pattern: str) -> Mapping[str, int]:
    try:
        return re.compile(pattern).groupindex
    except re.error as error:
        raise ValueError(f"pattern {pattern!r}: {error}") from None


def _stated_last(places: Iterable[int], facts_at: Mapping[int, Sequence[UserFact]]) -> dict[str, tuple[int, str]]:
    return {fact.name: (place, fact.kind) for place in places for fact in facts_at.get(place, ())}


def _findings(
    noted: Mapping[str, str], end: int, where: Mapping[str, tuple[int, str]], departed: Collection[int]
) -> list[str]:
    """Return where each fact of a note before the client's message `end` was last stated, and why it is repeated."""
    findings: list[str] = []
    for place, kind in sorted(where[name] for name in noted if name in where):
        why = "that message left the context" if place in departed else "no earlier note has it"
        findings.append(f'messages[{place}] states "{kind}", repeated before messages[{end}]: {why}')
    return findings
