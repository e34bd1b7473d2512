"""What counting costs: a synthetic agent's conversation of 200 KB, cold and in a steady turn.

Run `python -m benchmarks.count_tokens`. Milliseconds of this thread's CPU and of the clock, the least of many runs;
trust the ratios.
"""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable

from proxy.chat import ChatRequest, Message, Tool
from proxy.context import Identity
from proxy.models import Models
from proxy.models.tokens import TokenService

TEXT = "the order of a customer was shipped on time because our depot in the north had stock of every size"
WORDS = TEXT.split()


def conversation(messages: int, kilobytes: int, seed: int = 7) -> list[bytes]:
    """The JSON of so many messages, in turn a user's, a tool call, its result and an answer."""
    dice = random.Random(seed)
    each = kilobytes * 1000 // messages
    texts = []
    for index in range(messages):
        prose = " ".join(
            dice.choice(WORDS) + str(dice.randrange(100)) * (dice.random() < 0.1) for _ in range(each // 5)
        )
        role = ("user", "assistant", "tool", "assistant")[index % 4]
        body: dict[str, object] = {"role": role, "content": f"{index}: {prose}"[: each - 40]}
        if role == "tool":
            body["tool_call_id"] = f"call_{index - 1}"
        texts.append(json.dumps(body).encode())
    return texts


def tools(count: int) -> list[bytes]:
    """The JSON of so many tools with three parameters each."""
    texts = []
    for index in range(count):
        fields = {f"field_{i}": {"type": "string", "description": f"What field {i} holds."} for i in range(3)}
        function = {
            "name": f"look_up_{index}",
            "description": "Looks up a record by its key and returns it as JSON.",
            "parameters": {"type": "object", "properties": fields, "required": ["field_0"]},
        }
        texts.append(json.dumps({"type": "function", "function": function}).encode())
    return texts


def request(messages: list[bytes], offered: list[bytes]) -> ChatRequest:
    """A request as the server parses it: new objects and new bytes each time, so that no hash is remembered."""
    return ChatRequest(
        "gpt-4o",
        tuple(Message(json.loads(text), bytes(bytearray(text))) for text in messages),
        tuple(Tool(json.loads(text), bytes(bytearray(text))) for text in offered),
    )


async def least(
    make: Callable[[], ChatRequest], count: Callable[[ChatRequest], Awaitable[object]], runs: int
) -> tuple[float, float]:
    """The least milliseconds of CPU on the event loop, and of the clock."""
    cpu, clock = [], []
    for _ in range(runs):
        made = make()
        began, ticked = time.thread_time(), time.perf_counter()
        await count(made)
        cpu.append(time.thread_time() - began)
        clock.append(time.perf_counter() - ticked)
    return min(cpu) * 1e3, min(clock) * 1e3


async def main() -> None:
    """Print the table."""
    texts, offered = conversation(62, 200), tools(45)
    profile = Models().resolve("gpt-4o")
    size = sum(map(len, [*texts, *offered])) / 1000
    print(f"60 messages and 45 tools, {size:.0f} KB")
    began = time.perf_counter()
    service = TokenService()
    await service.warm(["o200k_base"])
    print(f"load o200k_base       {1e3 * (time.perf_counter() - began):8.1f} ms, once, in a thread")

    async def cold(made: ChatRequest) -> object:
        service.memo.clear()
        return await service.bind(Identity("tenant"), profile).count(made)

    cold_cpu, cold_clock = await least(lambda: request(texts, offered), cold, 20)
    await service.bind(Identity("tenant"), profile).count(request(texts[:60], offered))

    turn = 0

    def next_turn() -> ChatRequest:
        nonlocal turn
        turn += 1
        new = [text.replace(b'": "', f'": "turn {turn} '.encode(), 2)[:2000] for text in texts[60:]]
        new = [json.dumps({"role": "user", "content": text.decode()}).encode() for text in new]
        return request(texts[:60] + new, offered)

    steady_cpu, steady_clock = await least(
        next_turn, lambda made: service.bind(Identity("tenant"), profile).count(made), 300
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

    async def alone(made: ChatRequest) -> object:
        return sum(encode(message.text) for message in made.messages)

    spent_of: dict[str, list[float]] = {"alone": [], "cold": []}
    for _ in range(20):  # in turn, and of the whole process, because it counts in a thread
        for name, work in (("alone", alone), ("cold", cold)):
            made = request(texts, [])
            before = time.process_time()
            await work(made)
            spent_of[name].append(1e3 * (time.process_time() - before))
    encoded, counted = min(spent_of["alone"]), min(spent_of["cold"])
    print(f"tiktoken alone {encoded:7.3f} ms of CPU for the messages, counting them / this = {counted / encoded:.2f}")
    service.close()


if __name__ == "__main__":
    asyncio.run(main())
