"""Make one system message of many, with a section for each."""

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, Literal

from proxy.chat import ChatRequest, Message, head_of
from proxy.context import Context
from proxy.policy import Decision, Keep, Policy, Rewrite

_HEADING = re.compile(r"\s*#{1,6}\s+(.+)")
_WRAPPED = re.compile(r"\s*<([a-z][a-z0-9_.-]*)(\s[^<>]*)?>.*</\1>\s*\Z", re.DOTALL)
_LATER = "later_instructions"


class ConsolidateSystem(Policy):
    """Merge several system and developer messages into one, each in an XML section.

    Small models follow one structured message better, and strict chat templates (Qwen, Gemma, Mistral on Ollama) refuse
    a second one. A section is named after the message's `name`, its first Markdown heading, or its place; a text with
    its own tag keeps it. Exact duplicates are dropped. A single message is left as it is.
    """

    may_grow: ClassVar[bool] = True

    later: Literal["keep", "merge", "demote"] = "keep"
    """The treatment of system messages in mid-conversation, which may come from anyone. `merge` moves them behind the
    others into a section below the operator's; `demote` makes each a user message in its place, which strict templates
    accept and which keeps the cached prefix."""

    role: Literal["auto", "system", "developer"] = "auto"
    """The role of the merged message. `auto` is `developer` where one of the merged messages had it."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        if request.keeps_system:
            return Keep("the system prompt has a place of its own")
        head = head_of(request.messages)
        behind = islice(request.messages, len(head), None) if self.later != "keep" else ()
        later = [message for message in behind if message.is_system]
        if len(head) <= 1 and not later:
            return Keep("one leading system message" if head else "no leading system message")
        talk, operator = tuple(request.messages[len(head) :]), _without_duplicates(head)
        added: list[Message] = []
        if self.later == "merge":
            added = _without_duplicates([*operator, *later])[len(operator) :]
            talk = tuple(message for message in talk if not message.is_system)
        elif self.later == "demote":
            talk = tuple(_demoted(message) if message.is_system else message for message in talk)
        first = self._merge(operator, added) if added or len(operator) > 1 else operator
        return Rewrite(
            request.with_messages([*first, *talk]),
            why=f"{len(head) + len(later)} system messages became {len(first)}",
            facts={"merged": len(operator) + len(added), "demoted": len(later) if self.later == "demote" else 0},
        )

    def _merge(self, operator: Sequence[Message], added: Sequence[Message]) -> list[Message]:
        sections = _sections(operator)
        if added:
            sections.append((_LATER, [part for message in added for part in _closed(message.parts, _LATER)]))
        role = self.role
        if role == "auto":
            role = "developer" if any(item.role == "developer" for item in operator) else "system"
        return [Message({"role": role, "content": _content(sections)})]


Section = tuple[str | None, Sequence[Mapping[str, Any]]]
"""A tag, or none for a text that has its own, and the parts inside."""


def _without_duplicates(messages: Sequence[Message]) -> list[Message]:
    seen: dict[str, Message] = {}
    for message in messages:
        seen.setdefault(repr([sorted(part.items()) for part in message.parts]), message)
    return list(seen.values())


def _sections(messages: Sequence[Message]) -> list[Section]:
    names: dict[str, int] = {}
    sections: list[Section] = []
    for place, message in enumerate(messages, 1):
        if _WRAPPED.match(message.text):
            sections.append((None, message.parts))
            continue
        name = _name(message, place)
        names[name] = names.get(name, 0) + 1
        sections.append((name if names[name] == 1 else f"{name}_{names[name]}", message.parts))
    return sections


def _name(message: Message, place: int) -> str:
    heading = _HEADING.match(message.text)
    wanted = message.get("name") or (heading[1] if heading else "")
    slug = re.sub(r"[^a-z0-9]+", "_", str(wanted).lower()).strip("_")[:40].strip("_")
    if not slug or not slug[0].isalpha() or slug == _LATER:
        return f"section_{place}"
    return slug


def _closed(parts: Sequence[Mapping[str, Any]], tag: str) -> list[Mapping[str, Any]]:
    """Parts whose text cannot end the section that they stand in."""
    return [
        {**part, "text": part["text"].replace(f"</{tag}", f"<\\/{tag}")} if isinstance(part.get("text"), str) else part
        for part in parts
    ]


def _content(sections: Sequence[Section]) -> str | list[Mapping[str, Any]]:
    """One string, or parts where a part carries more than text, such as a cache breakpoint."""
    if all(set(part) == {"type", "text"} and part["type"] == "text" for _, parts in sections for part in parts):
        texts = [(tag, "\n".join(part["text"] for part in parts)) for tag, parts in sections]
        return "\n\n".join(text if tag is None else f"<{tag}>\n{text}\n</{tag}>" for tag, text in texts)
    content: list[Mapping[str, Any]] = []
    for tag, parts in sections:
        opened = [{"type": "text", "text": f"<{tag}>"}] if tag else []
        closed = [{"type": "text", "text": f"</{tag}>"}] if tag else []
        content += [*opened, *parts, *closed]
    return content


def _demoted(message: Message) -> Message:
    parts = _closed(message.parts, "system_note")
    return message.with_changes(role="user", content=_content([("system_note", parts)]))
