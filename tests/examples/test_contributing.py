"""The policy that CONTRIBUTING shows does what it says."""

import re
import sys
import textwrap
from pathlib import Path

import pytest

from proxy import testing
from proxy.config.load import policy_class
from proxy.testing import conform

PAGE = (Path(__file__).parent.parent.parent / "CONTRIBUTING.md").read_text()


async def test_the_policy_of_the_page_keeps_to_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (examples,) = re.findall(r"`EXAMPLES = (.*?)`", PAGE)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "cap_tools.py").write_text(textwrap.dedent(code))
    monkeypatch.setattr(sys, "path", [*sys.path])
    await conform(policy_class("own.cap_tools", tmp_path), eval(examples, vars(testing)))
