"""What README and the first pages show is what happens."""

import asyncio
import contextlib
import io
import itertools
import json
import re
import shlex
from pathlib import Path

import pytest

from proxy.__main__ import main
from tests.e2e.conftest import Lab

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
START = (ROOT / "docs/start.md").read_text()
CONFIG = (ROOT / "config.yaml").read_text().replace("kind: auto", "kind: none")


def block(page: str, language: str, holding: str) -> str:
    """The fenced block of a language in which these words stand."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    return next(str(text) for name, text in found if name == language and holding in text)


async def test_the_first_request_has_the_answer_that_the_readme_shows(lab: Lab) -> None:
    body = json.loads((ROOT / "docs/request.json").read_text())
    answer = await (await lab.client(CONFIG)).post("/v1/chat/completions", body)
    assert answer.headers["x-penstock-context"] == "4383;1624;8192"
    assert answer.json["choices"][0]["message"]["content"].strip() == block(README, "text", "6 messages").strip()


async def test_the_sdk_example_prints_what_the_page_shows(lab: Lab) -> None:
    def run(base: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(block(START, "python", "OpenAI(").replace("http://127.0.0.1:4000", base), {})
        return out.getvalue()

    printed = await asyncio.to_thread(run, await lab.start(CONFIG))
    assert printed == block(START, "text", "2 messages")


def test_explain_prints_the_table_that_the_readme_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f'{CONFIG}\nstate: {{directory: "{tmp_path}/state"}}\n')
    assert main(["explain", str(ROOT / "docs/request.json"), "--diff", "--config", str(path)]) == 0
    shown = block(README, "", "penstock explain").split("\n", 1)[1]
    assert without_times(capsys.readouterr().out) == without_times(shown)


async def test_each_provider_gets_the_request_that_the_first_page_sends_it(lab: Lab) -> None:
    keys = {"OPENAI_API_KEY": "sk-of-openai", "ANTHROPIC_API_KEY": "sk-ant-key"}
    commands = "\n".join(block(START, "sh", holding) for holding in ("qwen3:8b", "OPENAI_API_KEY"))
    for name, key in keys.items():
        commands = commands.replace(f"${name}", key)
    url = lab.behind.url.removesuffix("/v1")
    config = CONFIG.replace("kind: anthropic", f"kind: anthropic\n    base_url: {url}")
    config = re.sub(r"\$\{\w+:-http[^/]*//[^/}]*(/v1)?\}", rf"{url}\1", config)
    client, sent = await lab.client(config), []
    for words in map(shlex.split, commands.replace("\\\n", "").split("\n\n")):
        options = dict(zip(words[2::2], words[3::2], strict=True))
        headers = dict(word.split(": ", 1) for flag, word in itertools.pairwise(words) if flag == "-H")
        await client.send("POST", words[1].removeprefix("http://127.0.0.1:4000"), headers, data=options["-d"])
        last = lab.behind.last
        sent_key = last.header("authorization") or last.header("x-api-key")
        sent.append((last.path, json.loads(last.body)["model"], sent_key))
    assert sent == [
        ("/api/chat", "qwen3:8b", None),
        ("/v1/chat/completions", "gpt-4o-mini", "Bearer sk-of-openai"),
        ("/v1/messages", "claude-sonnet-4-5", "sk-ant-key"),
    ]


def without_times(text: str) -> str:
    """Without what varies from run to run: the times, and the spaces that make room for them."""
    return re.sub(r" +", " ", re.sub(r"(milliseconds +)[\d.]+|\d+\.\d+( +\d* )", r"\1T\2", text)).strip()


async def test_shared_and_remembered_texts_reach_the_model_as_the_pages_show(lab: Lab) -> None:
    chain = "version: 1\nupstreams: {e: {kind: echo}}\nmodels: [{match: '*', upstream: e, window: 8192}]\n"
    chain += "embedding: {kind: none}\nchains: {default: [{select_memories: {}}, {include_shared: {}}]}\n"
    agents, memories = ((ROOT / f"docs/how-to/{name}.md").read_text() for name in ("agents", "memories"))
    names = {"x-penstock-session": "trip-7", "x-penstock-user": "ann"}
    asked = {"model": "m", "messages": [{"role": "user", "content": "Which dishes suit a vegetarian user?"}]}
    client = await lab.client(chain)
    for page, path, holding in ((memories, "/v1/memories", '"user"'), (agents, "/v1/context/share", '"to"')):
        body = re.findall(r"-d '(.*?)'", block(page, "sh", holding))[0]
        headers = {**names, "content-type": "application/json", "x-penstock-agent": "researcher"}
        assert (await client.send("POST", path, headers, data=body)).status == 200
    compressed = await client.post("/v1/compress", asked, {**names, "x-penstock-agent": "planner"})
    sent = [message["content"] for message in compressed.json["messages"]]
    shown = [block(memories, "text", "<relevant_context>"), block(agents, "text", "<shared_context>")]
    assert sorted(sent[:-1]) == sorted(text.strip() for text in shown)
