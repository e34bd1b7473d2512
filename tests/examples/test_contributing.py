"""The policies that CONTRIBUTING shows do what it says."""

import collections.abc
import json
import re
import sys
import textwrap
import typing
from pathlib import Path

import pytest

from proxy import testing
from proxy.chat import errors
from proxy.config import settings
from proxy.config.load import policy_class
from proxy.testing import conform
from proxy.upstreams import base, completion
from tests.scripted import call_of

PAGE = (Path(__file__).parent.parent.parent / "CONTRIBUTING.md").read_text()


CODES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


async def test_the_policy_of_the_page_keeps_to_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = CODES[0]
    (examples,) = re.findall(r"`EXAMPLES = (.*?)`", PAGE)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "cap_tools.py").write_text(textwrap.dedent(code))
    monkeypatch.setattr(sys, "path", [*sys.path])
    await conform(policy_class("own.cap_tools", tmp_path), eval(examples, vars(testing)))


def test_the_policy_that_brings_a_tool_is_the_one_that_is_tested() -> None:
    assert CODES[1] == (Path(__file__).parent / "tell_room.py").read_text()


async def test_the_kind_of_upstream_of_the_page_answers() -> None:
    modules = (settings, base, completion, errors, collections.abc, typing)
    names = {name: value for module in modules for name, value in vars(module).items()}
    kind, upstream = (textwrap.dedent(code) for code in CODES[2:])
    exec(kind, names)
    exec(upstream, names)
    built = names["build"]({"x": names["FixedUpstream"](kind="fixed", text="Ahoy")}, None)
    reply = await built["x"].send(call_of(testing.chat("u1")))

    assert json.loads(reply.body)["choices"][0]["message"]["content"] == "Ahoy"
