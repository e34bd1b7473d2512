"""A proxy under attack, between an upstream that counts and a place that nobody may come to."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.default_chain import config
from tests.e2e.hostile_requests import MARK, Attack
from tests.e2e.served import Served, served
from tests.e2e.servers import DEFAULT_ANSWER, Received, Upstream, begin_stream, send, send_chunk, upstream

OPERATOR = "sk-of-the-operator"
_PATIENCE = 60.0
"""Seconds after which a connection hangs."""


@dataclass
class Found:
    """What came of attacks."""

    statuses: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    """Attacks of which it is clear where their requests end."""
    lost: int = 0
    """Those of them that nothing was answered to."""
    faults: list[str] = field(default_factory=list)
    """One line each: what is wrong, and the attack that did it."""


class World:
    """Sends attacks one by one, and looks at what they did."""

    def __init__(self, running: Served, behind: Upstream, lured: list[bytes], lure: str) -> None:
        self.running, self.behind, self.lured, self.lure = running, behind, lured, lure
        self.found = Found()
        self.quiet = 0.5
        """Seconds without a byte after which the client's side of a connection is closed."""
        self._most: dict[int, int] = {}
        self._asked: Counter[int] = Counter()

    async def attack(self, number: int, attack: Attack) -> None:
        """Send it, wait for what is answered, and note what is wrong."""
        before = len(self.behind.received)
        self._most[number] = attack.most
        answer = await self._exchange(
            attack.sent.replace(MARK, MARK[:-6] + b"%06d" % number), ends=attack.ends, clear=attack.clear
        )
        received = self.behind.received[before:]
        # of a client that has left a request may come upstream when the next attack is under way
        own = [each for each in received if each.header("x-attack") in (f"{number:06d}", None)]
        is_whole = attack.ends and attack.clear
        self.found.attempts += is_whole
        self.found.lost += is_whole and not answer
        problems = self._problems(attack, answer, [each for each in own if not is_listing(each)])
        for each in received:
            problems += [*self._of_received(each), *self._too_many(each, number)]
        self.found.faults += [f"{number}: {attack.kind}: {each}: {attack.sent[:300]!r}" for each in problems]

    def _too_many(self, received: Received, number: int) -> list[str]:
        """Whether more requests come upstream than were sent."""
        sender = int(received.header("x-attack") or number)
        self._asked[sender] += not is_listing(received)
        return (
            [f"{self._asked[sender]} requests upstream of {sender}"] if self._asked[sender] > self._most[sender] else []
        )

    def _problems(self, attack: Attack, answer: bytes | None, asked: list[Received]) -> list[str]:
        """What is wrong with what was answered, to a request that upstreams were asked for so often."""
        if answer is None:
            return ["hangs"]
        statuses = statuses_of(answer)
        self.found.statuses.update(f"{status // 100}xx" for status in statuses or [0])
        problems = [f"status {status}" for status in statuses if status >= 500 or 300 <= status < 400]
        # behind a request that was taken, bytes that are none end the connection before it is answered
        garbled = b"Invalid HTTP request received." in answer
        answered = sum(200 <= status < 300 for status in statuses)
        if attack.ends and statuses and not garbled and len(asked) > answered:
            problems.append(f"{len(asked)} requests upstream, answers {statuses}")
        if OPERATOR.encode() in answer:
            problems.append("tells the operator's key")
        if self.lured:
            problems.append(f"went to where it was lured: {self.lured.pop()!r}")
        if self.running.process.returncode is not None:
            problems.append("the process is gone")
        return problems

    def _of_received(self, received: Received) -> list[str]:
        """What is wrong with a request that an upstream got."""
        names = Counter(name.lower() for name, _ in received.headers)
        problems = [
            f"{name} {names[name]} times" for name in ("host", "content-length", "authorization") if names[name] > 1
        ]
        problems += [f"{name} goes upstream" for name in ("transfer-encoding", "cookie", "upgrade") if names[name]]
        if received.header("host") != f"127.0.0.1:{self.behind.port}":
            problems.append(f"host {received.header('host')}")
        if not received.path.startswith("/v1/") and received.path != "/v1":
            problems.append(f"path {received.path[:80]}")
        key = received.header("authorization") or ""
        if is_keyed(received) and key != f"Bearer {OPERATOR}":
            problems.append(f"another key than the operator's: {key[:40]}")
        if not (is_keyed(received) or is_listing(received)) and OPERATOR in str(received.headers):
            problems.append("the operator's key goes where it is not meant for")
        return problems

    async def _exchange(self, sent: bytes, *, ends: bool, clear: bool) -> bytes | None:
        """All that is answered on one connection; None where it does not end."""
        host, _, port = self.running.base.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        answer = bytearray()
        try:
            with suppress(ConnectionError):
                writer.write(sent)
                if not ends:
                    writer.write_eof()
                async with asyncio.timeout(_PATIENCE):
                    while chunk := await self._read(reader, writer, _PATIENCE if clear else self.quiet):
                        answer += chunk
            return bytes(answer)
        except TimeoutError:
            return None
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, quiet: float) -> bytes:
        reading = asyncio.ensure_future(reader.read(2**16))
        done, _ = await asyncio.wait({reading}, timeout=quiet)
        if not done and not writer.transport.is_closing():
            # it waits for more of what it takes for one request
            with suppress(OSError):
                writer.write_eof()
        return await reading


