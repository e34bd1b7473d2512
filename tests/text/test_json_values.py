"""JSON documents among the lines of a text."""

import json
from typing import Any

import pytest

from proxy.text import json_values
from proxy.text.json_values import documents

TABLE = json.dumps([{"id": n, "name": f"n{n}"} for n in range(300)], indent=2)


@pytest.mark.parametrize("before", ["[INFO] starts", "{", "[1,", '{"a":', "[ x", '{"a": "b', "[-", "[1] tail", "plain"])
@pytest.mark.parametrize("document", [TABLE, '{"a":1}', "[\n]", '[\n"a", \n2]'])
def test_documents_are_found_behind_lines_that_begin_like_one(before: str, document: str) -> None:
    text = f"{before}\nand\n{document}\nafter"
    start = text.index(document)
    assert [(begin, end) for begin, end, _ in documents(text)] == [(start, start + len(document))]


@pytest.mark.parametrize("line", ["[INFO] starts", "{", "[… 3 lines as above; from a to b]", '{"a": 1} 2', "[1,2"])
def test_of_lines_that_begin_like_a_document_only_the_first_are_read(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error counts all lines of what was read: in a log they would be counted anew for each line."""
    read: list[int] = []

    class Reader(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
            read.append(len(s))
            return super().raw_decode(s, idx)

    monkeypatch.setattr(json_values, "_READERS", {True: Reader()})
    assert not [*documents(f"{line}\n" * 5000)]
    assert read
    assert max(read) <= 1100
