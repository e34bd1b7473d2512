"""How good a text from outside is, by five measures that are cheap, and the same for the same text. Pure."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple

from policies.validate_content.accuracy import accuracy
from policies.validate_content.content import (
    GOOD,
    SAID,
    Content,
    Finding,
    arguments_of,
    members,
    scalar,
)
from proxy.compaction import unwrapped
from proxy.compaction.cut_json import cut_off
from proxy.text import counted
from proxy.text.bm25 import terms
from proxy.text.glossary import english
from proxy.text.json_values import Pairs, parsed
from proxy.text.language import language

HOUR = 3600.0
_ZONES = 14 * HOUR
"""A time without a zone may be off by so much."""
_YEARS = (2000, 2200)
_DATED = 50_000
_MOMENTS = 50


def stated(text: str) -> tuple[float, bool] | None:
    """The newest moment at which a text says it was made, and whether it says the zone; None where it says none."""
    return max(_all_moments(SAID["stated"], text), default=None)


def present(text: str) -> float | None:
    """The moment that a text says it is now; None where it says none."""
    return max((moment for moment, _ in _all_moments(SAID["present"], text)), default=None)


def freshness(made: tuple[float, bool] | None, now: float | None, fresh: float) -> Finding | None:
    """1 up to an age of `fresh` seconds, then `fresh` / age: half of it at twice the age. None where none is stated."""
    if made is None or now is None:
        return None
    moment, exact = made
    age = now - moment - (0.0 if exact else _ZONES)
    if age <= fresh:
        return Finding(1.0)
    return Finding(fresh / age, f"it says that it was made {_age(age)} before")


def _age(age: float) -> str:
    days = age / (24 * HOUR)
    if days >= 2:
        return f"{days:.0f} days"
    return f"{age / HOUR:.0f} hours" if age >= 2 * HOUR else counted(round(age / 60), "minute")


def _all_moments(pattern: re.Pattern[str], text: str) -> list[tuple[float, bool]]:
    found = (
        _moment([part or "" for part in match.groups()]) for match in islice(pattern.finditer(text[:_DATED]), _MOMENTS)
    )
    return [moment for moment in found if moment is not None]


def _moment(parts: list[str]) -> tuple[float, bool] | None:
    day, clock, seconds, zone = parts[:4] if parts[0] else parts[4:]
    if not clock:
        clock, seconds = "23:59", "59"  # any time of that day
    offset = "+00:00" if not zone or zone.isalpha() else zone
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}:{seconds or '00'}{offset}")
    except ValueError:
        return None
    if not _YEARS[0] <= moment.year <= _YEARS[1]:
        return None
    return moment.astimezone(UTC).timestamp(), bool(zone)


_READ_FOR_WORDS = 20_000
_FEWEST = 40
"""Different terms of a text that is long enough to judge; an id or a number need not repeat the question."""
_ASKED = 4
"""Different terms of a question that says enough."""
_QUERY = 4000


def relevance(text: str, query: str) -> Finding | None:
    """1 - 0.3^n, where n is how many different terms of the question stand in the text: 0, 0.7, 0.91, 0.97 and so on.

    So one term is enough for 0.7: a text that answers a question may share only one, but hardly any shares none. None
    where it cannot be told: a short text or question, or one that is in another language than the text.
    """
    query = query[:_QUERY]
    asked = _telling(f"{query} {english(query) or ''}")
    if len(asked) < _ASKED:
        return None
    found = _telling(text[:_READ_FOR_WORDS])
    if len(found) < _FEWEST:
        return None
    hits = len(asked & found)
    if not hits and _differ(text, query):
        return None
    return Finding(round(1 - 0.3**hits, 6), "" if hits else "it shares no words with what asked for it")


def _telling(text: str) -> set[str]:
    return {term for term in terms(text) if len(term) > 2}


def _differ(text: str, query: str) -> bool:
    """Whether both may be about the same in different languages, or the text is in a script without spaces."""
    theirs = language(text)
    return theirs is None or language(query) not in (None, theirs)


_CUT_OFF = 0.4
"""The score of what ends in the middle without a word of it."""
_EMPTY = 0.6
"""The score of nothing: often the answer, such as of a search that finds none."""
_TOLD_SO = 0.8
"""The score of what says itself that there is more: the model knows it as well."""

_PRINTED = ("meta=None content=[", "content=[TextContent(")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_NOTHING = frozenset({"", "[]", "{}", "null", "none", '""', "()", "n/a", "undefined"})
_JSON = 1_000_000
"""Characters of JSON that are gone through for its end."""


def completeness(raw: str, text: str, value: Pairs | list[Any] | None, required: tuple[str, ...]) -> Finding:
    """The worst of what there is to say. `raw` is the text in its envelope, `value` what it is as JSON."""
    if text.strip().lower() in _NOTHING:
        return Finding(_EMPTY, "it is empty")
    if (ends := _end(raw, text, value)) is not None:
        told = SAID["more"].search(raw[-400:]) is not None
        return Finding(_TOLD_SO if told else _CUT_OFF, ends)
    if SAID["more"].search(text[-400:]) is not None:
        return Finding(_TOLD_SO, "it says that there is more")
    missing = _missing(value, required)
    if missing:
        return Finding(1 - len(missing) / len(required), f"{len(missing)} of the {len(required)} members are missing")
    return GOOD


def _end(raw: str, text: str, value: Pairs | list[Any] | None) -> str | None:
    """In what the text ends, if in the middle of something."""
    if raw.startswith(_PRINTED) and not raw.rstrip().endswith((")", "]", "}", "None", "True", "False")):
        return "the result is cut off"
    if value is not None:
        return None
    # an envelope that ends in the middle is there no more once it was taken off
    if any(each[:1] in "{[" and cut_off(each) is not None for each in {raw[:_JSON], text[:_JSON]} if each):
        return "its JSON is cut off"
    if text.lstrip()[:9].lower().startswith(("<!doctype", "<html")) and "</html" not in text[-2000:].lower():
        return "the page is cut off"
    if sum(1 for _ in _FENCE.finditer(text)) % 2:
        return "a block of code is not closed"
    return None


def _missing(value: Pairs | list[Any] | None, required: tuple[str, ...]) -> list[str]:
    if not required or not isinstance(value, Pairs):
        return []
    names = set(value.names)
    # an error is another answer
    return [] if "error" in names else [name for name in required if name not in names]


_KEY = re.compile(r"(?:^|[_-])(?:id|uuid|code|symbol|number|isbn|sku)$|[a-z](?:Id|ID|Uuid|Code|Symbol|Number)$")
"""Names of members that say which one a record is."""
_COUNTS = frozenset({"count", "num_results", "result_count", "returned", "numResults", "resultCount"})
_SUCCESS = frozenset({"success", "succeeded", "ok"})
"""Names of members that are true where all went well, and what `status` says then."""
_OK = re.compile(r"2\d\d$")
_NO_ERROR = frozenset({"none", "null", "no", "false", "0", "ok", "n/a", "-"})
_CHANGES = re.compile(r"version|revision|date|time|updat|seq|status|state|page|step|index|position|rank|score", re.I)
"""Members by which two records of one id may rightly differ."""


def consistency(value: Pairs | list[Any] | None, arguments: str) -> Finding:
    """1 without a contradiction, a half with one, a third with two; 0 for the record of another id than was asked."""
    if value is None:
        return GOOD
    if _other(value, arguments):
        return Finding(0.0, "it is about another id than was asked for")
    found = [what for item in members(value) for what in _clashes(item)]
    return Finding(1 / (1 + len(found)), found[0]) if found else GOOD


def _clashes(item: Pairs | list[Any]) -> Iterator[str]:
    if not isinstance(item, Pairs):
        yield from _repeats(item)
        return
    known: dict[str, Any] = {}
    for key, value in item:
        if key in known and known[key] != value:
            yield "it gives a member twice with different values"
        known[key] = value
    if _succeeds(known) and _fails(known):
        yield "it reports success and an error"
    lists = [value for value in known.values() if isinstance(value, list)]
    counts = [int(number) for key in _COUNTS if (number := scalar(known.get(key)) or "").isdigit()]
    if len(lists) == 1 and counts and counts[0] < len(lists[0]):
        yield "it has more items than it counts"


def _succeeds(known: dict[str, Any]) -> bool:
    status = scalar(known.get("status")) or ""
    return any(known.get(key) is True for key in _SUCCESS) or status.casefold() in _SUCCESS or bool(_OK.match(status))


def _fails(known: dict[str, Any]) -> bool:
    """Whether there is an error, as a text or as an object or list that says more."""
    for error in (known.get("error"), known.get("errors")):
        if error is True or (isinstance(error, (Pairs, list)) and error):
            return True
        if isinstance(error, str) and error.strip() and error.strip().casefold() not in _NO_ERROR:
            return True
    return False


def _repeats(items: list[Any]) -> Iterator[str]:
    """Records of one list with the same `id` and different values."""
    records = [dict(item) for item in items if isinstance(item, Pairs)]
    known: dict[str, dict[str, Any]] = {}
    for record in records:
        name = scalar(record.get("id"))
        if name is None:
            continue
        first = known.setdefault(name, record)
        if first.keys() == record.keys():
            differing = [key for key in record if record[key] != first[key]]
            if differing and not any(map(_CHANGES.search, differing)):
                yield "it has two records of one id with different values"


def _other(value: Pairs | list[Any], arguments: str) -> bool:
    """Whether it is a record that names another id than the call, under the same name, and nowhere the one asked."""
    if not isinstance(value, Pairs):
        return False
    record, asked = dict(value), arguments_of(arguments)
    for key, wanted in asked.items():
        given, sought = scalar(record.get(key)), scalar(wanted)
        if not _KEY.search(key) or given is None or not sought or given.casefold() == sought.casefold():
            continue
        if given.isdigit() != sought.isdigit():
            continue  # a key and the number of a record: both may name the same one
        if not _names(value, sought):
            return True
    return False


def _names(value: Pairs | list[Any], sought: str) -> bool:
    """Whether a text of the value has what was sought in it, such as a new id beside the old one."""
    sought = sought.casefold()
    for item in members(value):
        inner: list[Any] = [each for _, each in item] if isinstance(item, Pairs) else list(item)
        if any(sought in text.casefold() for each in inner if (text := scalar(each)) is not None):
            return True
    return False


MEASURES = ("relevance", "freshness", "accuracy", "completeness", "consistency")
"""The measures, in the order of a verdict."""

LARGEST = 2_000_000
"""Characters of a text that are looked at."""


class ContentScores(NamedTuple):
    """What the measures say; None where one can tell nothing."""

    relevance: Finding | None
    freshness: Finding | None
    accuracy: Finding | None
    completeness: Finding | None
    consistency: Finding | None

    def below(self, least: Mapping[str, float]) -> list[tuple[str, Finding]]:
        """The measures whose scores are less than these, with what is wrong."""
        found = zip(MEASURES, self, strict=True)
        return [(name, each) for name, each in found if each is not None and each.score < least[name]]

    def overall(self, weights: Mapping[str, float]) -> float:
        """The mean of the scores that there are, by these weights; 1 where none has any."""
        told = [(weights[name], each.score) for name, each in zip(MEASURES, self, strict=True) if each is not None]
        whole = sum(weight for weight, _ in told)
        return sum(weight * score for weight, score in told) / whole if whole else 1.0


def judge(content: Content) -> ContentScores:
    """Measure a text, all but its freshness, which depends on when it came. Some 0.3 ms a KB."""
    raw = content.text[:LARGEST]
    text = unwrapped(raw)
    value = parsed(text)
    return ContentScores(
        relevance(text, content.query),
        None,
        accuracy(text, data=value is not None),
        completeness(raw, text, value, content.required),
        consistency(value, content.arguments),
    )
