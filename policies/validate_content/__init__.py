"""Judge texts from outside, and mark, set aside or refuse those that are not good enough."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from policies.validate_content.content import Item, injected, items, passages
from policies.validate_content.measures import HOUR, Verdict, fault, freshness, judge, overall, present, stated
from proxy.chat import ChatRequest, Message
from proxy.chat.blocks import Stretch, TextChange, changed, placed
from proxy.chat.markers import MARKER
from proxy.chat.provenance import of_client
from proxy.chat.texts import texts_of, with_text
from proxy.context import Context
from proxy.policy import SETTINGS, Count, Decision, Fact, Keep, Policy, RefusesContent, Reject, Rewrite
from proxy.text import counted

_SCORES = "Scores of new contents from outside."
_SPEAKERS = frozenset({"system", "developer", "user"})

_Poor = tuple[Item, str]
"""A content and its fault."""


class Scores(BaseModel):
    """A figure for each measure."""

    model_config = SETTINGS

    relevance: float = Field(default=0.7, ge=0, le=1)
    """Words that injected data share with the question: none makes 0, one 0.7, two 0.91."""

    freshness: float = Field(default=1.0, ge=0, le=1)
    """`fresh` divided by the age that the content states, at most 1: 1 asks for content no older than `fresh`, 0.04 is
    about a day where `fresh` is an hour."""

    accuracy: float = Field(default=0.9, ge=0, le=1)
    """0 for an error page in place of content; else 1 less ten times the share of words with damaged characters."""

    completeness: float = Field(default=0.5, ge=0, le=1)
    """Cut off in the middle is 0.4, cut off and saying so 0.8."""


class ValidateContent(Policy, RefusesContent):
    """Judge tool results and injected data by freshness, accuracy and completeness, injected data by relevance, too.

    Injected data are blocks in `knowledge_tags`, in the client's user messages or from an earlier step. `annotate` puts
    a line that says what is wrong in front. `quarantine` archives the content, with the reason, and leaves that line
    with a handle; what cannot be archived is annotated, and a memory just stays out. `reject` refuses the request for
    new content of the client's; of an earlier step's it is left out. A user's message is never changed: the note goes
    in front of it.

    Good content stays byte for byte, and a verdict never changes. Age counts from the content's first sight. Put it
    behind the steps that shorten tool results and those that inject. It cannot see what is false: that takes trusted
    facts.
    """

    may_grow: ClassVar[bool] = True
    gives_way: ClassVar[bool] = True
    counted: ClassVar = {
        "poor_contents": Count("poor_contents", "New contents from outside below a threshold of quality."),
        **{
            f"{name}_score": Count("content_quality", _SCORES, "score", ("measure", measure))
            for name, measure in (("quality", "overall"), ("relevance", "relevance"), ("accuracy", "accuracy"))
        },
    }

    action: Literal["annotate", "quarantine", "reject"] = "annotate"
    """Treatment of content that is below a threshold."""

    timeout: float = Field(default=2.0, gt=0)
    """Seconds after which the step is given up: only a long conversation that was never seen takes so much."""

    least: Scores = Scores()
    """The thresholds of the measures; 0 turns one off."""

    overall: float = Field(default=0.7, ge=0, le=1)
    """The threshold of the overall score: the mean of those of the measures that can tell something."""

    fresh: float = Field(default=HOUR, gt=0)
    """Seconds up to which content that states its age is fresh."""

    skip_tools: tuple[str, ...] = ()
    """Globs of the names of tools whose results are not judged."""

    knowledge_tags: tuple[str, ...] = (
        "relevant_context",
        "context",
        "documents",
        "memories",
        "search_results",
        "shared_context",
    )
    """Tags that enclose data in user messages: `<context>...</context>`. `relevant_context` has the memories of
    `select_memories`, `shared_context` what other agents gave."""

    @property
    def refuses(self) -> bool:
        return self.action == "reject"

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        contents = [
            *items(ctx.incoming, self.knowledge_tags, self.skip_tools),
            *injected(request, ctx.incoming, self.knowledge_tags),
        ]
        least = self.least.model_dump()
        verdicts = [await self._verdict(item, ctx) for item in contents]
        faults = [fault(each, least, self.overall) for each in verdicts]
        poor = [(item, words) for item, words in zip(contents, faults, strict=True) if words]
        facts = _figures(contents, verdicts, poor)
        findings = [f"{'before ' * (item.stretch is not None)}messages[{item.place}]: {words}" for item, words in poor]
        refused = next((words for item, words in poor if item.is_new and item.stretch is None), None)
        if refused is not None and self.action == "reject":
            why = f"content in the request is not good enough: {refused}"
            return Reject(why, code="content_quality", facts=facts, findings=findings)
        messages, done = await self._treated(request, poor, ctx) if poor else (request.messages, 0)
        if not done:
            why = f"all good enough: {counted(len(contents), 'text')}" if not poor else f"marked or gone: {len(poor)}"
            return Keep(why, facts, findings)
        why = f"below a threshold: {done} of {counted(len(contents), 'text')}"
        return Rewrite(request.with_messages(messages), why, facts, findings)

    async def _verdict(self, item: Item, ctx: Context) -> Verdict:
        key = ("validate_content", *map(hash, item.key), len(item.text))
        verdict, moment = await ctx.once.of_key(key, len(item.text), lambda: (judge(*item.key), stated(item.text)))
        came = None if moment is None else await self._came(item, ctx)
        if moment is None or came is None:
            return verdict
        return {**verdict, "freshness": freshness(moment, came, self.fresh)}

    async def _came(self, item: Item, ctx: Context) -> float | None:
        """Return the time that the conversation in front of a content states, else that of its first sight."""
        before = [each for each in ctx.incoming.messages[: item.place] if each.get("role") in _SPEAKERS]
        stated_times = await ctx.once.of_each(present, before)
        if ctx.memo is None or any(stated_times):
            return max(filter(None, stated_times), default=None)
        key = f"quality/came/{item.name}"
        if item.is_new and ctx.conditions.now is not None:
            return float(await ctx.memo.settle(key, f"{ctx.conditions.now:.0f}"))
        known = (await ctx.memo.known([key]))[0]
        return None if known is None else float(known)

    async def _treated(
        self, request: ChatRequest, poor: Sequence[_Poor], ctx: Context
    ) -> tuple[Sequence[Message], int]:
        """Return the messages with a line on each poor content, and the number of changes."""
        places = {at: place for place, at in of_client(request, ctx.incoming).items()}
        notes, marked, changes = defaultdict[int, list[str]](list), dict[int, Message](), list[TextChange]()
        for item, words in poor:
            place, line = places.get(item.place), f"[quality check: {words}]"
            if item.stretch is not None or place is None:
                back = [item.stretch] if item.stretch is not None else passages(request, ctx.incoming, item.text)
                changes += [each for one in back if (each := await self._change(one, request, item, line, ctx))]
            elif item.is_result:
                marked[place] = await self._marked(marked.get(place, request.messages[place]), item, line, ctx)
            else:
                notes[place].append(f"The data in the next message: {words}.")
        messages, gone = changed(request.messages, changes)
        blocks: dict[int, list[Message]] = {}
        for place, lines in notes.items():
            block = Message({"role": "user", "content": "\n".join(["[quality check]", *dict.fromkeys(lines)])})
            if messages[max(0, place - 1)] != block:
                blocks[place] = [block]
        done = len(changes) + sum(each is not request.messages[place] for place, each in marked.items()) + len(blocks)
        left = {id(messages[place]) for place in gone}
        messages = [marked.get(place, message) for place, message in enumerate(messages)]
        return [each for each in placed(messages, blocks) if id(each) not in left], done

    async def _change(
        self, stretch: Stretch, request: ChatRequest, item: Item, line: str, ctx: Context
    ) -> TextChange | None:
        """Return the change of a content where an earlier step has put it; None where the line is there."""
        text = request.messages[stretch.place].text[stretch.start : stretch.end]
        if text.startswith(line):
            return None
        aside = self.action == "quarantine" or (self.action == "reject" and item.stretch is not None)
        if aside and stretch.may_leave:
            return TextChange(stretch, None)
        between = " " if stretch.may_leave or item.stretch is None else "\n"
        handle_line = await _set_aside(line, item.text, ctx) if aside else None
        return TextChange(stretch, handle_line or f"{line}{between}{text}")

    async def _marked(self, message: Message, item: Item, line: str, ctx: Context) -> Message:
        """Return a tool's result, in the form that it has in the request, with the line in front or in its place."""
        text = next((each for each in texts_of(item.place, message) if each.part == item.part), None)
        if text is None:
            return message
        aside = await _set_aside(line, item.text, ctx) if self.action == "quarantine" else None
        if aside is None and not text.original.startswith(line):
            aside = f"{line}\n{text.original}"
        if aside is None or aside == text.original:
            return message
        text.sent = aside
        return with_text(message, text)


async def _set_aside(line: str, content: str, ctx: Context) -> str | None:
    """Archive a content with its fault, and return the line in its place; None where it cannot be archived."""
    handle = await ctx.archive.keep(f"{line}\n{content}") if ctx.archive is not None else None
    return None if handle is None else f'{line} [{len(content)} characters set aside; {MARKER}{handle}") has them]'


def _figures(contents: Sequence[Item], verdicts: Sequence[Verdict], poor: Sequence[_Poor]) -> dict[str, Fact]:
    """Return the figures of new contents: the others were counted before."""
    new = [verdict for item, verdict in zip(contents, verdicts, strict=True) if item.is_new]
    figures: dict[str, Fact] = {"judged": len(new), "poor_contents": sum(item.is_new for item, _ in poor)}
    scores = {"quality_score": [overall(verdict) for verdict in new]}
    for measure in ("relevance", "accuracy"):
        scores[f"{measure}_score"] = [verdict[measure].score for verdict in new if measure in verdict]
    return figures | {name: round(fmean(each), 3) for name, each in scores.items() if each}
