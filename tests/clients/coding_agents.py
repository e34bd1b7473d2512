"""The real Claude Code and Codex, each once against a strict stand-in of its vendor and once through the default chain.

    npm install --prefix /tmp/agents @anthropic-ai/claude-code @openai/codex
    python -m tests.clients.coding_agents --programs /tmp/agents/node_modules/.bin

Both are also run with a model of a server that speaks only chat completions. A line for each tells the requests, what the vendor refused, the reasoning that it lost, and the cost against none of
Penstock. Nothing leaves this machine: the agents are told the stand-in's address, and need no account.
"""

import argparse
import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.served import CHAINS
from proxy.chat.parse import Body
from proxy.chat.wire import flaws
from tests.e2e.servers import Received, Upstream, filled, proxy, say, send, upstream
from tests.e2e.test_agents import CONFIG, MessagesAgent, ResponsesAgent
from tests.loopback import serving
from tests.scripted import answer
from tests.upstreams.anthropic import rules, stand_in
from tests.upstreams.anthropic.stand_in import KEY, Scripted, StandIn
from tests.wires.openai_server import OpenAIServer, call, message

CHECKS = (rules._check_pairs, rules._check_marks, rules._check_signatures, rules._check_texts, rules._check_roles)
"""What is held against Claude Code; it sends fields of betas, which the plain types of the SDK have not."""

SCRIPT = """import json, sys
number = int(sys.argv[1])
rows = [{"id": f"ORD-{number}-{row}", "state": "shipped", "weight": row * 1.5, "note": f"left {row}"} for row in range(90)]
print(json.dumps(rows, indent=2))
"""
ASKED = "Read all parts."


class ClaudeServer(StandIn):
    """A model that has one part after the other read."""

    steps = 34

    def _message(self, body: Any, scripted: Scripted) -> dict[str, Any]:
        number = sum(each["role"] == "assistant" for each in body["messages"])
        given = {"command": f"python3 part.py {number}", "description": "Read a part"}
        reads = {"type": "tool_use", "id": f"toolu_{number:04d}", "name": "Bash", "input": given}
        is_agent = any(tool.get("name") == "Bash" for tool in body.get("tools", ()))
        said = [reads] if is_agent and number < self.steps else [{"type": "text", "text": "All is read."}]
        thought = [{"type": "thinking", "thinking": f"Part {number}."}] if is_agent else []
        return super()._message(body, Scripted([*thought, *said]))


class CodexServer(OpenAIServer):
    """The same, of OpenAI."""

    steps = 34

    def _response(self, body: Any) -> Any:
        number = sum(item.get("type") == "reasoning" for item in body["input"])
        reads = call(f"call_{number}", "exec_command", cmd=f"python3 part.py {number}", max_output_tokens=20_000)
        self.answers = [[{"type": "reasoning"}, reads if number < self.steps else message("All is read.")]]
        return super()._response(body)


LOCAL = """
upstreams: {{local: {{kind: openai, base_url: "{url}", keyless: true, wires: []}}}}
models: [{{match: "*", upstream: local, window: 200000, tokenizer: o200k_base}}]
{chains}
state: {{kind: memory}}
embedding: {{kind: none}}
"""
"""A server that knows nothing but chat completions."""


