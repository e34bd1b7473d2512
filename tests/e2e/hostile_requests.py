"""Requests that no honest client sends, as bytes for a socket: made by a seed, so that what they find is found again.

Requests that are sent in one piece are in `test_connections.py`, upstreams that give no answer in
`tests/test_transport_failures.py`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random as Dice

from tests.e2e.hostile_bodies import BODIES, LISTS, ODD, RAW, encoded, good
from tests.e2e.servers import filled

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


def _chosen(dice: Dice, lure: str, name: str, count: int = 1) -> list[str]:
    """So many of a list, with the address to which nothing may ever go."""
    host = lure.removeprefix("http://").partition("/")[0]
    return [filled(each, lure=lure, host=host) for each in dice.sample(LISTS[name], count)]


def headers(dice: Dice, lure: str) -> Attack:
    many = ["\r\n".join(f"x-{n}: y" for n in range(500))] * (dice.random() < 0.02)
    chosen = _chosen(dice, lure, "headers", dice.randint(1, 3)) + many
    return Attack("headers", request(encoded(good(dice)), AUTH, TYPE, *chosen) + LAST, clear=False)


def targets(dice: Dice, lure: str) -> Attack:
    (target,), (method,) = (_chosen(dice, lure, name) for name in ("targets", "methods"))
    return Attack("target", request(encoded(good(dice)), AUTH, TYPE, target=target, method=method) + LAST)


def own_endpoints(dice: Dice, lure: str) -> Attack:
    """What Penstock answers by itself, asked for other people's things and given what it cannot keep."""
    named = dice.choice(LISTS["ids"])
    target = dice.choice((
        f"/v1/memories/{named}", "/v1/memories", "/v1/memories/import", "/v1/memories/aggregate",
        f"/v1/context/share/{named}", "/v1/context/share", f"/v1/retrieve/{named}", f"/v1/explain/{named}",
        f"/admin/requests/{named}", "/admin/reload", "/admin/config", "/ui",
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
        request(body, AUTH, TYPE, whose, target=target + dice.choice(LISTS["queries"]), method=method) + LAST,
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
