"""Facts that the digest reads in a message by its form alone: its words, sentences, lists, code, calls and failures."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from proxy.chat import Message, called_name
from proxy.chat.attachments import described
from proxy.chat.markers import MARKER
from proxy.chat.texts import arguments
from proxy.text import counted
from proxy.text.fold import UNSPACED
from proxy.text.json_values import Pairs, parsed, quoted, rendered
from proxy.text.small_talk import asks_nothing

BRIEF = 180
"""Letters of a message or an answer, before any has more."""
LONG = 2000
"""Letters of both ends of a longer message."""

GAP = "[...]"

_RULE = 40
"""Characters without a word, such as the line below a table's header."""
_ITEM = 64
_PIECE = 240
_TEXT = 48
"""Letters of an argument of a call that is a text to write."""
_ARGUMENT = re.compile(rf".{{1,{_TEXT}}}[^\s{UNSPACED}]{{0,100}}")
"""The beginning of an argument, up to the end of a word."""
_DEEP = re.compile(r"(?<!\S)[^\s:]{8,}(?=(?:/[^\s/]{1,60}){2}(?!\S))")
"""The beginning of a path, which many have: the end names the file."""
_FAILURE = 120
_READ = 4000
_PARSED = 50_000
"""Characters of a JSON text that is parsed."""

