"""OpenAI's messages as Anthropic's: turns of the user and of the assistant, and the system prompt in front of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from proxy.chat import SYSTEM_ROLES, Message, split_head
from proxy.upstreams.anthropic.content import THOUGHTS, Block, blocks_of, call_block, marked, text_blocks, wire_id
from proxy.upstreams.request_fields import role_of, sequence, string

_OWN = frozenset({"index"})
"""Keys that accumulators of streams add to `thinking_blocks`, and Anthropic does not know."""

_UNSIGNED = ("reasoning_content", "reasoning")
"""Where clients send back reasoning as text, which Anthropic takes from nobody."""


class AnthropicMessages:
    """A conversation, translated. Raises `BadRequest` for wrong types and for parts that Anthropic cannot take."""

    def __init__(self, messages: Sequence[Message], *, system_messages: bool) -> None:
        """`system_messages` says whether `role: system` may stand among the messages."""
        self.system: list[Block] = []
        self.translated: list[dict[str, Any]] = []
        self.ignored: set[str] = set()
        """Fields that were left out, such as `messages[].name`."""
        self.called: dict[str, None] = {}
        """The tools that were called, in order."""
        self._system_messages = system_messages
        self._results: list[Block] = []
        self._asked: list[Block] = []
        self._instructions: list[Block] = []
        head, _ = split_head(messages)
        for index, message in enumerate(messages):
            place = f"messages[{index}]"
            if index < len(head):
                self.system += self._blocks(message, place)
            else:
                self._add(message, place)
        self._end_turn()
        if self.system and not self.translated:
            self.system, self.translated = [], [{"role": "user", "content": self.system}]
        if (
            self.translated
            and self.translated[-1]["role"] == "assistant"
            and (text := self.translated[-1]["content"][-1])["type"] == "text"
        ):
            # the wire refuses white space at the end of what the model is to go on with
            self.translated[-1]["content"][-1] = {**text, "text": text["text"].rstrip()}

    @property
    def thinks(self) -> bool:
        """True unless an open loop of tool calls began without thinking, which it may not begin then."""
        turns = [each["content"] for each in self.translated if each["role"] != "system"][-2:]
        if len(turns) < 2 or turns[-1][0]["type"] != "tool_result":
            return True
        return turns[0][0]["type"] in THOUGHTS

    def _add(self, message: Message, place: str) -> None:
        role = role_of(message, place)
        if role == "assistant":
            blocks = self._assistant(message, place)
            if blocks:
                self._end_turn()
                self._say("assistant", blocks)
        elif role in ("tool", "function"):
            self._results.append(self._result(message, place))
        elif role in SYSTEM_ROLES and self._system_messages:
            self._instructions += self._blocks(message, place)
        else:
            self._asked += self._blocks(message, place)

    def _end_turn(self) -> None:
        """Write what stands between two answers: results first, then what the user said, then what the operator did.

        The wire allows no other order, and so the place of each depends on its neighbours alone: a conversation that
        goes on keeps its beginning.
        """
        asked = [*self._results, *self._asked]
        instructions, self._results, self._asked, self._instructions = self._instructions, [], [], []
        if asked:
            self._say("user", asked)
        if instructions:
            self._say("system" if asked else "user", instructions)

    def _say(self, role: str, blocks: list[Block]) -> None:
        if self.translated and self.translated[-1]["role"] == role:
            self.translated[-1]["content"] += blocks
        else:
            self.translated.append({"role": role, "content": blocks})

    def _blocks(self, message: Message, place: str) -> list[Block]:
        if message.get("name"):
            self.ignored.add("messages[].name")
        return marked(blocks_of(message.get("content"), f"{place}.content"), message)

    def _assistant(self, message: Message, place: str) -> list[Block]:
        """Return thinking first, then text, then calls; Anthropic's own blocks keep their places in the content."""
        content = blocks_of(message.get("content"), f"{place}.content")
        thoughts = [] if any(block["type"] in THOUGHTS for block in content) else self._thoughts(message, place)
        if message.get("refusal") and not content:
            content = text_blocks(string(message["refusal"], f"{place}.refusal"))
        if message.get("audio"):
            self.ignored.add("messages[].audio")
        if not thoughts and any(map(message.get, _UNSIGNED)) and not any(b["type"] in THOUGHTS for b in content):
            self.ignored |= {f"messages[].{name}" for name in _UNSIGNED if message.get(name)}
        stand = [block.get("id") for block in content if block["type"] == "tool_use"]
        calls = [call for call in self._calls(message, place) if call["id"] not in stand]
        return marked([*thoughts, *content, *calls], message)

    def _thoughts(self, message: Message, place: str) -> list[Block]:
        """Return the signed blocks that a client sends back, unchanged, without unsigned ones."""
        signed: list[Block] = []
        listed = message.get("thinking_blocks")
        for block in sequence([] if listed is None else listed, f"{place}.thinking_blocks"):
            if isinstance(block, Mapping) and (block.get("signature") or block.get("data")):
                signed.append({key: value for key, value in block.items() if key not in _OWN})
            else:
                self.ignored.add("messages[].thinking_blocks")
        return signed

    def _calls(self, message: Message, place: str) -> list[Block]:
        calls = message.get("tool_calls")
        listed = sequence([] if calls is None else calls, f"{place}.tool_calls")
        if message.get("function_call") is not None:
            name = message["function_call"].get("name") if isinstance(message["function_call"], Mapping) else ""
            listed = [*listed, {"id": f"call_{name}", "function": message["function_call"]}]
        made = [call_block(call, f"{place}.tool_calls[{index}]") for index, call in enumerate(listed)]
        self.called |= {call["name"]: None for call in made}
        return made

    def _result(self, message: Message, place: str) -> Block:
        """Return a result as a block. Cache marks of its parts move to the block."""
        content = blocks_of(message.get("content"), f"{place}.content")
        control = next((block["cache_control"] for block in reversed(content) if "cache_control" in block), None)
        known = message.get("tool_call_id") or (f"call_{message.get('name')}" if message.role == "function" else None)
        made: Block = {"type": "tool_result", "tool_use_id": wire_id(known, place)}
        if content:
            made["content"] = [{key: value for key, value in b.items() if key != "cache_control"} for b in content]
        if message.get("is_error") is True:
            made["is_error"] = True
        return marked([made], {"cache_control": control} | message)[0]
