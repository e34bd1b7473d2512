"""What is known of the models of an Ollama server: their windows and their list."""

from dataclasses import replace
from typing import Any

import pytest

from proxy.context import ModelProfile
from proxy.testing import profile
from proxy.upstreams import ollama as ollama_module
from proxy.upstreams.ollama import Ollama
from tests.upstreams.ollama.calls import MODEL, ask, call, ollama
from tests.upstreams.ollama.fake_ollama import FakeOllama


def shown(trained: int = 131072, parameters: str = "") -> dict[str, Any]:
    about = {"general.architecture": "llama", "llama.context_length": trained, "llama.vision.context_length": 1}
    return {"model_info": about, "parameters": parameters}


async def test_the_window_is_the_one_that_the_model_runs_with(fake: FakeOllama, upstream: Ollama) -> None:
    fake.running, fake.shown = {"llama3.2:latest": 8192}, shown()
    known = replace(profile(4096), name=MODEL, max_output=4096, reserve=1024)

    found = await upstream.profile(known)

    assert (found.window, found.source) == (8192, "ollama")
    assert found.usable(ask()) < 8192
    await upstream.profile(known)
    assert sorted(fake.paths) == ["/api/ps", "/api/show"]
    assert fake.bodies[fake.paths.index("/api/show")] == {"model": MODEL}


@pytest.mark.parametrize(
    ("num_ctx", "trained", "source", "expected"),
    [
        pytest.param(16384, 131072, "config", (16384, "ollama"), id="num_ctx"),
        pytest.param(16384, 2048, "config", (2048, "ollama"), id="capped by the trained length"),
        pytest.param(None, 131072, "config", (32768, "config"), id="the configured window, on trust"),
        pytest.param(None, 131072, "table", (4096, "table"), id="a table knows nothing of this server"),
        pytest.param(None, 2048, "table", (2048, "ollama"), id="a small model"),
    ],
)
async def test_the_window_of_a_model_that_does_not_run(
    fake: FakeOllama, num_ctx: int | None, trained: int, source: str, expected: tuple[int, str]
) -> None:
    fake.shown = shown(trained)
    upstream = ollama(fake.url, num_ctx)
    known = ModelProfile(MODEL, 32768, 32768, 4096, source=source)

    found = await upstream.profile(known)

    assert (found.window, found.source) == expected
    assert found.max_output <= found.window
    assert found.reserve < found.window
    await upstream.aclose()


async def test_the_first_answer_shows_what_the_model_runs_with(fake: FakeOllama, upstream: Ollama) -> None:
    fake.shown = shown()
    assert (await upstream.profile(profile(name=MODEL))).window == 4096

    fake.running = {"llama3.2:latest": 32768}
    await upstream.send(call())

    assert (await upstream.profile(profile(name=MODEL))).window == 32768


async def test_a_slow_list_of_models_is_not_waited_for(
    fake: FakeOllama, upstream: Ollama, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ollama_module, "LISTING", 0.05)
    fake.delay = 5

    assert await upstream.models({}) == []


async def test_models(fake: FakeOllama, upstream: Ollama) -> None:
    fake.running = {"b:latest": 8192}
    fake.tags = [
        {"name": "a:latest", "modified_at": "2025-05-04T17:37:44.706015396-07:00", "details": {"context_length": 4096}},
        {"model": "b:latest", "modified_at": "yesterday", "details": None},
        {"name": 5},
        "nonsense",
    ]

    assert await upstream.models({}) == [
        {"id": "a:latest", "object": "model", "created": 1746405464, "owned_by": "ollama"},
        {"id": "b:latest", "object": "model", "created": 0, "owned_by": "ollama", "context_length": 8192},
    ]
    configured = ollama(fake.url, 16384)
    assert [model["context_length"] for model in await configured.models({})] == [4096, 16384]
    await configured.aclose()