_SENTENCE_END = re.compile(
    r"[.!?…](?<!\b\d\.)(?<!\b\d\d\.)(?<![\s.(*][^\W\d_]\.)"
    r"(?<!\b[B-DF-HJ-NP-TV-Zb-df-hj-np-tv-xz][b-df-hj-np-tv-xz]\.)"
    r"(?!(?:(?<=\b[^\W\d_]{2}\.)|(?<=\b[^\W\d_]{3}\.))\s+\d)[\"”»)*]*\s+(?=\S)|[。！？।؟]\s*(?=\S)|\n+"
)
"""The end of a sentence or line: `13.`, `J.`, `Dr.`, `tel. 7` end none."""
_CLAUSE_END = re.compile(r"(?<=[,;:–—])\s+|(?<=[，、；：،؛])\s*")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[ \t]*([\w+#.-]*).*?\n(.*?)(?:^[ \t]*(?:```|~~~)|\Z)", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(
    r"^[ \t]*(?:export |public |private |static |async |pub |default )*(?:def|class|function|fn|func|interface|struct"
    r"|enum|type|const|let|var|CREATE (?:OR REPLACE )?(?:TABLE|VIEW|FUNCTION))[ \t]+([\w.$]+)"
    r"|^ {0,4}[#/;]{1,3} {0,2}(?=\w)([\w./-]{1,120}\.\w{1,10})$",
    re.MULTILINE | re.IGNORECASE,
)
"""Definitions in code, or the file that its first comment names."""
_NUMBER_MARK = (
    r"\*{0,2}(?:[(（\[](?:\d{1,3}|[^\W\d_])[)）\]]|#\d{1,3}\s|\d\ufe0f?\u20e3|[①-⑳]|第\w{1,3}[：:、，]"
    r"|(?:\d{1,3}|[A-Za-z一二三四五六七八九十])[、）．]"
    r"|(?:(?:[^\W\d_]{1,12}[ -]?)?\d{1,3}|(?:[^\W\d_]{2,12} )?[^\W\d_])(?: ?[.):：/]| [-–])\*{0,2}\s)"
)
"""The mark of an item that the user may name: `1.`, `b)`, `(c)`, `二、`, `Option D:`."""
_NUMBERED = re.compile(rf"\s*{_NUMBER_MARK}")
_ROW = re.compile(r"^[ \t]*\|.*\|[ \t]*$", re.MULTILINE)
"""A row of a table in Markdown."""
_ITEM_MARK = re.compile(rf"\s*(?:{_NUMBER_MARK}|#{{1,6}}\s|[-*+•–]\s|\*\*[^*\n]+\*\*:?\s*$)")
_LISTED = re.compile(rf"^[ \t]*(?:{_NUMBER_MARK}|[-*+•–]\s)", re.MULTILINE)
_QUOTED = r"(?:[\"“«„「『][^\"”»“」』\n]{4,120}[\"”»“」』]|»[^«»\n]{4,120}«|《[^》\n]{4,120}》)"
_CODE = re.compile(
    r"(?<!\w)(?=[\w./@:-]{0,80}\d)(?=[\w./@:-]{0,80}[^\W\d_])\w[\w./@:-]{3,}|(?<!\d)\d{2,}-[\w-]{0,80}\d"
    r"|(?<!\w)\w+[_/@]\w[\w./-]*|\b[A-Z]{3,}\b|" + _QUOTED
)
"""An identifier, a path, an address, a name in capitals, or a quotation."""
_SURE_CODE = re.compile(
    r"(?<![\w./:-])(?=[\w./:-]{0,80}\d)(?=[\w./:-]{0,80}[A-ZΑ-ΩА-Я])[\w./:-]{5,}|(?<!\d)\d{2,}-[\w-]{0,80}\d"
    r"|(?<![\d.,])\d{8,}(?![\d.,]*\d)"
    r"|\b\d[\dA-Z]{0,40}(?:[ /-](?:[A-Z]{1,2}|(?=[A-Z]{0,20}\d)[\dA-Z]{1,20})\b)+|" + _QUOTED
)
"""A part of an answer that the user is likely to ask for again."""
_MAY_TELL = re.compile(r"[\d_/@\"“«„»「『《]|[A-Z]{3}")
"""A sign of which each code, number and quotation has one: most sentences have none."""
_NUMBER = re.compile(r"\d[\d.,:]*")
_FIGURES = re.compile(r"\d+")
_FAULT_MEMBER = re.compile(r"(?:errors?|is_?error):(?!null$|false$|\"\"$|\[\]$|\{\}$|0$)", re.I)
"""A member of a result, `name:value`, that says that its call failed."""
_CODE_MEMBER = re.compile(
    r"(?:exit|(?:exit|return)_?(?:code|status)):-?[1-9]\d*$|(?:http_?)?status(?:_?code)?:[45]\d\d$", re.I
)
"""A member with the code of an exit or of an HTTP answer that says so."""
_EXIT = re.compile(r"(?i:\W*(?:[a-z]+ ){0,4}exit(?:ed)?(?: with)?(?: code| status)?:? )(\d+)\W*$")
"""A line by which a tool says how a command ended."""
_FAULT = re.compile(r"\W*(?i:traceback|error|exception|failed|failure|fatal)\b(?P<message>[^:]{0,80}:\s*+(?!0\b)\S)?")
_VERDICT = re.compile(
    r"\W*(?:[A-Z]+ |\D{1,60}(?::|\.{3}) )?(?:FAIL|FAILED|FAILURE|ERROR|FATAL)\b(?!\W*\d+\W*$)"
    r"|(?:\w+\.)*[A-Z]\w*(?:Error|Exception): |(?:error|fatal): (?:\S+ ){2}\S"
)
_STACK = re.compile(r"\W*(?i:traceback|exception in)\b")
"""The first line of a stack, at whose end the error may have any name, or further lines."""
_VERDICTS = 3
"""The last lines among which a verdict is looked for."""
_MESSAGE = 1000
"""A text of more characters that begins with an error is a log, or about errors."""
_MERE_QUESTION = re.compile(r"[^.,;:!?。，、；：！？؟،\n]+[?？؟]")
_WORD = re.compile(r"[^\W_]+")
_PART = re.compile(rf"\d+(?:[.,:/-]\d+)+|[{UNSPACED}]+|[^\W_{UNSPACED}]+")
"""A number with what divides it, a word, or a row of characters of a script without spaces."""
_UNSPACED = re.compile(f"[{UNSPACED}]")
_LONGEST_WORD = 100
"""Characters of an address, about. What is longer is data, which may be parted."""


class AnswerPiece(NamedTuple):
    """A part of an answer that says something by itself, on one line."""

    text: str = ""
    """Nothing for what tells nothing."""
    shape: str = ""
    """A sentence without its figures: one that stands in several answers says nothing of any."""
    is_item: bool = False
    is_numbered: bool = False
    weight: int = 0
    is_sure: bool = False
    """True if it has a code or names one."""


class CallMade(NamedTuple):
    """A call of a tool."""

    name: str
    id: str
    argument: str
    carries_text: bool
    """True if another argument is a text: then it changes the object of the first one."""


class Reading(NamedTuple):
    """Facts about a message: a function of the message alone."""

    text: str = ""
    words: frozenset[str] = frozenset()
    asks: bool = False
    states: bool = False
    """True if a message that asks also states something."""
    is_list: bool = False
    is_talk: bool = False
    pieces: tuple[AnswerPiece, ...] = ()
    calls: tuple[CallMade, ...] = ()
    failure: str = ""


def read(message: Message) -> Reading:
    """Read a message."""
    role = message.get("role")
    if role == "user":
        text = described(message).strip()
        text = ends(text, 2 * LONG)
        asks, is_list = _asks(text), _is_list(text)
        return Reading(text, words_of(text), asks, asks and _states(text), is_list, asks_nothing(message.text))
    if role == "assistant":
        calls = tuple(map(_call, message.get("tool_calls") or ()))
        text, asks = described(message), _asks(message.text)
        pieces = tuple(_weighed(_counted([*_pieces(text)]), asks_back=asks))
        return Reading("", words_of(text), asks, pieces=pieces, calls=calls)
    if role != "tool":
        return Reading()
    failure = _failure(message.text)
    if message.get("is_error") is True and not failure:
        failure = next((" ".join(line.split()) for line in message.text.splitlines() if line.strip()), "is_error")
    return Reading(failure=shortened(failure, _FAILURE))


def _is_list(text: str) -> bool:
    return len(_LISTED.findall(text)) > 2


def size(text: str) -> int:
    """Return how much a text says, in letters: a character of a script without spaces counts as three."""
    return len(text) if text.isascii() else len(text) + 2 * len(_UNSPACED.findall(text))


def _fits(text: str, most: int) -> bool:
    return len(text) <= most and size(text) <= most


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences and lines of a text, without what stands between them."""
    for start, end in _spans(text):
        yield text[start:end]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for end in _SENTENCE_END.finditer(text):
        yield start, end.start() + (end[0][0] != "\n")
        start = end.end()
    yield start, len(text)


def clauses(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of the sentences and lines of a text, and of the clauses of longer ones."""
    for start, end in _spans(text):
        if end - start > 1:
            for clause in _CLAUSE_END.finditer(text, start, end) if size(text[start:end]) > BRIEF else ():
                yield start, clause.start()
                start = clause.end()
            yield start, end


def excerpt(text: str, most: int, weights: Mapping[str, float]) -> str:
    """Return the clauses of a text that weigh most, in about so many letters, in their order around marks of gaps."""
    chosen, room = list[tuple[int, int]](), most
    for start, end in sorted(clauses(text), key=lambda place: -weights[text[slice(*place)]]):
        needed = size(text[start:end]) + len(GAP)
        if not chosen or (weights[text[start:end]] and needed <= room):
            chosen.append((start, end))
            room -= needed
    shown, last = "", 0
    for start, end in (*sorted(chosen), (len(text), len(text))):
        between = text[last:start]
        is_gap = len(between) > (len(GAP) + 2 if _WORD.search(between) else _RULE)
        shown += f" {GAP} " if is_gap else between
        shown += ends(text[start:end], most)
        last = end
    return shown.strip()


def ends(text: str, most: int) -> str:
    """Return a text, or the two ends of a longer one around a mark that is shorter than the gap."""
    if _fits(text, most):
        return text
    head, tail = clipped(text, most * 3 // 5), clipped(text[::-1], most * 2 // 5)[::-1]
    gap = len(text) - len(head) - len(tail)
    mark = f" [... {gap} characters ...] "
    return f"{head}{mark}{tail}" if gap > 2 * len(mark) else text


def shortened(text: str, most: int) -> str:
    """Return a text, or the beginning of a longer one and a mark."""
    return text if _fits(text, most) else f"{clipped(text, most)} [...]"


def clipped(text: str, most: int) -> str:
    """Return the beginning of a text in so many letters; no word or address is parted, however short the text is."""
    known = text[: 2 * _READ]
    chars = most * len(known) // max(size(known), 1)
    if chars >= len(text):
        return text
    words = text[: chars + 1].rpartition(" ")[0]
    parted = text[len(words) : chars]
    return text[:chars] if not words or len(parted) > _LONGEST_WORD or _UNSPACED.search(parted) else words


def words_of(text: str) -> frozenset[str]:
    """Return the words of both ends of a text; of scripts without spaces, pairs of characters."""
    words = _PART.findall(_both_ends(text, " ").casefold())
    if not _UNSPACED.search(text):
        return frozenset(words)
    return frozenset(
        part
        for word in words
        for part in ((word[at : at + 2] for at in range(max(1, len(word) - 1))) if _UNSPACED.match(word) else (word,))
    )


def _both_ends(text: str, gap: str) -> str:
    return text if len(text) <= 2 * _READ else f"{text[:_READ]}{gap}{text[-_READ:]}"


def _pieces(text: str) -> Iterator[AnswerPiece]:
    """Yield the parts of an answer, in order: its sentences, items of lists, and the names of its code."""
    text = _both_ends(text, "\n[...]\n").replace(MARKER, "recall ")  # only the digest's own end names handles
    start = 0
    for fence in [*_FENCE.finditer(text), None]:
        end = len(text) if fence is None else fence.start()
        prose = text[start:end].strip()
        if 0 < size(prose) <= BRIEF:
            yield AnswerPiece(" ".join(prose.split()), _FIGURES.sub("0", prose), is_sure=_is_list(prose))
        elif prose:
            yield from _sentences(prose)
        if fence is not None:
            names = shortened(", ".join(dict.fromkeys(one or other for one, other in _NAMED.findall(fence[2]))), 100)
            lines = counted(fence[2].count("\n") or 1, "line")
            code = fence[2].strip()
            is_line = "\n" not in code and 0 < size(code) <= BRIEF
            about = code if is_line else f"{names + ', ' if names else ''}{lines}"
            named = f"[{fence[1] or 'code'}: {about}]"
            yield AnswerPiece(named, weight=6, is_sure=bool(names) or is_line)
            start = fence.end()


def _sentences(prose: str) -> Iterator[AnswerPiece]:
    """Yield the sentences and items of a text, and the rows of its tables whole."""
    start = 0
    for row in _ROW.finditer(prose):
        yield from _of_prose(prose[start : row.start()])
        text = row[0].strip()
        yield AnswerPiece(text, _FIGURES.sub("0", text))
        start = row.end()
    yield from _of_prose(prose[start:])


def _of_prose(prose: str) -> Iterator[AnswerPiece]:
    for sentence in sentences(prose):
        text = " ".join(sentence.split())
        if len(text) > 1:
            is_item, is_numbered = _ITEM_MARK.match(text) is not None, _NUMBERED.match(text) is not None
            yield AnswerPiece(text, _FIGURES.sub("0", text), is_item, is_numbered, weight=3 * is_item)


def _counted(pieces: Sequence[AnswerPiece]) -> Iterator[AnswerPiece]:
    """Yield the pieces, short. A number that no other piece counts on from marks no item: it may be that of a day."""
    numbers = Counter([_number(piece.text) for piece in pieces if piece.is_numbered])
    for piece in pieces:
        if piece.is_numbered:
            number = _number(piece.text)
            if numbers[number] < 2 and not (numbers[number - 1] or numbers[number + 1]):
                piece = AnswerPiece(piece.text, piece.shape)
        most = _ITEM if piece.is_item else _PIECE
        yield piece if _fits(piece.text, most) else piece._replace(text=shortened(piece.text, most))


def _number(item: str) -> int:
    """Return the number, or letter, by which an item is marked."""
    mark = _NUMBERED.match(item)
    *_, word = _WORD.findall(mark[0] if mark else "0")
    digits = _FIGURES.search(word)
    return int(digits[0]) if digits else int(unicodedata.numeric(word[-1], ord(word[-1])))


def _weighed(pieces: Iterable[AnswerPiece], *, asks_back: bool) -> Iterator[AnswerPiece]:
    """Yield the pieces with weights: the first sentence, code, items, new values and a question at the end have one."""
    seen = set[str]()
    is_first = True
    last: AnswerPiece | None = None
    for piece in pieces:
        if last is not None:
            yield last if last.weight else AnswerPiece()
        text = piece.text if _MAY_TELL.search(piece.text) else ""
        codes, numbers = set(_CODE.findall(text)), set(_NUMBER.findall(text))
        weight = piece.weight or 2 * min(2, len(codes - seen)) + min(1, len(numbers - seen)) + 5 * is_first
        is_sure = piece.is_sure or _SURE_CODE.search(text) is not None
        last = piece._replace(weight=weight, is_sure=is_sure)
        if not piece.weight:
            is_first = is_first and size(piece.text) < 24 and not codes
            seen |= codes | numbers
        is_first = is_first and not piece.is_item
    if last is not None:
        yield last._replace(weight=last.weight + 3 * asks_back) if last.weight or asks_back else AnswerPiece()


def _call(call: Mapping[str, Any]) -> CallMade:
    value = next((parsed(text) for text in arguments(Message({"tool_calls": [call]})) if len(text) <= _PARSED), None)
    members = [member for _, member in value] if isinstance(value, Pairs) else []
    words = ([each] if not isinstance(each, list) else each for each in members)  # a command may be a list of words
    texts = [" ".join(str(word) for word in each if isinstance(word, (str, int, float))).strip() for each in words]
    first = next(filter(None, texts), "")
    rest = [each for each in members if isinstance(each, str) and each != first]
    whole = " ".join(first.split())
    whole = _DEEP.sub("[...]", whole) if len(whole) > _TEXT else whole
    begin = _ARGUMENT.match(whole)
    argument = whole if begin is None or begin.end() == len(whole) else f"{begin[0].rstrip()} [...]"
    carries_text = any(size(each) > _TEXT and len(each.split(maxsplit=1)) > 1 for each in rest)
    return CallMade(called_name(call), str(call.get("id", "")), argument, carries_text)


def _failure(text: str) -> str:
    """Return what says in the outermost part of a result that its call failed. What stands within is content.

    That is a member of a JSON object, the last line beside the code of an exit, the first line that is a message or all
    there is, a verdict at the end, or the first line of a stack.
    """
    value = parsed(text) if len(text) <= _PARSED and text.lstrip()[:1] == "{" else None
    return _failed_member(value) if isinstance(value, Pairs) else _failed_line(text)


def _failed_member(value: Pairs) -> str:
    """Return the member of an object that says that a call failed; for a code what the longest text says, if any."""
    for name, member in value:
        said = rendered(member)
        if _FAULT_MEMBER.match(f"{name}:{said}"):
            return f"{quoted(name)}:{said}"
        if _CODE_MEMBER.match(f"{name}:{said}"):
            texts = (text for _, text in value if type(text) is str)
            return _failed_line(max(texts, key=len, default="")) or f"{quoted(name)}:{said}"
    return ""


def _failed_line(text: str) -> str:
    lines = [" ".join(line.split()) for line in _both_ends(text, "\n").splitlines() if line.strip()]
    verdict = next((line for line in lines[-_VERDICTS:] if _VERDICT.match(line)), "")
    for line in (*lines[:1], *lines[-1:]):
        if ended := _EXIT.match(line):
            last = next((each for each in reversed(lines) if each != line and _WORD.search(each)), line)
            return (verdict or last) if int(ended[1]) else ""
    begins = _FAULT.match(lines[0]) if lines and len(text) <= _MESSAGE else None
    if begins and (begins["message"] or len(lines) == 1):
        return lines[0]
    return verdict or next((line for line in lines[:1] if _STACK.match(line)), "")


def _asks(text: str) -> bool:
    end = unicodedata.normalize("NFKC", text[-200:]).rstrip(" \n\"'”»)*_`]")
    return end.endswith(("?", "؟", "՞", ";?"))


def only_asks(text: str) -> bool:
    """Return True if a text is a short question of one clause, which states nothing."""
    return size(text) <= BRIEF and _MERE_QUESTION.fullmatch(text) is not None


def _states(text: str) -> bool:
    """Return True if a quarter of a text or more are sentences that do not ask."""
    return 4 * sum(size(each) for each in sentences(text) if _asks(each)) < 3 * size(text)
