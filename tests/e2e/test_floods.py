"""Bodies that are costly to read, compressed ones, and texts that hold half a surrogate pair, over real sockets."""

import asyncio
import gzip
import io
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from backports import zstd

from proxy.chat.parse import Body
from tests.e2e.conftest import Answer, Client, Lab
from tests.e2e.default_chain import config

PATH = "/v1/chat/completions"
AROUND = {"x-penstock-bypass": "true"}


async def started(lab: Lab, more: str = "embedding: {kind: none}", server: str = "") -> Client:
    text = config(lab.behind.url, lab.folder / "state", more)
    return await lab.client(text.replace("\nserver:\n", f"\nserver:\n{server}"))


async def ask(client: Client, body: bytes, path: str = PATH, **headers: str) -> Answer:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.send("POST", path, names, data=io.BytesIO(body))


async def test_a_body_that_holds_too_much_is_refused(lab: Lab) -> None:
    many: dict[str, Any] = {f"k{n}": 1 for n in range(50_000)}
    client = await started(lab)
    assert (await client.chat(**many)).refusal == (413, "too_many_values")
    assert lab.behind.received == []


async def test_half_a_surrogate_pair_passes(lab: Lab) -> None:
    client = await started(lab)
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "\ud604\ud99c x"},
    ]
    body = json.dumps({"model": "gpt-4o", "messages": messages, "input": "\udc00"}).encode()
    for path, headers in ((PATH, AROUND), (PATH, {}), ("/v1/responses", {})):
        assert (await ask(client, body, path, **headers)).status == 200
        assert lab.behind.last.body == body


async def test_a_compressed_body_reaches_the_upstream_decoded(lab: Lab) -> None:
    client = await started(lab)
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    for coding, compress in (("gzip", gzip.compress), ("zstd", zstd.compress)):
        answer = await ask(client, compress(body), content_encoding=coding)
        assert (answer.status, lab.behind.last.body) == (200, body)
        assert lab.behind.last.header("content-encoding") is None
        answer = await ask(client, compress(bytes(40 * 2**20)), content_encoding=coding)
        assert answer.refusal == (413, "request_too_large")
    assert len(lab.behind.received) == 2


async def test_bodies_of_waiting_requests_are_bounded(lab: Lab) -> None:
    client = await started(lab, "embedding: {kind: none}\nlimits: {bodies_mib: 1}", "  max_body_mib: 0.5\n")
    answered = asyncio.Event()
    usual = lab.behind.respond

    async def later(*arguments: Any) -> None:
        await answered.wait()
        await usual(*arguments)

    lab.behind.respond = later
    body = b'{"model":"m","messages":[{"role":"user","content":"' + b"A" * 400_000 + b'"}]}'
    waiting = [asyncio.create_task(ask(client, body, **AROUND)) for _ in range(4)]
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert {each.result().status for each in done} == {503}
    answered.set()
    assert {(await each).status for each in waiting} == {200, 503}
    assert (await ask(client, body, **AROUND)).status == 200, "what is over counts no longer"


async def test_a_large_body_is_read_in_a_thread(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, bool]] = []
    loop = threading.get_ident()

    def noted(name: str) -> Callable[..., Any]:
        real = getattr(Body, name)

        def note(*arguments: Any, **options: Any) -> Any:
            seen.append((name, threading.get_ident() == loop))
            return real(*arguments, **options)

        return note

    client = await started(lab)
    for name in ("__init__", "parse"):
        monkeypatch.setattr(Body, name, noted(name))
    said = [{"role": "user", "content": "word " * 120_000}, {"role": "assistant", "content": "Ok."}]
    said.append({"role": "user", "content": "And?"})
    await client.chat(messages=said)
    assert seen == [("__init__", False), ("parse", False)]
    seen.clear()
    await client.chat(messages=said[1:])
    assert seen == [("__init__", True), ("parse", True)]


async def test_calls_and_results_without_an_id_are_the_upstreams_to_judge(lab: Lab) -> None:
    client = await started(lab)
    call = {"type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "word " * 9000},
        {"role": "assistant", "content": None, "tool_calls": [call, call]},
        {"role": "tool", "content": "one"},
        {"role": "tool", "content": "two"},
        {"role": "user", "content": "And?"},
    ]
    assert [(await client.chat(messages=messages, headers=each)).status for each in (AROUND, {})] == [200, 200]
