"""Requests that no honest client sends, as bytes for a socket: made by a seed, so that what they find is found again.

Requests that are sent in one piece are in `test_connections.py`, upstreams that give no answer in
`tests/test_transport_failures.py`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random as Dice

from tests.e2e.hostile_bodies import BODIES, ODD, RAW, encoded, good

KEY = "sk-of-the-client"
CHAT = "/v1/chat/completions"
LAST = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
"""What is sent behind a request, so that a server which has read all of it closes the connection."""


MARK = b"x-attack: 000000"
"""A header of each request, in which its number takes the place of the noughts."""


@dataclass(frozen=True, slots=True)
class Attack:
    """What is sent on one connection."""

    kind: str
    sent: bytes
    most: int = 1
    """The most requests that an upstream may get of it."""
    ends: bool = True
    """Whether it is all there; if not, the client's side is closed behind it."""
    clear: bool = True
    """Whether all readers agree where its requests end, so that each of them has an answer."""


def request(body: bytes, *headers: str | bytes, target: str = CHAT, method: str = "POST", length: bool = True) -> bytes:
    lines = [each if isinstance(each, bytes) else each.encode("utf-8", "surrogatepass") for each in headers]
    head = [f"{method} {target} HTTP/1.1".encode("utf-8", "surrogatepass"), b"host: proxy", MARK, *lines]
    if length:
        head.append(b"content-length: %d" % len(body))
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def chunked(body: bytes, *headers: str) -> bytes:
    coded = b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
    return request(coded, "transfer-encoding: chunked", *headers, length=False)


AUTH = f"authorization: Bearer {KEY}"
TYPE = "content-type: application/json"


def bodies(dice: Dice, lure: str) -> Attack:
    make = dice.choice(BODIES)
    body = make(dice, lure)
    path = (
        CHAT if dice.random() < 0.85 else dice.choice(("/v1/embeddings", "/v1/compress", "/v1/responses", "/v1/files"))
    )
    if dice.random() < 0.2 and path == CHAT:
        return Attack(f"body {make.__name__}, chunked", chunked(body, AUTH, TYPE) + LAST)
    return Attack(f"body {make.__name__}", request(body, AUTH, TYPE, target=path) + LAST)


def headers(dice: Dice, lure: str) -> Attack:
    host = lure.removeprefix("http://").partition("/")[0]
    odd = (
        f"host: {host}", f"x-forwarded-host: {host}", f"x-forwarded-for: {host}", f"forwarded: host={host}",
        f"x-original-url: {lure}", f"x-rewrite-url: {lure}", f"x-api-base: {lure}", f"x-upstream: {lure}",
        f"x-penstock-upstream: {lure}", f"referer: {lure}", f"origin: {lure}", f"openai-base-url: {lure}",
        "x-http-method-override: DELETE", "authorization: Bearer sk-second", "authorization: Basic Og==", "authorization:",
        "authorization: Bearer \xff\xfe", "authorization: Bearer a\tb", "connection: authorization, content-length, host",
        "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: eA==\r\nsec-websocket-version: 13",
        "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk", "expect: 100-continue",
        "expect: 200-ok", "te: trailers", "trailer: authorization", "proxy-authorization: Basic eA==", "cookie: a=b",
        "content-encoding: gzip", "content-encoding: identity, gzip", "content-type: multipart/form-data; boundary=x",
        "content-type: \u0000", "content-type: text/plain; charset=utf-7", "accept: */*;q=x", "accept-encoding: br",
        "x-penstock-chain: default", "x-penstock-chain: ../../etc", "x-penstock-chain: \xff", "x-penstock-bypass: true",
        f"x-penstock-chain: {'x' * 3000}", f"x-penstock-session: {'s' * 9000}", "x-penstock-session: ../..\xe9",
        "x-request-id: a\tb", f"x-request-id: {'i' * 5000}", "traceparent: 00-x-y-01", "baggage: a=b", "x: \x7f",
        "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\ntracestate: " + "a=b," * 600,
        "x-stainless-retry-count: 99999999999999999999", "x-stainless-retry-count: -1", "x-stainless-retry-count: \xb2",
        " folded: yes", "\tfolded", "no colon", "name : space", ": no name", "näme: x", "a\x00b: c", "x: a\x00b", "x: a\rb",
        "x: a\nb: c", "x:" + "y" * 70_000, "y" * 70_000 + ": x", "\r\n".join(f"x-{n}: y" for n in range(500)),
        "\r\n".join(["x: y"] * 300), "x-penstock-user: ../../admin", "x-penstock-tenant: somebody", "x-penstock-config: 000000000000",
        "x-penstock-agent: \xff", f"x-penstock-task: {'t' * 9000}", "x-penstock-context: 1;1;1", "x-penstock-fallback: keyed-1",
        "x-penstock-admin: true", "x-penstock-bypass: TRUE\r\nx-penstock-bypass: false", "x-penstock-chain: __proto__",
        "x-penstock-user: a\r\nx-penstock-user: b", "x_penstock_user: a", "__proto__: x", "x-should-retry: true", "range: bytes=0-18446744073709551615", "transfer-encoding: identity", "via: 1.1 a",
    )  # fmt: skip
    chosen = dice.sample(odd, dice.randint(1, 3))
    return Attack("headers", request(encoded(good(dice)), AUTH, TYPE, *chosen) + LAST, clear=False)


