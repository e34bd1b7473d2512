"""Shorten what does not fit the window, and large texts of the user's once they were read."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import ClassVar

from pydantic import Field

from proxy.chat import ChatRequest, Message, Tool
from proxy.chat.markers import MARKER_TOKENS, shortened
from proxy.chat.provenance import of_client
from proxy.chat.texts import Text, arguments, texts_of, with_text
from proxy.compaction.fitting import forced, is_ours
from proxy.compaction.form import ShortForm, weight
from proxy.compaction.preview import preview
from proxy.compaction.references import make_standing
from proxy.context import Context
from proxy.economics import cost_ahead
from proxy.history.cuts import as_sent
from proxy.policy import SHORTER_HISTORY, Decision, Keep, Policy, Rewrite, Stage
from proxy.text import counted
from proxy.tools.recall import has_handle, tokens_to_offer


class OffloadContent(Policy):
    """Shorten what cannot fit the window, and large texts that the user pasted once the model has read them.

    A tool result or a pasted document that the window could not hold even if all before it left is archived. In its
    place the model gets its outline, the passages that bear on the question, and the handle. The user's own words
    around a document stay word for word. A question that does not fit by itself is left for `reject_oversize`.

    A large text that fits stays whole in the last user message. After an answer and a later message it takes a preview:
    the user's own words, the document's headings, first lines and values, and the handle; unless that would not pay
    within `turns` further requests. Without an archive everything stays. Images, audio and files are not touched. The
    model reads on with `offer_recall`; in a plain chat `recall_history` brings passages back.
    """

    stage: ClassVar = Stage.SHORTENS
    edits_at_birth: ClassVar[bool] = True
    prefix_breaks_per_turn: ClassVar[float] = 1.0  # a large text that was just read
    changes_last_user_message: ClassVar[bool] = True
    may_grow: ClassVar[bool] = True  # what was made to fit keeps its form, where an earlier step has a shorter one
    counted: ClassVar = {"offloaded_messages": SHORTER_HISTORY}

    share: float = Field(default=0.5, gt=0, le=0.9)
    """The most of the usable window that the form of one text takes that is much too long. One that is a little too
    long loses a little."""

    over: int = Field(default=4000, ge=500)
    """Texts of more than about this many tokens are offloaded."""

    turns: int = Field(default=8, ge=1)
    """The expected further requests of a conversation, within which a preview must pay for itself."""

    timeout: float = Field(default=4.0, gt=0)
    """Seconds after which the step is given up."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        messages, counts = list(request.messages), {"large": 0, "offloaded": 0, "forced": 0}
        total = (await ctx.tokens.count(request)).total + (await ctx.tokens.count(ctx.incoming)).total
        # much less than could stand beside a single exchange
        is_short = not ctx.frozen and total <= ctx.model.usable(request) // 4
        forms_of = {} if is_short else await forced(request, ctx, self.share)
        for place, message in forms_of.items():
            counts["forced"] += message != messages[place]
            messages[place] = message
        name = "large user message", self.over
        is_large = request.form.any(name, lambda each: each.get("role") == "user" and len(each.raw) > self.over)
        theirs = of_client(request, ctx.incoming) if is_large else {}
        for place, moment in _moments(request.messages) if not ctx.frozen and is_large else ():
            message = request.messages[place]
            # what is not theirs, such as a summary, an earlier step wrote
            if place in forms_of or place not in theirs or len(message.raw) <= self.over:
                continue
            forms = await self._forms(place, message, ctx)
            counts["large"] += len(forms)
            sent = (as_sent(request, 0, ctx.incoming) or request.messages) if forms else ()
            first = 0 if any(map(has_handle, messages[:place])) else tokens_to_offer(request)
            if not forms or not self._worth(forms, place, sent[:moment], request.tools, first, ctx):
                continue
            messages[place] = await _offloaded(message, forms, ctx)
            counts["offloaded"] += messages[place] is not message
        if not counts["offloaded"] and not counts["forced"]:
            read = counts["large"]
            return Keep(f"{counted(read, 'large text')}, none worth a preview" if read else "no large text was read")
        done = {"became a preview": counts["offloaded"], "made to fit": counts["forced"]}
        why = ", ".join(f"{counted(count, 'message')} {what}" for what, count in done.items() if count)
        facts = {"offloaded_messages": counts["offloaded"], "fitted_messages": counts["forced"]}
        # what a later result refers to may just have become shorter
        return Rewrite(request.with_messages(await make_standing(messages, ctx)), why, facts)

    async def _forms(self, place: int, message: Message, ctx: Context) -> list[tuple[Text, ShortForm]]:
        previews: list[tuple[Text, ShortForm]] = []
        for text in texts_of(place, message, "user"):
            if len(text.original) <= self.over or await is_ours(text.original, ctx.archive):
                continue
            if await ctx.once.of(weight, text.original) > self.over:
                form = await ctx.once.of(preview, text.original)
                previews += [(text, form)] if form is not None else []
        return previews

    def _worth(
        self,
        forms: Sequence[tuple[Text, ShortForm]],
        place: int,
        sent: Sequence[Message],
        tools: Sequence[Tool],
        first: int,
        ctx: Context,
    ) -> bool:
        """Return True if the forms pay, by what the provider had `sent` to it before the first request with them.

        The client's sizes count: those that an earlier step makes of them may still change. `first` are the tokens of
        the tool that comes with the first handle, in front of all that is cached.
        """
        short = sum(form.tokens + MARKER_TOKENS for _, form in forms)
        long = sum(weight(text.original) for text, _ in forms)
        others = max(0, weight(sent[place].text) - long)
        behind = sum(weight(text) for message in sent[place + 1 :] for text in _texts(message))
        before = 0
        for text in chain(
            (tool.raw.decode(errors="replace") for tool in tools),
            (text for message in sent[:place] for text in _texts(message)),
        ):
            if before >= ctx.model.cache.minimum:  # more of it makes no difference
                break
            before += weight(text)
        whole = before + others + long + behind
        ahead = partial(cost_ahead, ctx.model.cache, turns=self.turns)
        # a prompt that becomes too short to be cached may cost more than a long one that is
        shared = 0 if first else before + forms[0][1].prefix_tokens
        return ahead(shared, whole - long + short + first) < ahead(whole, whole)


def _moments(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Yield the user messages that can be shortened, and the place of the message with which that began.

    It began when both an assistant message and a further user message stood behind them.
    """
    roles = [message.get("role") for message in messages]
    next_of: dict[str, int] = {}
    moments: list[tuple[int, int]] = []
    for place in range(len(roles) - 1, -1, -1):
        if roles[place] == "user" and len(next_of) == 2:
            moments.append((place, max(next_of.values())))
        if roles[place] in ("user", "assistant"):
            next_of[str(roles[place])] = place
    return reversed(moments)


def _texts(message: Message) -> tuple[str, ...]:
    return (message.text, *arguments(message))


async def _offloaded(message: Message, forms: Sequence[tuple[Text, ShortForm]], ctx: Context) -> Message:
    """Return the message with its previews; a text that cannot be archived stays."""
    changed = []
    for text, form in forms:
        handle = await ctx.archive.keep(text.original) if ctx.archive is not None else None
        if handle is not None:
            text.sent = shortened(form.text, len(text.original), handle)
            changed.append(text)
    return with_text(message, *changed)
