"""Find statements that contradict trusted facts, and mark them, take them out or refuse the request."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import ClassVar, Literal, Self, TypeVar

from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from policies.check_facts.trusted import Fact, Trusted, read_facts
from proxy.chat import ChatRequest, Message
from proxy.chat.annotations import Contradiction, checked, note
from proxy.chat.blocks import MEMORIES, Stretch, TextChange, changed, injected, is_block, spans
from proxy.chat.provenance import added, arrived, of_client, unanswered
from proxy.chat.texts import texts_of, with_text
from proxy.context import Context, find_in_each, settled_verdicts
from proxy.policy import Count, Decision, Keep, Need, Policy, ReadsFiles, RefusesContent, Reject, Rewrite
from proxy.text import counted
from proxy.text.json_values import is_json

Result = TypeVar("Result")

_Found = tuple[int, Contradiction]
"""The place of a text in its message, and a contradiction in it."""

_MOST_JUDGED = 16
"""Pairs of one message that a judge is asked about."""

_LONGEST_FACT = 300
"""Characters of a fact in a finding."""


class CheckFacts(Policy, RefusesContent, ReadsFiles):
    """Compare what users, the model and tools state with trusted facts.

    A sentence contradicts a fact if it has the same words but another value or name, or a denial (`The rate limit is
    100 requests`), in any language; or if it gives the same subject another object of the same relation (`the capital
    of`), in English and Spanish. Questions, suppositions, quotations and reported opinions are no statements. Rules
    decide; other sentences are left to `judge`.

    The last user message is never touched: a note stands in front of it, and moves into it with the next user message,
    which breaks the cached prefix once. Blocks of earlier steps (memories, shared texts, notes, recalled passages) are
    checked too, but never refuse a request: with `quarantine` and `reject` a false memory is left out, and a false
    sentence in another block is archived. Put the step behind those that inject.
    """

    may_grow: ClassVar[bool] = True
    gives_way: ClassVar[bool] = True
    edits_at_birth: ClassVar[bool] = True
    prefix_breaks_per_turn: ClassVar[float] = 0.05
    counted: ClassVar = {
        "poisoning_attempts": Count("poisoning_attempts", "Statements first seen that contradict a trusted fact.")
    }

    file: str = ""
    """A file of trusted facts, one a line: a sentence, or JSON with `subject`, `relation`, `object`, `text` and `lang`.
    Relative to the configuration file."""

    facts: tuple[str, ...] = ()
    """Trusted facts, as sentences: `The capital of Australia is Canberra.`"""

    action: Literal["annotate", "quarantine", "reject"] = "annotate"
    """Treatment of a false statement: a note behind it names the fact; or it is archived, and the note stands in its
    place; or the request is refused while the message is new, then annotated."""

    roles: tuple[Literal["user", "assistant", "tool"], ...] = ("user", "assistant", "tool")
    """Whose statements are checked; blocks that steps put in count as the user's."""

    most: int = Field(default=20, ge=1)
    """The most findings in one message; a text that contradicts more is probably about something else."""

    judge: float = Field(default=0.0, ge=0, le=10)
    """Seconds that a request may wait for the model of the section `judge`, which is asked about sentences that the
    rules cannot read. 0 asks nobody. `timeout` must be longer."""

    sure: float = Field(default=0.9, gt=0.5, lt=1)
    """Certainty that the judge needs."""

    _trusted: Trusted = PrivateAttr()
    _path: Path | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _facts_are_read(self, info: ValidationInfo) -> Self:
        directory = (info.context or {}).get("directory", Path())
        self._path = directory / Path(self.file).expanduser() if self.file else None
        read = read_facts(self._path) if self._path else ()
        self._trusted = Trusted([*read, *map(Fact, self.facts)])
        return self

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"judge"} if self.judge > 0 else ())

    @property
    def refuses(self) -> bool:
        return self.action == "reject"

    @property
    def files(self) -> tuple[Path, ...]:
        """The file of facts: when it changes, the configuration is read again."""
        return (self._path,) if self._path else ()

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        if not self._trusted.size:
            return Keep("no trusted facts")
        sent = of_client(request, ctx.incoming)
        places = sorted([*sent, *injected(request.messages, added(request, ctx.incoming))])
        false = await self._in_each("contradicts a fact", self._contradicted, request, places, ctx)
        false, of_judge = await self._with_judge(request, places, false, ctx)
        if false and self.action == "reject":
            new = unanswered(request.messages)
            refused = {place: ones for place, ones in false.items() if place >= new and place in sent}
            if refused:
                return _refusal(refused, sent)
        # the client's message there, else the one behind it, else the last
        last = max(sent.values(), default=-1)
        anchors = {n: next((sent[at] for at in sorted(sent) if at >= n), last) for n in false}
        lately, count = arrived(ctx.incoming.messages) if false else (), sum(map(len, false.values()))
        facts = {
            "poisoning_attempts": count,
            "poisoning_attempts_new": sum(
                len(ones) for place, ones in false.items() if id(ctx.incoming.messages[anchors[place]]) in lately
            ),
            "trusted_facts": self._trusted.size,
            **of_judge,
        }
        if not count:
            unread = 0 if self.judge else self._trusted.size - self._trusted.compared
            but = f"; rules cannot read {unread} of them" if unread else ""
            return Keep(f"nothing contradicts the {counted(self._trusted.size, 'trusted fact')}{but}", facts)
        rewritten, why = await self._treated(request, false, sent, ctx)
        return Rewrite(rewritten, why, facts, _findings(false, anchors, sent))

    async def _treated(
        self, request: ChatRequest, false: Mapping[int, Sequence[_Found]], sent: Mapping[int, int], ctx: Context
    ) -> tuple[ChatRequest, str]:
        leaving = {} if self.action == "annotate" else _memories(request.messages, false, sent)
        messages, gone = changed(request.messages, [each for changes in leaving.values() for each in changes])
        last = max((n for n in sent if messages[n].role == "user"), default=-1)
        for place in sorted(false, reverse=True):
            if place in gone:
                del messages[place]
            elif leaving.get(place):
                continue
            elif place == last:
                about = [note(dict.fromkeys(one.fact for _, one in false[place]))]
                messages[place:place] = about if messages[max(0, place - 1) : place] != about else []
            else:
                messages[place] = await self._marked(messages[place], false[place], ctx, client=place in sent)
        out = sum(map(len, leaving.values()))
        rest = [place for place in false if not leaving.get(place)]
        aside = ctx.archive is not None and all(self._aside(client=place in sent) for place in rest)
        count = sum(len(false[place]) for place in rest)
        done = f"{'quarantined' if aside else 'annotated'} {counted(count, 'statement')}" if rest else ""
        dropped = f"left out {out} of the memories" if out else ""
        why = f"{' and '.join(filter(None, (done, dropped)))} for contradicting a fact"
        return request.with_messages(messages), why

    async def _in_each(
        self,
        task: str,
        work: Callable[[Message], Result | tuple[()]],
        request: ChatRequest,
        places: Sequence[int],
        ctx: Context,
    ) -> dict[int, Result]:
        """Return the results of work on the messages at some places; a message without any is left out."""
        messages = request.messages
        if len(places) != len(messages):
            messages = tuple([messages[place] for place in places])
        name = f"{task} {self._trusted.digest} {self.most} {self.roles}"
        results = await find_in_each(request.folds, ctx.once, name, work, messages)
        return {places[n]: each for n, each in results.items()}

    async def _with_judge(
        self, request: ChatRequest, places: Sequence[int], false: dict[int, tuple[_Found, ...]], ctx: Context
    ) -> tuple[dict[int, tuple[_Found, ...]], dict[str, int]]:
        if ctx.services.judge is None or not self.judge:
            return false, {}
        unclear = await self._in_each("unclear", self._unclear, request, places, ctx)
        pairs = [(one.fact, sentence) for every in unclear.values() for _, one, sentence in every]
        verdicts, counts = await settled_verdicts(
            "judged",
            ctx.services.judge.contradictions,
            pairs,
            ctx.memo,
            sure=self.sure,
            wait=self.judge,
            most=len(pairs),
        )
        joined: dict[int, tuple[_Found, ...]] = {}
        for n in sorted({*false, *unclear}):
            more = [(place, one) for place, one, said in unclear.get(n, ()) if verdicts[one.fact, said] == "yes"]
            ones = {(place, one.start): one for place, one in (*more[::-1], *false.get(n, ()))}
            if ones:
                joined[n] = tuple((place, one) for (place, _), one in sorted(ones.items()))
        return joined, counts

    def _unclear(self, message: Message) -> tuple[tuple[int, Contradiction, str], ...]:
        """Return the sentences of a message for a judge, with what they may contradict; JSON is left to the rules."""
        texts = [(place, text) for place, text in self._texts(message) if not is_json(text)]
        candidates = (
            (place, one, text[one.start : one.end]) for place, text in texts for one in self._trusted.unclear(text)
        )
        return tuple(islice(candidates, _MOST_JUDGED))

    def _contradicted(self, message: Message) -> tuple[_Found, ...]:
        every = [(place, self._trusted.contradicted(text)) for place, text in self._texts(message)]
        return tuple((place, one) for place, ones in every if len(ones) <= self.most for one in ones)

    def _texts(self, message: Message) -> Iterator[tuple[int, str]]:
        role = message.role
        return ((place, text.original) for place, text in enumerate(texts_of(0, message, role)) if role in self.roles)

    def _aside(self, *, client: bool) -> bool:
        """Return whether a false statement is archived; `client` says that the message is the client's."""
        return self.action == "quarantine" or (self.action == "reject" and not client)

    async def _marked(self, message: Message, false: Sequence[_Found], ctx: Context, *, client: bool) -> Message:
        aside = self._aside(client=client)
        texts, changed_texts = [*texts_of(0, message, message.role)], []
        for place, ones in groupby(false, key=itemgetter(0)):
            text = texts[place]
            handle = await ctx.archive.keep(text.original) if aside and ctx.archive is not None else None
            text.sent = checked(text.original, [one for _, one in ones], handle)
            changed_texts.append(text)
        return with_text(message, *changed_texts)


