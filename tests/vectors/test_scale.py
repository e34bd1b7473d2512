"""Cosines of any model are put on the scale that the limits of relevance were found with; queries have a role."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from proxy.config.settings import AutoEmbedding, SentenceTransformersEmbedding
from proxy.context import Identity
from proxy.server.build import build_backend
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.packing import REFERENCE, Scale, measured, pack, pairs
from proxy.vectors.sentence_transformers import Sentences
from proxy.vectors.static import Static
from tests.vectors.scripted import Scripted

LONG = 30.0
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
    near, far = await embedder.similarities(pair.query, [pair.helps, other.helps], wait=LONG)
    assert near == pytest.approx(REFERENCE.related, abs=0.01)
    assert far == pytest.approx(REFERENCE.unrelated, abs=0.01)
    floor = await embedder.floor(pair.query, wait=LONG)
    assert floor == pytest.approx(REFERENCE.unrelated, abs=0.1), "small talk lies on the same scale"


async def test_until_it_is_measured_nothing_is_near_and_it_is_measured_once() -> None:
    backend = Crowded()
    backend.free.clear()
    service = EmbeddingService(backend)
    assert list(await service.similarities("t", "a", ["b"], wait=0)) == [None]
    backend.free.set()
    await service.ready()
    made = len(backend.texts)
    assert made == len({*backend.texts})
    assert None not in await service.similarities("t", "a", ["b"], wait=LONG)
    assert len(backend.texts) == made


async def test_a_model_that_tells_nothing_apart_keeps_its_cosines_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    service = EmbeddingService(Crowded(gap=0.01))
    with caplog.at_level(logging.WARNING, "penstock.embedding"):
        assert await service.similarities("t", "a", ["b"], wait=LONG) == pytest.approx([1.0], abs=0.01)
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
    assert list(await service.similarities("t", "a", ["a", "b"], wait=LONG)) == pytest.approx([-1.0, 0.0], abs=0.01)
    assert backend.queries == ["a"]
    assert backend.batches == [["a"], ["a", "b"]]
    service.prepare("t", ["c"])
    await service.similarities("t", "c", ["c", "a"], wait=LONG)
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
