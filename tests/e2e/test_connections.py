"""What a connection says beside its requests: trailers, hosts, wishes for another protocol."""

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.e2e.served import Served, served
from tests.e2e.servers import Upstream, upstream

CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}"}}}}
models: [{{match: m, upstream: main, window: 8192}}]
chains: {{default: [consolidate_system: {{}}, window_history: {{keep_turns: 1, stride: 1, summary: false}}]}}
state: {{kind: memory}}
vectors: none
"""
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": f"turn {n}"} for n in range(3)]}).encode()
LINE = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
SIZE = b"content-length: %d\r\n" % len(BODY)
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
    async with served(CONFIG.format(url=shared.url), tmp_path_factory.mktemp("shared")) as made:
        yield made


@pytest.fixture
def behind(shared: Upstream) -> Upstream:
    shared.reset()
    return shared


async def said(running: Served, *parts: bytes, answers: int = 1) -> list[tuple[bytes, bytes]]:
    """The head and the body of each answer to what is sent piece by piece."""
    host, _, port = running.base.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    got = []
    try:
        async with asyncio.timeout(60):
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)
            for _ in range(answers):
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                got.append((head, await reader.readexactly(length)))
    finally:
        writer.close()
    return got


@pytest.mark.parametrize("trailer", [b"x-penstock-bypass: true", b"authorization: Bearer sk-late", b"x-late: 1"])
async def test_trailers_are_dropped(running: Served, behind: Upstream, trailer: bytes) -> None:
    name = trailer.partition(b":")[0].decode()
    both = await said(
        running, LINE + CHUNKED + trailer + b"\r\n\r\n", LINE + SIZE + b"x-second: 1\r\n\r\n" + BODY, answers=2
    )
    assert [head[:13] for head, _ in both] == [b"http/1.1 200 "] * 2
    first, second = behind.received
    assert first.header(name) is None
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
    [(answer, _)] = await said(running, head)
    assert answer.startswith(b"http/1.1 %d " % status)


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
    again = LINE + SIZE + b"\r\n" + BODY
    both = await said(running, *parts, again, answers=2)
    assert [head[:13] for head, _ in both] == [b"http/1.1 200 "] * 2
    first, second = behind.received
    assert first.body == second.body
    assert first.header("upgrade") is first.header("http2-settings") is None


@pytest.mark.parametrize(
    "path",
    [
        "/v1/Memories", "/v1/memories;a=b", "/v1/%20memories", "/v1/%256demories/x", "/v1/me;a=b/../memories",
        "/v1/Retrieve/x", "/v1/context;a=b/share", "/v1/%5cexplain", "/v1/Explain/x", "/v1/compress%3fx", "/v1/x/../memories",
        "/v1/..%2f..%2fadmin", "/v1/x/..%2fmemories", "/v1/..%252fadmin", "/v1/%2525252525252e%2e/admin", "/v1/..;/admin",
        "/v1/..%5c..%5cadmin", "/v1/..%00/x", "/%76%31/embeddings", "/v1/chat/completions%20", "/v1/chat/completions%00",
        "/v1/chat/completions;a=b", "/v1/chat;a=b/completions", "/v1/chat%20/completions", "/v1/%20chat/completions",
        "/v1/chat/./completions", "/v1/x/../chat/completions", "/v1/chat/completions%00/x", "/v1/chat/completions/%20",
        "/v1/chat/completions%3fx", "/v1/chat/completions%2500", "/v1;a=b/chat/completions", "/v1/models%20", "/v1/models;a=b",
    ],
)  # fmt: skip
async def test_no_spelling_of_an_own_path_goes_upstream(running: Served, behind: Upstream, path: str) -> None:
    for method in (b"POST", b"GET", b"PUT", b"PATCH", b"DELETE"):
        line = method + b" " + path.encode() + LINE[LINE.index(b" HTTP") :]
        [(head, _)] = await said(running, line + SIZE + b"\r\n" + BODY)
        assert head.startswith(b"http/1.1 404 "), head
    assert behind.received == []


@pytest.mark.parametrize(
    "path",
    ["/v1//embeddings", "/v1/files/a%2Fb", "/v1/memories_of", "/v1/x/memories", "/v1/a..b/...", "/v1/files/%C3%A9"],
)
async def test_other_paths_travel_as_they_were_spelt(running: Served, behind: Upstream, path: str) -> None:
    line = b"POST " + path.encode() + LINE[LINE.index(b" HTTP") :]
    [(head, _)] = await said(running, line + SIZE + b"\r\n" + BODY)
    assert head.startswith(b"http/1.1 200 ")
    assert behind.last.path == path


@pytest.mark.parametrize(
    "path",
    [
        "//v1/chat/completions", "/v1//chat/completions", "///v1///chat//completions//", "/v1/chat%2fcompletions",
        "//chat/completions", "/v1/Chat/Completions",
    ],
)  # fmt: skip
async def test_other_spellings_lead_to_the_chat(running: Served, behind: Upstream, path: str) -> None:
    line = b"POST " + path.encode() + LINE[LINE.index(b" HTTP") :]
    [(head, _)] = await said(running, line + SIZE + b"\r\n" + BODY)
    assert head.startswith(b"http/1.1 200 ")
    assert behind.last.path == "/v1/chat/completions"
    assert len(json.loads(behind.last.body)["messages"]) < 3, "the chain was skipped"


@pytest.mark.parametrize("path", ["//v1/memories", "/v1//memories", "//v1//models"])
async def test_doubled_slashes_lead_to_penstocks_own_paths(running: Served, behind: Upstream, path: str) -> None:
    [(head, _)] = await said(running, b"GET " + path.encode() + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    assert head.startswith(b"http/1.1 200 ")
    assert {received.path for received in behind.received} <= {"/v1/models"}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "//v1/chat/completions", "/v1/chat/completions/"])
@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_other_methods_of_the_chat_are_refused(running: Served, behind: Upstream, path: str, method: str) -> None:
    line = f"{method} {path}".encode() + LINE[LINE.index(b" HTTP") :]
    [(head, body)] = await said(running, line + SIZE + b"\r\n" + BODY)
    assert head.startswith(b"http/1.1 405 ")
    assert json.loads(body)["error"]["code"] == "method_not_allowed"
    assert behind.received == []


@pytest.mark.parametrize(
    "asked", ["GET /v1/chat/completions", "DELETE /v1/chat/completions/c-1", "POST /v1/chat/completions/c-1", "DELETE /v1/models/m-1"]
)  # fmt: skip
async def test_stored_chats_and_models_are_the_upstreams(running: Served, behind: Upstream, asked: str) -> None:
    await said(running, f"{asked} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
    assert f"{behind.last.method} {behind.last.path}" == asked


@pytest.mark.parametrize("wish", [b"connection: upgrade\r\nupgrade: websocket\r\n", b""], ids=["whole", "behind nginx"])
async def test_websockets_are_refused_at_once(running: Served, behind: Upstream, wish: bytes) -> None:
    [(head, body)] = await said(
        running, b"GET /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\n" + wish + HANDSHAKE + b"\r\n"
    )
    assert head.startswith(b"http/1.1 426 ")
    assert json.loads(body)["error"]["code"] == "websocket_not_supported"
    assert behind.received == []


HEALTH = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


@pytest.mark.parametrize(
    ("request_", "count"),
    [
        pytest.param(HEALTH.replace(b"\r\n\r\n", b"\r\n" + H2C + b"\r\n"), 1500, id="wishes for http2"),
        pytest.param(LINE + H2C + SIZE + b"\r\n" + BODY, 20, id="wishes for http2 with a body"),
        pytest.param(HEALTH, 2500, id="more than 64 KB"),
    ],
)
async def test_pipelined_requests_are_all_answered(running: Served, request_: bytes, count: int) -> None:
    got = await said(running, request_ * count + HEALTH[:-2], HEALTH[-2:], answers=count + 1)
    assert {head[:13] for head, _ in got} == {b"http/1.1 200 "}


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
    taken = LINE + SIZE + b"\r\n" + BODY
    got = await said(running, taken * 3 + rest, answers=4)
    assert [int(head.split()[1]) for head, _ in got] == [200, 200, 200, status]
    assert b"\r\nconnection: close\r\n" in got[-1][0]
    assert len(behind.received) == 3
