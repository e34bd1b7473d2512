"""Carry a large tool result at full size only once."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate

from pydantic import Field

from proxy.chat import ChatRequest, Message
from proxy.context import CacheRules, Context
from proxy.economics import pays
from proxy.forms import (
    MARKER_TOKENS,
    Text,
    Treatment,
    compact,
    is_shortened,
    minified,
    payloads,
    reference,
    shortened,
    texts_of,
    treated,
    weight,
    with_payloads,
    with_text,
)
from proxy.policy import Decision, Keep, Policy, Rewrite
from proxy.recall import DEFINITION

_REPEAT = 300
"""Below this many characters a reference is hardly shorter than what it stands for."""


class CompactToolResults(Policy):
    """Shorten large tool results once the model has read them.

    A new result loses only what carries nothing: the white space of JSON, a terminal's colours, the envelope that MCP
    clients put around a text, also where its end was cut off. One that repeats an earlier result word for word becomes
    a reference to it. As soon as an assistant message follows it, a large result takes its compact form: structure,
    identifiers, numbers and errors stay, prose and repetition go. The original is archived first, and the form ends in
    the handle that brings it back; without an archive nothing is shortened. The form depends on the content alone and
    is taken as early as possible, so the provider's prompt cache keeps hitting; where the model's cache rules say that
    it would not pay within `turns` further requests, the result stays as it is.
    """

    over: int = Field(default=600, ge=200)
    """Results longer than this many characters are shortened."""

    arguments_over: int = Field(default=500, ge=200)
    """Strings longer than this in the model's own calls, such as a file that it wrote, are shortened, and the white
    space of the JSON around them goes, when the call's result is first sent: the model knows what it wrote, and the
    cached prefix never changes for it."""

    turns: float = Field(default=8.0, gt=0)
    """How many further requests a conversation is expected to have, for a shortening to pay for itself in."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Walk the conversation exchange by exchange; the form of each depends on what stands before it alone."""
        walk = _Walk(self, ctx)
        walk.pass_by(tool.raw.decode() for tool in request.tools)
        groups = list(_groups(request.messages))
        messages: list[Message] = []
        for place, group in enumerate(groups, 1):
            messages += await walk.forwarded(group, read=place < len(groups))
        done = {what: count for what, count in walk.counts.items() if count}
        if not done:
            return Keep(f"nothing to shorten in {sum(message.role == 'tool' for message in messages)} tool results")
        return Rewrite(request.with_messages(messages), ", ".join(f"{n} {what}" for what, n in done.items()), done)


