"""OpenAI's own SDK against a running proxy; other clients have a command of their own (`make test-clients`)."""

from typing import Any

import openai
import pytest

from tests.e2e.conftest import Setup


async def test_chat_stream_models_and_an_overflow_that_is_not_tried_again(setup: Setup) -> None:
    asked: Any = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}
    async with openai.AsyncOpenAI(base_url=setup.base, api_key="sk-client", max_retries=2) as client:  # without /v1
        answer = await client.chat.completions.create(**asked)
        assert (answer.choices[0].message.content or "").startswith("1 message (1 user), 0 tools")
        assert answer._request_id
        assert answer.usage is not None
        assert answer.usage.prompt_tokens > 0
        async with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
            final = await stream.get_final_completion()
        assert final.choices[0].finish_reason == "stop"
        assert final.usage is not None
        assert "echo" in [model.id async for model in client.models.list()]
        assert (await client.models.retrieve("org/chain-9")).id == "org/chain-9"
        setup.upstream.received.clear()
        too_long: Any = {"model": "tiny-1", "messages": [{"role": "user", "content": "x " * 99}]}
        with pytest.raises(openai.BadRequestError, match="context_length_exceeded") as caught:
            await client.chat.completions.create(**too_long)
        assert caught.value.code == "context_length_exceeded"
        assert setup.upstream.received == []
