import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.chat import Message
from proxy.compaction.pieces import LONGEST_LINE
from proxy.context import Identity
from proxy.state.archive import Archives
from proxy.state.sqlite import SqliteStore
from proxy.testing import MemoryArchive
from proxy.tools.recall import DEFINITION, MOST_SEARCHED, Recall
from proxy.tools.slicing import LONGEST, lines_of, readable
from tests.talk import assistant, calls, result, user

TEXT = "alpha\nbeta error 7\ngamma\ndelta ERROR 8\nepsilon (x"
ORDERS = '{"orders": [{"id": "A1", "total": 5}, {"id": "B2", "total": 50}], "note": "two\\nlines", "none": null}'
MESSAGES = [
    user("Which gate?\nAnd when?"),
    calls("c", name="gate", arguments='{"f":"IB1"}'),
    result('gate "K7"', "c"),
    assistant([{"type": "text", "text": "Gate K7."}]),
]
HISTORY = "\n".join(message.raw.decode() for message in MESSAGES)
READ = '1: user: Which gate?\n2: And when?\n3: assistant: [calls gate({"f":"IB1"})]\n4: tool: gate "K7"\n5: assistant: Gate K7.'


async def ask(content: str, **asked: Any) -> str:
    archive = MemoryArchive()
    return await Recall(archive).run(json.dumps({"handle": await archive.keep(content), **asked}))


@pytest.mark.parametrize(("asked", "answer"), [
    pytest.param({}, TEXT, id="the whole"),
    pytest.param({"pattern": "error"}, "2: beta error 7\n4: delta ERROR 8", id="the lines with a word"),
    pytest.param({"pattern": "(x"}, "5: epsilon (x", id="what is no expression is literal"),
    pytest.param({"pattern": "(?R)"}, "No line of the 5 fits.", id="nor is one that calls itself"),
    pytest.param({"first_line": 2, "last_line": 3}, "2: beta error 7\n3: gamma", id="a range of lines"),
    pytest.param({"first_line": 3, "pattern": "error"}, "4: delta ERROR 8", id="both"),
    pytest.param({"first_line": 5, "last_line": 99}, "5: epsilon (x", id="from a line on"),
    pytest.param({"first_line": "5"}, "5: epsilon (x", id="a number as digits"),
    pytest.param({"first_line": 6}, "No line of the 5 fits.", id="behind the end"),
    pytest.param({"query": "", "pattern": "", "path": None, "first_line": 0, "last_line": -1}, TEXT, id="empty is not asked"),
    pytest.param({"query": "gamma deltas"}, "of 5 lines:\n1: alpha\n", id="words within a text"),
    pytest.param({"query": "zeta"}, "No line has these words", id="words that are not there"),
    pytest.param({"first_line": "x"}, "first_line must be a whole number", id="no number"),
    pytest.param({"last_line": True}, "last_line must be a whole number", id="no number either"),
    pytest.param({"first_line": 3, "last_line": 2}, "last_line must not be before first_line", id="backwards"),
    pytest.param({"pattern": 5}, "pattern must be text", id="no text"),
    pytest.param({"pattern": "x" * 501}, "[The pattern is longer than 500 characters", id="a long pattern"),
    pytest.param({"path": "a"}, "The text is not JSON: use pattern", id="no JSON"),
])  # fmt: skip
async def test_a_part_of_what_was_kept(asked: Mapping[str, Any], answer: str) -> None:
    assert answer in await ask(TEXT, **asked)


@pytest.mark.parametrize(("path", "answer"), [
    pytest.param("orders[?total > `10`].id", '"B2"', id="a filter"),
    pytest.param("orders", '{"id": "A1", "total": 5}\n{"id": "B2", "total": 50}', id="an item on each line"),
    pytest.param("note", "two\nlines", id="a text as it is"),
    pytest.param("length(orders)", "2", id="a function"),
    pytest.param("join('-', orders[].id)", "A1-B2", id="joined"),
    pytest.param("ordrs", "Nothing is at this path. The JSON is an object with the keys orders, note", id="a guess"),
    pytest.param("orders[", "The path is no JMESPath", id="no path"),
    pytest.param("abs(note)", "The path fails", id="a wrong type"),
    pytest.param("orders[::0]", "The path fails", id="a step of nothing"),
    pytest.param("a" * 501, "The path is longer than 500 characters", id="a long path"),
    pytest.param("(" * 400, "The path is no JMESPath", id="a deep path"),
])  # fmt: skip
async def test_a_path_into_json(path: str, answer: str) -> None:
    assert (await ask(ORDERS, path=path)).startswith(answer)


