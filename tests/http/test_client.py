"""HTTP to upstreams, against real servers on the loopback: bytes out and back, streams, and their end."""

import asyncio
import gzip
import socket
import ssl
import zlib
from contextlib import aclosing
from datetime import datetime
from pathlib import Path

import pytest
import uvloop
from backports import zstd
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from proxy.chat.errors import Unanswered, UpstreamFailed
from proxy.http import client
from proxy.http.client import Transport
from tests.loopback import BODY, LONG, OK, PLENTY, STREAM, Connection, Handler, framed, listening, serves, transport

LOOPS = ("asyncio", "uvloop")


async def test_a_request_is_sent_with_its_own_bytes_and_headers_only() -> None:
    async with serves(OK) as (http, url, got):
        sent = {
            "authorization": "Bearer k",
            "content-type": "application/json",
            "accept-encoding": "identity",
            "x-a": "1",
        }
        response = await http.request("POST", url, sent, BODY)
        assert await response.read() == b"ok"

    head, _, body = got[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert body == BODY
    assert lines[0] == "POST /v1 HTTP/1.1"
    assert dict(line.lower().split(": ", 1) for line in lines[1:]) == {
        "host": url.authority, "content-length": str(len(BODY)), **{k: v.lower() for k, v in sent.items()}
    }  # fmt: skip


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_request_without_a_body_has_none(method: str) -> None:
    async with serves(OK) as (http, url, got):
        await (await http.request(method, url, {})).read()

    assert got[0].startswith(f"{method} /v1 HTTP/1.1\r\n".encode())
    assert got[0].endswith(b"\r\n\r\n")
    assert b"content-type" not in got[0].lower()


def zipped(body: bytes, kind: str = "application/json", status: int = 200, coding: str = "gzip") -> bytes:
    head = f"Content-Type: {kind}\r\nContent-Encoding: {coding}\r\nContent-Length: {len(body)}"
    return f"HTTP/1.1 {status} OK\r\n{head}\r\n\r\n".encode() + body


TEXT = BODY * 90_000
RAW = zlib.compressobj(wbits=-zlib.MAX_WBITS)
CODED = [
    ("gzip", gzip.compress(TEXT)),
    ("X-Gzip", gzip.compress(TEXT[:7]) + gzip.compress(TEXT[7:])),
    ("deflate", zlib.compress(TEXT)),
    ("deflate", RAW.compress(TEXT) + RAW.flush()),
    ("zstd", zstd.compress(TEXT)),
    ("zstd", zstd.compress(TEXT[:7]) + zstd.compress(TEXT[7:])),
]


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize(("coding", "body"), CODED)
async def test_a_coding_that_nobody_asked_for_is_read(kind: str, coding: str, body: bytes) -> None:
    async with serves(zipped(body, kind, coding=coding)) as (http, url, _):
        response = await http.request("POST", url, {}, BODY)
        assert response.headers == [(b"content-type", kind.encode())]
        read = b"".join([part async for part in response]) if response.is_stream else await response.read()
    assert read == TEXT


async def test_an_answer_in_an_unknown_coding_passes_as_it_is_and_the_log_tells(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serves(zipped(b"\x0b\x01", coding="br")) as (http, url, _):
        response = await http.request("POST", url, {}, BODY)
        assert (b"content-encoding", b"br") in response.headers
        assert await response.read() == b"\x0b\x01"
    assert [each.levelname for each in caplog.records if "unread" in each.message] == ["WARNING"]


DAMAGED = [b"{}", gzip.compress(TEXT)[:-1], gzip.compress(TEXT) + b"x"]


@pytest.mark.parametrize(
    ("coding", "body"),
    [*(("gzip", body) for body in DAMAGED), ("zstd", b"{}"), *((coding, body[:-1]) for coding, body in CODED)],
)
async def test_what_is_not_in_its_coding_is_an_invalid_answer(coding: str, body: bytes) -> None:
    async with serves(zipped(body, coding=coding)) as (http, url, _):
        with pytest.raises(Unanswered) as caught:
            await (await http.request("POST", url, {}, BODY)).read()
    assert caught.value.code == "upstream_invalid"


async def test_gzip_counts_as_it_is_decoded_and_a_part_of_a_body_stays_as_it_is() -> None:
    large, part = gzip.compress(bytes(9 * 2**20)), gzip.compress(TEXT)[:99]
    async with serves(zipped(large)) as (_, url, _):
        small = Transport("main", PLENTY, largest=2**20)
        with pytest.raises(Unanswered) as caught:
            await (await small.request("POST", url, {}, BODY)).read()
    assert caught.value.code == "upstream_answer_too_large"
    async with serves(zipped(part, status=206)) as (http, url, _):
        response = await http.request("GET", url, {})
        assert (b"content-encoding", b"gzip") in response.headers
        assert await response.read() == part


async def test_a_response_has_no_headers_of_the_connection() -> None:
    answer = (
        b"HTTP/1.1 429 Slow Down\r\nContent-Type: application/json\r\nX-RateLimit: 1\r\nLink: a\r\nX-Name: caf\xe9\r\n"
        b"Link: b\r\nSet-Cookie: a=b\r\nSet-Cookie2: c\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n"
        b"Proxy-Authenticate: Basic\r\nTrailer: x\r\nUpgrade: h2c\r\nAlt-Svc: h3\r\nStrict-Transport-Security: a\r\n"
        b"X-Request-Id: up\r\nContent-Length: 2\r\n\r\nno"
    )
    async with serves(answer) as (http, url, _):
        response = await http.request("POST", url, {}, b"{}")
        body = await response.read()

    assert (response.status, body, response.is_stream) == (429, b"no", False)
    assert response.headers == [
        (b"content-type", b"application/json"), (b"x-ratelimit", b"1"), (b"link", b"a"), (b"x-name", b"caf\xe9"),
        (b"link", b"b"), (b"x-request-id", b"up"),
    ]  # fmt: skip


async def test_a_cookie_is_not_kept() -> None:
    async with serves(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 2\r\n\r\nok") as (http, url, got):
        for _ in range(2):
            # a name, because cookies are never kept for addresses
            await (await http.request("POST", url.with_host("localhost"), {}, b"{}")).read()

    assert len(got) == 2
    assert all(b"cookie" not in request.lower() for request in got)


async def test_proxy_settings_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with serves(OK) as (http, url, _):
        assert await (await http.request("POST", url, {}, b"{}")).read() == b"ok"


def certificate(folder: Path) -> Path:
    """A file with a key, and the certificate that `localhost` has signed for itself."""
    key, name = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]),
    )
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(datetime(2000, 1, 1)).not_valid_after(datetime(2100, 1, 1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = folder / "localhost.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, *form)
        + made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """The context of a server for `localhost`, whose certificate the client trusts."""
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(path := certificate(tmp_path))
    monkeypatch.setattr(client, "tls", lambda: ssl.create_default_context(cafile=path))
    return own


async def test_a_trusted_server_is_asked_by_tls(tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serves(OK, tls=tls) as (http, url, got):
        url = url.with_scheme("https").with_host("localhost")
        assert await (await http.request("POST", url, {}, BODY * 10_000)).read() == b"ok"
        http._idle.clear()
        monkeypatch.setattr(client, "tls", ssl.create_default_context)
        with pytest.raises(UpstreamFailed) as caught:
            await http.request("POST", url, {}, BODY)

    assert "its certificate is not trusted" in str(caught.value.cause)
    assert [request.partition(b"\r\n\r\n")[2] for request in got] == [BODY * 10_000]


async def test_a_host_that_ends_with_a_dot_has_the_certificate_of_its_name(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[object]()

    async def resolved(host: object, port: object, **_: object) -> list[object]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolved, raising=False)
    async with serves(OK, tls=tls) as (http, url, _):
        response = await http.request("POST", url.with_scheme("https").with_host("localhost."), {}, BODY)
        assert (await response.read(), asked[0]) == (b"ok", "localhost.")


@pytest.mark.parametrize("begun", [b"", OK[:-2]])
async def test_a_server_that_closes_a_tls_connection_is_told_at_once(tls: ssl.SSLContext, begun: bytes) -> None:
    async with serves(begun, tls=tls) as (http, url, got):
        with pytest.raises(Unanswered) as caught:
            await (await http.request("POST", url.with_scheme("https").with_host("localhost"), {}, BODY)).read()
        assert not http._all, "the connection is forgotten"

    assert (caught.value.code, len(got)) == ("upstream_broke_off", 1)


@pytest.mark.parametrize("secure", [False, True])
async def test_a_connection_is_not_used_again_before_its_request_is_sent(tls: ssl.SSLContext, secure: bool) -> None:
    async def handle(connection: Connection) -> None:
        if connection.number == 1:
            await connection.reader.readuntil(b"\r\n\r\n")
            await connection.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
            await asyncio.Event().wait()
        await connection.request()
        await connection.send(OK)

    async with listening(handle, tls if secure else None) as url, transport() as http:
        url = url.with_scheme("https" if secure else "http").with_host("localhost")
        refused = await http.request("POST", url, {}, bytes(2**25))
        await refused.read()
        async with asyncio.timeout(LONG / 2):
            assert await (await http.request("POST", url, {}, BODY)).read() == b"ok"

    assert refused.status == 413


async def test_an_address_with_a_password_is_asked_with_it() -> None:
    async with serves(OK) as (http, url, got):
        await (await http.request("GET", url.with_user("a").with_password("b:%"), {})).read()

    assert b"\r\nauthorization: Basic YTpiOiU=\r\n" in got[0]


@pytest.mark.parametrize("sent", ["1\r\nx-b: 2", "1\nx-b: 2", "1\r"])
async def test_a_header_of_several_lines_is_not_sent(sent: str) -> None:
    async with serves(OK) as (http, url, got):
        with pytest.raises(ValueError, match="several lines"):
            await http.request("GET", url, {"x-a": sent})

    assert not got


@pytest.mark.parametrize("answer", [
    pytest.param(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + OK, id="hints before it"),
    pytest.param(OK + OK, id="another one behind it"),
    pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2 \r\nok\r\n0\r\nX-Late: 1\r\n\r\n", id="trailers"),
    pytest.param(b"HTTP/1.0 200 OK\r\n\r\nok", id="without a length"),
])  # fmt: skip
async def test_an_answer_is_read_to_its_end_alone(answer: bytes) -> None:
    async with serves(answer) as (http, url, got):
        for _ in range(2):
            response = await http.request("POST", url, {}, b"{}")
            assert (response.status, await response.read(), response.headers) == (200, b"ok", [])

    assert len(got) == 2


@pytest.mark.parametrize("length", [4, 200_000])
async def test_what_was_not_read_of_an_answer_is_no_part_of_the_next(length: int) -> None:
    async def handle(connection: Connection) -> None:
        body = b"x" * length
        for _ in range(2):
            await connection.request()
            await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            body = b"y"

    async with listening(handle) as url, transport() as http:
        first = await http.request("GET", url, {})
        while not first._connection._parts:
            await asyncio.sleep(0)
        first.close()
        assert set(await (await http.request("GET", url, {})).read()) <= {*b"x"}, "a connection of its own"


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
async def test_a_long_body_may_come_with_the_end_of_its_head(end: bytes) -> None:
    body = b"x" * 300_000

    async def handle(connection: Connection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK" + end + b"Content-Length: %d" % len(body) + end)
        await asyncio.sleep(0.05)  # else they may come as one
        await connection.send(end + body)

    async with listening(handle) as url, transport() as http:
        assert await (await http.request("GET", url, {})).read() == body


async def test_control_characters_and_large_bodies_pass_without_a_warning() -> None:
    async with serves(b"HTTP/1.1 200 OK\r\nX-A: a\0b\x01\x7f\tc\r\nContent-Length: 2\r\n\r\nok") as (http, url, _):
        assert (await http.request("GET", url, {})).headers == [(b"x-a", b"a b  \tc")]
    async with serves(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n") as (http, url, _):
        assert await (await http.request("HEAD", url, {})).read() == b""
    body = bytes(range(256)) * 4 * 1024 * 3
    async with serves(OK) as (http, url, got):
        await (await http.request("POST", url, {}, body)).read()

    assert got[0].partition(b"\r\n\r\n")[2] == body


async def test_a_server_is_read_no_faster_than_its_answer_is_relayed() -> None:
    sent, part = 0, b"x" * 2**20

    async def handle(connection: Connection) -> None:
        nonlocal sent
        await connection.request()
        await connection.send(STREAM)
        while sent < 64:
            await connection.send(framed(part))
            sent += 1
        await connection.send(framed(b""))

    async with listening(handle) as url, transport() as http:
        chunks = await http.request("POST", url, {}, b"{}")
        first = await anext(aiter(chunks))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert sent < 32
        assert len(first) + sum([len(chunk) async for chunk in chunks]) == 64 * len(part)


async def test_a_stream_has_its_head_before_its_first_chunk() -> None:
    have_head = asyncio.Event()

    async def handle(connection: Connection) -> None:
        await connection.request()
        await connection.send(STREAM)
        await have_head.wait()
        await connection.send(framed(b"data: 1\n\n") + framed(b""))

    async with listening(handle) as url, transport() as http:
        response = await http.request("POST", url, {}, b"{}")
        have_head.set()
        async with aclosing(response) as chunks:
            assert [chunk async for chunk in chunks] == [b"data: 1\n\n"]


def until_closed(sent: bytes) -> tuple[Handler, asyncio.Event]:
    """A handler that answers once and waits; and what is set when its connection is closed."""
    closed = asyncio.Event()

    async def handle(connection: Connection) -> None:
        await connection.request()
        await connection.send(sent)
        await connection.closed()
        closed.set()

    return handle, closed


@pytest.mark.parametrize("is_read", [True, False])
async def test_closing_a_stream_closes_the_connection(is_read: bool) -> None:
    handle, closed = until_closed(STREAM + framed(b"data: 1\n\n"))
    async with listening(handle) as url, transport() as http:
        chunks = await http.request("POST", url, {}, b"{}")
        assert not is_read or await anext(aiter(chunks)) == b"data: 1\n\n"
        await chunks.aclose()
        await asyncio.wait_for(closed.wait(), LONG)


def test_a_request_that_is_cancelled_at_any_time_leaves_no_connection_open() -> None:
    async def cancelled() -> int:
        async with serves(OK) as (http, url, _):
            for steps in range(400):
                asking = asyncio.ensure_future(http.request("GET", url, {}))
                for _ in range(steps % 40):
                    await asyncio.sleep(0)
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                if not asking.cancelled():
                    asking.result().close()
            await asyncio.sleep(0.01)
            return len(http._all)

    assert uvloop.run(cancelled()) <= 1  # the loop of the server: asyncio's own closes them by itself


async def test_closing_the_transport_closes_idle_connections() -> None:
    handle, closed = until_closed(OK)
    async with listening(handle) as url:
        http = Transport("main", PLENTY)
        await (await http.request("POST", url, {}, b"{}")).read()
        await http.aclose()
        await asyncio.wait_for(closed.wait(), LONG)
        await http.aclose()
    await Transport("never used", PLENTY).aclose()
