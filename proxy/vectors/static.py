"""The static model that ships with Penstock: each token has a vector, and a text's is their sum.

It needs numpy only, loads in 30 ms and takes 0.1 ms for a passage. `benchmarks/distil.py` makes it of all-MiniLM-L6-v2.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path

from proxy.text import arrays
from proxy.vectors.backend import EmbeddingFailed
from proxy.vectors.packing import pack
from proxy.vectors.wordpiece import WordPiece

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


class Static:
    """The model and its thread."""

    name = NAME
    version = VERSION
    batch = 64
    characters = 100_000
    is_quick = True
    has_roles = False
    scale = None

    def __init__(self) -> None:
        self._table: TokenTable | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-embedding")

    async def load(self) -> None:
        await self.embed([])

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[bytes]:
        """The vectors of each text, one for each of its first pieces; none for a text without a known word."""
        if self._table is not None and sum(map(len, texts)) <= INLINE:
            return self._embedded(texts)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._embedded, texts)

    async def aclose(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _embedded(self, texts: Sequence[str]) -> list[bytes]:
        try:
            table = self._table = self._table or TokenTable(DATA)
        except (OSError, ValueError):
            raise EmbeddingFailed("no_such_model", lasting=True) from None
        return [table.packed(text) for text in texts]


class TokenTable:
    """The vectors of tokens: rows of small whole numbers, each with a scale; read from the file where they are used."""

    def __init__(self, directory: Path) -> None:
        """Raises `OSError` or `ValueError` for what is no such directory."""
        self._numpy = arrays.numpy()
        self._rows = self._numpy.load(directory / "vectors.npy", mmap_mode="r", allow_pickle=False)
        self._scales = self._numpy.load(directory / "scales.npy", allow_pickle=False).astype("f4")
        self._tokens = WordPiece((directory / "tokens.txt").read_text(encoding="utf-8").split("\n")[:-1])

    def packed(self, text: str) -> bytes:
        """A text's vectors; empty where it has none."""
        pieces = [self._tokens.tokens(text[start : start + SIZE]) for start in range(0, len(text), SIZE)[:PIECES]]
        vectors = [self._scales[piece] @ self._rows[piece].astype("f4") for piece in pieces if piece]
        return pack(vectors) if vectors else b""