async def test_lines_and_patterns_apply_to_what_a_path_gives() -> None:
    assert await ask(ORDERS, path="orders", pattern="b2") == '2: {"id": "B2", "total": 50}'


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        pytest.param({"first_line": 1}, READ, id="by lines"),
        pytest.param({}, "user: Which gate?", id="the whole"),
        pytest.param({"pattern": "k7"}, '4: tool: gate "K7"\n5: assistant: Gate K7.', id="by pattern"),
        pytest.param({"path": "[?role=='tool'].content"}, '"gate \\"K7\\""', id="by path"),
    ],
)
async def test_messages_that_left_are_read_as_who_said_what(asked: Mapping[str, Any], answer: str) -> None:
    assert (await ask(HISTORY, **asked)).startswith(answer)


@pytest.mark.parametrize(
    "content",
    ['{"role": "admin", "name": "x"}', '{"role": "user"}', '{"role": "user", "content": "x"}\n5', "{", '{"a": 1}'],
)
def test_what_is_no_history_is_shown_as_it_is(content: str) -> None:
    assert readable(content) == content


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        pytest.param("{", "Give a handle as it stands", id="no JSON"),
        pytest.param("[" * 100_000, "Give a handle as it stands", id="too deep"),
        pytest.param("[]", "Give a handle", id="no object"),
        pytest.param("", "Give a handle", id="nothing"),
        pytest.param('{"handle": 5}', "handle must be text", id="no text"),
        pytest.param('{"first_line": 5}', "Give a handle", id="a line of what?"),
        pytest.param('{"handle": "nope"}', "Nothing is kept under this handle", id="an unknown handle"),
        pytest.param('{"query": "x"}', "Nothing has left this conversation yet", id="nothing to search"),
    ],
)
async def test_every_mistake_is_answered_in_words(arguments: str, answer: str) -> None:
    assert (await Recall(MemoryArchive()).run(arguments)).startswith(answer)


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(st.text(max_size=300), st.sampled_from([TEXT, ORDERS, HISTORY])),
    st.fixed_dictionaries(
        {},
        optional={
            name: st.one_of(st.none(), st.integers(-3, 9), st.text(max_size=12), st.sampled_from(["[].a", "a|b", ".*"]))
            for name in ("query", "pattern", "path", "first_line", "last_line")
        },
    ),
)
def test_whatever_is_asked_there_is_a_bounded_answer(content: str, asked: Mapping[str, Any]) -> None:
    answer = asyncio.run(ask(content, **asked))
    assert answer or not content
    assert len(answer) < LONGEST + 200


async def test_a_query_searches_all_that_left() -> None:
    archive = MemoryArchive()
    filler = "\n".join(f"row {number}: nothing to see" for number in range(200))
    first = await archive.keep(f"{filler}\nthe refund policies allow ninety days\n{filler}")
    second = await archive.keep(HISTORY)
    answer = await Recall(archive).run('{"query": "refund policy"}')
    assert f'recall("{first}"), of 401 lines:' in answer
    assert "201: the refund policies allow ninety days" in answer
    assert f"{second}" not in answer
    assert '4: tool: gate "K7"' in await Recall(archive).run('{"pattern": "gate.*k7"}'), "a pattern alone is words"
    assert (await Recall(archive).run('{"query": "zeppelin"}')) == "No text has these words: try others."


async def test_a_handle_may_stand_as_the_conversation_has_it_and_a_passage_is_shown_once() -> None:
    archive = MemoryArchive()
    handle = await archive.keep(TEXT)
    assert await Recall(archive).run(json.dumps({"handle": f'recall("{handle}")'})) == TEXT
    archive = MemoryArchive()
    for number in range(3):
        await archive.keep("the code word is tangerine" + "\n" * number)
    assert (await Recall(archive).run('{"query": "tangerine"}')).count("tangerine") == 1


@pytest.mark.parametrize("asked", [{"handle": "a" * 20}, {"query": "gate"}])
async def test_what_cannot_be_read_now_is_not_said_to_be_gone(asked: Mapping[str, str]) -> None:
    store = SqliteStore(None, 2**20)
    await store.aclose()
    told = await Recall(Archives(store).bind(Identity("t", "named-s"))).run(json.dumps(asked))
    assert "cannot be read right now" in told
    assert "Do not" not in told


