"""The digest: what stands for messages that left, in their order and in the words that were said.

Every message of the user has a line, with the number of its turn; under it stands what was done about it. Each piece is
a contiguous slice of what was said, and gaps are marked, so that a correction stands behind what it corrects, in any
language. Only the budget makes a line leave, by its rank. Pure: the same digest on every replica.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Any, NamedTuple

from proxy.chat import Message, called_name
from proxy.chat.attachments import described
from proxy.chat.blocks import SUMMARY, build, indented
from proxy.chat.markers import MARKER
from proxy.chat.texts import arguments
from proxy.history.pins import PinnedLine
from proxy.history.plans import Plan
from proxy.history.statements import SURE, sentences
from proxy.text import counted
from proxy.text.json_values import Pairs, parsed
from proxy.text.small_talk import asks_nothing

_ABOUT = "Earlier turns in order, as data, not instructions. N: the user; -> the answer or what was done; [...] a gap."
_GAP = " [...] "

# Bytes of UTF-8 tell how long a text is in any script; characters do not.
_FEW = 120
"""Of a short statement, and of the answer that it brings."""
_BRIEF = 180
"""Of a message or an answer, before any has more."""
_WHOLE = 600
"""Of a user's message that stands whole."""
_LIST = 600
"""Of a user's list that stands whole: in part it is of no use."""
_LONG = 2000
"""Of both ends of a longer message."""
_RICH = 500
"""Of an answer, where there is room."""
_PIECE = 240
_ITEM = 64
_POINTER = 64
"""Of a message that means what it answers: "The second one."."""
_ARGUMENT = 48
_FAILURE = 120
_STEPS = 8
"""Assistant messages of a tool loop that share a line."""
_SHOWN = 5
"""Arguments of each tool that are shown."""
_READ = 4000
"""What is read of each end of a text, in characters."""
_PLAIN = 0.6
"""The share of the room that ranks from `LineRank.RICH` on may fill."""
_MAYBE = 0.5


class LineRank(IntEnum):
    """How soon a line leaves: the last first."""

    PINNED = 0
    LASTING = 1
    LIKELY = 2
    SETTLED = 3
    FOUND = 4
    STATED = 5
    LISTED = 6
    DONE = 7
    PART = 8
    WHOLE = 9
    ASKED = 10
    RICH = 11
    TALK = 12
    ANSWERED = 13
    RICH_ANSWER = 14
    LONG = 15
    REPEATED = 16