def is_listing(received: Received) -> bool:
    """Whether it is a question for the upstream's models, which goes to all of them."""
    return (received.method, received.path) == ("GET", "/v1/models")


def is_keyed(received: Received) -> bool:
    """Whether a request is of a model whose upstream has the operator's key."""
    try:
        body = received.body.decode("utf-8", "replace")
        return body.startswith("{") and str(json.loads(body)["model"]).startswith("keyed-")
    except (ValueError, KeyError, TypeError):
        return False


def statuses_of(answer: bytes) -> list[int]:
    """The statuses of all answers on a connection, by their own lengths. Raises `ValueError` for what is no answer."""
    found: list[int] = []
    while answer:
        head, _, answer = answer.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        protocol, status, _ = (first + b"  ").split(b" ", 2)
        if protocol not in (b"HTTP/1.1", b"HTTP/1.0"):
            raise ValueError(f"no answer: {first[:80]!r}")
        found.append(int(status))
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        if found[-1] < 200:
            found.pop()
        elif fields.get(b"transfer-encoding") == b"chunked":
            answer = answer.partition(b"0\r\n\r\n")[2] if not answer.startswith(b"0\r\n\r\n") else answer[5:]
        else:
            length = int(fields.get(b"content-length", b"0"))
            # the answer to HEAD has a length and no body
            answer = answer[length:] if not answer.startswith(b"HTTP/1.1 ") else answer
    return found


async def answering(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    if received.method == "HEAD":
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n")
        return
    if b'"stream": true' not in received.body and b'"stream":true' not in received.body:
        await send(writer, 200, DEFAULT_ANSWER)
        return
    await begin_stream(writer)
    for part in (b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n', b"data: [DONE]\n\n", b""):
        await send_chunk(writer, part)


@asynccontextmanager
async def world(folder: Path) -> AsyncGenerator[World, None]:
    """`penstock serve` with the shipped chain, and an upstream of its own key beside the one that passes keys on."""
    lured: list[bytes] = []

    async def lure(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lured.append(await reader.read(200))
        writer.close()

    trap = await asyncio.start_server(lure, "127.0.0.1", 0)
    port = trap.sockets[0].getsockname()[1]
    try:
        async with upstream() as behind:
            behind.respond = answering
            keyed = f'  keyed: {{kind: openai, base_url: "{behind.url}", api_key: {OPERATOR}}}\n'
            # addresses as names of models are not for an Ollama that is not there
            text = config(behind.url, folder / "state").replace('"*:*", ', "")
            text = "default_upstream: openai\n" + text.replace("upstreams:\n", f"upstreams:\n{keyed}", 1)
            text = text.replace("models:\n", 'models:\n  - {match: "keyed-*", upstream: keyed, window: 16000}\n', 1)
            async with served(text, folder) as running:
                yield World(running, behind, lured, f"http://127.0.0.1:{port}")
    finally:
        trap.close()
        await trap.wait_closed()
