"""Conversations are found by words, have a title, and leave as files that other programs read."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from proxy.chat.parse import Body
from proxy.config.keys_file import hash_of
from proxy.server.replay.reading import read
from tests.e2e.conftest import Answer, Lab
from tests.e2e.servers import answering
from tests.e2e.test_wires import ANSWERS, CONFIG, KINDS, request_body

KEYED = f"server: {{admin_key: adm}}\nauth: {{kind: keys, keys: [{{name: ann, hash: {hash_of('pk-ann')}}}]}}\n"


class Conversations:
    """A proxy with a conversation in each of some sessions."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    async def start(self, kind: type[Body], *, text: bool = True, **sessions: str) -> None:
        """Send one request in each session, with a question."""
        config = KEYED + CONFIG.replace("text: true", f"text: {text}".lower())
        self.lab.behind.respond = answering(json.dumps(ANSWERS[kind]).encode())
        self.client = await self.lab.client(config, "adm")
        for session, question in sessions.items():
            await self.send(kind, session, question)

    async def send(self, kind: type[Body], session: str, question: str, **fields: Any) -> None:
        body, name = request_body(kind, short=True) | fields, kind.conversation[0]
        first = next(place for place, each in enumerate(body[name]) if each.get("role") == "user")
        body[name][first] = {**body[name][first], "content": question}
        answer = await self.client.post(f"/v1{kind.path}", body, {"x-penstock-session": session}, key="pk-ann")
        assert answer.status == 200, answer

    async def listed(self, query: str = "") -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = (await self.client.get(f"/admin/conversations{query}")).json["conversations"]
        return listed

    async def export(self, kind: str, path: str = "{id}/export?format=", **wanted: Any) -> Answer:
        """The export of the conversation with these properties."""
        id = next(each["id"] for each in await self.listed() if wanted.items() <= each.items())
        return await self.client.get(f"/admin/conversations/{path.format(id=id)}{kind}")


@pytest.fixture
def conversations(lab: Lab) -> Conversations:
    return Conversations(lab)


@KINDS
async def test_the_users_first_words_are_the_title(conversations: Conversations, kind: type[Body]) -> None:
    await conversations.start(kind, one="  Why is\nthe printer " + "so slow " * 40)
    (listed,) = await conversations.listed()
    assert listed["title"] == ("Why is the printer " + "so slow " * 40)[:80]
    assert listed["keys"] == ["ann"]


async def test_without_text_there_is_no_title(conversations: Conversations) -> None:
    await conversations.start(Body, text=False, one="A secret")
    assert [each["title"] for each in await conversations.listed()] == [None]
    assert (await conversations.export("jsonl")).status == 403


async def test_words_find_conversations_by_names_titles_and_texts(conversations: Conversations) -> None:
    slow, toner = "Why is it slow?", "Who sells toner?"
    await conversations.start(Body, a=slow, b=toner)
    for words, titles in (
        ("SLOW", {slow}), ("toner", {toner}), ("ann", {slow, toner}), ("u12@EXAMPLE", {slow, toner}), ("%25", set()),
        ("gpt-4.1", {slow, toner}),
    ):  # fmt: skip
        assert {each["title"] for each in await conversations.listed(f"?words={words}")} == titles


@KINDS
async def test_an_export_is_replayed_as_it_was(conversations: Conversations, kind: type[Body], tmp_path: Path) -> None:
    await conversations.start(kind, one="Why is it slow?")
    answer, path = await conversations.export("jsonl"), tmp_path / "export.jsonl"
    assert answer.status == 200, answer
    path.write_bytes(answer.body)
    (replayed,) = read(path)
    (point,) = replayed.points
    assert "Why is it slow?" in json.dumps(point.body)
    assert point.answer is not None
    assert point.answer["content"] == "Done."
    assert point.usage is not None
    assert (point.usage.input, point.usage.cached) == (3000, None if kind is Body else 0)


async def test_costs_are_a_table_in_which_no_cell_is_a_formula(conversations: Conversations) -> None:
    await conversations.start(Body, text=False, one="Hi")
    await conversations.send(Body, "two", "Hi", model="=1+1")
    table = await conversations.export("csv", models=["gpt-4.1"])
    (row,) = csv.DictReader(io.StringIO(table.body.decode()))
    assert table.headers["content-type"].startswith("text/csv")
    assert (row["key"], row["input_tokens"], row["output_tokens"]) == ("ann", "3000", "7")
    assert b",'=1+1," in (await conversations.export("csv", models=["=1+1"])).body


@pytest.mark.parametrize(("path", "status"), [("nothing/export?format=csv", 404), ("{id}/export?format=pdf", 400)])
async def test_what_cannot_be_exported_is_told(conversations: Conversations, path: str, status: int) -> None:
    await conversations.start(Body, one="Hi")
    answer = await conversations.export("", path)
    assert (answer.status, {*answer.json}) == (status, {"error"})
