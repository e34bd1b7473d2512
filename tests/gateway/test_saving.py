"""What is saved of served requests, and what is not."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proxy.chat.errors import ConfigError
from proxy.gateway.saving import Saving
from proxy.server.replay.reading import read, request_of
from proxy.testing import chat
from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import answering, proxy, streaming

CONFIG = """
models: [{match: guarded, upstream: main, chain: guarded}, {match: "*", upstream: main, chain: empty}]
chains:
  guarded: [tests.examples.redact_emails: {}]
  empty: []
"""


@dataclass
class Session:
    """What a proxy that saves is asked, and what it saves."""

    lab: Lab

    @property
    def path(self) -> Path:
        return self.lab.folder / "saved.jsonl"

    async def ask(
        self, *bodies: bytes, path: str = "chat/completions", patterns: Sequence[str] = (), **headers: str
    ) -> int:
        """Have requests answered; the status of the last one."""
        given = {"content-type": "application/json", **headers}
        async with proxy(self.lab.config(CONFIG), self.lab.folder, saving=Saving(self.path, patterns)) as base:
            for body in bodies:
                answer = await Client(base, self.lab.http).send("POST", f"/v1/{path}", given, data=body)
        return answer.status

    async def saved(self, body: bytes, *patterns: str, **headers: str) -> Any:
        """Return what is saved of a request."""
        await self.ask(body, patterns=patterns, **headers)
        assert self.path.stat().st_mode & 0o777 == 0o600
        (line,) = self.path.read_text().splitlines()
        return json.loads(line)


@pytest.fixture
def session(lab: Lab) -> Session:
    return Session(lab)


def request(model: str, text: str, **more: Any) -> bytes:
    return json.dumps({"model": model, "messages": [{"role": "user", "content": text}], **more}).encode()


async def test_a_request_is_saved_with_what_the_upstream_reported(session: Session) -> None:
    row = await session.saved(request("m", "Hi", temperature=0.5), authorization="Bearer sk-secret")
    assert row["request"] == {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0.5}
    assert row["usage"] == {"prompt_tokens": 9, "completion_tokens": 2}
    assert "sent" not in row
    (talk,) = read(session.path)
    assert talk.points[0].usage is not None


async def test_no_name_and_no_key_is_saved(session: Session) -> None:
    names = {"x-penstock-session": "trip-of-ann", "x-penstock-user": "ann-lee", "authorization": "Bearer sk-secret"}
    row = await session.saved(request("m", "Hi", user="ann-lee", metadata={"who": "ann-lee"}), **names)
    text = json.dumps(row)
    assert not [each for each in ("ann-lee", "trip-of-ann", "sk-secret") if each in text]
    assert set(row["headers"]) == {"x-penstock-session", "x-penstock-user"}


async def test_what_a_guard_took_out_is_not_saved(session: Session) -> None:
    row = await session.saved(request("guarded", "Write to ann@example.com"))
    assert "ann@example.com" not in json.dumps(row)


async def test_what_matches_a_pattern_is_not_saved(session: Session) -> None:
    row = await session.saved(request("m", "My card is 4111 1111, PIN 77"), r"\d{4} \d{4}", "PIN .*")
    assert row["request"]["messages"][0]["content"] == "My card is [redacted], [redacted]"


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "named", [{"previous_response_id": "resp_1"}, {"conversation": {"id": "conv_1"}}], ids=["by answer", "by name"]
)
async def test_what_the_vendor_stores_is_saved_whole(session: Session, named: dict[str, Any], streamed: bool) -> None:
    said = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Bob, PIN 77"}]}]
    response = {"id": "resp_1", "output": said, "usage": {"input_tokens": 9, "output_tokens": 2}}
    event = f"data: {json.dumps({'type': 'response.completed', 'response': response})}\n\n"
    body = event.encode() if streamed else json.dumps(response).encode()
    session.lab.behind.respond = (streaming if streamed else answering)(body)
    asked = {"model": "m", "stream": streamed}
    first = {**asked, "input": "Who called?", **(named if "conversation" in named else {})}
    both = [json.dumps(each).encode() for each in (first, {**asked, "input": "When?", **named})]
    await session.ask(*both, path="responses", patterns=["PIN .*"])
    points = [point for talk in read(session.path) for point in talk.points]
    texts = [message.text for message in request_of(points[1].body).messages]
    assert texts == ["Who called?", "Bob, [redacted]", "When?"]
    assert points[1].usage is not None


async def test_a_body_with_line_breaks_is_one_line(session: Session) -> None:
    body = b'{\n "model": "m",\n "messages": [\n  {"role": "user", "content": "a\\nb"}\n ]\n}'
    row = await session.saved(body)
    assert row["request"]["messages"][0]["content"] == "a\nb"


async def test_a_request_that_failed_is_not_saved(session: Session) -> None:
    wrong = b'{"error": {"message": "no", "type": "invalid_request_error"}}'
    session.lab.behind.respond = answering(wrong, status=400)
    assert await session.ask(request("m", "Hi")) == 400
    assert session.path.read_text() == ""


@pytest.mark.parametrize("patterns", [(), ("u1",)])
def test_the_thread_leaves_what_the_loop_knows_of_the_conversation(tmp_path: Path, patterns: Sequence[str]) -> None:
    saving, request = Saving(tmp_path / "saved.jsonl", patterns), chat("s " + "ua" * 10)
    known = request.form
    saving.shown(request)
    assert request.folds.begin()._known == [known]
    assert known._whole == known._beginning == {}
    saving.close()


def test_a_wrong_pattern_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no pattern"):
        Saving(tmp_path / "saved.jsonl", ["("])
