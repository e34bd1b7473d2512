import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.helm.helm import Helm, helm


@pytest.fixture(scope="session")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Helm]:
    """Real Helm, for all tests of the chart."""
    if find_spec("helm_sdkpy") is None:
        missing = "helm_sdkpy is not installed: the chart is NOT tested; `make test` installs it where it can"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    with helm(tmp_path_factory.mktemp("helm")) as made:
        yield made
