"""The shipped configuration in front of a real model: llama.cpp with SmolLM2 and a small window. `make test-real`.

It is no part of the tests of every day: the model is large, and answers take minutes in all.
"""

import json
import re
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from tests.e2e.default_chain import SHIPPED
from tests.e2e.served import Served, served
from tests.e2e.servers import until_ready
from tests.real.llama import WINDOW, Llama, llama

pytestmark = pytest.mark.asyncio(loop_scope="module")

Message = dict[str, str]

FIXED = {"temperature": 0, "seed": 7}
AFRESH = {"cache_prompt": False}
"""llama.cpp's own: what it kept of the last prompt may change the last digits of a probability."""
QUESTION = "Name three colours of the rainbow."
DIGITS = " ".join(str(10**8 + 7919 * n) for n in range(400))
"""A number of nine digits is nine tokens of this model, and three of OpenAI's vocabularies."""

TURNS = 42
BOATS = ("cutter", "yawl", "ketch", "sloop", "dinghy")
PORTS = ("Bergen", "Hamar", "Molde", "Narvik", "Oslo", "Skien", "Vadso")


class World:
    """A model, and Penstock in front of it."""

    def __init__(self, penstock: Served, model: Llama, http: aiohttp.ClientSession) -> None:
        self.penstock, self.model, self._http = penstock, model, http

    async def ask(self, base: str, model: str, messages: list[Message], **fields: Any) -> tuple[int, bytes]:
        """Status and body of an answer."""
        status, body, _ = await self.answer(base, model, messages, **fields)
        return status, body

    async def answer(self, base: str, model: str, messages: list[Message], **fields: Any) -> tuple[int, bytes, str]:
        """The same, and what Penstock counted of the prompt: before the chain, behind it, and the window."""
        body = {"model": model, "messages": messages, "max_tokens": 24, **FIXED, **fields}
        headers = {"authorization": "Bearer sk-of-the-client"}
        async with self._http.post(f"{base}/v1/chat/completions", json=body, headers=headers) as answer:
            return answer.status, await answer.read(), answer.headers.get("x-penstock-context", "")

    async def through(self, model: str, messages: list[Message], **fields: Any) -> Any:
        """An answer through Penstock."""
        status, body = await self.ask(self.penstock.base, model, messages, **fields)
        assert status == 200, body
        return json.loads(body)

    async def directly(self, messages: list[Message], **fields: Any) -> Any:
        """An answer of the model alone."""
        status, body = await self.ask(self.model.base, "any", messages, **fields)
        assert status == 200, body
        return json.loads(body)


def config(url: str, state: str) -> str:
    """`config.yaml` with its upstream at `url`: its default chain for models whose window is told, and for one whose is not."""
    made = yaml.safe_load(SHIPPED)
    made["upstreams"]["openai"]["base_url"] = f"{url}/v1"
    made["chains"] |= {"empty": [], "short": [{"compress_history": {}}, {"reject_oversize": {}}]}
    made["models"] = [
        {"match": "plain", "upstream": "openai", "chain": "empty"},
        {"match": "llama-3-short-*", "upstream": "openai", "window": WINDOW, "chain": "short"},
        {"match": ["smollm2*", "llama-3-*"], "upstream": "openai", "window": WINDOW},
        {"match": "*", "upstream": "openai"},
    ]
    made |= {"state": {"directory": state}, "telemetry": {"log_level": "warning"}}
    return yaml.safe_dump(made, sort_keys=False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World, None]:
    folder = tmp_path_factory.mktemp("real")
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as http,
        llama(folder, http) as model,
        served(config(model.base, str(folder / "state")), folder) as penstock,
    ):
        await until_ready(penstock.base)
        yield World(penstock, model, http)
        assert {json.loads(line)["logger"] for line in penstock.log} <= {"penstock.context"}, "but for how full it is"
        async with http.get(f"{penstock.base}/metrics") as answer:
            failed = r'^penstock_policy_verdicts_total\{.*verdict="fail".*\} (?!0\.0)'
            assert not re.findall(failed, await answer.text(), re.MULTILINE)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def without_times(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in ("id", "created", "timings")}


def readings(turns: int) -> list[Message]:
    """A conversation that is mostly digits."""
    said = []
    for n in range(turns):
        numbers = " ".join(str(10**8 + 7919 * (100 * n + k)) for k in range(8))
        said += [user(f"The meter {n} says {numbers}."), assistant("Noted.")]
    return [*said, user("Which meter was the last?")]


def question(turn: int) -> str:
    """What the user says in a long chat: some 60 tokens."""
    boat, port = BOATS[turn % len(BOATS)], PORTS[turn % len(PORTS)]
    return (
        f"The {boat} number {turn + 1} lies in {port}. It was built in {1900 + turn} and has {turn + 2} berths. Its engine "
        f"was mended {turn + 1} times. What would you tell somebody who wants to buy it?"
    )


def questions(turns: int) -> list[Message]:
    """A conversation of words."""
    said = [each for turn in range(turns) for each in (user(question(turn)), assistant("I would praise it."))]
    return [*said, user("Which meter was the last?")]