def targets(dice: Dice, lure: str) -> Attack:
    host = lure.removeprefix("http://").partition("/")[0]
    target = dice.choice((
        f"{lure}/chat/completions", f"//{host}{CHAT}", f"http://user:pw@{host}{CHAT}", host, "*", "/", "", "?", "#", "v1",
        f"/v1/{lure}", f"/v1/@{host}/x", f"/v1/..//{host}", "/v1/../v1/chat/completions", "/v1/%2e%2e/%2e%2e/admin",
        "/v1/.%2e/x", "/v1/..%2fadmin", "/v1/..;/admin", "/v1\\..\\admin", "/v1/%5c..%5cx", "/v1/x%00y", "/v1/%", "/v1/%zz",
        "/v1/%ff%fe", "/v1/a%0d%0aX:%20y", "/v1/a%20HTTP/1.1", "/v1//chat/completions", f"{CHAT}/", "/V1/CHAT/COMPLETIONS",
        "/v1/chat%2fcompletions", "/v1/chat/completions;x", "/v1/chat/completions%20", f"{CHAT}?api_base={lure}", "/v1/é",
        f"{CHAT}?" + "a=b&" * 3000, f"{CHAT}#x", f"/v1/{'a/' * 2000}", f"/v1/{'a' * 60_000}", "/v1/models/../../x", "/v1",
        f"/v1/models/{lure}", "/v1/retrieve/../../etc/passwd", "/v1/retrieve/" + "a" * 20, "/v1/retrieve/%00?lines=-1-x",
        "//v1/chat/completions", "/v1/chat/completions%00", "/v1/chat;a=b/completions", "/v1/chat/./completions",
        "/v1/chat/completions;a=b", "/v1/%20chat/completions", "/v1//models", "/v1/models%20", CHAT, CHAT, "/metrics?x", "/healthz/../v1/models", "/v1/models/" + "%2e" * 50, "/chat/completions", "/v1/compress?x=%",
    ))  # fmt: skip
    method = dice.choice(("POST", "POST", "GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "CONNECT", "post",
                          "PROPFIND", "X", "POST\t", "PRI"))  # fmt: skip
    return Attack("target", request(encoded(good(dice)), AUTH, TYPE, target=target, method=method) + LAST)


IDS = (
    "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e", "%00", "%ff", "a%0d%0ab:c", "*", "%2a", "-", "'--", "a" * 3000,
    "req_0/../req_1", "..;/x", "%5c..%5c", "{id}", "${HOME}", "{{7*7}}", "__proto__", "a" * 20, "1e999", "%e2%80%ae", "",
)  # fmt: skip
"""What stands where an id is expected."""