class LocalModel:
    """The same, of a local server. It refuses what breaks a rule of chat."""

    steps = 34

    def __init__(self) -> None:
        self.asked, self.refused, self.characters = 0, 0, 0

    async def respond(self, _: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        body = json.loads(received.body)
        if not received.path.endswith("/chat/completions") or flaws(Body(received.body).parse()):
            self.refused += 1
            await send(writer, 400, b'{"error":{"message":"refused","type":"x","code":null}}')
            return
        self.asked, self.characters = self.asked + 1, self.characters + len(received.body)
        number = sum(bool(each.get("tool_calls")) for each in body["messages"])
        tools = {tool["function"]["name"] for tool in body.get("tools") or ()}
        command, place = f"python3 part.py {number}", next((n for n in ("Bash", "exec_command") if n in tools), None)
        if place is None or number >= self.steps:
            await say(writer, received, answer("All is read."))
            return
        given = {"command": command, "description": "Read"} if place == "Bash" else {"cmd": command}
        made = {"id": f"call_{number}", "type": "function", "function": {"name": place, "arguments": json.dumps(given)}}
        told = answer(None, finish="tool_calls", reasoning_content=f"Part {number}.", tool_calls=[made])
        await say(writer, received, told)


def check(body: Any) -> None:
    """Raise `Refusal` for what Anthropic refuses."""
    for each in CHECKS:
        each(body)


def prepare(folder: Path) -> None:
    folder.mkdir()
    (folder / "part.py").write_text(SCRIPT)


async def run(command: list[str], folder: Path, **environment: str) -> str:
    """Run an agent in a folder of its own; what it printed."""
    await asyncio.to_thread(prepare, folder)
    own = {"HOME": str(folder), "CODEX_HOME": str(folder), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "CLAUDE", "OPENAI_"))
    }
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={**kept, **own, **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(600):
            return (await process.communicate())[0].decode()
    finally:
        if process.returncode is None:
            process.kill()


async def ask_claude(programs: Path, base: str, folder: Path, model: str) -> str:
    options = ["--model", model, "--output-format", "text", "--dangerously-skip-permissions"]
    environment = {"ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": KEY, "IS_SANDBOX": "1"}
    environment |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1"}
    return await run([str(programs / "claude"), "-p", ASKED, *options], folder, **environment)


async def ask_codex(programs: Path, base: str, folder: Path, model: str) -> str:
    provider = f'model_providers.penstock={{name="Penstock",base_url="{base}/v1",env_key="OPENAI_API_KEY",wire_api="responses"}}'
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", model]
    options += ["-c", 'model_provider="penstock"', "-c", provider]
    return await run([str(programs / "codex"), "exec", *options, ASKED], folder, OPENAI_API_KEY="sk-any")


async def try_agent(programs: Path, folder: Path, model: str) -> None:
    """Run an agent against its vendor, and then through the default chain."""
    is_claude = model.startswith("claude-")
    server: Any = ClaudeServer() if is_claude else CodexServer()
    wire: Any
    wire, ask = (MessagesAgent, ask_claude) if is_claude else (ResponsesAgent, ask_codex)
    async with serving(server.answer) as server.url:
        said = await ask(programs, server.url, folder / f"{model}-direct", model)
        direct, requests = wire(server, model).cost, len(server.usages)
        wire.forget(server)
        async with proxy(filled(CONFIG, url=server.url), folder) as base:
            said += await ask(programs, base, folder / f"{model}-proxied", model)
    figures = {"requests_direct": requests, "requests": len(server.usages), "refused": len(server.refused)}
    figures |= {"reasoning_lost": getattr(server, "lost", 0), "cost": round(wire(server, model).cost / direct, 3)}
    print(json.dumps({"agent": ask.__name__, "model": model, "finished": said.count("All is read.") >= 2, **figures}))


async def try_local(programs: Path, folder: Path) -> None:
    for name, ask in (("Claude Code", ask_claude), ("Codex", ask_codex)):
        model = LocalModel()
        async with upstream() as behind:
            behind.respond = model.respond
            config = LOCAL.format(url=behind.url, chains=CHAINS.rstrip())
            (folder / name).mkdir()
            async with proxy(config, folder / name) as base:
                said = await ask(
                    programs, base, folder / f"{name}-local", "gpt-5.6" if name == "Codex" else "qwen3-coder"
                )
        told = {"finished": "All is read." in said, "requests": model.asked, "refused": model.refused}
        print(json.dumps({"agent": name, "model": "local", **told, "megabytes": round(model.characters / 1e6, 2)}))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--programs", type=Path, required=True, help="the folder that has claude and codex")
    programs = parser.parse_args().programs.resolve()
    vars(stand_in)["check"] = check
    with tempfile.TemporaryDirectory() as folder:
        for model in ("claude-opus-5", "claude-opus-5-5", "gpt-5.6"):
            await try_agent(programs, Path(folder), model)
        await try_local(programs, Path(folder))


if __name__ == "__main__":
    asyncio.run(main())