@pytest.mark.parametrize("model", ["plain", "smollm2"])
async def test_a_short_chat_has_the_answer_of_the_model_alone(world: World, model: str) -> None:
    chat = [{"role": "system", "content": "Answer in one sentence."}, user(QUESTION)]
    for _ in range(2):
        direct = await world.directly(chat, **AFRESH)
        told = await world.through(model, chat, **AFRESH)
        assert without_times(told) == without_times(direct)
        answer = direct["choices"][0]["message"]["content"]
        assert answer
        chat += [assistant(answer), user("Which of them do you like best?")]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_that_no_step_can_better_is_told_as_openais(world: World, stream: bool) -> None:
    status, body = await world.ask(world.model.base, "any", [user(DIGITS)], stream=stream)
    alone = json.loads(body)["error"]
    assert (status, alone["type"], alone["code"]) == (400, "exceed_context_size_error", 400)
    needed = alone["n_prompt_tokens"]
    told = {}
    for model in ("plain", f"llama-3-short-{stream}"):
        before = await world.model.seen()
        status, body = await world.ask(world.penstock.base, model, [user(DIGITS)], stream=stream)
        told[model] = error = json.loads(body)["error"]
        assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", "messages")
        assert error["message"].startswith(f"This model's maximum context length is {WINDOW} tokens. However, your")
        after = await world.model.seen()
        assert (after.requests - before.requests, after.refused[len(before.refused) :]) == (1, [needed])
    assert told["plain"] == alone | {name: told["plain"][name] for name in ("code", "param", "message")}
    assert alone["message"] in told["plain"]["message"], "the server's own words"


@pytest.mark.parametrize(
    ("model", "chat", "stream"),
    [
        pytest.param("llama-3-counts", readings(25), False, id="its digits are counted as those of another model"),
        pytest.param("llama-3-streams", readings(25), True, id="the same as a stream"),
        pytest.param("gpt-4", readings(25), False, id="it is not the model whose name it has"),
        pytest.param("gpt-4o", questions(40), False, id="its window is smaller than known"),
    ],
)
async def test_a_refused_prompt_goes_out_shortened(world: World, model: str, chat: list[Message], stream: bool) -> None:
    before = await world.model.seen()
    status, body = await world.ask(world.penstock.base, model, chat, stream=stream)
    assert status == 200, body
    after = await world.model.seen()
    assert after.requests - before.requests == 2
    (refused,) = after.refused[len(before.refused) :]
    assert refused > WINDOW
    read = await world.model.last_prompt()
    assert chat[0]["content"] not in read
    assert all(message["content"] in read for message in chat[-3:])
    await world.through(model, [*chat, assistant("The last one."), user("Thank you. And the one before?")])
    again = await world.model.seen()
    assert (again.requests - after.requests, again.refused) == (1, after.refused), "it has learned"


async def test_digits_of_a_model_without_a_known_tokenizer_are_counted_from_the_start(world: World) -> None:
    before = await world.model.seen()
    for model, chat in (("smollm2-read", readings(25)), ("smollm2-paste", [user(DIGITS)])):
        status, body = await world.ask(world.model.base, "any", chat)
        needed = json.loads(body)["error"]["n_prompt_tokens"]
        status, body, context = await world.answer(world.penstock.base, model, chat)
        assert status == 200, body
        assert json.loads(body)["usage"]["prompt_tokens"] < WINDOW
        counted = int(context.partition(";")[0])
        assert 0.95 * needed < counted < 1.25 * needed
    after = await world.model.seen()
    assert (after.requests - before.requests, len(after.refused) - len(before.refused)) == (4, 2), "the model's alone"


async def test_a_long_chat_goes_on_in_a_small_window(world: World) -> None:
    before, chat = await world.model.seen(), [user("I sell old boats. Shall we begin?")]
    for turn in range(TURNS):
        if turn % 3 == 2:
            wanted = {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 16}
            status, body = await world.ask(world.penstock.base, "smollm2-long", chat, **wanted)
            assert status == 200, (turn, body)
            *told, last, done = [event.removeprefix("data: ") for event in body.decode().split("\n\n") if event]
            assert done == "[DONE]"
            usage = json.loads(last)["usage"]
            said = "".join(json.loads(event)["choices"][0]["delta"].get("content") or "" for event in told)
        else:
            answer = await world.through("smollm2-long", chat, max_tokens=16)
            usage, said = answer["usage"], answer["choices"][0]["message"]["content"]
        assert said, turn
        assert usage["total_tokens"] <= WINDOW
        assert chat[-1]["content"] in await world.model.last_prompt()
        chat += [assistant(said), user(question(turn))]
    after = await world.model.seen()
    assert (after.requests - before.requests, after.refused) == (TURNS, before.refused)
    assert "<conversation_summary>" in await world.model.last_prompt()
    status, body = await world.ask(world.model.base, "any", chat)
    assert status == 400, "the model alone cannot go on"
    assert json.loads(body)["error"]["n_prompt_tokens"] > 1.5 * WINDOW
