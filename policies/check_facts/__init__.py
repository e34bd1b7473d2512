"""Find statements that contradict trusted facts, and mark them, take them out or refuse the request."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Self, TypeVar

from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from policies.check_facts.facts_file import read_facts
from policies.check_facts.trusted import Fact, Trusted
from proxy.chat import ChatRequest, Message
from proxy.chat.annotations import Contradiction, checked, note
from proxy.chat.arrivals import arrived
from proxy.chat.blocks import MEMORIES, injected, is_block, spans
from proxy.chat.edits import Stretch, TextChange, changed
from proxy.chat.provenance import of_client
from proxy.chat.texts import texts_of, with_text
from proxy.context import Context, Judge, Memo, found_in_each
from proxy.policy import Count, Decision, Keep, Need, Policy, ReadsFiles, RefusesContent, Reject, Rewrite
from proxy.text import counted
from proxy.text.json_strings import is_json

Result = TypeVar("Result")


class _Found(NamedTuple):
    """What was found in a text of a message."""

    place: int
    """Of the text."""
    every: tuple[Contradiction, ...]
    marked: str
    """The text with a note behind each."""


_Texts = tuple[_Found, ...]
"""The texts of one message in which anything was found."""

_Candidate = tuple[int, Contradiction, str]
"""A text's place in a message, the sentence in it with the fact that it may contradict, and the sentence."""

_Asked = tuple[str, tuple[_Candidate, ...]]
"""Where the judge's answer about a message is kept, and what it is asked."""

_MOST_JUDGED = 16
"""Pairs of one message that a judge is asked about."""

_LONGEST_FACT = 300
"""Characters of a fact that are told."""


