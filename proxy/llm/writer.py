"""The writer of summaries: a small model at an upstream."""

import asyncio
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from proxy.chat import Message
from proxy.chat.blocks import escaped
from proxy.chat.markers import MARKER
from proxy.chat.texts import arguments
from proxy.config.settings import WriterSettings
from proxy.context import Material
from proxy.llm.client import SmallModel
from proxy.telemetry.metrics import Metrics
from proxy.text.tables import table
from proxy.upstreams.routing import Routes

_log = logging.getLogger("penstock.writer")

_CHARACTERS = 2.5
"""Characters per token of a transcript: few, because identifiers take many tokens."""
_LARGEST = 400_000
"""Characters of the longest transcript, in a window of any size."""
_OVERHEAD = 600
"""Tokens of the instructions."""
_DENSE = 2
"""Least number of bytes per token of a summary."""


class Writer:
    """A writer that asks the configured model. It raises nothing but cancellation."""

    def __init__(self, settings: WriterSettings, routes: Routes, metrics: Metrics) -> None:
        self.settings = settings
        self._model = SmallModel(settings, routes, partial(metrics.of, "writer_tokens"), _log, "no summary was written")
        self._metrics = metrics
        self.authorization = self._model.authorization

    async def write(self, material: Material, headers: Mapping[str, str]) -> str | None:
        """Return the summary of a material, or None without a usable one."""
        text, outcome = await self._model.run(self._written(material, headers))
        self._metrics.of("writer_summaries", outcome).inc()
        return text

    async def _written(self, material: Material, headers: Mapping[str, str]) -> tuple[str | None, str]:
        profile = await self._model.profile()
        most = max(64, min(self.settings.max_tokens, material.size // _DENSE, profile.window // 4))
        room = int((profile.window - most - _OVERHEAD) * _CHARACTERS)
        shown = await asyncio.to_thread(transcript, material.messages, min(_LARGEST, room) - len(material.before))
        asked = prompt(material.before, shown, material.size)
        answer, outcome = await self._model.ask(asked, most, profile, headers)
        if answer is None:
            return None, outcome
        text = await asyncio.to_thread(checked, answer, f"{material.before}\n{shown}", material.size)
        return text, "unusable" if text is None else "written"


_TOKEN = re.compile(
    r"https?://[^\s\"'<>\\)\]]{4,200}|(?:[\w~/$€£#]|(?<!\.)\.)(?:(?:[.:@+-]{0,200}+[\w/])++(?:[.:@+-]{0,200}+%)?|[.:@+-]{0,200}+%)"
)
_TELLING = re.compile(r"\d|\w[_/@]\w|^[~.]*/\w|\w\.[a-z]{2,4}$|[a-z][A-Z]|^[A-Z]{3,}$")
"""The pattern of identifiers, numbers, paths and addresses."""

INSTRUCTIONS: str = table("small_models")["writer"]

_MOST = 4000
"""Characters of one message that are shown at most: its beginning and its end."""
_LEAST = 160
_LONGEST_LINE = 600
_BULLET = re.compile(r"(?:[-*•]|\d{1,2}[.)])\s+")
_NOTHING = re.compile(r"\W*(?:none|nothing|n/?a|ningun[oa]?|nada)\W*", re.IGNORECASE)
_BLOCK_END = re.compile(r"</(?=transcript|earlier|text|kept)", re.IGNORECASE)


def prompt(before: str, shown: str, size: int) -> list[Message]:
    """Return the messages for the small model. `size` is in bytes of its answer."""
    earlier = f"<earlier>\n{inside(before)}\n</earlier>\n" if before else ""
    asked = f"{earlier}<transcript>\n{inside(shown)}\n</transcript>\nWrite the summary now."
    words = max(30, size // 8)
    return [
        Message({"role": "system", "content": INSTRUCTIONS.replace("{words}", str(words))}),
        Message({"role": "user", "content": asked}),
    ]


def transcript(messages: Sequence[Message], limit: int) -> str:
    """Return a conversation as text of at most about `limit` characters: of long messages the two ends, no media."""
    texts = [_as_text(message) for message in messages]
    most = _MOST
    while most > _LEAST and sum(min(len(text), most) for text in texts) > limit:
        most //= 2
    lines = [text if len(text) <= most else f"{text[: most // 2]} [...] {text[-most // 2 :]}" for text in texts]
    whole = "\n".join(lines)
    return whole if len(whole) <= limit else f"{whole[: limit // 4]}\n[...]\n{whole[-(limit * 3 // 4) :]}"


def checked(answer: str, source: str, size: int) -> str | None:
    """Return the lines of an answer's list whose values all stand in its source.

    None where nothing remains, or the answer is longer than `size` bytes or than its source. A line that names a place
    to recall from is left out: that is not its to give.
    """
    if not answer.strip() or len(answer.encode(errors="surrogatepass")) > min(size, len(source)):
        return None
    known = set(words(source))
    lines = map(str.strip, answer.splitlines())
    listed = (_BULLET.sub("", line, count=1) for line in lines if _BULLET.match(line))
    return "\n".join(f"- {escaped(line)}" for line in dict.fromkeys(listed) if is_sound(line, known)) or None


def is_sound(line: str, known: set[str]) -> bool:
    """Return True if a line says something, and all its values are among the known words of its source."""
    if not line or len(line) > _LONGEST_LINE or MARKER in line or _NOTHING.fullmatch(line):
        return False
    return all(word in known for word in words(line) if _TELLING.search(word))


def words(text: str) -> Iterator[str]:
    """Yield the words of a text, without the punctuation around them."""
    for match in _TOKEN.finditer(text):
        yield match[0].strip("./:-'\"")


def _as_text(message: Message) -> str:
    calls = [f"calls {name}" for name in message.called_tools]
    return f"[{message.role}] " + " ".join(filter(None, (message.text, *calls, *arguments(message))))


def inside(text: str) -> str:
    """Return a text that cannot end the block it stands in."""
    return _BLOCK_END.sub(r"<\\/", text)
