"""What is saved of served requests, and what is not."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.chat.errors import ConfigError
from proxy.gateway.saving import Saving
from proxy.server.replay.reading import read, request_of
from tests.e2e.servers import Received, Upstream, answering, proxy, send, streaming, upstream

CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}"}}}}
models: [{{match: guarded, upstream: main, chain: guarded}}, {{match: "*", upstream: main, chain: empty}}]
chains:
  guarded: [tests.examples.redact_emails: {{}}]
  empty: []
state: {{kind: memory}}
embedding: {{kind: none}}
telemetry: {{log_level: error}}
"""


async def saved(folder: Path, body: bytes, *patterns: str, **headers: str) -> list[dict[str, Any]]:
    path = folder / "saved.jsonl"
    async with upstream() as behind, aiohttp.ClientSession() as http:
        config = CONFIG.format(url=behind.url)
        async with proxy(config, folder, saving=Saving(path, patterns)) as base:
            given = {"content-type": "application/json", **headers}
            async with http.post(f"{base}/v1/chat/completions", data=body, headers=given) as response:
                await response.read()
    assert path.stat().st_mode & 0o777 == 0o600
    return [json.loads(line) for line in path.read_text().splitlines()]


def request(model: str, text: str, **more: Any) -> bytes:
    return json.dumps({"model": model, "messages": [{"role": "user", "content": text}], **more}).encode()


async def test_a_request_is_saved_with_what_the_upstream_reported(tmp_path: Path) -> None:
    (row,) = await saved(tmp_path, request("m", "Hi", temperature=0.5), authorization="Bearer sk-secret")
    assert row["request"] == {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0.5}
    assert row["usage"] == {"prompt_tokens": 9, "completion_tokens": 2}
    assert "sent" not in row
    (talk,) = read(tmp_path / "saved.jsonl")
    assert talk.points[0].usage is not None


async def test_no_name_and_no_key_is_saved(tmp_path: Path) -> None:
    names = {"x-penstock-session": "trip-of-ann", "x-penstock-user": "ann-lee", "authorization": "Bearer sk-secret"}
    (row,) = await saved(tmp_path, request("m", "Hi", user="ann-lee", metadata={"who": "ann-lee"}), **names)
    text = json.dumps(row)
    assert not [each for each in ("ann-lee", "trip-of-ann", "sk-secret") if each in text]
    assert set(row["headers"]) == {"x-penstock-session", "x-penstock-user"}


async def test_what_a_guard_took_out_is_not_saved(tmp_path: Path) -> None:
    (row,) = await saved(tmp_path, request("guarded", "Write to ann@example.com"))
    assert "ann@example.com" not in json.dumps(row)


async def test_what_matches_a_pattern_is_not_saved(tmp_path: Path) -> None:
    (row,) = await saved(tmp_path, request("m", "My card is 4111 1111, PIN 77"), r"\d{4} \d{4}", "PIN .*")
    assert row["request"]["messages"][0]["content"] == "My card is [redacted], [redacted]"


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "named", [{"previous_response_id": "resp_1"}, {"conversation": {"id": "conv_1"}}], ids=["by answer", "by name"]
)
async def test_a_conversation_that_the_vendor_stores_is_saved_whole(
    tmp_path: Path, named: dict[str, Any], streamed: bool
) -> None:
    said = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Bob, PIN 77"}]}]
    response = {"id": "resp_1", "output": said, "usage": {"input_tokens": 9, "output_tokens": 2}}
    event = f"data: {json.dumps({'type': 'response.completed', 'response': response})}\n\n"
    body = event.encode() if streamed else json.dumps(response).encode()
    path = tmp_path / "saved.jsonl"
    async with upstream() as behind, aiohttp.ClientSession() as http:
        behind.respond = (streaming if streamed else answering)(body)
        async with proxy(CONFIG.format(url=behind.url), tmp_path, saving=Saving(path, ["PIN .*"])) as base:
            for text in ("Who called?", "When?"):
                more = named if text == "When?" or "conversation" in named else {}
                asked = {"model": "m", "input": text, "stream": streamed, **more}
                async with http.post(f"{base}/v1/responses", json=asked) as answer:
                    await answer.read()
    points = [point for talk in read(path) for point in talk.points]
    texts = [message.text for message in request_of(points[1].body).messages]
    assert texts == ["Who called?", "Bob, [redacted]", "When?"]
    assert points[1].usage is not None


async def test_a_body_with_line_breaks_is_one_line(tmp_path: Path) -> None:
    body = b'{\n "model": "m",\n "messages": [\n  {"role": "user", "content": "a\\nb"}\n ]\n}'
    (row,) = await saved(tmp_path, body)
    assert row["request"]["messages"][0]["content"] == "a\nb"


async def test_a_request_that_failed_is_not_saved(tmp_path: Path) -> None:
    async def broken(behind: Upstream, received: Received, writer: Any) -> None:
        await send(writer, 400, b'{"error": {"message": "no", "type": "invalid_request_error"}}')

    path = tmp_path / "saved.jsonl"
    async with upstream() as behind, aiohttp.ClientSession() as http:
        behind.respond = broken
        async with (
            proxy(CONFIG.format(url=behind.url), tmp_path, saving=Saving(path)) as base,
            http.post(f"{base}/v1/chat/completions", data=request("m", "Hi")) as response,
        ):
            assert response.status == 400
    assert path.read_text() == ""


def test_a_wrong_pattern_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no pattern"):
        Saving(tmp_path / "saved.jsonl", ["("])
