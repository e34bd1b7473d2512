"""The policies that CONTRIBUTING shows do what it says."""

import re
import sys
import textwrap
from pathlib import Path

import pytest

from proxy import testing
from proxy.config.load import policy_class
from proxy.testing import conform

PAGE = (Path(__file__).parent.parent.parent / "CONTRIBUTING.md").read_text()


CODES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


async def test_the_policy_of_the_page_keeps_to_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _ = CODES
    (examples,) = re.findall(r"`EXAMPLES = (.*?)`", PAGE)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "cap_tools.py").write_text(textwrap.dedent(code))
    monkeypatch.setattr(sys, "path", [*sys.path])
    await conform(policy_class("own.cap_tools", tmp_path), eval(examples, vars(testing)))


def test_the_policy_that_brings_a_tool_is_the_one_that_is_tested() -> None:
    assert CODES[1] == (Path(__file__).parent / "tell_room.py").read_text()
