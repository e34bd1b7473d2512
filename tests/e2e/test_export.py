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
from tests.e2e.conftest import Lab
from tests.e2e.servers import answering
from tests.e2e.test_wires import ANSWERS, CONFIG, KINDS, request_body

ADMIN = {"authorization": "Bearer adm"}
KEYED = (
    f"server: {{{{admin_key: adm}}}}\nauth: {{{{kind: keys, keys: [{{{{name: ann, hash: {hash_of('pk-ann')}}}}}]}}}}\n"
)


class Conversations:
    """A proxy with a conversation in each of some sessions."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    async def start(self, kind: type[Body], *, text: bool = True, **sessions: str) -> None:
        """Send one request in each session, with a question."""
        lab = self.lab
        lab.behind.respond = answering(json.dumps(ANSWERS[kind]).encode())
        config = KEYED + CONFIG.replace('"{url}"}}', '"{url}", api_key: k}}').replace(
            "text: true", f"text: {text}".lower()
        )
        self.base = await lab.start(config.format(url=lab.behind.url))
        for session, question in sessions.items():
            body = request_body(kind, short=True)
            name = kind.conversation[0]
            first = next(place for place, each in enumerate(body[name]) if each.get("role") == "user")
            body[name][first] = {**body[name][first], "content": question}
            headers = {"authorization": "Bearer pk-ann", "x-penstock-session": session}
            async with lab.http.post(f"{self.base}/v1{kind.path}", json=body, headers=headers) as response:
                assert response.status == 200, await response.text()

    async def get(self, path: str) -> tuple[int, str, bytes]:
        async with self.lab.http.get(f"{self.base}/admin/{path}", headers=ADMIN) as response:
            return response.status, response.headers["content-type"], await response.read()

    async def listed(self, query: str = "") -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = json.loads((await self.get(f"conversations{query}"))[2])["conversations"]
        return listed


@pytest.fixture
def conversations(lab: Lab) -> Conversations:
    return Conversations(lab)


@KINDS
async def test_a_conversation_has_the_users_first_words_as_its_title(
    conversations: Conversations, kind: type[Body]
) -> None:
    await conversations.start(kind, one="  Why is\nthe printer " + "so slow " * 40)
    (listed,) = await conversations.listed()
    assert listed["title"].startswith("Why is the printer so slow so slow")
    assert len(listed["title"]) == 80
    assert listed["keys"] == ["ann"]


async def test_without_text_there_is_no_title(conversations: Conversations) -> None:
    await conversations.start(Body, text=False, one="A secret")
    assert (await conversations.listed())[0]["title"] is None
    id = (await conversations.listed())[0]["id"]
    assert (await conversations.get(f"conversations/{id}/export?format=jsonl"))[0] == 403


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
    (listed,) = await conversations.listed()
    status, _, content = await conversations.get(f"conversations/{listed['id']}/export?format=jsonl")
    assert status == 200, content
    path = tmp_path / "export.jsonl"
    path.write_bytes(content)
    (replayed,) = read(path)
    (point,) = replayed.points
    assert "Why is it slow?" in json.dumps(point.body)
    assert point.answer is not None
    assert point.answer["content"] == "Done."
    assert point.usage is not None
    assert (point.usage.input, point.usage.cached) == (3000, None if kind is Body else 0)


async def test_costs_are_a_table(conversations: Conversations) -> None:
    await conversations.start(Body, text=False, one="Hi")
    (listed,) = await conversations.listed()
    _, media, table = await conversations.get(f"conversations/{listed['id']}/export?format=csv")
    (row,) = csv.DictReader(io.StringIO(table.decode()))
    assert media.startswith("text/csv")
    assert (row["key"], row["input_tokens"], row["output_tokens"]) == ("ann", "3000", "7")


async def test_a_cell_is_no_formula(conversations: Conversations) -> None:
    await conversations.start(Body, one="Hi")
    body = {**request_body(Body, short=True), "model": "=1+1"}
    headers = {"authorization": "Bearer pk-ann", "x-penstock-session": "two"}
    async with conversations.lab.http.post(f"{conversations.base}/v1/chat/completions", json=body, headers=headers):
        pass
    listed = next(each for each in await conversations.listed() if each["models"] == ["=1+1"])
    table = (await conversations.get(f"conversations/{listed['id']}/export?format=csv"))[2]
    assert b",'=1+1," in table


@pytest.mark.parametrize(("path", "status"), [("nothing/export?format=csv", 404), ("{id}/export?format=pdf", 400)])
async def test_what_cannot_be_exported_is_told(conversations: Conversations, path: str, status: int) -> None:
    await conversations.start(Body, one="Hi")
    (listed,) = await conversations.listed()
    told = await conversations.get(f"conversations/{path.format(id=listed['id'])}")
    assert told[0] == status
    assert b'"error"' in told[2]