QUERIES = (
    "", "?user=../..", "?user=%00", "?user=a&user=b", "?limit=-1", "?limit=1e999", "?limit=" + "9" * 400, "?lines=9-1", "?lines=-",
    "?lines=0-" + "9" * 400, "?query=" + "%20" * 2000, "?query=%ff", "?shared=true&user=*", "?similarity=nan", "?tenant=x", "?=",
    "?match=" + "(a%2b)%2b" * 50, "?path=$" + "..a" * 200, "?" + "a&" * 500,
)  # fmt: skip


def own_endpoints(dice: Dice, lure: str) -> Attack:
    """What Penstock answers by itself, asked for other people's things and given what it cannot keep."""
    target = dice.choice((
        f"/v1/memories/{dice.choice(IDS)}", "/v1/memories", "/v1/memories/import", "/v1/memories/aggregate",
        f"/v1/context/share/{dice.choice(IDS)}", "/v1/context/share", f"/v1/retrieve/{dice.choice(IDS)}",
        f"/v1/explain/{dice.choice(IDS)}", f"/admin/requests/{dice.choice(IDS)}", "/admin/reload", "/admin/config", "/ui",
    ))  # fmt: skip
    method = dice.choice(("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS"))
    item = {
        name: dice.choice(ODD)
        for name in ("text", "kind", "source", "time", "user", "id", "ttl", "confidence", "tenant")
    }
    share = {name: dice.choice(ODD) for name in ("from", "to", "messages", "note", "ttl")}
    body = dice.choice((
        encoded(item), encoded([item] * 3), encoded({"memories": [item] * dice.choice((1, 5000))}), encoded(share),
        b"\n".join([encoded(item)] * 3), b"[" * 50_000, b"\xff", b"", b"null", dice.choice(RAW),
    ))  # fmt: skip
    whose = dice.choice(
        ("x-penstock-user: *", "x-penstock-user: ../..", "x-penstock-session: a\tb", "x-penstock-tenant: anonymous")
    )
    return Attack(
        "own endpoint",
        request(body, AUTH, TYPE, whose, target=target + dice.choice(QUERIES), method=method) + LAST,
        most=0,
    )


def floods(dice: Dice, lure: str) -> Attack:
    """Bodies and heads that are small in what they say and large in what they take."""
    body = encoded(good(dice))
    match dice.randrange(4):
        case 0:  # a chunk for each byte
            coded = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
        case 1:  # each with an extension that says nothing
            coded = b"".join(b"1;%b\r\n%c\r\n" % (b"e" * 5000, byte) for byte in body) + b"0\r\n\r\n"
        case 2:  # trailers without end
            coded = (
                b"%x\r\n" % len(body)
                + body
                + b"\r\n0\r\n"
                + b"".join(b"t%d: x\r\n" % n for n in range(20_000))
                + b"\r\n"
            )
        case _:  # noughts before a size
            coded = b"0" * 300_000 + b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
    return Attack("flood", request(coded, AUTH, TYPE, "transfer-encoding: chunked", length=False) + LAST)