class CheckFacts(Policy, RefusesContent, ReadsFiles):
    """Compare what users, the model and tools state with trusted facts.

    A sentence contradicts a fact if it gives the same subject another object of the same relation (`the capital of`),
    or if both are plain sentences that say different things of one subject (`The rate limit is 100 requests`). English
    and Spanish; questions, suppositions, quotations and what others are said to hold are no statements. Rules look for
    it, no model: what they cannot read, such as encyclopedic prose, they leave to `judge`.

    A finding is decided by a message's own text, so its bytes stay the same in each later request. Only the last user
    message is never touched: what is to be said about it stands in front of it until the next one comes, and then in
    it, which changes the bytes of one turn, once. A finding is counted when it is first seen, and named to the client
    when the request is refused.

    Blocks that earlier steps have put in (memories, shared texts, notes, recalled passages) are checked like the user's
    messages. A request is never refused for them: with `quarantine` and `reject` a false memory is left out, and a
    false sentence in another block is archived. Put this step behind those that inject: it does not see what a later
    step adds.
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
    A path that is not absolute begins at the configuration file. The file is read when the configuration is; lines that
    begin with `#` are comments."""

    facts: tuple[str, ...] = ()
    """Trusted facts, as sentences: `The capital of Australia is Canberra.`"""

    action: Literal["annotate", "quarantine", "reject"] = "annotate"
    """What happens to a statement: a note behind it says that it contradicts a fact, and which one; or it is archived,
    and the note stands in its place; or the request is refused while the message with it is new, then annotated."""

    roles: tuple[Literal["user", "assistant", "tool"], ...] = ("user", "assistant", "tool")
    """Whose statements are checked; blocks that steps put in count as the user's."""

    most: int = Field(default=20, ge=1)
    """The most findings in one message; a text that contradicts more is probably about something else."""

    judge: float = Field(default=0.0, ge=0, le=10)
    """Seconds that a request may wait for the model of the section `judge`, which is asked about sentences on a fact's
    subject that the rules cannot read. 0 asks nobody. Where it is late or broken the rules alone decide. `timeout` must
    be longer."""

    sure: float = Field(default=0.9, gt=0.5, lt=1)
    """How sure the judge must be."""

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
        """Check each message that may have been written by somebody else."""
        if not self._trusted.size:
            return Keep("no trusted facts")
        sent = of_client(request, ctx.incoming)
        theirs = sorted([*sent, *injected(request.messages, sent)])
        found = await self._in_each("contradicts a fact", self._found, request, theirs, ctx)
        found, of_judge = await self._judged(request, theirs, found, ctx)
        if found and self.action == "reject":
            new = _new(request.messages)
            refused = {place: texts for place, texts in found.items() if place >= new and place in sent}
            if refused:
                return _refusal(refused, sent)
        counts = {place: sum(len(each.every) for each in texts) for place, texts in found.items()}
        anchors = _anchors(found, sent)
        lately, count = arrived(ctx.incoming.messages) if counts else (), sum(counts.values())
        facts = {
            "poisoning_attempts": count,
            "poisoning_attempts_new": sum(
                each for place, each in counts.items() if id(ctx.incoming.messages[anchors[place]]) in lately
            ),
            "trusted_facts": self._trusted.size,
            **of_judge,
        }
        if not count:
            unread = 0 if self.judge else self._trusted.size - self._trusted.compared
            but = f"; rules cannot read {unread} of them" if unread else ""
            return Keep(f"nothing contradicts the {counted(self._trusted.size, 'trusted fact')}{but}", facts)
        made, why = await self._treated(request, found, sent, ctx)
        return Rewrite(made, why, facts, _told(found, anchors, sent))

    async def _treated(
        self, request: ChatRequest, found: Mapping[int, _Texts], sent: Mapping[int, int], ctx: Context
    ) -> tuple[ChatRequest, str]:
        """The request as it goes on, and what was done."""
        leaving = {} if self.action == "annotate" else _memories(request.messages, found, sent)
        messages, gone = changed(request.messages, [each for some in leaving.values() for each in some])
        last = max((n for n in sent if messages[n].role == "user"), default=-1)
        for place in sorted(found, reverse=True):
            if place in gone:
                del messages[place]
            elif leaving.get(place):
                continue
            elif place == last:
                about = [_about(found[place])]
                messages[place:place] = about if messages[max(0, place - 1) : place] != about else []
            else:
                messages[place] = await self._marked(messages[place], found[place], ctx, client=place in sent)
        out = sum(map(len, leaving.values()))
        rest = [place for place in found if not leaving.get(place)]
        aside = ctx.archive is not None and all(self._aside(client=place in sent) for place in rest)
        stated = sum(len(each.every) for place in rest for each in found[place])
        done = f"{'quarantined' if aside else 'annotated'} {counted(stated, 'statement')}" if rest else ""
        left = f"left out {out} of the memories" if out else ""
        why = f"{' and '.join(filter(None, (done, left)))} for contradicting a fact"
        return request.with_messages(messages), why

    async def _in_each(
        self,
        what: str,
        work: Callable[[Message], Result | tuple[()]],
        request: ChatRequest,
        places: Sequence[int],
        ctx: Context,
    ) -> dict[int, Result]:
        """What work finds in the messages at some places; a message without any is left out."""
        messages = request.messages
        if len(places) != len(messages):
            messages = tuple([messages[place] for place in places])
        name = f"{what} {self._trusted.digest} {self.most} {self.roles}"
        found = await found_in_each(request.folds, ctx.once, name, work, messages)
        return {places[n]: each for n, each in found.items()}

    async def _judged(
        self, request: ChatRequest, places: Sequence[int], found: dict[int, _Texts], ctx: Context
    ) -> tuple[dict[int, _Texts], dict[str, int]]:
        """The findings with those of the judge, and facts about it.

        What was decided about a message once is settled, and stays.
        """
        if ctx.judge is None or not self.judge:
            return found, {}
        asked = await self._in_each("unclear", self._asked, request, places, ctx)
        added, facts = await self._chosen(asked, ctx.judge, ctx.memo)
        every = sorted({*found, *added})
        joined = {n: _joined(request.messages[n], found.get(n, ()), added.get(n, ())) for n in every}
        return joined, facts

    async def _chosen(
        self, asked: Mapping[int, _Asked], judge: Judge, memo: Memo | None
    ) -> tuple[dict[int, list[_Candidate]], dict[str, int]]:
        """The candidates that contradict a fact, by the message's place; and how many were judged now, or not."""
        keys = [key for key, _ in asked.values()]
        settled = await memo.known(keys) if memo is not None else [None] * len(keys)
        new = [place for place, known in zip(asked, settled, strict=True) if known is None]
        pairs = [(each.fact, said) for place in new for _, each, said in asked[place][1]]
        verdicts = await judge.contradictions(pairs, wait=self.judge) if pairs else ()
        facts = {"judged": len(pairs), "unanswered": sum(each is None for each in verdicts)}
        sure = iter(verdicts)
        chosen: dict[int, list[_Candidate]] = {}
        for (place, (key, candidates)), known in zip(asked.items(), settled, strict=True):
            if known is None:
                told = [n for n, each in enumerate([next(sure) for _ in candidates]) if (each or 0.0) >= self.sure]
                known = ",".join(map(str, told))
                known = await memo.settle(key, known) if memo is not None else known
            chosen[place] = [candidates[int(n)] for n in known.split(",") if n.isdecimal() and int(n) < len(candidates)]
        return {place: some for place, some in chosen.items() if some}, facts

    def _asked(self, message: Message) -> _Asked | tuple[()]:
        """What a judge is to be asked about a message, and where the answer is kept; JSON is left to the rules."""
        found: list[_Candidate] = []
        for place, text in self._texts(message):
            if not is_json(text):
                found += [(place, each, text[each.start : each.end]) for each in self._trusted.unclear(text)]
        key = blake2b(message.raw, key=self._trusted.digest.encode(), digest_size=16).hexdigest()
        return (f"judged/{key}", tuple(found[:_MOST_JUDGED])) if found else ()

    def _found(self, message: Message) -> _Texts:
        """The findings in each text of a message."""
        texts = ((place, text, self._trusted.contradicted(text)) for place, text in self._texts(message))
        return tuple(
            _Found(place, tuple(every), checked(text, every, None))
            for place, text, every in texts
            if 0 < len(every) <= self.most
        )

    def _texts(self, message: Message) -> Iterator[tuple[int, str]]:
        """The texts of a message whose writer is checked."""
        role = message.role
        return ((place, text.given) for place, text in enumerate(texts_of(0, message, role)) if role in self.roles)

    def _aside(self, *, client: bool) -> bool:
        """Whether a false statement is archived; `client` says whether it stands in a message of the client's."""
        return self.action == "quarantine" or (self.action == "reject" and not client)

    async def _marked(self, message: Message, found: _Texts, ctx: Context, *, client: bool) -> Message:
        """The message as it goes on; `client` says whether it is the client's."""
        aside = self._aside(client=client)
        if self.action == "annotate" and isinstance(message["content"], str):  # most are
            return message.with_changes(content=found[0].marked)
        texts = list(texts_of(0, message, message.role))
        for each in found:
            text = texts[each.place]
            handle: str | None = None
            if aside and ctx.archive is not None:
                handle = await ctx.archive.keep(text.given)
            text.sent = each.marked if handle is None else checked(text.given, each.every, handle)
        return with_text(message, *(texts[each.place] for each in found))


