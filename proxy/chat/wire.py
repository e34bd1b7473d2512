"""The rules of the wire: what providers refuse a request for, and what no rewrite may touch."""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from proxy.chat import ROLES, ChatRequest, Message, chosen_tools, listed


def flaws(request: ChatRequest) -> frozenset[str]:
    """Return the wire rules that a request breaks, as sentences; empty for a sound one.

    The rules are those that providers refuse a request for: every tool result follows the assistant message that called
    it, every call has one result before the next other message (an open call at the very end is the client's to
    answer), `tool_choice` names a tool that is offered.
    """
    walked = request.form.fold("flaws", _CallsSoFar(), _walked)
    found = {*walked.flaws, *_choice_flaws(request)}
    if not request.messages:
        found.add("messages is empty")
    return frozenset(found)


def damage(before: ChatRequest, after: ChatRequest, *, changes_last_user_message: bool = False) -> frozenset[str]:
    """Return what a rewrite broke: rules that `after` breaks and `before` did not, and things that must not be touched.

    Untouchable are the last user message, the presence and order of the tool results that the model has not read yet,
    and the offer of each tool that the kept history calls. With `changes_last_user_message`, a changed copy of that
    message may stand for it.
    """
    broken = set(flaws(after))
    if broken:
        broken -= flaws(before)
    said = before.last_user_message
    if said is not None and said is not after.last_user_message and said not in after.messages:
        if not changes_last_user_message:
            broken.add("the last user message was changed or lost")
        elif not any(_is_made_of(each, said) for each in reversed(after.messages)):
            broken.add("the last user message was lost; change it by with_changes()")
    unread = _unread_results(before.messages)
    if unread != _unread_results(after.messages)[: len(unread)]:
        broken.add("a tool result that the model has not read yet was lost or moved")
    if after.tools is not before.tools and (called := called_tools(after)):
        lost = (called & listed(before.tools).names) - listed(after.tools).names
        broken |= {f"tool {name!r} is called in the history and no longer offered" for name in lost}
    return frozenset(broken)


_ANSWERS = ("tool_calls", "function_call", "refusal", "audio")
"""Fields of an assistant message without content, of which it has at least one."""


class _CallsSoFar(NamedTuple):
    """The calls and results up to a message."""

    flaws: frozenset[str] = frozenset()
    open: frozenset[str] = frozenset()
    """Calls that have no result yet."""
    answered: frozenset[str] = frozenset()


def _walked(before: _CallsSoFar, messages: Sequence[Message]) -> _CallsSoFar:
    flaws, open_calls, answered = set(before.flaws), set(before.open), set(before.answered)
    for message in messages:
        role = message.get("role")
        if role == "tool":
            call = str(message.get("tool_call_id", ""))
            if call in open_calls:
                open_calls.discard(call)
                answered.add(call)
            elif call in answered:
                flaws.add(f"tool call {call!r} has two results")
            else:
                flaws.add(f"tool result {call!r} does not follow its call")
            continue
        flaws.update(f"tool call {call!r} has no result" for call in open_calls)
        open_calls, answered = set(message.call_ids), set()
        if role not in ROLES:
            flaws.add(f"role {message.role!r} is unknown")
        elif role == "assistant" and not message.get("content") and not any(map(message.get, _ANSWERS)):
            flaws.add("an assistant message is empty")
    return _CallsSoFar(frozenset(flaws), frozenset(open_calls), frozenset(answered))


def called_tools(request: ChatRequest) -> frozenset[str]:
    """Return the names of the tools that its messages call."""
    empty = frozenset[str]()
    return request.form.fold("called tools", empty, lambda before, new: before.union(*[m.called_tools for m in new]))


def _choice_flaws(request: ChatRequest) -> Iterator[str]:
    choice = request.rest.get("tool_choice")
    if not request.tools and choice not in (None, "none", "auto"):
        yield "tool_choice is set and no tool is offered"
    if chosen := chosen_tools(choice):
        for name in set(chosen) - listed(request.tools).names:
            yield f"tool_choice names {name!r}, which is not offered"


def _is_made_of(message: Message, original: Message) -> bool:
    made_of = message.made_of
    while made_of is not None and made_of is not original:
        made_of = made_of.made_of
    return made_of is original and message.get("role") == original.get("role")


def _unread_results(messages: Sequence[Message]) -> list[str]:
    """Return the calls whose results stand at the very end, the last one first: no message has followed them yet."""
    behind = takewhile(lambda message: message.get("role") == "tool", reversed(messages))
    return [str(message.get("tool_call_id", "")) for message in behind]
