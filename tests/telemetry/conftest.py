"""What the tests of telemetry share: no settings of the environment, and spans that stay in memory."""

import os

import pytest

from tests.telemetry.recorded import Recorded


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()
