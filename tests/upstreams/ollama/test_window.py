"""The window of a model on Ollama: from which of its sources, how often they are asked, how long a request waits."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from proxy.upstreams.ollama import window as ollama_window
from proxy.upstreams.ollama.window import ReportedWindow, Windows, effective, full_name


@pytest.mark.parametrize(("told", "configured", "otherwise", "window"), [
    pytest.param({}, None, None, 4096, id="nothing known: Ollama's own default"),
    pytest.param({}, None, 16384, 16384, id="the configured window"),
    pytest.param({"modelfile": 8192}, None, 16384, 8192, id="the model's parameter"),
    pytest.param({"loaded": 32768, "modelfile": 8192}, None, None, 32768, id="what runs"),
    pytest.param({"modelfile": 65536, "trained": 2048}, None, None, 2048, id="never above the trained length"),
    pytest.param({}, 8192, 4096, 8192, id="num_ctx"),
    pytest.param({"trained": 2048}, 8192, None, 2048, id="num_ctx above the trained length"),
    pytest.param({"loaded": 65536, "trained": 131072}, 8192, None, 8192, id="num_ctx over a larger one that runs"),
    pytest.param({"loaded": 4096, "trained": 131072}, 8192, None, 8192, id="another's model will be reloaded"),
    pytest.param({"loaded": 4096, "trained": 131072, "is_ours": True}, 8192, None, 4096, id="ours runs with less"),
    pytest.param({"loaded": 4096}, 8192, None, 4096, id="it runs with less, trained length unknown"),
    pytest.param({"loaded": 8192, "trained": 131072, "is_ours": True}, 8192, None, 8192, id="runs as configured"),
])  # fmt: skip
def test_the_effective_window(told: Any, configured: int | None, otherwise: int | None, window: int) -> None:
    assert effective(ReportedWindow(**told), configured=configured, otherwise=otherwise) == window


@pytest.mark.parametrize(
    "name", ["Llama3.2", "llama3.2:latest", "library/llama3.2", "registry.ollama.ai/library/llama3.2"]
)
def test_names_are_compared_in_full(name: str) -> None:
    assert full_name(name) == "llama3.2:latest"
    assert full_name("hf.co/me/model:Q4") == "hf.co/me/model:q4"


class Server:
    """Answers questions from two dictionaries, and counts them."""

    def __init__(self) -> None:
        self.asked = 0
        self.running: Mapping[str, Any] | None = {"models": [{"name": "m:latest", "context_length": 8192}]}
        self.shown: Mapping[str, Any] | None = {
            "parameters": 'temperature          0.7\nnum_ctx              16384\nstop                 "num_ctx 5"',
            "model_info": {"general.architecture": "llama", "llama.context_length": 131072},
        }
        self.delay = 0.0

    async def ask(self, method: str, path: str, body: Any) -> Mapping[str, Any] | None:
        self.asked += 1
        await asyncio.sleep(self.delay)
        return self.running if path == "/api/ps" else self.shown


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def windows(server: Server) -> Windows:
    return Windows(server.ask)


async def test_both_sources_are_read_once_for_all_who_ask(server: Server, windows: Windows) -> None:
    told = await asyncio.gather(*(windows.report("m") for _ in range(5)))

    assert told == [ReportedWindow(loaded=8192, modelfile=16384, trained=131072)] * 5
    assert await windows.report("m") == told[0]
    assert server.asked == 2


async def test_a_slow_server_is_waited_for_once(
    server: Server, windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ollama_window, "PATIENCE", 0.05)
    server.delay = 5

    async with asyncio.timeout(60):
        assert await windows.report("m") == ReportedWindow()
        assert await windows.report("m") == ReportedWindow()
    assert server.asked == 2


async def test_what_is_known_survives_a_failure_and_an_unloaded_model(
    server: Server, windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ollama_window, "FRESH", 0.0)
    monkeypatch.setattr(ollama_window, "RETRY", 0.0)
    known = await windows.report("m")

    server.running, server.shown = {"models": []}, None
    assert await windows.report("m") == known
    server.running = None
    assert await windows.report("m") == known


async def test_a_failure_is_remembered_for_less_time_than_an_answer(
    server: Server, windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ollama_window, "RETRY", 0.0)
    shown, server.shown = server.shown, None
    assert (await windows.report("m")).trained is None
    server.shown = shown
    assert (await windows.report("m")).trained == 131072
    await windows.report("m")
    assert server.asked == 4


async def test_our_first_answer_makes_it_ask_again(server: Server, windows: Windows) -> None:
    server.running = {"models": []}
    assert (await windows.report("m")).loaded is None

    server.running = {"models": [{"model": "m:latest", "context_length": 2048}]}
    windows.answered("m")
    windows.answered("m")

    assert await windows.report("m") == ReportedWindow(loaded=2048, modelfile=16384, trained=131072, is_ours=True)
    assert server.asked == 4


async def test_remembered_models_are_bounded(server: Server, windows: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ollama_window, "REMEMBERED", 2)
    for name in ("a", "b", "c"):
        await windows.report(name)
        windows.answered(name)
    asked = server.asked

    await windows.report("a")

    assert server.asked == asked + 2


@pytest.mark.parametrize("nonsense", [
    {},
    {"models": 5, "parameters": 5, "model_info": 5},
    {"models": [5, {"name": 5, "context_length": "x"}], "model_info": {}},
])  # fmt: skip
async def test_nonsense_says_nothing(server: Server, windows: Windows, nonsense: Mapping[str, Any]) -> None:
    server.running = server.shown = nonsense

    assert await windows.report("m") == ReportedWindow()
