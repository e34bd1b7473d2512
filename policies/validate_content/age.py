"""How old a text says that it is."""

import re
from datetime import UTC, datetime
from itertools import islice

from policies.validate_content.content import Finding

HOUR = 3600.0
_ZONES = 14 * HOUR
"""A time without a zone may be off by so much."""
_YEARS = (2000, 2200)
_READ = 50_000
_MOST = 50

_MOMENT = (
    r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2})(?::(\d{2}))?(?:\.\d{1,9})?)?\s?(Z\b|UTC\b|GMT\b|[+-]\d{2}:?\d{2}(?!\d))?"
)
_STATED = re.compile(
    r"\b(?:as[_ ]?of|(?:data[_ ]?)?(?:fetched|retrieved|cached|generated|collected|scraped|crawled|snapshot|"
    r"last[_ ]?refreshed|observed)(?:[_ ]?(?:at|on|time|date))?|datos (?:del?|a)|consultado el)"
    rf"[\"']?\s*+(?:[:=]\s*+)?[\"']?{_MOMENT}",
    re.IGNORECASE,
)
"""What a text says about when it was made. When something in it happened says nothing about that."""
_PRESENT = re.compile(
    r"\b(?:current|today'?s|present) (?:date|time|date and time|datetime)(?: is| now is)?[:\s=]{1,3}"
    rf"{_MOMENT}|\b(?:today is|now is|it is now|hoy es|ahora es|(?:la )?fecha(?: y hora)? actual(?: es)?:?)\s+"
    rf"{_MOMENT}",
    re.IGNORECASE,
)


def stated(text: str) -> tuple[float, bool] | None:
    """The newest moment at which a text says it was made, and whether it says the zone; None where it says none."""
    return max(_moments(_STATED, text), default=None)


def present(text: str) -> float | None:
    """The moment that a text says it is now; None where it says none."""
    return max((moment for moment, _ in _moments(_PRESENT, text)), default=None)


def freshness(made: tuple[float, bool] | None, now: float | None, fresh: float) -> Finding | None:
    """1 up to an age of `fresh` seconds, then `fresh` / age: half of it at twice the age. None where none is stated."""
    if made is None or now is None:
        return None
    moment, exact = made
    age = now - moment - (0.0 if exact else _ZONES)
    if age <= fresh:
        return Finding(1.0)
    return Finding(fresh / age, f"it says that it was made {_told(age)} before")


def _told(age: float) -> str:
    days = age / (24 * HOUR)
    return f"{days:.0f} days" if days >= 2 else f"{age / HOUR:.0f} hours"


def _moments(pattern: re.Pattern[str], text: str) -> list[tuple[float, bool]]:
    found = (_read([part or "" for part in match.groups()]) for match in islice(pattern.finditer(text[:_READ]), _MOST))
    return [moment for moment in found if moment is not None]


def _read(parts: list[str]) -> tuple[float, bool] | None:
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
