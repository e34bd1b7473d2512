"""Files that an agent may edit are known by the calls that name them, in whatever language the tools are named."""

import json
from typing import Any

import pytest

from proxy.compaction.calls import names_file, reads_file


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
        assert names_file(called("write_file", path=path, content="x"))
    assert names_file(called("create", targetFile="LICENSE", content="x"))
    assert not names_file(called("store", profile="ana", text="x"))
    assert not names_file(called("send_mail", to="ana", text="see you"))
