"""The ring of recent requests."""

import json

import pytest

from proxy.step import Step
from proxy.telemetry import Telemetry
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.recent import MOST, Recent


def served(telemetry: Telemetry, request_id: str, tenant: str = "t", config: str = "v1") -> None:
    seen = telemetry.begin("POST", "/v1/chat/completions", {}, request_id=request_id, tenant=tenant, config=config)
    seen.routed(model="gpt-*", upstream="main", chain="default")
    step = Step("window_history", "rewrite", "dropped 3 of 9 turns", 0.002, 1.0, 900, 300, {"dropped_turns": 3})
    seen.ran([step], before=900, after=300, window=1000)
    seen.end(200)


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(Metrics("1"))


def test_a_record_says_what_was_done(telemetry: Telemetry) -> None:
    served(telemetry, "r")
    found = telemetry.recent.find("r")
    assert found is not None
    shown = found.shown()
    assert json.loads(json.dumps(shown)) == shown
    assert (shown["tokens_before"], shown["tokens_after"], shown["window"]) == (900, 300, 1000)
    assert (shown["model"], shown["upstream"], shown["chain"], shown["config"]) == ("gpt-*", "main", "default", "v1")
    assert shown["steps"][0]["why"] == "dropped 3 of 9 turns"


def test_what_went_nowhere_is_not_remembered(telemetry: Telemetry) -> None:
    telemetry.begin("GET", "/v1/models", {}, request_id="r").end(200)
    assert telemetry.recent.latest(10) == []
    assert telemetry.recent.find("r") is None


def test_the_newest_come_first_and_the_oldest_go(telemetry: Telemetry) -> None:
    for n in range(MOST + 5):
        served(telemetry, f"r{n}")
    assert [record.request_id for record in telemetry.recent.latest(2)] == [f"r{MOST + 4}", f"r{MOST + 3}"]
    assert len(telemetry.recent.latest(10 * MOST)) == MOST
    assert telemetry.recent.latest(0) == Recent(3).latest(1) == []
    assert telemetry.recent.find("r4") is None
    assert telemetry.recent.find("r5") is not None


def test_a_tenant_finds_its_own(telemetry: Telemetry) -> None:
    served(telemetry, "r", "mine", "v1")
    served(telemetry, "r", "other", "v2")
    served(telemetry, "r", "mine", "v3")
    served(telemetry, "r", "other", "v4")
    found = telemetry.recent.find("r", "mine")
    assert found is not None
    assert found.config == "v3"
    assert telemetry.recent.find("r", "nobody") is None