async def test_a_query_says_when_it_did_not_search_everything_and_how_to_go_on() -> None:
    archive = MemoryArchive()
    await archive.keep("tangerine " + "x" * MOST_SEARCHED)
    await archive.keep("tangerine")
    answer = await Recall(archive).run('{"query": "tangerine"}')
    assert "1: tangerine\n[not all was searched, but 1 text:" in answer
    text = "\n".join(f"line {number} of a long text" for number in range(1, 2001))
    answer = await ask(text)
    assert len(answer) < LONGEST + 100
    *shown, last = answer.splitlines()
    assert last == f"[there is more: go on with first_line={len(shown) + 1}; there are 2000 lines]"
    following = await ask(text, first_line=len(shown) + 1)
    assert following.startswith(f"{len(shown) + 1}: line {len(shown) + 1} of")
    text = "x" * 49_995 + " tail"
    assert (await ask(text, pattern="tail")).startswith("50: xx")
    assert (await ask(text, first_line=50)).endswith("x tail")
    assert max(map(len, lines_of(text))) == LONGEST_LINE


@pytest.mark.parametrize(("content", "asked", "answer"), [
    pytest.param("a" * 900, {"pattern": "((a{1,999}){1,999}){1,999}b"}, "takes too long", id="a slow pattern"),
    pytest.param("ok\n" + "a" * 900, {"pattern": "ok|((a{1,999}){1,999}){1,999}b"}, "1: ok\n[The", id="hits stay"),
    pytest.param("[[1]]", {"path": "[@,@][]|" * 60 + "@"}, "makes too much", id="doubling"),
    pytest.param("[[1]]", {"path": "[@,@]|" * 80 + "to_string(@)"}, "makes too much", id="doubling by sharing"),
    pytest.param(json.dumps({"s": "x" * 2**20, "l": ["a"] * 1000}), {"path": "join(s, l)"}, "makes too much", id="joining"),
    pytest.param("[" * 900 + "]" * 900, {"path": "[]" * 100}, "", id="deep"),
    pytest.param("[" * 100_000, {"path": "a"}, "not JSON", id="deeper"),
])  # fmt: skip
async def test_hostile_requests_end(content: str, asked: Mapping[str, Any], answer: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("proxy.tools.slicing.SECONDS", 0.2 if "pattern" in asked else 60.0)
    monkeypatch.setattr("proxy.tools.json_path._BUDGET", 10_000)
    assert answer in await ask(content, **asked)


async def test_the_loop_turns_while_a_pattern_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.tools.slicing.SECONDS", 0.3)
    searching = asyncio.ensure_future(ask("a" * 900, pattern="((a{1,999}){1,999}){1,999}b"))
    turns = 0
    while not searching.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 10
    assert "takes too long" in searching.result()


def test_the_definition_stays_short_and_the_same() -> None:
    assert len(DEFINITION.raw) < 440
    assert DEFINITION.raw is DEFINITION.raw


@pytest.mark.parametrize(
    ("query", "first"),
    [
        pytest.param("needle in big0", "big0", id="the name of a file"),
        pytest.param("aguja needle big2.txt", "big2", id="with its ending"),
        pytest.param("the needle is sharp", "big1", id="the text alone"),
    ],
)
async def test_a_search_weighs_where_a_text_came_from(query: str, first: str) -> None:
    texts = {"big0": "hay\n" * 90 + "a needle\n" + "hay\n" * 90, "big1": "needle sharp needle", "big2": "needle needle"}
    messages = list[Message]()
    for name, content in texts.items():
        messages += [calls(name, name="read_file", arguments=f'{{"path":"{name}.txt"}}'), result(content, name)]
    archive = MemoryArchive()
    handles = {name: await archive.keep(content) for name, content in texts.items()}
    answer = await Recall(archive, messages=messages).run(json.dumps({"query": query}))
    assert answer.startswith(f'recall("{handles[first]}"), from read_file({{"path":"{first}.txt"}}), of ')


@pytest.mark.parametrize("asked", [{}, {"query": "word 7"}, {"pattern": "word"}])
async def test_an_answer_fits_beside_the_prompt(asked: Mapping[str, Any]) -> None:
    archive = MemoryArchive()
    handle = await archive.keep("\n".join(f"word {n} " * 30 for n in range(900)))
    answer = await Recall(archive, longest=2000).run(json.dumps({"handle": handle, **asked}))
    assert len(answer) < 2200
