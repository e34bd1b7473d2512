"""Byte for byte: what the upstream receives is what was sent, and what comes back is what the upstream said."""

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable, Iterable

import aiohttp

from tests.clients.odd_answers import ODD
from tests.clients.scripted_upstream import PAUSE

PENSTOCK = os.environ["PENSTOCK_URL"]
UPSTREAM = os.environ["SCRIPTED_URL"]
CHAINS = ("plain", "steps")

RELAYED = ("content-type", "content-encoding", "location", "retry-after", "openai-processing-ms")
"""Response headers that must come through as they are, or stay away."""

BODIES = {
    "compact": b'{"model":"MODEL","messages":[{"role":"user","content":"hi"}]}',
    "spaced": b' {\r\n  "messages" : [ { "content":"hi" ,"role":"user" } ] ,\t"model":"MODEL"\n}\n\n',
    "numbers": b'{"model":"MODEL","temperature":1.0,"top_p":1e-2,"seed":-9223372036854775808,"messages":'
    b'[{"role":"user","content":"hi"}],"logit_bias":{"50256":-100}}',
    "beyond 64 bits": b'{"model":"MODEL","vendor":123456789012345678901234567890,"messages":'
    b'[{"role":"user","content":"hi"}]}',
    "escapes": b'{"model":"MODEL","messages":[{"role":"user","content":"\\u6c34\\/\\ud83d\\udeaa \xe6\xb0\xb4"}]}',
    "unknown": b'{"model":"MODEL","vendor":{"b":1,"a":[null,true]},"messages":[{"x":1,"role":"user","content":"hi"}]}',
    "nulls": b'{"model":"MODEL","tools":null,"stop":null,"stream":null,"messages":[{"role":"user","content":"hi"}]}',
    "parts": b'{"model":"MODEL","messages":[{"role":"user","content":[{"type":"text","text":"hi"},'
    b'{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}}]}]}',
}
"""Bodies that a re-serialisation would change."""

_fresh = itertools.count()


def body_of(model: str, *, stream: bool = False) -> bytes:
    """The smallest request for a model."""
    asked = b',"stream":true' if stream else b""
    return b'{"model":"' + model.encode() + b'","messages":[{"role":"user","content":"hi"}]' + asked + b"}"


Check = Callable[[str, str], Awaitable[None]]
Answer = tuple[int, dict[str, str | None], bytes]


class Wire:
    """A client that reads raw bytes and follows nothing."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def post(self, base: str, body: bytes) -> Answer:
        """The answer to a chat request: status, the headers of `RELAYED`, and the body as it came."""
        headers = {"content-type": "application/json", "authorization": "Bearer sk-x"}
        async with self._session.post(
            f"{base}/v1/chat/completions", data=body, headers=headers, allow_redirects=False
        ) as answer:
            return answer.status, {name: answer.headers.get(name) for name in RELAYED}, await answer.read()

    async def last(self, model: str) -> str:
        """The body of the last request for a model, as it reached the upstream."""
        async with self._session.get(f"{UPSTREAM}/_last", params={"model": model}) as answer:
            return str((await answer.json())["body"])

    async def odd_answer(self, chain: str, name: str) -> None:
        """Raises `AssertionError` unless an answer is the same with and without Penstock."""
        body = body_of(f"{chain}/{name}", stream=True)
        direct, through = await self.post(UPSTREAM, body), await self.post(PENSTOCK, body)
        assert direct == through, f"direct {_short(direct)}, through Penstock {_short(through)}"

    async def odd_answer_with_usage_asked(self, chain: str, name: str) -> None:
        """Raises `AssertionError` if Penstock changes more than line ends of a stream in which it looks for usage."""
        body = body_of(f"{chain}/{name}", stream=True)
        direct, through = await self.post(UPSTREAM, body), await self.post(PENSTOCK, body)
        unchanged = direct[:2] == through[:2] and _line_feeds(direct) == _line_feeds(through)
        assert unchanged, f"direct {_short(direct)}, through Penstock {_short(through)}"

    async def request(self, chain: str, name: str) -> None:
        """Raises `AssertionError` unless a request reaches the upstream as it was sent."""
        model = f"{chain}/chat@{next(_fresh)}"
        body = BODIES[name].replace(b"MODEL", model.encode())
        status, _, answer = await self.post(PENSTOCK, body)
        assert status == 200, answer
        received = await self.last(model)
        assert received == body.decode(), f"sent {body.decode()!r}, received {received!r}"

    async def pace(self, chain: str, name: str) -> None:
        """Raises `AssertionError` unless the chunks of a slow stream arrive one by one, as they are sent."""
        async with self._session.post(
            f"{PENSTOCK}/v1/chat/completions", data=body_of(f"{chain}/slow", stream=True)
        ) as answer:
            times = [time.monotonic() async for _ in answer.content.iter_any()]
        gaps = [after - before for before, after in itertools.pairwise(times)]
        assert len(gaps) >= 8, f"{len(times)} chunks arrived"
        assert max(gaps) < 6 * PAUSE, f"the longest pause was {max(gaps):.2f} seconds"


def _line_feeds(answer: Answer) -> bytes:
    compressed = answer[1]["content-encoding"] is not None
    return answer[2] if compressed else answer[2].replace(b"\r\n", b"\n")


def _short(answer: Answer) -> str:
    status, headers, body = answer
    told = {name: value for name, value in headers.items() if value is not None}
    return f"{status} {told} {len(body)} bytes {body[:160]!r}"


async def main() -> None:
    """Run all scenarios, one line each."""
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(auto_decompress=False, timeout=timeout) as session:
        wire = Wire(session)
        without_usage = [name for name in ODD if "usage" not in name]
        kinds: list[tuple[str, Check, Iterable[str], tuple[str, ...]]] = [
            ("answer", wire.odd_answer, ODD, CHAINS),
            ("answer", wire.odd_answer_with_usage_asked, without_usage, ("asked",)),
            ("request", wire.request, BODIES, CHAINS),
            ("pace", wire.pace, ["slow"], (*CHAINS, "asked")),
        ]
        for kind, check, names, chains in kinds:
            for name, chain in itertools.product(names, chains):
                print(await _verdict(f"{kind}: {name} [{chain}]", check(chain, name)), flush=True)


async def _verdict(name: str, running: Awaitable[None]) -> str:
    try:
        await running
    except (AssertionError, aiohttp.ClientError, TimeoutError) as error:
        return f"fail\t{name}\t{type(error).__name__}: {' '.join(str(error).split())[:600]}"
    return f"pass\t{name}\t"


if __name__ == "__main__":
    asyncio.run(main())
