"""What a connection says beside its requests: trailers, hosts, wishes for another protocol."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from functools import partial

import pytest
import pytest_asyncio

from tests.e2e.served import Served, served
from tests.e2e.servers import DEFAULT_ANSWER, Upstream, filled, said, streaming, upstream

CONFIG = """
upstreams: {main: {kind: openai, base_url: "{url}"}}
models: [{match: m, upstream: main, window: 8192}]
chains: {default: [consolidate_system: {}, window_history: {keep_turns: 1, stride: 1, summary: false}]}
vectors: none
"""
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": f"turn {n}"} for n in range(3)]}).encode()
LINE = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
SIZE = b"content-length: %d\r\n" % len(BODY)
CHAT = "POST /v1/chat/completions"
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n" % (len(BODY), BODY)
H2C = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
HANDSHAKE = b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncGenerator[Upstream, None]:
    async with upstream() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory, shared: Upstream) -> AsyncGenerator[Served, None]:
    async with served(filled(CONFIG, url=shared.url), tmp_path_factory.mktemp("shared")) as made:
        yield made


@pytest.fixture
def behind(shared: Upstream) -> Upstream:
    shared.reset()
    return shared


def asking(line: str, *headers: bytes) -> bytes:
    """A request for a chat, whatever its first line asks for."""
    head = f"{line} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n".encode()
    return head + SIZE + b"".join(headers) + b"\r\n" + BODY


@pytest.mark.parametrize("trailer", ["x-penstock-bypass: true", "authorization: Bearer sk-late", "x-late: 1"])
async def test_trailers_are_dropped(running: Served, behind: Upstream, trailer: str) -> None:
    ends = f"{trailer}\r\n\r\n".encode()
    both = await said(running.base, LINE + CHUNKED + ends, asking(CHAT, b"x-second: 1\r\n"), answers=2)
    assert [status for status, *_ in both] == [200, 200]
    first, second = behind.received
    assert first.header(trailer.partition(":")[0]) is None
    assert second.header("x-second") == "1"
    assert len(json.loads(first.body)["messages"]) < 3, "the chain was skipped"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        pytest.param(b"GET /healthz HTTP/1.1\r\n\r\n", 400, id="none"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nhost: a\r\nHost: b\r\n\r\n", 400, id="two"),
        pytest.param(b"GET /healthz HTTP/1.0\r\nhost: a\r\nhost: b\r\n\r\n", 400, id="two of HTTP/1.0"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n", 200, id="one"),
        pytest.param(b"GET /healthz HTTP/1.0\r\n\r\n", 200, id="none of HTTP/1.0"),
    ],
)
async def test_a_request_names_one_host(running: Served, head: bytes, status: int) -> None:
    assert (await said(running.base, head))[0][0] == status


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([LINE + H2C + SIZE + b"\r\n" + BODY], id="at once"),
        pytest.param([LINE + H2C + SIZE + b"\r\n", BODY[:20], BODY[20:]], id="body behind the head"),
        pytest.param([LINE + H2C[:25], H2C[25:] + SIZE + b"\r\n" + BODY], id="head in pieces"),
        pytest.param([LINE + H2C + CHUNKED + b"\r\n"], id="chunked"),
    ],
)
async def test_a_wish_for_http2_is_ignored(running: Served, behind: Upstream, parts: list[bytes]) -> None:
    both = await said(running.base, *parts, asking(CHAT), answers=2)
    assert [status for status, *_ in both] == [200, 200]
    first, second = behind.received
    assert first.body == second.body
    assert first.header("upgrade") is first.header("http2-settings") is None


@pytest.mark.parametrize("path", [
    "/v1/Memories", "/v1/memories;a=b", "/v1/%20memories", "/v1/%256demories/x", "/v1/me;a=b/../memories",
    "/v1/Retrieve/x", "/v1/context;a=b/share", "/v1/%5cexplain", "/v1/Explain/x", "/v1/compress%3fx", "/v1/x/../memories",
    "/v1/..%2f..%2fadmin", "/v1/x/..%2fmemories", "/v1/..%252fadmin", "/v1/%2525252525252e%2e/admin", "/v1/..;/admin",
    "/v1/..%5c..%5cadmin", "/v1/..%00/x", "/%76%31/embeddings", "/v1/chat/completions%20", "/v1/chat/completions%00",
    "/v1/chat/completions;a=b", "/v1/chat;a=b/completions", "/v1/chat%20/completions", "/v1/%20chat/completions",
    "/v1/chat/./completions", "/v1/x/../chat/completions", "/v1/chat/completions%00/x", "/v1/chat/completions/%20",
    "/v1/chat/completions%3fx", "/v1/chat/completions%2500", "/v1;a=b/chat/completions", "/v1/models%20", "/v1/models;a=b",
])  # fmt: skip
async def test_no_spelling_of_an_own_path_goes_upstream(running: Served, behind: Upstream, path: str) -> None:
    methods = ("POST", "GET", "PUT", "PATCH", "DELETE")
    assert {(await said(running.base, asking(f"{method} {path}")))[0][0] for method in methods} == {404}
    assert behind.received == []


@pytest.mark.parametrize("asked", [
    "POST /v1//embeddings", "POST /v1/files/a%2Fb", "POST /v1/memories_of", "POST /v1/x/memories", "POST /v1/a..b/...",
    "POST /v1/files/%C3%A9", "GET /v1/chat/completions", "DELETE /v1/chat/completions/c-1",
    "POST /v1/chat/completions/c-1", "DELETE /v1/models/m-1",
])  # fmt: skip
async def test_other_paths_travel_as_they_were_spelt(running: Served, behind: Upstream, asked: str) -> None:
    assert (await said(running.base, asking(asked)))[0][0] == 200
    assert f"{behind.last.method} {behind.last.path}" == asked


@pytest.mark.parametrize("path", [
    "//v1/chat/completions", "/v1//chat/completions", "///v1///chat//completions//", "/v1/chat%2fcompletions",
    "//chat/completions", "/v1/Chat/Completions",
])  # fmt: skip
async def test_other_spellings_lead_to_the_chat(running: Served, behind: Upstream, path: str) -> None:
    assert (await said(running.base, asking(f"POST {path}")))[0][0] == 200
    assert behind.last.path == "/v1/chat/completions"
    assert len(json.loads(behind.last.body)["messages"]) < 3, "the chain was skipped"


@pytest.mark.parametrize("path", ["//v1/memories", "/v1//memories", "//v1//models"])
async def test_doubled_slashes_lead_to_penstocks_own_paths(running: Served, behind: Upstream, path: str) -> None:
    assert (await said(running.base, f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()))[0][0] == 200
    assert {received.path for received in behind.received} <= {"/v1/models"}


@pytest.mark.parametrize(("request_", "status", "code"), [
    *((asking(f"{method} {path}"), 405, "method_not_allowed")
      for method in ("PUT", "PATCH", "DELETE", "OPTIONS")
      for path in ("/v1/chat/completions", "//v1/chat/completions", "/v1/chat/completions/")),
    *((b"GET /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\n" + wish + HANDSHAKE + b"\r\n", 426, "websocket_not_supported")
      for wish in (b"connection: upgrade\r\nupgrade: websocket\r\n", b"")),  # without, as it comes from behind nginx
])  # fmt: skip
async def test_other_methods_of_the_chat_and_websockets_are_refused_at_once(
    running: Served, behind: Upstream, request_: bytes, status: int, code: str
) -> None:
    [(told, _, body)] = await said(running.base, request_)
    assert (told, json.loads(body)["error"]["code"], behind.received) == (status, code, [])


@pytest.mark.parametrize(
    ("request_", "count"),
    [
        pytest.param(HEALTH.replace(b"\r\n\r\n", b"\r\n" + H2C + b"\r\n"), 1500, id="wishes for http2"),
        pytest.param(asking(CHAT, H2C), 20, id="wishes for http2 with a body"),
        pytest.param(HEALTH, 2500, id="more than 64 KB"),
    ],
)
async def test_pipelined_requests_are_all_answered(running: Served, request_: bytes, count: int) -> None:
    got = await said(running.base, request_ * count + HEALTH[:-2], HEALTH[-2:], answers=count + 1)
    assert {status for status, *_ in got} == {200}


@pytest.mark.parametrize(
    ("rest", "status"),
    [
        pytest.param(b"\x00", 400, id="no request"),
        pytest.param(b"GET / HTTP/1.1\r\nx: " + b"y" * 300_000, 431, id="a large head"),
        pytest.param(LINE + b"transfer-encoding: chunked\r\n\r\nx\r\n", 400, id="a broken body"),
    ],
)
async def test_a_refused_request_takes_no_answer_from_those_before(
    running: Served, behind: Upstream, rest: bytes, status: int
) -> None:
    got = await said(running.base, asking(CHAT) * 3 + rest, answers=4)
    assert [told for told, *_ in got] == [200, 200, 200, status]
    assert b"\r\nconnection: close\r\n" in got[-1][1]
    assert len(behind.received) == 3


@pytest.mark.parametrize(
    ("head", "status"),
    [
        pytest.param(b"GET / HTTP/1.1\r\nx: ", 431, id="a large head"),
        pytest.param(LINE + b"content-encoding: br\r\ncontent-length: 9000000\r\n\r\n", 415, id="an unknown coding"),
        pytest.param(LINE + b"content-length: 900000000000\r\n\r\n", 413, id="a large body"),
    ],
)
async def test_a_refusal_reaches_a_client_that_still_sends(running: Served, head: bytes, status: int) -> None:
    """As blocking clients do: they read when all is sent, or when sending fails. A reset takes the answer with it."""

    def ask() -> bytes:
        with socket.create_connection(("127.0.0.1", int(running.base.rpartition(":")[2])), timeout=60) as connection:
            connection.sendall(head)
            for _ in range(80):
                connection.sendall(b"y" * 100_000)
            return b"".join(iter(partial(connection.recv, 65536), b""))

    assert (await asyncio.to_thread(ask)).startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_client_of_http_1_0_gets_no_chunks(running: Served, behind: Upstream, is_stream: bool) -> None:
    event = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n'
    if is_stream:
        behind.respond = streaming(event, event, b"data: [DONE]\n\n")
    reader, writer = await asyncio.open_connection("127.0.0.1", int(running.base.rpartition(":")[2]))
    writer.write(asking(CHAT).replace(b"HTTP/1.1", b"HTTP/1.0") + asking(CHAT))
    async with asyncio.timeout(60):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b"transfer-encoding" not in head
    assert body == (event * 2 + b"data: [DONE]\n\n" if is_stream else DEFAULT_ANSWER)