def _joined(message: Message, found: _Texts, added: Sequence[_Candidate]) -> _Texts:
    """Findings of the rules and of the judge, each sentence once."""
    if not added:
        return found
    every = {each.place: {one.start: one for one in each.every} for each in found}
    for place, one, _ in added:
        every.setdefault(place, {}).setdefault(one.start, one)
    texts = [text.given for text in texts_of(0, message, message.role)]
    joined = ((place, tuple(one for _, one in sorted(some.items()))) for place, some in sorted(every.items()))
    return tuple(_Found(place, some, checked(texts[place], some, None)) for place, some in joined)


def _about(found: _Texts) -> Message:
    """What is said in front of the last user message."""
    return note(dict.fromkeys(one.fact for each in found for one in each.every))


def _new(messages: Sequence[Message]) -> int:
    """The place behind the last message of the model's: what stands there was not answered yet."""
    return next((n for n in range(len(messages), 0, -1) if messages[n - 1].role == "assistant"), 0)


def _anchors(found: Iterable[int], sent: Mapping[int, int]) -> dict[int, int]:
    """For each place that of the client's message there, or else behind it, or the last, among what the client sent."""
    return {n: next((sent[at] for at in sorted(sent) if at >= n), max(sent.values(), default=-1)) for n in found}


def _memories(
    messages: Sequence[Message], found: Mapping[int, _Texts], sent: Mapping[int, int]
) -> dict[int, list[TextChange]]:
    """The memories in which something was found, by their block's place: they are left out."""
    return {
        place: [
            TextChange(Stretch(place, *span), None)
            for span in spans(messages[place].text)
            if any(span[0] <= one.start < span[1] for each in texts for one in each.every)
        ]
        for place, texts in found.items()
        if place not in sent and is_block(messages[place], MEMORIES)
    }


def _told(found: Mapping[int, _Texts], anchors: Mapping[int, int], sent: Collection[int]) -> list[str]:
    """Each finding, with the place of its message among the client's, or of the one behind it."""
    return [
        f"{'before ' * (place not in sent)}messages[{anchors[place]}] contradicts the trusted fact "
        f'"{one.fact[:_LONGEST_FACT]}"'
        for place, texts in found.items()
        for each in texts
        for one in each.every
    ]


def _refusal(found: Mapping[int, _Texts], sent: Mapping[int, int]) -> Reject:
    place, texts = next(iter(found.items()))
    param, told = f"messages[{sent[place]}]", _told(found, sent, sent)
    return Reject(
        f"a statement in {param} contradicts a trusted fact: {texts[0].every[0].fact[:_LONGEST_FACT]}",
        "contradicts_trusted_fact",
        param=param,
        facts={"poisoning_attempts": len(told)},
        findings=told,
    )
