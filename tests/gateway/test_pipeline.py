"""The documentation shows the path of a request as it is written."""

import inspect
from pathlib import Path
from textwrap import dedent

from proxy.gateway.pipeline import Pipeline

PAGE = Path(__file__).parent.parent.parent / "docs" / "architecture.md"


def test_the_documentation_shows_the_path_of_a_request() -> None:
    assert f"```python\n{dedent(inspect.getsource(Pipeline.serve))}```\n" in PAGE.read_text()
