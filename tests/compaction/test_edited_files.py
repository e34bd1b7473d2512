"""Files that an agent may edit are known by the calls that name them, in whatever language the tools are named."""

import json
from dataclasses import replace
from typing import Any

import pytest

from policies.compact_tool_results import CompactToolResults
from proxy.chat import Message
from proxy.compaction.calls import names_path, reads_file
from proxy.policy import Rewrite
from proxy.testing import chat, context, message


def called(name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


@pytest.mark.parametrize(
    ("call", "reads"),
    [
        (called("read_file", path="src/a.py"), True),
        (called("read_file", path="Makefile"), True),
        (called("leer_archivo", ruta="src/a.py"), True),
        (called("读取文件", 路径="配置/.env", 行=20), True),
        (called("View", file_path="/srv/värden.toml", limit=20), True),
        (called("bash", command="cd /srv && cat conf/app.yaml | head -50"), True),
        (called("bash", command="sed -n 10,40p src/a.py"), True),
        (called("bash", command="goto 120"), True),
        (called("execute-tool", tool_name="read_text_file", params={"path": "notes.md"}), True),
        (called("read_file", path="App.swift"), True),
        (called("read_file", path="My.Users"), True),
        (called("bash", command="git show HEAD~2:src/a.py | head -80"), True),
        (called("bash", command="git -C /srv show HEAD:a.py"), False),
        (called("bash", command="git show 7f3a9c1"), False),
        (called("bash", command="sudo cat /etc/hosts"), True),
        (called("bash", command="head -40 bin/deploy"), True),
        (called("bash", command="cat LICENSE"), True),
        (called("shell", command=["cat", "bin/deploy"]), True),
        (called("bash", command="cat > src/a.py <<'EOF'\n" + "x = 1\n" * 900 + "EOF"), True),
        (called("bash", command="git log | head -n 40"), False),
        (called("search", query="open issues of the head office"), False),
        (called("list_files", path="src"), False),
        (called("query", table="public.users"), False),
        (called("find_user", email="ana@example.com"), False),
        (called("connect", host="db.internal"), False),
        (called("quote", symbol="005930.KS"), False),
        (called("bash", command="ls -la"), False),
        (called("open_page", url="https://example.com/a.html"), False),
        (called("search", query="what is read in a.py"), False),
        ({"id": "c", "function": {"name": "read_file", "arguments": "{broken"}}, False),
        ({"id": "c"}, False),
    ],
)
def test_a_call_that_reads_a_file_is_known(call: dict[str, Any], reads: bool) -> None:
    assert reads_file(call) is reads


def test_a_call_that_names_a_file_is_known() -> None:
    for path in ("src/a.py", "bin/deploy", "LICENSE", "My notes/report.md"):
        assert names_path(called("write_file", path=path, content="x"))
    assert names_path(called("create", targetFile="LICENSE", content="x"))
    assert not names_path(called("store", profile="ana", text="x"))
    assert not names_path(called("send_mail", to="ana", text="see you"))


async def sent(call: dict[str, Any], text: str) -> str:
    result = Message({"role": "tool", "tool_call_id": "c", "content": text})
    request = replace(
        chat("u1"), messages=(message("u1"), Message({"role": "assistant", "tool_calls": [call]}), result)
    )
    decision = await CompactToolResults().apply(request, context(request))
    return (decision.request if isinstance(decision, Rewrite) else request).messages[-1].text


async def test_path_without_extension_is_a_files_unless_its_result_names_files() -> None:
    read, listed = called("read", path="bin/deploy"), called("grep", path="src", pattern="x")
    script = "set -e\n" + "echo on\n" * 90
    records = json.dumps([{"name": f"m{n}.py", "type": "file", "size": n} for n in range(40)], indent=1)
    assert await sent(read, script) == script
    assert await sent(called("run", command="ls"), script) != script
    for text in (records, f"meta=None content=[TextContent(type='text', text={records!r}, annotations=None)]"):
        assert len(await sent(listed, text)) < len(records) / 2
    hits = "\n".join(f"src/m{n}.py:{n}: x" for n in range(40)) + "\n-" * 200
    assert await sent(listed, hits) != hits
