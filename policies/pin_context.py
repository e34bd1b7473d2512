"""See that what must survive stands in the request, word for word."""

from typing import ClassVar

from pydantic import Field, field_validator

from proxy.chat import ChatRequest, Message, split_head
from proxy.context import Context
from proxy.history.pins import arguments, block, compiled, note, pinned
from proxy.lineage import standing_users
from proxy.policy import Decision, Keep, Policy, Rewrite

_NOTED = Message({"role": "assistant", "content": "Noted."})


class PinContext(Policy):
    """Put back what the steps before it let go of and must not be lost.

    Pinned are the user's constraints ("always", "never", "only", "no debes"), the first request and the latest that
    states a goal, the newest task plan while it is open, and lines that `patterns` name. The step looks at what the
    client sent and no longer stands in the request; pinned texts that are missing go into one message behind the system
    messages, in the user's role. Put it behind the steps that shorten history; where they kept everything that is
    pinned, as `compress_history` does within its `pins_share`, it proves it and changes nothing.
    """

    may_grow: ClassVar[bool] = True

    prefix_breaks_per_turn: ClassVar[float] = 0.1

    patterns: tuple[str, ...] = ()
    """Regular expressions: lines that match one are pinned. A repeated repetition is refused."""

    share: float = Field(default=0.05, gt=0, le=0.5)
    """The share of the usable window that may be put back."""

    @field_validator("patterns")
    @classmethod
    def _patterns_are_sound(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            compiled(pattern)
        return patterns

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Compare what was sent with what is left of it."""
        there = {*map(id, request.messages), *standing_users(request.messages, ctx.incoming.messages, fitted=True)}
        changed = [message for message in ctx.incoming.messages if id(message) not in there]
        if not changed:
            return Keep("nothing left the context")
        raws = {message.raw for message in request.messages}
        gone = [message for message in changed if message.raw not in raws]
        stayed = [message for message in ctx.incoming.messages if id(message) in there or message.raw in raws]
        read = [*gone, *stayed]
        notes = dict(zip(map(id, read), await ctx.once.of_each(note, read), strict=True))
        patterns = [compiled(pattern) for pattern in self.patterns]
        pins = pinned(split_head(gone)[1], stayed, patterns, lambda message: notes[id(message)])
        shown = "\n".join(text for message in request.messages for text in (message.text, *arguments(message)))
        missing = pins.without(shown)
        if not missing.texts():
            return Keep(f"all {len(pins.texts())} pinned texts stand in the request")
        # three bytes a token: texts of any language stay below the share
        fitting = missing.within(int(ctx.model.usable(request) * self.share) * 3)
        lost = len(missing.texts()) - len(fitting.texts())
        if not fitting.texts():
            return Keep(f"{lost} pinned texts are missing and too long for {self.share:.0%} of the window")
        head, talk = split_head(request.messages)
        about = [Message({"role": "user", "content": block(fitting.texts())})]
        if talk and talk[0].get("role") == "user":
            about.append(_NOTED)
        return Rewrite(
            request.with_messages([*head, *about, *talk]),
            why=f"put {len(fitting.texts())} pinned texts back, {lost} were too long",
            facts={"pinned": len(fitting.texts()), "pins_too_long": lost},
        )
