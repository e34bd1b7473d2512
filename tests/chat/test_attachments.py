"""The attachments of messages: their names, and those that another message may have."""

from typing import Any

import pytest

from proxy.chat import Message
from proxy.chat.attachments import attachments, label

ADDRESS = "https://x.test/plans/floor.png?v=2"


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"type": "image_url", "image_url": {"url": ADDRESS}}, "[image floor.png]"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, "[image]"),
        ({"type": "input_image", "image_url": ADDRESS}, "[image floor.png]"),
        ({"type": "image", "source": {"type": "url", "url": ADDRESS}}, "[image floor.png]"),
        ({"type": "input_file", "file_url": "https://x.test/a.pdf"}, "[file a.pdf]"),
        ({"type": "document", "title": "Lease", "source": {"type": "file", "file_id": "file_1"}}, "[document Lease]"),
        ({"type": "file", "file": {"file_id": "file-1"}}, "[file file-1]"),
        ({"type": "input_file", "file_id": "file-1", "filename": "b.pdf"}, "[file b.pdf]"),
    ],
)
def test_a_label_names_an_attachment_on_each_wire(part: dict[str, Any], named: str) -> None:
    assert label(part) == named


@pytest.mark.parametrize(("role", "count"), [("user", 3), ("tool", 1), ("assistant", 0), ("opaque", 0)])
def test_parts_that_may_stand_nowhere_else_are_no_attachments(role: str, count: int) -> None:
    kinds = ("text", "image", "tool_reference", "server_tool_use")
    parts = [{"type": kind, **({"text": "x"} if kind == "text" else {})} for kind in kinds]
    assert len(attachments(Message({"role": role, "content": parts}))) == count
