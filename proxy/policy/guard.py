"""A guard: a policy that redacts or refuses, and fails closed."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import ClassVar, Literal

from proxy.chat import ChatRequest, JsonObject
from proxy.chat.placeholders import Placeholders, StandIn, kind_of
from proxy.chat.strings import Change, changed, names_twice, unknown_field, with_strings
from proxy.context import Context
from proxy.policy.base import Decision, Keep, Policy, Reject, Rewrite
from proxy.policy.interfaces import Fact, RefusesContent


class Guard(Policy, RefusesContent):
    """A policy that redacts or refuses: what it takes out must not go upstream.

    Override `redact`. It is given every string of the request, and those of the headers and the query that would be
    forwarded. Override `apply` as well only to decide by more than that; `with_strings` is the walk.

    It fails closed: a fault refuses the request. Later steps take what it leaves for what the client sent, so none can
    bring back, archive or summarise what it took out. No header of a client skips it.
    """

    is_guard: ClassVar[bool] = True
    changes_last_user_message: ClassVar[bool] = True
    may_grow: ClassVar[bool] = True

    on_error: Literal["skip", "reject"] = "reject"
    """`reject` answers 500 after a fault; `skip` sends the request on as if there were no guard."""

    unknown_fields: Literal["refuse", "read"] = "refuse"
    """Text in a field that no known request has: `refuse` answers 400, `read` treats it as any other text."""

    restore: bool = True
    """Put the secrets back into the answer's texts and arguments of calls."""

    @property
    def refuses(self) -> bool:
        return True

    @abstractmethod
    def redact(self, text: str, stand_in: StandIn) -> str:
        """Return a text without what must not go upstream. Pure, and run in a thread where the request is large.

        `stand_in(kind, secret)` makes a placeholder: always the same for a secret in this conversation.
        """

    def holds(self, text: str) -> bool:
        """Return True where a text has anything to take out."""
        return self.redact(text, lambda kind, secret: "") != text

    def apply(self, request: ChatRequest, ctx: Context) -> Decision | Awaitable[Decision]:
        """Take out of each string what `redact` takes out of it; a message is read once, however often it is sent."""
        stand_in = Placeholders(ctx.secret)
        about = type(self), self.model_dump_json(), ctx.secret

        def redacted(item: JsonObject) -> tuple[JsonObject, Mapping[str, str]]:
            own = Placeholders(ctx.secret)
            return with_strings(item, partial(self.redact, stand_in=own)), own.secrets

        def each(item: JsonObject) -> JsonObject:
            new, secrets = item.derive(about, lambda: redacted(item))
            stand_in.secrets.update(secrets)
            return new

        redacted_request = self._walked(request, partial(self.redact, stand_in=stand_in), each)
        if isinstance(redacted_request, Reject):
            return redacted_request
        if redacted_request is request:
            return Keep("nothing to take out")
        kinds = Counter(map(kind_of, stand_in.secrets))
        facts: dict[str, Fact] = {"redacted": kinds.total(), **{f"redacted_{kind}": n for kind, n in kinds.items()}}
        why = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
        return Rewrite(
            redacted_request,
            f"took out {why}" if why else "took out what it guards",
            facts,
            restores=stand_in.secrets if self.restore else {},
        )

    def with_strings(self, request: ChatRequest, change: Change) -> ChatRequest | Reject:
        """Return the request with every string changed, or the refusal of one that it cannot read.

        JSON in a string, as in arguments, stays JSON; base64 is left alone. What is equal stays equal, such as the ids
        of calls and results.
        """

        def each(item: JsonObject) -> JsonObject:
            return with_strings(item, change)

        return self._walked(request, change, each)

    def _walked(
        self, request: ChatRequest, change: Change, each: Callable[[JsonObject], JsonObject]
    ) -> ChatRequest | Reject:
        if self.unknown_fields == "refuse" and (place := _unknown_place(request)) is not None:
            return Reject(
                "the field in param is unknown to the guards; leave it out, or ask for `unknown_fields: read`",
                code="unguarded_field",
                param=place,
            )
        if (place := _ambiguous_place(request)) is not None:
            told = "the object in param has a name twice; write each name once, for guards read the last one alone"
            return Reject(told, code="unguarded_field", param=place)
        if any(change(name) != name for name in (request.model, *request.rest)):
            return Reject("the model or the name of a field has what a guard takes out", code="unguarded_field")
        result = request
        for name, value in request.rest.items():
            if (new := changed(value, change)) is not value:
                result = result.with_field(name, new)
        return result.with_each(each)


def _unknown_place(request: ChatRequest) -> str | None:
    """Return the place of text in a field that no known request has."""
    for name, items in request.own.items():
        for index, item in enumerate(items):
            if (place := item.derive("unknown field", partial(unknown_field, item, request.wire))) is not None:
                return f"{name}[{index}].{place}"
    return unknown_field(request.rest, request.wire)


def _ambiguous_place(request: ChatRequest) -> str | None:
    """Return the place of an object that has a name twice."""
    for name, items in request.own.items():
        for index, item in enumerate(items):
            if item.derive("names twice", partial(names_twice, item.raw)):
                return f"{name}[{index}]"
    return next((name for name in request.rest if names_twice(request.rest.raw(name))), None)
