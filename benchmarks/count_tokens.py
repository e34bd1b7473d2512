"""Cost of counting tokens: a synthetic agent's conversation of 200 KB, cold and in a steady turn.

    python -m benchmarks.count_tokens

It prints milliseconds of the event loop's CPU and of the clock, the least of many runs. Compare ratios only.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable

from benchmarks.turns import Writer
from proxy.chat import ChatRequest, Message, Tool
from proxy.context import Identity
from proxy.models import Models
from proxy.models.tokens import TokenService


def request(messages: list[bytes], offered: list[bytes]) -> ChatRequest:
    """Return a request as the server parses it: new objects and new bytes each time, so that no hash is cached."""
    return ChatRequest(
        "gpt-4o",
        tuple(Message(json.loads(text), bytes(bytearray(text))) for text in messages),
        tuple(Tool(json.loads(text), bytes(bytearray(text))) for text in offered),
    )


async def least(
    make: Callable[[], ChatRequest], count: Callable[[ChatRequest], Awaitable[object]], runs: int
) -> tuple[float, float]:
    """Return the least milliseconds of CPU on the event loop, and of the clock."""
    cpu, clock = [], []
    for _ in range(runs):
        next_request = make()
        began, ticked = time.thread_time(), time.perf_counter()
        await count(next_request)
        cpu.append(time.thread_time() - began)
        clock.append(time.perf_counter() - ticked)
    return min(cpu) * 1e3, min(clock) * 1e3


async def main() -> None:
    writer = Writer(7)
    body = writer.agent(30, 6000)
    texts, offered = ([json.dumps(each).encode() for each in body[name]] for name in ("messages", "tools"))
    profile = Models().resolve("gpt-4o")
    size = sum(map(len, [*texts, *offered])) / 1000
    print(f"60 messages and 45 tools, {size:.0f} KB")
    began = time.perf_counter()
    service = TokenService()
    await service.warm(["o200k_base"])
    print(f"load o200k_base       {1e3 * (time.perf_counter() - began):8.1f} ms, once, in a thread")

    async def cold(counted: ChatRequest) -> object:
        service.memo.clear()
        return await service.bind(Identity("tenant"), profile).count(counted)

    cold_cpu, cold_clock = await least(lambda: request(texts, offered), cold, 20)
    await service.bind(Identity("tenant"), profile).count(request(texts[:60], offered))

    def next_turn() -> ChatRequest:
        return request([*texts[:60], *(json.dumps(each).encode() for each in writer.step(2000))], offered)

    steady_cpu, steady_clock = await least(
        next_turn, lambda turn: service.bind(Identity("tenant"), profile).count(turn), 300
    )
    again = request(texts[:60], offered)
    bound = service.bind(Identity("tenant"), profile)
    await bound.count(again)
    same_cpu, same_clock = await least(lambda: again, bound.count, 300)
    await bound.count(request(texts[:60], offered))
    known_cpu, known_clock = await least(lambda: request(texts[:60], offered), bound.count, 300)
    for name, spent, elapsed in (
        ("cold, in a thread", cold_cpu, cold_clock),
        ("two new messages", steady_cpu, steady_clock),
        ("nothing new", known_cpu, known_clock),
        ("the same object", same_cpu, same_clock),
    ):
        print(
            f"{name:20}  {elapsed:8.3f} ms, {spent:.3f} ms of the loop's CPU, cold / this = {cold_clock / elapsed:.0f}"
        )
    encode = service.encoder("o200k_base")

    async def alone(counted: ChatRequest) -> object:
        return sum(encode(message.text) for message in counted.messages)

    spent_of: dict[str, list[float]] = {"alone": [], "cold": []}
    for _ in range(20):  # in turn, and CPU of the whole process, because counting runs in a thread
        for name, work in (("alone", alone), ("cold", cold)):
            without_tools = request(texts, [])
            before = time.process_time()
            await work(without_tools)
            spent_of[name].append(1e3 * (time.process_time() - before))
    encoded, counted = min(spent_of["alone"]), min(spent_of["cold"])
    print(f"tiktoken alone {encoded:7.3f} ms of CPU for the messages, counting them / this = {counted / encoded:.2f}")
    service.close()


if __name__ == "__main__":
    asyncio.run(main())
