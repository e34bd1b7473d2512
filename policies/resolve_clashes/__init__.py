"""Tell the model which of the user's statements no longer hold.

`statements` reads a message, `values` the values in it, `clashes` finds the pairs. The words and patterns stand in
`proxy/data/clashes`. Notes are data, in the user's words, never an instruction.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from policies.resolve_clashes.clashes import Clash, find_clashes
from proxy.chat import ChatRequest, Message
from proxy.chat.annotations import is_refuted
from proxy.chat.blocks import TRUSTED, is_block
from proxy.chat.provenance import arrived, of_client
from proxy.context import Context, Judge, Memo, settled_verdicts
from proxy.economics import may_be_cached
from proxy.policy import Count, Decision, Keep, Need, Policy, Rewrite
from proxy.text import counted

_MOST_JUDGED = 16
"""Pairs of one request that a judge is asked about, the latest; the others stay as the rules have them."""
_MARK = "[Penstock: "
_BRIEF = 100
"""Characters of the longest statement that a line names: a part of a long one would not be clear."""
_FEW = 32
"""Characters of a statement that a line names."""
_OF_LINE = 2
"""Statements that a line names."""
_OF_MESSAGE = 3
"""Statements that the notes behind one message name."""


class ResolveClashes(Policy):
    """Where the user says something that contradicts what they said before, say that the later statement holds.

    It sees changed amounts, dates, times, places and choices, and denials of what users said, in English and Spanish,
    by words alone; it would rather miss one than invent one. Questions, suppositions, quotations and
    reported opinions are no statements. Two statements of one message, and two that are both uncertain, are counted and
    left, unless `reconcile` has a model decide. What `check_facts` has marked as wrong is not said to hold.
    """

    may_grow: ClassVar[bool] = True
    gives_way: ClassVar[bool] = True
    prefix_breaks_per_turn: ClassVar[float] = 0.1  # marks, as long as nothing is cached
    counted: ClassVar = {
        "clashes_resolved": Count(
            "clashes_resolved", "Statements that one first seen replaces, in the same conversation."
        )
    }

    older: Literal["auto", "keep", "mark"] = "auto"
    """Treatment of the older statement. `auto`: marked while the prompt is too short for the provider's cache or there
    is none, else unchanged, and a line in front of the newer message names what it replaces. `keep`: unchanged. `mark`:
    marked, which costs the cache of what stands behind it."""

    reconcile: Literal["off", "open", "all"] = "off"
    """Pairs that the model of the section `judge` decides: none; those that rules leave open; or also those of which
    rules say that the later statement holds. Its decision stays for the conversation."""

    wait: float = Field(default=1.0, gt=0, le=10)
    """Seconds that a request with a new pair may wait for the judge. It must be less than `timeout`."""

    sure: float = Field(default=0.9, gt=0.5, lt=1)
    """Certainty that the judge needs, for either answer."""

    timeout: float = Field(default=2.0, gt=0)
    """Seconds after which the step is given up. Only the first request of a long conversation takes more than a few
    milliseconds."""

    @model_validator(mode="after")
    def _waits_within_its_time(self) -> Self:
        if self.reconcile != "off" and self.wait >= self.timeout:
            raise ValueError(f"timeout must be more than the {self.wait:g} seconds of wait")
        return self

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"judge"} if self.reconcile != "off" else ())

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        sent = of_client(request, ctx.incoming)
        texts = [ctx.incoming.messages[sent[n]] if n in sent else _SILENT for n in range(len(request.messages))]
        if any(each is not text and is_written(each, text) for each, text in zip(request.messages, texts, strict=True)):
            return Keep("an earlier step has resolved clashes already")
        clashes: Sequence[Clash] = await find_clashes(texts, ctx.once)
        of_judge: Mapping[str, int] = {}
        if self.reconcile != "off" and ctx.services.judge is not None:
            clashes, of_judge = await reconcile(
                clashes, texts, ctx.services.judge, ctx.memo, which=self.reconcile, sure=self.sure, wait=self.wait
            )
        solved = [clash for clash in clashes if clash.solvable]
        lately = arrived(ctx.incoming.messages)
        facts = {
            "clashes": len(clashes),
            "clashes_resolved": len(solved),
            "clashes_resolved_new": sum(id(texts[clash.newer]) in lately for clash in solved),
            "irresolvable": len(clashes) - len(solved),
            **of_judge,
        }
        findings = [_finding(each, sent) for each in clashes]
        if not solved:
            return Keep(_why(facts), facts, findings)
        spoken = [clash for clash in solved if _may_be_told(clash, request.messages, texts)]
        messages, marks = _written(spoken, await self._in_place(solved, request, ctx), request, texts)
        lines = len(messages) - len(request.messages)
        if not marks and not lines:
            why = f"{counted(len(solved), 'superseded statement')}, none in so few words that a line pays"
            return Keep(why, facts, findings)
        return Rewrite(
            request.with_messages(messages), _why(facts), {**facts, "marked_messages": marks, "lines": lines}, findings
        )

    async def _in_place(self, clashes: Sequence[Clash], request: ChatRequest, ctx: Context) -> frozenset[Clash]:
        """Return the clashes whose older statement is changed where it stands: none within one message.

        The size of the conversation up to the newer statement decides: later requests find the same.
        """
        rules, between = ctx.model.cache, [clash for clash in clashes if clash.older != clash.newer]
        if self.older == "keep":
            return frozenset()
        if self.older != "auto" or not rules.ttl:
            return frozenset(between)
        head = sum(await ctx.tokens.tool_sizes(request.tools))
        ends = list(accumulate(await ctx.tokens.sizes(request.messages), initial=head))
        return frozenset(each for each in between if not may_be_cached(rules, ends[each.newer + 1]))


def _written(
    clashes: Sequence[Clash], in_place: Collection[Clash], request: ChatRequest, texts: Sequence[Message]
) -> tuple[list[Message], int]:
    """Return the messages with lines and marks, and the number of marked ones."""
    of_older, of_newer = defaultdict[int, list[Clash]](list), defaultdict[int, list[Clash]](list)
    for each in clashes:
        if each in in_place:
            of_older[each.older].append(each)
        elif is_brief(each):
            of_newer[each.newer].append(each)
    messages: list[Message] = []
    for place, message in enumerate(request.messages):
        if place in of_newer:
            messages.append(line(of_newer[place]))
        messages.append(marked(message, texts[place], of_older[place]) if place in of_older else message)
    return messages, len(of_older)


def is_written(message: Message, text: Message) -> bool:
    """Return whether a message has a note from here that it did not have as the client sent it."""
    return "supersede" in message.text and message.text.count(_MARK) > text.text.count(_MARK)


def is_brief(clash: Clash) -> bool:
    """Return whether both statements are short enough for a line."""
    return max(clash.was.size, clash.now.size) <= _BRIEF


def line(clashes: Sequence[Clash]) -> Message:
    """Return the line in front of a user's message that overtakes statements: it names those by their first words.

    It does not repeat the newer statement, which stands right behind, but where both stand in that message.
    """
    latest = clashes[-_OF_LINE:]
    older = [f'"{_begun(each.was.quote)}"' for each in latest if each.older != each.newer]
    parts = [f"next message supersedes {' and '.join(older)}"] if older else []
    within = [each for each in latest if each.older == each.newer]
    parts += [
        f'in the next message, "{_begun(each.now.quote)}" supersedes "{_begun(each.was.quote)}"' for each in within
    ]
    return Message({"role": "user", "content": f"{_MARK}{'; '.join(parts)}]"})


def _begun(quote: str) -> str:
    """Return the first words of a quotation, enough to find it."""
    return quote if len(quote) <= _FEW else f"{quote[:_FEW].rpartition(' ')[0] or quote[:_FEW]}…"


def marked(message: Message, text: Message, clashes: Sequence[Clash]) -> Message:
    """Return the older message of clashes with a note behind its words that quotes the newer statement.

    `text` is the message as the client sent it: an earlier step may have changed it since.
    """
    length = len(text.text.strip()) - 1
    notes = "".join([f"\n{_note(each, length)}" for each in clashes[:_OF_MESSAGE]])
    content = message.get("content")
    if isinstance(content, str):
        return message.with_changes(content=content + notes)
    return message.with_changes(content=[*message.parts, {"type": "text", "text": notes.strip()}])


def _note(clash: Clash, length: int) -> str:
    """Return the note behind a message of so many characters, the last one aside."""
    subject = "this" if clash.was.size >= length else f'"{clash.was.quote}"'
    return f'{_MARK}{subject} is superseded, the user said later: "{clash.now.quote}"]'


_SILENT = Message({"role": "system", "content": ""})
"""In place of messages that are not the client's, such as a summary."""


