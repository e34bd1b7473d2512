import json
from typing import Any

import pytest

from proxy.recall import LONGEST, Recall
from proxy.testing import MemoryArchive

TEXT = "alpha\nbeta error 7\ngamma\ndelta ERROR 8\nepsilon"


@pytest.fixture
async def recall() -> tuple[Recall, str]:
    archive = MemoryArchive()
    handle = await archive.keep(TEXT)
    assert handle is not None
    return Recall(archive), handle


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        pytest.param({}, TEXT, id="the whole"),
        pytest.param({"contains": "error"}, "2: beta error 7\n4: delta ERROR 8", id="the lines with a word"),
        pytest.param({"first_line": 2, "last_line": 3}, "2: beta error 7\n3: gamma", id="a range of lines"),
        pytest.param({"first_line": 3, "contains": "error"}, "4: delta ERROR 8", id="both"),
        pytest.param({"first_line": 5}, "5: epsilon", id="from a line on"),
        pytest.param({"contains": "nowhere"}, "No line of the 5 fits.", id="no line"),
        pytest.param({"first_line": "x", "last_line": [], "contains": 5}, TEXT, id="nonsense is left out"),
    ],
)
async def test_a_part_of_what_was_kept(recall: tuple[Recall, str], asked: dict[str, Any], answer: str) -> None:
    tool, handle = recall
    assert await tool.run(json.dumps({"handle": handle, **asked})) == answer


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        pytest.param("{", "The arguments are not valid JSON.", id="no JSON"),
        pytest.param("[" * 100_000, "The arguments are not valid JSON.", id="too deep"),
        pytest.param("[]", "A handle is needed", id="no object"),
        pytest.param("", "A handle is needed", id="nothing"),
        pytest.param('{"handle": 5}', "A handle is needed", id="no text"),
        pytest.param('{"handle": "nope"}', "Nothing is kept under this handle", id="an unknown handle"),
    ],
)
async def test_every_mistake_is_answered_in_words(recall: tuple[Recall, str], arguments: str, answer: str) -> None:
    assert (await recall[0].run(arguments)).startswith(answer)


async def test_an_answer_is_bounded() -> None:
    archive = MemoryArchive()
    handle = await archive.keep("x" * (LONGEST + 5))
    answer = await Recall(archive).run(json.dumps({"handle": handle}))
    assert answer.startswith("x" * LONGEST + "\n[5 more characters")
