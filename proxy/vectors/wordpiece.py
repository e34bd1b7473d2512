"""BERT's WordPiece, uncased: a text's tokens, as `tokenizers` finds them with that vocabulary. Pure.

Words are remembered with their tokens, so a text costs some 0.2 µs a word; the library would bring 60 MB of others.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache

_WORDS = 20_000
"""Words whose tokens are remembered."""
_LONGEST = 100
"""Characters of a word beyond which it has no tokens."""
_IDEOGRAMS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
"""What stands alone like a word, as BERT's own code has it."""


class WordPiece:
    """A vocabulary. For use in any thread."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        """A token's number is its place; `##` in front says that it goes on a word."""
        self._places = {token: place for place, token in enumerate(vocabulary)}
        self._of_word = lru_cache(_WORDS)(lambda word: tuple(self._split(word)))
        self._plain = _Plain()

    def tokens(self, text: str) -> list[int]:
        """The places of a text's tokens; none for words that the vocabulary cannot spell."""
        if not text.isascii():
            text = unicodedata.normalize("NFD", text)
        of_word = self._of_word
        return [token for word in text.translate(self._plain).split(" ") if word for token in of_word(word)]

    def _split(self, word: str) -> Iterator[int]:
        found: list[int] = []
        start = 0
        while start < len(word) <= _LONGEST:
            mark = "##" if start else ""
            for end in range(len(word), start, -1):
                place = self._places.get(mark + word[start:end])
                if place is not None:
                    found.append(place)
                    start = end
                    break
            else:
                return  # a part that the vocabulary lacks
        yield from found


class _Plain(dict[int, str]):
    """What stands for each character: lower case, no accents and controls, spaces around what is a word by itself."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        category = unicodedata.category(char)
        if (char.isspace() and category != "Cc") or char in "\t\n\r":
            plain = " "
        elif category in ("Cc", "Cf", "Co", "Mn") or char == "\ufffd":
            plain = ""
        elif _is_mark(char, category) or any(first <= code <= last for first, last in _IDEOGRAMS):
            plain = f" {char} "
        else:
            plain = char.lower()
        self[code] = plain
        return plain


def _is_mark(char: str, category: str) -> bool:
    return category[0] == "P" or (char.isascii() and not char.isalnum())
