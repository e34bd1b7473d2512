"""Results about a conversation's messages, resumed by the next request with the same beginning.

What follows from messages in order (their sizes, open calls, short forms of results) is a fold: worked out once for the
beginning that two requests share, and from there on for what is new. A beginning is known by its message objects, which
the next request has again (`ParsedList`). Losing it costs time only.
"""

from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from operator import is_
from typing import Any, TypeVar

State = TypeVar("State")

_SHORT = 8
"""Conversations of fewer messages are worked out anew."""
_ANSWERS = 3
"""Assistant messages at the end before which no message is looked at for marks."""
_SEARCHED = 256
"""Messages in which they are looked for."""
_FORMS = 16
"""Forms of a conversation that are kept: as the client sent it, and as each step left it."""
_NAMES = 48


class Form:
    """The messages of one form of a conversation, and what was worked out of them."""

    __slots__ = ("_beginning", "_whole", "lineage", "messages", "settled")

    def __init__(self, messages: tuple[Any, ...], settled: int, before: "Form | None", *, forks: bool = False) -> None:
        """Resume from `before`; if it `forks`, that form goes on beside it."""
        self.messages = messages
        self.settled = settled
        """The expected number of messages that the next request has too; an assistant message stands behind them."""
        self._whole: dict[Hashable, Any] = {}
        self._beginning: dict[Hashable, tuple[int, Any]] = {}
        if before is not None:  # of requests at once, a later one has what an earlier one is still working out
            self._beginning = {**before._beginning} if forks else before._beginning
        self.lineage: object = object() if before is None or forks else before.lineage
        """The same for a form and for that of the next request that was resumed from it."""

    def begins(self, messages: Sequence[Any]) -> bool:
        """Return whether these messages begin with the settled ones of this form, and go on with an answer to them."""
        own, count = self.messages, self.settled
        # forms of one conversation begin alike for long, and differ in the last message
        ends_alike = 0 < count < len(messages) and own[count - 1] is messages[count - 1]
        is_answered = ends_alike and messages[count].get("role") == "assistant"
        return is_answered and all(map(is_, islice(own, count), messages))  # most others differ at once

    def fold(self, name: Hashable, empty: State, extend: Callable[[State, Sequence[Any]], State]) -> State:
        """Return what `extend` makes of all messages, from `empty` on.

        `extend` is pure, gets the state so far and the messages behind it, and leaves that state as it is. `name`
        stands for it and for all that it depends on besides.
        """
        known: State | None = self._whole.get(name)
        if known is None:
            state, settled = empty, self.settled
            if settled:
                count, state = self.resume(name, empty)
                if count < settled:
                    state = extend(state, self.messages[count:settled])
                    self.settle(name, state)
            known = self._whole[name] = extend(state, self.messages[settled:])
        return known

    def any(self, name: Hashable, test: Callable[[Any], bool]) -> bool:
        """Return whether a test holds for any message; `name` stands for it and for all that it depends on besides."""
        return self.fold(name, False, lambda before, messages: before or any(map(test, messages)))

    def places(self, name: Hashable, test: Callable[[Any], bool]) -> tuple[int, ...]:
        """Return the places of the messages for which a test holds; `name` stands for it as for `any`."""

        def extend(before: tuple[int, tuple[int, ...]], messages: Sequence[Any]) -> tuple[int, tuple[int, ...]]:
            end, places = before
            more = (place for place, message in enumerate(messages, end) if test(message))
            return end + len(messages), (*places, *more)

        return self.fold(name, (0, tuple[int, ...]()), extend)[1]

    def known(self, name: Hashable) -> Any:
        """Return the result for all messages, if it was worked out; for work that has to be awaited."""
        return self._whole.get(name)

    def resume(self, name: Hashable, empty: State) -> tuple[int, State]:
        """Return how many messages were worked on in earlier requests, and the state behind them."""
        count, state = self._beginning.get(name, (0, empty))
        return (count, state) if count <= self.settled else (0, empty)

    def settle(self, name: Hashable, state: object) -> None:
        """Keep the state behind the settled messages for the next request."""
        if self._beginning.get(name, (0,))[0] > self.settled:
            return
        self._beginning.pop(name, None)
        self._beginning[name] = self.settled, state
        if len(self._beginning) > _NAMES:  # names that are no longer asked for leave first
            del self._beginning[next(iter(self._beginning))]

    def keep(self, name: Hashable, state: State) -> State:
        """Keep the result for all messages while this request is worked on."""
        self._whole[name] = state
        return state


class Folds:
    """The forms of one conversation, for one of its requests. For use on one event loop."""

    __slots__ = ("_known", "_own")

    def __init__(self, known: list[Form] | None = None) -> None:
        """`known` are the forms that the conversation's requests have left; all of them share the list."""
        self._known: list[Form] = [] if known is None else known
        self._own: dict[int, Form] = {}

    def begin(self) -> "Folds":
        return Folds(self._known)

    def of(self, messages: tuple[Any, ...]) -> Form:
        try:
            return self._own[id(messages)]  # nearly each call ends here
        except KeyError:
            form = self._own[id(messages)] = self._resumed(messages)
            return form

    def _resumed(self, messages: tuple[Any, ...]) -> Form:
        """Return a form that goes on where the nearest one of another request ended; it takes that one's place."""
        before: Form | None = None
        forks = False
        if len(messages) < _SHORT:
            form = Form(messages, 0, None)
        else:
            for known in self._known:
                if (before is None or known.settled > before.settled) and known.begins(messages):
                    before = known
            forks = before is not None and self._own.get(id(before.messages)) is before
            # as in another form of this request, if that has an answer at the same place
            alike = (each.settled for each in self._own.values() if len(each.messages) == len(messages))
            settled = next(
                (end for end in alike if 0 < end < len(messages) and messages[end].get("role") == "assistant"), 0
            )
            settled = max(settled or _settled(messages), 0 if before is None else before.settled)
            form = Form(messages, settled, before, forks=forks)
        if before is not None and not forks:
            self._known.remove(before)
        self._known.append(form)
        if len(self._known) > _FORMS:
            del self._known[0]
        return form


def _settled(messages: Sequence[Any]) -> int:
    """Count the messages before the last assistant message; all of a few if none is the assistant's.

    Clients move their marks for a provider's cache with each request: no marked message near the end is counted.
    """
    answers, settled = 0, None
    for place in range(len(messages) - 1, max(0, len(messages) - _SEARCHED), -1):
        message = messages[place]
        if message.is_marked:
            settled = None
        if message.get("role") == "assistant":
            settled = place if settled is None else settled
            answers += 1
            if answers == _ANSWERS:
                break
    return len(messages) if not answers and len(messages) <= _SEARCHED else settled or 0
