"""The static model that ships with Penstock: each token has a vector, and a text's is their sum.

It needs numpy only, loads in 30 ms and takes 0.1 ms for a passage. `benchmarks/distil.py` makes it of all-MiniLM-L6-v2.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from proxy.text import arrays
from proxy.vectors.base import Backend, EmbeddingFailed
from proxy.vectors.packing import pack

NAME = "static-all-MiniLM-L6-v2"
VERSION = f"{NAME}-1"
"""Under which vectors are kept; new data needs a new one."""
DATA = Path(str(files("proxy") / "data" / "static"))

SIZE = 500
"""Characters of a piece of a text that gets a vector of its own."""
PIECES = 16
"""Pieces of a text that do, from its start."""
INLINE = 2000
"""Characters of texts whose vectors are made on the event loop: 0.2 ms, and a thread takes as long."""

_WORDS = 20_000
_LONGEST = 100
_IDEOGRAM = ("CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH")
"""The names of characters that stand alone like a word begin so."""


class Static(Backend):
    """The model and its thread."""

    name = NAME
    version = VERSION
    batch = 64
    characters = 100_000
    is_quick = True

    _table: "TokenTable | None" = None

    async def load(self) -> None:
        await self.embed([])

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[bytes]:
        if self._table is not None and sum(map(len, texts)) <= INLINE:
            return self._embedded(texts)
        return await self.in_thread(self._embedded, texts)

    def _embedded(self, texts: Sequence[str]) -> list[bytes]:
        try:
            table = self._table = self._table or TokenTable(DATA)
        except (OSError, ValueError):
            raise EmbeddingFailed("no_such_model", lasting=True) from None
        return [table.packed(text) for text in texts]


class TokenTable:
    """The vectors of tokens: rows of small whole numbers, each with a scale; read from the file where they are used."""

    def __init__(self, directory: Path) -> None:
        """Raise `OSError` or `ValueError` for what is no such directory."""
        self._numpy = arrays.numpy()
        self._rows = self._numpy.load(directory / "vectors.npy", mmap_mode="r", allow_pickle=False)
        self._scales = self._numpy.load(directory / "scales.npy", allow_pickle=False).astype("f4")
        self._tokens = WordPiece((directory / "tokens.txt").read_text(encoding="utf-8").split("\n")[:-1])

    def packed(self, text: str) -> bytes:
        pieces = [self._tokens.tokens(text[start : start + SIZE]) for start in range(0, len(text), SIZE)[:PIECES]]
        vectors = [self._scales[piece] @ self._rows[piece].astype("f4") for piece in pieces if piece]
        return pack(vectors) if vectors else b""


class WordPiece:
    """BERT's vocabulary, uncased, for any thread: a text's tokens as `tokenizers` finds them, without its 60 MB."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        """Read a vocabulary: a token's number is its place; `##` in front says that it goes on a word."""
        self._places = {token: place for place, token in enumerate(vocabulary)}
        self._of_word = lru_cache(_WORDS)(lambda word: tuple(self._split(word)))
        self._plain = _Plain()

    def tokens(self, text: str) -> list[int]:
        """Return the places of a text's tokens; none for words that the vocabulary cannot spell."""
        if not text.isascii():
            text = unicodedata.normalize("NFD", text)
        of_word = self._of_word
        return [token for word in text.translate(self._plain).split(" ") if word for token in of_word(word)]

    def _split(self, word: str) -> Iterator[int]:
        places: list[int] = []
        start = 0
        while start < len(word) <= _LONGEST:
            mark = "##" if start else ""
            for end in range(len(word), start, -1):
                place = self._places.get(mark + word[start:end])
                if place is not None:
                    places.append(place)
                    start = end
                    break
            else:
                return  # a part that the vocabulary lacks
        yield from places


class _Plain(dict[int, str]):
    """The plain form of each character: lower case, no accents and controls, spaces around what is a word by itself."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        category = unicodedata.category(char)
        if (char.isspace() and category != "Cc") or char in "\t\n\r":
            plain = " "
        elif category in ("Cc", "Cf", "Co", "Mn") or char == "\ufffd":
            plain = ""
        elif (
            category[0] == "P"
            or (char.isascii() and not char.isalnum())
            or unicodedata.name(char, "").startswith(_IDEOGRAM)
        ):
            plain = f" {char} "
        else:
            plain = char.lower()
        self[code] = plain
        return plain
