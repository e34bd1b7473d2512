"""The README is a contract: what it shows is what happens."""

import asyncio
import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from proxy.__main__ import main
from tests.e2e.servers import proxy

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()


def block(language: str, holding: str) -> str:
    """The fenced block of a language in which these words stand."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    return next(str(text) for name, text in found if name == language and holding in text)


async def test_its_sdk_example_prints_what_it_says(tmp_path: Path) -> None:
    def run(base: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(block("python", "OpenAI(").replace("http://127.0.0.1:4000", base), {})
        return out.getvalue()

    config = (ROOT / "config.yaml").read_text()
    async with proxy(config, tmp_path) as base:
        printed = await asyncio.to_thread(run, base)
    assert printed.startswith("2 messages (1 system, 1 user), 0 tools\n")


def test_its_table_is_the_real_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    messages = [
        {"role": "system", "content": "Be terse."},
        {"role": "system", "content": "# Tone\nAnswer in Spanish."},
        {"role": "user", "content": "Hello"},
    ]
    path = tmp_path / "request.json"
    path.write_text(json.dumps({"model": "echo", "messages": messages}, separators=(",", ":")))
    assert main(["explain", str(path), "--diff", "--config", str(ROOT / "config.yaml")]) == 0
    shown = block("", "penstock explain").split("\n", 1)[1]
    assert without_times(capsys.readouterr().out) == without_times(shown)


def without_times(text: str) -> str:
    """Without what varies from run to run: the times, and the spaces that make room for them."""
    return re.sub(r" +", " ", re.sub(r"\d+\.\d+( ms| +\d* )", r"T\1", text)).strip()


@pytest.mark.parametrize("path", re.findall(r"\]\(((?!http)[^)#]+)\)", README))
def test_its_links_lead_somewhere(path: str) -> None:
    assert (ROOT / path).exists()
