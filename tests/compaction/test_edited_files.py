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
    assert names_file(called("write_file", path="src/a.py", content="x"))
    assert not names_file(called("send_mail", to="ana", text="see you"))