def _groups(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """The messages cut before each of the assistant's: each group came with a request of its own."""
    group: list[Message] = []
    for message in messages:
        if message.role == "assistant" and group:
            yield group
            group = []
        group.append(message)
    yield group


class _Walk:
    """What is known of the conversation up to a place."""

    def __init__(self, policy: CompactToolResults, ctx: Context) -> None:
        self.policy, self.rules, self.archive, self.once = policy, ctx.model.cache, ctx.archive, ctx.once
        self.treatments: dict[str, Treatment] = {}
        self.size = 0
        """The tokens before this place; counted only up to the shortest prefix that is cached."""
        self.seen: dict[str, bool] = {}
        """The results so far as they were sent first, and whether they still stand in full."""
        self.counts: Counter[str] = Counter()

    def pass_by(self, texts: Iterator[str]) -> None:
        """Count what stands before the next group."""
        for text in texts:
            if self.size >= self.rules.minimum:
                return
            self.size += weight(text)

    async def forwarded(self, group: list[Message], *, read: bool) -> list[Message]:
        """A group as it is sent; `read` says that an assistant message follows it."""
        if DEFINITION.name in group[0].called_tools:  # the model asked for it in full, and it was sent as it stands
            self.pass_by(message.raw.decode() for message in group)
            return group
        texts = [text for place, message in enumerate(group) for text in texts_of(place, message)]
        for text in texts:
            await self._at_birth(text)
        for text in self._worth(texts, group) if read else ():
            await self._shorten(text)
        messages = list(group)
        for text in texts:
            if text.sent is not text.given:
                messages[text.message] = with_text(messages[text.message], text)
        if len(group) > 1 and group[0].get("tool_calls"):
            messages[0] = await self._with_short_arguments(group[0])
        self.pass_by(message.raw.decode() for message in messages)
        return messages

    async def _keep(self, text: str) -> str | None:
        return None if self.archive is None else await self.archive.keep(text)

    async def _at_birth(self, text: Text) -> None:
        """Take out what carries nothing."""
        found = self.treatments[text.given] = await self.once.of(treated, text.given)
        text.sent_tokens = text.form_tokens = text.kept = found.sent_tokens
        if is_shortened(text.given):
            return
        text.sent = text.given if found.sent is None else found.sent
        full = self.seen.get(text.sent)
        if full and (handle := await self._keep(text.given)) is not None:
            text.sent = reference(handle)
            text.sent_tokens = text.form_tokens = text.kept = weight(text.sent)
            self.counts["repeats"] += 1
            return
        self.counts["unwrapped"] += text.sent is not text.given
        if len(text.sent) >= _REPEAT:
            text.repeats = full is False
            self.seen[text.sent] = True

    def _worth(self, texts: list[Text], group: list[Message]) -> list[Text]:
        """The texts of a group that are shortened: all from a place on, since what follows a change is sent anew."""
        for text in texts:
            if len(text.sent) > self.policy.over and not is_shortened(text.sent) and self.archive is not None:
                self._take_form(text)
        saved = [max(text.saved, 0) for text in texts]
        if not any(saved):
            return []
        behind = list(accumulate(reversed([text.form_tokens for text in texts])))[::-1]
        last = max(text.message for text in texts)
        behind_all = sum(weight(message.text) for message in group[last + 1 :])
        best, start = 0.0, None
        for place, text in enumerate(texts):
            removed, rewritten = sum(saved[place:]), behind[place] - text.kept + behind_all
            gain = self._gain(removed, rewritten)
            if saved[place] and gain > best and pays(self.rules, removed, rewritten, self.policy.turns):
                best, start = gain, place
        if start is None or self._leaves_the_cache(texts[start:]):
            return []
        return [text for text, tokens in zip(texts[start:], saved[start:], strict=True) if tokens]

    def _take_form(self, text: Text) -> None:
        found = self.treatments[text.given]
        if text.repeats:
            text.form, text.kept = reference("0" * 20), 0
            text.form_tokens = weight(text.form)
        elif found.form is not None:
            text.form, text.kept = found.form, found.kept_tokens
            text.form_tokens = found.form_tokens + MARKER_TOKENS

    def _gain(self, removed: int, rewritten: int) -> float:
        rules = self.rules if self.rules.ttl else CacheRules()
        return self.policy.turns * rules.read * removed - max(0.0, rules.write - rules.read) * rewritten

    def _leaves_the_cache(self, texts: list[Text]) -> bool:
        """Whether the prefix would be too short for it, so that every request pays for all of it."""
        return self.rules.minimum > self.size + sum(text.form_tokens for text in texts)

    async def _shorten(self, text: Text) -> None:
        handle = await self._keep(text.given)
        if handle is None or text.form is None:
            return
        form = reference(handle) if text.repeats else shortened(text.form, len(text.given), handle)
        if len(form) < len(text.sent):
            self.seen[text.sent] = False
            text.sent = form
            self.counts["shortened"] += 1

    async def _with_short_arguments(self, message: Message) -> Message:
        calls = []
        for call in message["tool_calls"]:
            function = call.get("function") or {}
            arguments = function.get("arguments")
            short = await self._short_arguments(arguments) if isinstance(arguments, str) else arguments
            calls.append({**call, "function": {**function, "arguments": short}} if short != arguments else call)
        changed = sum(call is not other for call, other in zip(calls, message["tool_calls"], strict=True))
        self.counts["arguments"] += changed
        return message.with_changes(tool_calls=calls) if changed else message

    async def _short_arguments(self, arguments: str) -> str:
        arguments = await self.once.of(minified, arguments)
        forms: dict[str, str] = {}
        for payload in payloads(arguments, self.policy.arguments_over) if self.size >= self.rules.minimum else ():
            form = None if is_shortened(payload) else compact(payload)
            if form is None or weight(form.text) + MARKER_TOKENS >= weight(payload):
                continue
            if (handle := await self._keep(payload)) is not None:
                forms[payload] = shortened(form.text, len(payload), handle)
        return with_payloads(arguments, forms) if forms else arguments
