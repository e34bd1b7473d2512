"""Files that an agent may edit are known by the calls that read them and by the tools that change them."""

import json
from typing import Any

import pytest

from proxy.chat import Tool
from proxy.compaction.calls import edits_files, names_file, reads_file


def called(name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


@pytest.mark.parametrize(
    ("name", "parameters", "edits"),
    [
        ("edit_file", {"path": "string"}, True),
        ("str_replace_based_edit_tool", {"command": "string"}, True),
        ("applyPatch", {}, True),
        ("bash", {"command": "string"}, True),
        ("change", {"old_string": "string", "new_string": "string"}, True),
        ("search", {"query": "string"}, False),
        ("credit_card", {"number": "string"}, False),
    ],
)
def test_a_tool_that_edits_is_known(name: str, parameters: dict[str, str], edits: bool) -> None:
    assert edits_files(Tool.function(name, "It does.", parameters)) is edits


def test_a_tool_of_another_form_is_known_or_no_fault() -> None:
    assert edits_files(Tool({"type": "custom", "custom": {"name": "apply_patch"}}))
    assert not edits_files(Tool({"type": "function", "function": {"name": "look", "parameters": {"properties": 1}}}))


@pytest.mark.parametrize(
    ("call", "reads"),
    [
        (called("read_file", path="src/a.py"), True),
        (called("read_file", path="Makefile"), True),
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