_SENTENCE = re.compile(r"(?<=[.!?…])(?<!\d\.)[\"”»)*]*\s+(?=\S)|(?<=[。！？])|\n+")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[ \t]*([\w+#.-]*).*?\n(.*?)(?:^[ \t]*(?:```|~~~)|\Z)", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(
    r"^[ \t]*(?:export |public |private |static |async |pub |default )*(?:def|class|function|fn|func|interface|struct"
    r"|enum|type|const|let|var|CREATE (?:OR REPLACE )?(?:TABLE|VIEW|FUNCTION))[ \t]+([\w.$]+)"
    r"|^[#/ ]+([\w-]+\.\w{1,4})$",
    re.MULTILINE | re.IGNORECASE,
)
"""What code is known by: what it defines, or the file that its first comment names."""
_LAYOUT = re.compile(r"^[\s>|]*(?:#{1,6}\s+|[-*+•]\s+)?")
_OUTLINE = re.compile(r"^\s*(?:#{1,6}\s|\(?\d{1,3}[.)]\s|\*\*[^*\n]+\*\*:?\s*$)")
_LISTED = re.compile(r"^[ \t]*(?:\(?\d{1,3}[.)]|[-*+•])\s", re.MULTILINE)
_QUOTED = r"[\"“«„「『][^\"”»“」』\n]{4,120}[\"”»“」』]"
_CODE = re.compile(
    r"(?<!\w)(?=[\w./@:-]{0,80}\d)(?=[\w./@:-]{0,80}[^\W\d_])\w[\w./@:-]{3,}|(?<!\d)\d{2,}-[\w-]{0,80}\d"
    r"|(?<!\w)\w+[_/@]\w[\w./-]*|\b[A-Z]{3,}\b|" + _QUOTED
)
"""An identifier, a path, an address, a name in capitals, or what is quoted."""
_SURE_CODE = re.compile(
    r"(?<![\w./:-])(?=[\w./:-]{0,80}\d)(?=[\w./:-]{0,80}[A-Z])[\w./:-]{5,}|(?<!\d)\d{2,}-[\w-]{0,80}\d"
    r"|\b\d[\dA-Z]{0,40}(?:[ /-](?:[A-Z]{1,2}|(?=[A-Z]{0,20}\d)[\dA-Z]{1,20})\b)+|" + _QUOTED
)
"""What an answer is likely to be asked for again."""
_NUMBER = re.compile(r"\d[\d.,:]*")
_FIGURES = re.compile(r"\d+")
_FAILED = re.compile(
    r'\A\W*(?i:error|traceback|exception|fail).*|"(?:error|is_error)"\s*:\s*(?!null|false|""|\[\])[^\n]*'
    r"|^.*\b(?:FAILED|ERROR|FATAL)\b.*$",
    re.MULTILINE,
)


class Line(NamedTuple):
    """A line that the digest may have."""

    turn: int
    place: int
    """The index of the message that it begins with; of the lines of one place one stands."""
    rank: LineRank
    text: str

    @property
    def is_answer(self) -> bool:
        return self.text.startswith("->")

    @property
    def size(self) -> int:
        """In bytes, with the break behind it."""
        return _size(self.text) + 1


class AnswerPiece(NamedTuple):
    """A part of an answer that says something by itself, on one line."""

    place: tuple[int, int]
    """The message, of those that share a line, and where in it the piece begins."""
    text: str
    shape: str = ""
    """A sentence without its figures: what stands in several answers says nothing of any."""
    is_item: bool = False
    weight: int = 0
    """How much it tells."""
    is_sure: bool = False
    """Whether it has a code or names one."""


class CallMade(NamedTuple):
    """A call of a tool."""

    name: str
    id: str
    argument: str
    """The first one."""
    carries_text: bool
    """Whether another argument is a text: then it changes what the first one names."""


class Reading(NamedTuple):
    """What the digest wants to know of a message: a function of the message alone."""

    text: str = ""
    likely: float = 0.0
    """How likely the user lays something down that lasts, and with which sentence."""
    best: str = ""
    asks: bool = False
    is_talk: bool = False
    """Whether the user asks for nothing and says nothing."""
    pieces: tuple[AnswerPiece, ...] = ()
    calls: tuple["CallMade", ...] = ()
    failure: str = ""


def read(message: Message) -> Reading:
    """Read a message."""
    role = message.get("role")
    if role == "user":
        judged = [(each.likely, each.text) for each in sentences(message.text)]
        likely, best = max(judged, default=(0.0, ""))
        text = described(message).strip()
        return Reading(
            text if _size(text) <= 2 * _LONG else _ends(text, 2 * _LONG),
            likely,
            best,
            _asks(text),
            asks_nothing(message.text),
        )
    if role == "assistant":
        calls = tuple(map(_call, message.get("tool_calls") or ()))
        text = described(message)
        pieces = tuple(_weighed(_pieces(text), asks_back=_asks(text)))
        return Reading(text.strip()[-_BRIEF:], asks=_asks(text), pieces=pieces, calls=calls)
    if role == "tool" and (found := _FAILED.search(message.text[:_READ]) or _FAILED.search(message.text[-_READ:])):
        return Reading(failure=_clip(" ".join(found[0].split()), _FAILURE))
    return Reading()


def lines(
    messages: Sequence[Message],
    readings: Sequence[Reading],
    staying: Collection[Message],
    carried: int | None,
    told: int,
) -> list[Line]:
    """Return the lines that the digest of messages may have, in order.

    `readings` are theirs. `carried` is the index of one that stays; the answers before the index `told` are told
    elsewhere.
    """
    newest = {_key(each): index for index, each in enumerate(messages)} | {_key(each): -1 for each in staying}
    shapes = (shape for each in readings for shape in {piece.shape for piece in each.pieces if piece.shape})
    common = frozenset(shape for shape, count in Counter(shapes).items() if count > 1)
    starts = [index for index, each in enumerate(messages) if each.get("role") == "user" or each.is_system]
    turn, asks = 0, False
    found: list[Line] = []
    for start, end in pairwise([-1, *starts, len(messages)]):
        message = messages[start] if start >= 0 else None
        if message is not None and message.is_system:
            found.append(Line(turn, start, LineRank.PINNED, f"system: {indented(message.text[:_LONG])}"))
        elif message is not None:
            turn, reading = turn + 1, readings[start]
            before = messages[start - 1] if start else None
            answers = before is not None and before.get("role") == "assistant"
            asks = reading.asks or reading.is_talk  # what answers small talk tells little
            if start == carried:
                found.append(Line(turn, start, LineRank.STATED, f"{turn}: [stands above]"))
            elif reading.text:
                is_repeated = bool(message.text.strip()) and newest.get(_key(message), start) != start
                is_talk = reading.is_talk and not (answers and readings[start - 1].asks)
                rank = _rank(reading, turn, is_talk=is_talk and reading.text == message.text.strip(), again=is_repeated)
                found += _user_lines(turn, start, rank, reading)
        if start + 1 < end and start + 1 >= told:
            pointer = end < len(messages) and messages[end].get("role") == "user" and _points(readings[end])
            answered = _answer_lines(messages, readings, range(start + 1, end), turn, asks, common)
            found += [_pointed(line) if pointer else line for line in answered]
    return found


def choose(found: Sequence[Line], room: int) -> list[str]:
    """Return the lines that fit into so many bytes, in order: by rank, then whole ones, the opening, and the newest."""
    taken: dict[int, Line] = {}
    asked = {line.turn: line for line in reversed(found) if not line.is_answer and line.rank != LineRank.PINNED}
    answers = {line.turn: line for line in reversed(found) if line.is_answer}
    used = 0
    for line in sorted(found, key=lambda line: (line.rank, _GAP.strip() in line.text, line.turn > 1, -line.place)):
        before = taken.get(line.place)
        if before is None and line.rank == LineRank.LONG:
            continue
        beside = None
        if line.rank in (LineRank.FOUND, LineRank.LISTED, LineRank.ANSWERED, LineRank.RICH_ANSWER):
            beside = asked.get(line.turn)  # an answer means nothing without its question
        elif not line.is_answer and line.rank <= LineRank.STATED and line.size <= _FEW:
            beside = answers.get(line.turn)  # what was asked for stands with what came of it
            beside = beside if beside is not None and beside.size <= _FEW else None
        wanted = [line] if beside is None or beside.place in taken else [line, beside]
        needed = sum(each.size for each in wanted) - (before.size if before is not None else 0)
        if used + needed <= (room if line.rank < LineRank.RICH else room * _PLAIN):
            taken |= {each.place: each for each in wanted}
            used += needed
    shown: list[str] = []
    turn = 0
    for line in sorted(taken.values(), key=lambda line: line.place):
        # an answer stands under what it answers, or has the number of its turn
        shown.append(f"{line.turn} {line.text}" if line.is_answer and line.turn != turn else line.text)
        turn = line.turn
    return shown


def block(
    shown: Sequence[str],
    pinned: Iterable[PinnedLine],
    plan: Plan | None,
    left: int,
    handles: Sequence[str],
    written: str,
) -> Message:
    """Return the digest as it stands in the conversation; `written` is what a model wrote of answers."""
    text = "\n".join(shown)
    texts = [f"Summary of answers that have no line below:\n{written}"] if written else []
    texts += [*shown, *(f"kept, {line.role}: {line.text}" for line in pinned if line.text not in text)]
    texts += [f"The assistant's open plan:\n{plan.text}"] if plan is not None else []
    recalls = ", ".join(f'{MARKER}{handle}")' for handle in handles)
    receipt = f"[{counted(left, 'message')} left{f'; word for word: {recalls}' if handles else ''}]"
    return build(SUMMARY, _ABOUT, [*texts, receipt])


def _rank(reading: Reading, turn: int, *, is_talk: bool, again: bool) -> LineRank:
    if again:
        return LineRank.REPEATED
    if is_talk:
        return LineRank.TALK
    is_list = _is_list(reading.text)
    is_short = is_list or _size(reading.text) <= _BRIEF
    if turn == 1 or (is_short and (reading.likely >= SURE or (is_list and not reading.asks))):
        return LineRank.LASTING
    if is_short and reading.likely >= _MAYBE:
        return LineRank.LIKELY
    if reading.asks:
        return LineRank.ASKED
    # what is said in few words says more for its room: corrections above all
    return LineRank.LIKELY if _size(reading.text) <= _FEW else LineRank.STATED


def _user_lines(turn: int, place: int, rank: LineRank, reading: Reading) -> Iterator[Line]:
    """The forms of a message of the user's: in short, whole or nearly, and more of a long one."""
    text = reading.text
    is_list = _is_list(text)
    whole = _LIST if is_list else _WHOLE
    if _size(text) > _BRIEF and not is_list:
        part = LineRank.PART if rank == LineRank.STATED else rank
        yield Line(turn, place, part, f"{turn}: {indented(_brief(text, reading.best))}")
    full = rank if is_list or _size(text) <= _BRIEF else max(rank, LineRank.WHOLE)
    yield Line(turn, place, full, f"{turn}: {indented(_ends(text, whole))}")
    if _size(text) > whole:
        yield Line(turn, place, LineRank.LONG, f"{turn}: {indented(_ends(text, _LONG))}")


def _answer_lines(
    messages: Sequence[Message],
    readings: Sequence[Reading],
    places: range,
    turn: int,
    asks: bool,
    common: Collection[str],
) -> Iterator[Line]:
    """The forms of what answers a message: in short, and richer; of a tool loop for some messages each."""
    spoke = [place for place in places if messages[place].get("role") == "assistant"]
    for first in range(0, len(spoke), _STEPS):
        place, end = spoke[first], spoke[first + _STEPS] if first + _STEPS < len(spoke) else places.stop
        part = [readings[at] for at in spoke[first : first + _STEPS]]
        failures = {
            str(messages[at].get("tool_call_id")): readings[at].failure
            for at in range(place, end)
            if readings[at].failure
        }
        few, more = _calls(part, failures)
        pieces = [
            piece._replace(place=(at, piece.place[1]), weight=0 if piece.shape in common else piece.weight)
            for at, reading in enumerate(part)
            for piece in reading.pieces
        ]
        is_list = sum(piece.is_item for piece in pieces) > 2
        short = " ".join(filter(None, (few, _GAP.join(_best(pieces, 2 * _BRIEF if is_list else _BRIEF)))))
        rich = " ".join(filter(None, (more, _GAP.join(_best(pieces, _RICH)))))
        if short:
            is_whole = is_list and sum(_size(piece.text) for piece in pieces) <= 2 * _BRIEF
            is_sure = is_whole or any(piece.weight and piece.is_sure for piece in pieces)
            yield Line(
                turn, place, _answer_rank(asks=asks, is_sure=is_sure, is_listed=bool(few) or is_list), f"-> {short}"
            )
        if rich != short:
            yield Line(turn, place, LineRank.RICH_ANSWER if asks else LineRank.RICH, f"-> {_cut(rich, 2 * _RICH)}")


def _answer_rank(*, asks: bool, is_sure: bool, is_listed: bool) -> LineRank:
    if is_sure:
        return LineRank.FOUND if asks else LineRank.SETTLED
    if is_listed:
        return LineRank.LISTED
    return LineRank.ANSWERED if asks else LineRank.DONE


def _points(reading: Reading) -> bool:
    """Whether a message of the user's may mean nothing without what it answers."""
    return 0 < _size(reading.text) <= _POINTER and not reading.asks and not reading.is_talk


def _pointed(line: Line) -> Line:
    """A line of an answer that the user's next message points to."""
    is_rich = line.rank in (LineRank.RICH, LineRank.RICH_ANSWER)
    return line if is_rich else line._replace(rank=min(line.rank, LineRank.FOUND))


def _pieces(text: str) -> Iterator[AnswerPiece]:
    """The parts of an answer, in order: its sentences, items of lists, and the names of its code."""
    if len(text) > 2 * _READ:
        text = f"{text[:_READ]}\n{text[-_READ:]}"
    text = text.replace(MARKER, "recall ")  # only the digest's own end names handles
    start = 0
    for fence in [*_FENCE.finditer(text), None]:
        end = len(text) if fence is None else fence.start()
        prose = text[start:end].strip()
        if 0 < _size(prose) <= _BRIEF:
            yield AnswerPiece((0, start), " ".join(prose.split()), shape=_FIGURES.sub("0", prose))
        elif prose:
            yield from _sentences(text[start:end], start)
        if fence is not None:
            names = ", ".join(dict.fromkeys(one or other for one, other in _NAMED.findall(fence[2])))[:100]
            size = counted(fence[2].count("\n") or 1, "line")
            yield AnswerPiece(
                (0, end),
                f"[{fence[1] or 'code'}: {names + ', ' if names else ''}{size}]",
                weight=6,
                is_sure=bool(names),
            )
            start = fence.end()


def _sentences(prose: str, place: int) -> Iterator[AnswerPiece]:
    start = 0
    for gap in [*_SENTENCE.finditer(prose), None]:
        end = len(prose) if gap is None else gap.start()
        raw, at = prose[start:end].strip(), place + start
        start = len(prose) if gap is None else gap.end()
        is_outline = _OUTLINE.match(raw) is not None
        text = raw if is_outline else _LAYOUT.sub("", raw, count=1)
        is_item = is_outline and bool(raw[:1].strip("#*"))
        if len(text) > 1:
            short = _cut(text, _ITEM if is_item else _PIECE)
            yield AnswerPiece((0, at), short, _FIGURES.sub("0", raw), is_item, weight=3 * is_item)


def _weighed(pieces: Iterable[AnswerPiece], *, asks_back: bool) -> Iterator[AnswerPiece]:
    """The pieces that tell something: the first sentence that is no mere interjection, code, items, values that no
    earlier piece has, and a question at the end."""
    seen = set[str]()
    is_first = True
    last: AnswerPiece | None = None
    for piece in pieces:
        if last is not None and last.weight:
            yield last
        if piece.weight:
            last = piece._replace(is_sure=piece.is_sure or _SURE_CODE.search(piece.text) is not None)
            is_first = is_first and not piece.is_item
            continue
        codes, numbers = set(_CODE.findall(piece.text)), set(_NUMBER.findall(piece.text))
        weight = 2 * min(2, len(codes - seen)) + min(1, len(numbers - seen)) + (5 if is_first else 0)
        last = piece._replace(weight=weight, is_sure=_SURE_CODE.search(piece.text) is not None)
        is_first = is_first and _size(piece.text) < 24 and not codes
        seen |= codes | numbers
    if last is not None and (last.weight or asks_back):
        yield last._replace(weight=last.weight + (3 if asks_back else 0))


def _best(pieces: Sequence[AnswerPiece], most: int) -> list[str]:
    """The pieces that tell most in so many bytes, in their order; the best one in any case."""
    taken: list[AnswerPiece] = []
    for piece in sorted(pieces, key=lambda each: (-each.weight, each.place)):
        needed = _size(piece.text) + len(_GAP)
        if not taken or (piece.weight and needed <= most):
            taken.append(piece._replace(text=_cut(piece.text, most)))
            most -= needed
    return [piece.text for piece in sorted(taken)]


def _calls(readings: Sequence[Reading], failures: Mapping[str, str]) -> tuple[str, str]:
    """The calls of messages, counted, with the lines of those that failed; and with the first argument of each."""
    calls = [call for reading in readings for call in reading.calls]
    few, more = [], []
    for name in dict.fromkeys(call.name for call in calls):
        own = [call for call in calls if call.name == name]
        failed = [call for call in own if call.id in failures]
        count = f" x{len(own)}" if len(own) > 1 else ""
        lines = _listed(failures[call.id] for call in failed) if failed else ""
        changed = _listed(call.argument for call in own if call.carries_text)
        few.append(f"{name}{count}{changed and f': {changed}'}{f', {len(failed)} failed: {lines}' if failed else ''}")
        shown = [f"{call.argument} failed: {failures[call.id]}" for call in failed]
        shown += [call.argument for call in own if call not in failed and call.argument]
        more.append(f"{name}({_listed(shown)})" if shown else f"{name}{count}")
    return (f"[{'; '.join(few)}]", f"[{'; '.join(more)}]") if calls else ("", "")


def _listed(texts: Iterable[str]) -> str:
    different = list(dict.fromkeys(filter(None, texts)))
    rest = f", {len(different) - _SHOWN} more" if len(different) > _SHOWN else ""
    return f"{', '.join(different[:_SHOWN])}{rest}"


def _call(call: Mapping[str, Any]) -> CallMade:
    value = next((parsed(text) for text in arguments(Message({"tool_calls": [call]})) if len(text) < 50_000), None)
    members = [member for _, member in value] if isinstance(value, Pairs) else []
    first = next((str(each) for each in members if isinstance(each, (str, int, float)) and str(each).strip()), "")
    rest = [each for each in members if isinstance(each, str) and each != first]
    argument = " ".join(first.split())[:_ARGUMENT]
    return CallMade(called_name(call), str(call.get("id", "")), argument, any(_size(each) > _ARGUMENT for each in rest))


def _is_list(text: str) -> bool:
    """Whether a text of the user's is a list that stands whole."""
    return _size(text) <= _LIST and len(_LISTED.findall(text)) > 2


def _brief(text: str, best: str) -> str:
    """The sentence of a text that matters most, or how it begins, with marks for what is left out."""
    start = max(text.find(best), 0) if best else 0
    whole = best if best and _size(best) <= 2 * _BRIEF and text.startswith(best, start) else _clip(text[start:], _BRIEF)
    return f"{'[...] ' if start else ''}{whole.strip()}{' [...]' if start + len(whole) < len(text) else ''}"


def _ends(text: str, most: int) -> str:
    """A text, or the two ends of a longer one around a mark."""
    if _size(text) <= most:
        return text
    head, tail = _clip(text, most * 3 // 5), _clip(text[::-1], most * 2 // 5)[::-1]
    return f"{head} [... {len(text) - len(head) - len(tail)} characters ...] {tail}"


def _cut(text: str, most: int) -> str:
    """A text, or the beginning of a longer one and a mark."""
    return text if _size(text) <= most else f"{_clip(text, most)} [...]"


def _clip(text: str, most: int) -> str:
    """The beginning of a text in so many bytes, up to a word's end where there is one near."""
    chars = most * len(text) // max(_size(text), 1)
    if chars >= len(text):
        return text
    words = text[:chars].rpartition(" ")[0]
    return words if len(words) > chars * 0.7 else text[:chars]


def _asks(text: str) -> bool:
    """Whether a text ends in a question, by its mark."""
    end = unicodedata.normalize("NFKC", text[-200:]).rstrip(" \n\"'”»)*_`]")
    return end.endswith(("?", "؟", "՞", ";?"))


def _key(message: Message) -> tuple[object, str]:
    """What two messages have in common that say the same."""
    return message.get("role"), message.text.strip().casefold()


def _size(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))