def smuggled(dice: Dice, lure: str) -> Attack:
    """Two readings of where a request ends, with another one in between that only one of them sees."""
    inner = request(encoded({"model": "keyed-smuggled", "messages": [{"role": "user", "content": "smuggled"}]}), TYPE)
    body = encoded(good(dice))
    coding = dice.choice((
        "chunked", " chunked", "chunked ", "xchunked", "chunked, identity", "identity, chunked", "Chunked", "\tchunked",
        "chunked\x00", '"chunked"', "chunked;q=1", "gzip, chunked", "chunked\r\ntransfer-encoding: identity", "",
    ))  # fmt: skip
    name = dice.choice(("transfer-encoding", "Transfer-Encoding", "transfer-encoding ", "transfer_encoding",
                        " transfer-encoding", "x\r\n\ttransfer-encoding", "transfer-encoding\x00"))  # fmt: skip
    stop = b"0\r\n\r\n"
    whole = b"%x\r\n" % len(body) + body + b"\r\n" + stop
    match dice.randrange(6):
        case 0:  # the length ends it, or the last chunk does
            sent = request(stop + inner, AUTH, f"{name}: {coding}")
        case 1:
            size = dice.choice((0, 4, len(body)))
            sent = request(whole + inner, AUTH, f"{name}: {coding}", f"content-length: {size}", length=False)
        case 2:  # two lengths
            lengths = dice.sample((f"{len(body)}", "0", f"+{len(body)}", f"{len(body)}, 0", f"0{len(body)}", "-1", "0x10",
                                   f"{len(body)} ", "18446744073709551617", "", f"{len(body) + len(inner)}"), 2)  # fmt: skip
            sent = request(body + inner, AUTH, *(f"content-length: {each}" for each in lengths), length=False)
        case 3:  # sizes of chunks that are read in two ways
            digits = dice.choice((b"%x;a=b" % len(body), b"%x ;" % len(body), b"0%x" % len(body), b"0x%x" % len(body),
                                b"-1", b"+%x" % len(body), b"%x\n" % len(body), b"f" * 17, b" %x" % len(body), b"",
                                b"%x;" % len(body) + b"e" * 20_000, b"%x;a=\"\r\n\"" % len(body)))  # fmt: skip
            sent = request(
                digits + b"\r\n" + body + b"\r\n" + stop + inner, AUTH, "transfer-encoding: chunked", length=False
            )
        case 4:  # ends of lines
            end = dice.choice((b"\n", b"\r", b"\r\r\n", b"\n\r", b"\x0b", b"\x85"))
            sent = request(whole, AUTH, "transfer-encoding: chunked", length=False).replace(b"\r\n", end, 3) + inner
        case _:
            trailer = dice.choice((b"content-length: 5", b"authorization: Bearer sk-chosen", b"host: x", b"a" * 9000))
            sent = request(whole[:-2] + trailer + b"\r\n\r\n" + inner, AUTH, "transfer-encoding: chunked", length=False)
    return Attack("smuggled", sent + LAST, most=2, clear=False)


def cut_off(dice: Dice, lure: str) -> Attack:
    whole = dice.choice((request, chunked))(encoded(good(dice)), AUTH, TYPE)
    return Attack("cut off", whole[: dice.randint(1, len(whole) - 1)], most=0, ends=False)


def other_protocols(dice: Dice, lure: str) -> Attack:
    sent = dice.choice((
        b"GET /\r\n", b"GET /healthz HTTP/0.9\r\n\r\n", b"POST /v1/chat/completions HTTP/2.0\r\nhost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04" + b"\x00" * 5, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\r\n" * 1000, b"\x00" * 1000, dice.randbytes(300), b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b" GET / HTTP/1.1",
        b"GET /healthz HTTP/1.1\r\n\r\n", b"GET  /healthz  HTTP/1.1\r\nhost: x\r\n\r\n", b"GET /healthz HTTP/9.9\r\n\r\n",
        b"SSH-2.0-x\r\n", b"EHLO x\r\n", b"*1\r\n$4\r\nPING\r\n", b"GET / HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n", b"G", b"",
        b"CONNECT " + lure.removeprefix("http://").partition("/")[0].encode() + b" HTTP/1.1\r\nhost: x\r\n\r\n",
    ))  # fmt: skip
    return Attack("another protocol", sent, most=0, ends=False)


KINDS: tuple[tuple[Callable[[Dice, str], Attack], int], ...] = (
    (bodies, 41), (headers, 12), (targets, 10), (own_endpoints, 8), (smuggled, 12), (floods, 2), (cut_off, 5),
    (other_protocols, 3),
)  # fmt: skip
"""What is made, and how often beside the others."""


def attacks(count: int, seed: int, lure: str) -> Iterator[Attack]:
    """So many attacks; `lure` is an address to which nothing may ever go."""
    dice = Dice(seed)
    for _ in range(count):
        (make,) = dice.choices([make for make, _ in KINDS], [share for _, share in KINDS])
        yield make(dice, lure)
