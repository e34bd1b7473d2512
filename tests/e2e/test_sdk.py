"""OpenAI's own SDK against a running proxy; other clients have a command of their own (`make test-clients`)."""

from collections.abc import AsyncGenerator

import openai
import pytest

from tests.e2e.conftest import Setup


@pytest.fixture
async def client(setup: Setup) -> AsyncGenerator[openai.AsyncOpenAI, None]:
    async with openai.AsyncOpenAI(base_url=f"{setup.base}/v1", api_key="sk-client", max_retries=2) as made:
        yield made


async def test_a_chat(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="echo", messages=[{"role": "user", "content": "hi"}])
    assert answer.choices[0].message.content is not None
    assert answer.choices[0].message.content.startswith("1 message (1 user), 0 tools")
    assert answer._request_id
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > 0


async def test_a_stream(client: openai.AsyncOpenAI) -> None:
    async with client.chat.completions.stream(
        model="echo", messages=[{"role": "user", "content": "hi"}], stream_options={"include_usage": True}
    ) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.content is not None
    assert final.choices[0].finish_reason == "stop"
    assert final.usage is not None


async def test_an_overflow_is_not_tried_again(client: openai.AsyncOpenAI, setup: Setup) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="tiny-1", messages=[{"role": "user", "content": "x " * 99}])
    assert caught.value.code == "context_length_exceeded"
    assert "context_length_exceeded" in str(caught.value)
    assert setup.upstream.received == []


async def test_models(client: openai.AsyncOpenAI) -> None:
    assert "echo" in [model.id async for model in client.models.list()]
    assert (await client.models.retrieve("org/chain-9")).id == "org/chain-9"


async def test_a_base_url_without_v1(setup: Setup) -> None:
    async with openai.AsyncOpenAI(base_url=setup.base, api_key="x") as client:
        answer = await client.chat.completions.create(model="echo", messages=[{"role": "user", "content": "hi"}])
    assert answer.choices