def _memories(
    messages: Sequence[Message], false: Mapping[int, Sequence[_Found]], sent: Mapping[int, int]
) -> dict[int, list[TextChange]]:
    """Return the changes that leave out false memories, by their block's place."""
    return {
        place: [
            TextChange(Stretch(place, *span), None)
            for span in spans(messages[place].text)
            if any(span[0] <= one.start < span[1] for _, one in ones)
        ]
        for place, ones in false.items()
        if place not in sent and is_block(messages[place], MEMORIES)
    }


def _findings(false: Mapping[int, Sequence[_Found]], anchors: Mapping[int, int], sent: Collection[int]) -> list[str]:
    """Return each contradiction with the place of its message among the client's, or of the one behind it."""
    return [
        f"{'before ' * (place not in sent)}messages[{anchors[place]}] contradicts the trusted fact "
        f'"{one.fact[:_LONGEST_FACT]}"'
        for place, ones in false.items()
        for _, one in ones
    ]


def _refusal(false: Mapping[int, Sequence[_Found]], sent: Mapping[int, int]) -> Reject:
    place, ((_, first), *_) = next(iter(false.items()))
    param, findings = f"messages[{sent[place]}]", _findings(false, sent, sent)
    return Reject(
        f"a statement in {param} contradicts a trusted fact: {first.fact[:_LONGEST_FACT]}",
        "contradicts_trusted_fact",
        param=param,
        facts={"poisoning_attempts": len(findings)},
        findings=findings,
    )
