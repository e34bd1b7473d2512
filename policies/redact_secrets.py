"""Keep keys, addresses, cards, accounts and phone numbers from going upstream."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from proxy.chat.placeholders import StandIn
from proxy.policy import Guard
from proxy.text.tables import pattern_lists


class RedactSecrets(Guard):
    """Put placeholders in place of secrets, in every text of a request, and the secrets back into the answer.

    A placeholder such as `redacted-email-kqzgbvdtmjfrcn` is the same in each request of a conversation, so the prompt
    cache keeps hitting. In the answer, streamed or not, and in arguments of calls the client has the secret again.
    Nobody can guess the secret from it. Logs, records and metrics have placeholders or counts. Headers and queries are
    read too, except the credentials that the upstream needs. Images, sound and files in base64 are not read.
    """

    keys: bool = True
    """API keys and tokens of known forms, JSON web tokens, private keys in PEM, and passwords in addresses."""

    emails: bool = True
    """E-mail addresses."""

    cards: bool = True
    """Payment cards, of a known length and with the right check digit."""

    ibans: bool = True
    """Bank accounts (IBAN), of their country's length and with the right check digits."""

    phones: bool = True
    """Phone numbers in international form, with a plus and a country code."""

    def redact(self, text: str, stand_in: StandIn) -> str:
        """Return a text with placeholders; of two secrets that overlap, the one that begins first."""
        parts, end = list[str](), 0
        for start, stop, kind in sorted(self._secrets(text), key=lambda each: (each[0], -each[1])):
            if start >= end:
                parts += [text[end:start], stand_in(kind, text[start:stop])]
                end = stop
        return "".join([*parts, text[end:]]) if parts else text

    def _secrets(self, text: str) -> Iterator[tuple[int, int, str]]:
        wanted = {"key": self.keys, "email": self.emails, "card": self.cards, "iban": self.ibans, "phone": self.phones}
        for kind, lead, clue, pattern in _PATTERNS:
            for hint in find_matches(clue, text) if wanted[kind] and lead in text else ():
                found = pattern.match(text, hint.start())
                if found is not None and _CHECKS.get(kind, bool)(found[0]):
                    yield *found.span("value" if "value" in pattern.groupindex else 0), kind


def _has_check_digit(number: str) -> bool:
    """Return whether a number's last digit is right by Luhn's rule."""
    digits = [int(each) for each in reversed(number) if each.isdigit()]
    doubled = [digit * 2 - 9 if digit > 4 else digit * 2 for digit in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _has_check_digits(account: str) -> bool:
    """Return whether an IBAN's check digits are right (ISO 7064, mod 97)."""
    bare = "".join(filter(str.isalnum, account))
    return int("".join(str(int(each, 36)) for each in bare[4:] + bare[:4])) % 97 == 1


_CHECKS: Mapping[str, Callable[[str], bool]] = {"card": _has_check_digit, "iban": _has_check_digits}
_PLAIN = re.compile(r"(?:[\w:/=-]|\\[.+])*(?![?*{])", re.ASCII)
"""The characters at the beginning of a pattern that stand for themselves."""


class _SecretPattern(NamedTuple):
    kind: str
    lead: str
    """A part of every text with the clue: it is quick to look for."""
    clue: "re.Pattern[str]"
    pattern: "re.Pattern[str]"

    @classmethod
    def of(cls, kind: str, line: str) -> "_SecretPattern":
        clue, pattern = line.split("  ", 1)
        lead = "@" if kind == "email" else _PLAIN.match(clue)[0].replace("\\", "")  # type: ignore[index]
        return cls(kind, lead, re.compile(clue), re.compile(pattern))


_PATTERNS = [_SecretPattern.of(kind, line) for kind, lines in pattern_lists("secrets").items() for line in lines]

_WINDOW = 2**15
_LONGEST = 2**15
"""Characters within which a match must end."""


def find_matches(pattern: "re.Pattern[str]", text: str) -> Iterator["re.Match[str]"]:
    """Yield the matches in a text, window by window.

    A search for the next match holds the GIL, which blocks the event loop. So it sees only one window at a time, with
    as much of the next one as a match may need.
    """
    end = 0
    for start in range(0, len(text), _WINDOW):
        for match in pattern.finditer(text, max(start, end), start + _WINDOW + _LONGEST):
            if match.start() >= start + _WINDOW:
                break
            yield match
            end = match.end()