def _may_be_told(clash: Clash, messages: Sequence[Message], texts: Sequence[Message]) -> bool:
    """Return False if an earlier step has found one of the statements to be wrong; `texts` are the client's."""
    was, now = texts[clash.older], texts[clash.newer]
    if messages[clash.older] is not was and is_refuted(clash.was.of(was.text), was.text, messages[clash.older].text):
        return False
    if messages[clash.newer] is not now and is_refuted(clash.now.of(now.text), now.text, messages[clash.newer].text):
        return False
    # of the last message, a note says on the next turn which of its statements contradict a fact
    place = clash.newer - 1
    while place >= 0 and texts[place] is _SILENT and not is_block(messages[place], TRUSTED):
        place -= 1
    return place < 0 or texts[place] is not _SILENT


async def reconcile(
    clashes: Sequence[Clash],
    messages: Sequence[Message],
    judge: Judge,
    memo: Memo | None,
    *,
    which: Literal["open", "all"],
    sure: float,
    wait: float,
) -> tuple[Sequence[Clash], Mapping[str, int]]:
    """Return the pairs as a judge decides them, each once for the conversation, and the counts of that.

    It is asked about the pairs that are not solvable, or `all`. Without a verdict that is `sure` they stay as they are.
    """
    asked = {
        each: (each.was.of(messages[each.older].text), each.now.of(messages[each.newer].text))
        for each in clashes
        if which == "all" or not each.solvable
    }
    verdicts, counts = await settled_verdicts(
        "reconciled", judge.replacements, [*asked.values()], memo, sure=sure, wait=wait, most=_MOST_JUDGED
    )
    decided = [(each, verdicts[asked[each]] if each in asked else None) for each in clashes]
    rest = [each._replace(solvable=each.solvable or verdict == "yes") for each, verdict in decided if verdict != "no"]
    return rest, {**counts, "compatible": len(clashes) - len(rest)}


def _finding(clash: Clash, sent: Mapping[int, int]) -> str:
    older, newer = f"messages[{sent[clash.older]}]", f"messages[{sent[clash.newer]}]"
    relation = f"is superseded by {newer}" if clash.solvable else f"and {newer} are both uncertain"
    return f"{older} {relation if older != newer else 'contradicts itself'}: {clash.reason}"


def _why(facts: Mapping[str, int]) -> str:
    if not facts["clashes"]:
        return "no statement of the user's contradicts an earlier one"
    open_ones = f", {facts['irresolvable']} cannot be resolved" if facts["irresolvable"] else ""
    return f"{counted(facts['clashes_resolved'], 'statement')} superseded by later ones{open_ones}"
