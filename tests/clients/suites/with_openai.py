"""The openai package, 2.x and 3.x, its blocking and its asynchronous client."""

import asyncio
import io
import time
from functools import partial

import openai
from pydantic import BaseModel
from report import KEY, PENSTOCK, collected, done, equal, model, only, raised, requests_for, run, scenario, upstream

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


class City(BaseModel):
    name: str
    rank: int
    rivers: list[str]


def client(kind, path="/v1", **options):
    return kind(base_url=PENSTOCK + path, api_key=KEY, timeout=30, **options)


def user(text="hello"):
    return [{"role": "user", "content": text}]


async def ask(kind, name, text="hello", **fields):
    """The answer to a chat; of a stream, its chunks."""
    created = await done(client(kind).chat.completions.create(model=name, **{"messages": user(text), **fields}))
    return await collected(created) if fields.get("stream") else created


@scenario
async def chat(chain, kind):
    answer = await ask(kind, model(chain), "good morning")
    equal(answer.choices[0].message.content, "heard 1 messages (user), the last says: good morning")
    equal(answer.choices[0].finish_reason, "stop")
    equal(answer.model, "scripted-2026-01-01")
    assert answer.usage.prompt_tokens > 0


@scenario
async def stream(chain, kind):
    chunks = await ask(kind, model(chain), stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    equal(text.strip(), "heard 1 messages (user), the last says: hello")
    equal(chunks[-1].choices[0].finish_reason, "stop")
    assert not any("usage" in chunk.model_fields_set for chunk in chunks), "usage came unasked"


@scenario
@only("plain", "steps", "asked")
async def stream_with_usage(chain, kind):
    chunks = await ask(kind, model(chain), stream=True, stream_options={"include_usage": True})
    equal(chunks[-1].choices, [])
    equal(chunks[-1].usage.completion_tokens, 12)
    assert all("usage" in chunk.model_fields_set for chunk in chunks), "usage: null is missing"


@scenario
@only("asked")
async def stream_whose_usage_penstock_asked_for(chain, kind):
    name = model(chain)
    chunks = await ask(kind, name, stream=True)
    assert '"include_usage":true' in upstream("last", name)["body"]
    assert not any("usage" in chunk.model_fields_set for chunk in chunks), "usage came unasked"
    equal(chunks[-1].choices[0].finish_reason, "stop")


@scenario
async def tools(chain, kind):
    name = model(chain)
    messages = user("the weather in Lyon and Nice, twice please")
    called = (await ask(kind, name, messages=messages, tools=[WEATHER])).choices[0]
    equal(called.finish_reason, "tool_calls")
    equal([call.function.arguments for call in called.message.tool_calls], ['{"city": "Lyon"}'] * 2)
    messages.append(called.message)
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "sun"} for call in called.message.tool_calls]
    said = (await ask(kind, name, messages=messages, tools=[WEATHER])).choices[0]
    equal(said.message.content, "heard 4 messages (user assistant tool tool), the last says: sun")


@scenario
async def tools_streamed(chain, kind):
    arguments, ids = {}, []
    for chunk in await ask(kind, model(chain), "weather, twice", tools=[WEATHER], stream=True):
        for call in chunk.choices[0].delta.tool_calls or ():
            ids += [call.id] if call.id else []
            arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
    equal(arguments, {0: '{"city": "Lyon"}', 1: '{"city": "Lyon"}'})
    equal(ids, ["call_0", "call_1"])


@scenario
async def parse(chain, kind):
    answer = await done(client(kind).chat.completions.parse(model=model(chain), messages=user(), response_format=City))
    equal(answer.choices[0].message.parsed, City(name="Lyon", rank=7, rivers=["Lyon"]))


@scenario
async def stream_helper(chain, kind):
    manager = client(kind).chat.completions.stream(
        model=model(chain), messages=user(), response_format=City, stream_options={"include_usage": True}
    )
    if hasattr(manager, "__aenter__"):
        async with manager as events:
            seen = [event.type async for event in events]
            final = await events.get_final_completion()
    else:
        with manager as events:
            seen = [event.type for event in events]
            final = events.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= set(seen), seen
    equal(final.choices[0].message.parsed, City(name="Lyon", rank=7, rivers=["Lyon"]))
    equal(final.usage.completion_tokens, 12)


@scenario
async def headers(chain, kind):
    name = model(chain)
    raw = await done(client(kind).chat.completions.with_raw_response.create(model=name, messages=user()))
    parsed = raw.parse()
    parsed = await done(parsed)
    equal(parsed.choices[0].finish_reason, "stop")
    assert raw.headers["x-request-id"].startswith("req_"), raw.headers["x-request-id"]
    equal(parsed._request_id, raw.headers["x-request-id"])
    equal(raw.headers["x-upstream-request-id"], "req_upstream")
    equal(raw.headers["openai-processing-ms"], "12")
    before, after, window = raw.headers["x-penstock-context"].split(";")
    assert (before.isdigit() and after.isdigit() and window == "128000") if chain == "steps" else before == "-"
    sent = upstream("last", name)["headers"]
    equal(sent["authorization"], f"Bearer {KEY}")
    assert sent["user-agent"].startswith(("OpenAI/", "AsyncOpenAI/")), sent["user-agent"]
    equal(sent["x-stainless-lang"], "python")


@scenario
async def overflow_of_the_upstream(chain, kind):
    name = model(chain, "overflow")
    error = await raised(openai.BadRequestError, lambda: ask(kind, name))
    equal((error.code, error.param, error.type), ("context_length_exceeded", "messages", "invalid_request_error"))
    equal(requests_for(name), 1)


@scenario
@only("small")
async def overflow_found_by_penstock(chain, kind):
    for stream in (False, True):
        name = model(chain)
        asking = partial(ask, kind, name, "word " * 500, stream=stream)
        error = await raised(openai.BadRequestError, asking)
        equal((error.code, error.param, error.type), ("context_length_exceeded", "messages", "invalid_request_error"))
        assert "maximum context length is 300 tokens" in str(error), str(error)
        assert "context_length_exceeded" in str(error), str(error)
        equal(error.response.headers["x-should-retry"], "false")
        assert error.request_id.startswith("req_")
        equal(requests_for(name), 0)


@scenario
async def retries_of_a_rate_limit(chain, kind):
    for retries in (0, 3):
        name = model(chain, "rate-limited")
        started = time.monotonic()
        create = client(kind, max_retries=retries).chat.completions.create
        error = await raised(openai.RateLimitError, partial(create, model=name, messages=user()))
        equal(error.code, "rate_limit_exceeded")
        equal(requests_for(name), 1 + retries)
        assert time.monotonic() - started < 5, "retry-after-ms was not obeyed"


@scenario
async def error_in_a_stream(chain, kind):
    created = await done(
        client(kind).chat.completions.create(model=model(chain, "broken"), messages=user(), stream=True)
    )
    error = await raised(openai.APIError, lambda: collected(created))
    equal(error.code, "server_error")


@scenario
async def stream_broken_off(chain, kind):
    created = await done(client(kind).chat.completions.create(model=model(chain, "cut"), messages=user(), stream=True))
    error = await raised(openai.APIError, lambda: collected(created))
    equal(error.code, "upstream_broke_off")


@scenario
async def leaving_a_stream(chain, kind):
    name = model(chain, "slow")
    created = await done(client(kind).chat.completions.create(model=name, messages=user("a b " * 60), stream=True))
    if hasattr(created, "__aiter__"):
        await anext(aiter(created))
    else:
        next(iter(created))
    await done(created.close())
    await left(name)


@scenario
async def leaving_before_the_answer(chain, kind):
    name = model(chain, "hanging")
    impatient = client(kind, max_retries=0).with_options(timeout=1.0)
    await raised(openai.APITimeoutError, lambda: impatient.chat.completions.create(model=name, messages=user()))
    await left(name)


async def left(name):
    for _ in range(30):
        if upstream("count", name)["left"] == 1:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the upstream was not told within three seconds that the client left")


@scenario
async def unknown_model(chain, kind):
    for name in (model(chain, "missing"), "of-nobody"):
        error = await raised(openai.NotFoundError, partial(ask, kind, name))
        equal(error.code, "model_not_found")
        assert f"The model `{name}` does not exist" in str(error), str(error)


@scenario
@only("steps")
async def long_history(chain, kind):
    messages = [{"role": "system", "content": text} for text in ("# Role\nHelp.", "# Style\nBriefly.", "Be kind.")]
    for turn in range(20):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
        messages += user(f"question {turn}")
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": "sun"})
        messages.append({"role": "assistant", "content": f"answer {turn}"})
    messages += user("and now?")
    asking = partial(ask, kind, model(chain), messages=messages, tools=[WEATHER], tool_choice="none")
    said = (await asking()).choices[0].message.content
    assert said.startswith("heard 26 messages (system user assistant tool assistant user"), said
    for everything in ({"x-penstock-bypass": "true"}, {"x-penstock-chain": "none"}):
        answer = await asking(extra_headers=everything)
        assert answer.choices[0].message.content.startswith("heard 84 messages (system system system user")


@scenario
async def models(chain, kind):
    listed = [each.id for each in await collected(await done(client(kind).models.list()))]
    assert {"plain/chat", "steps/chat", "renamed", "echo"} <= set(listed), listed
    equal(len(listed), len(set(listed)))
    for name in (f"{chain}/chat", f"{chain}/not-in-the-list", "renamed"):
        equal((await done(client(kind).models.retrieve(name))).id, name)
    error = await raised(openai.NotFoundError, lambda: client(kind).models.retrieve("of-nobody"))
    equal(error.code, "model_not_found")


@scenario
async def embeddings(chain, kind):
    for options in ({}, {"encoding_format": "float"}):
        answer = await done(client(kind).embeddings.create(model=model(chain), input=["a", "b"], **options))
        equal([each.embedding for each in answer.data], [[0.25, -0.5, 1.0]] * 2)


@scenario
async def responses(chain, kind):
    answer = await done(client(kind).responses.create(model=model(chain), input="hello"))
    equal(answer.output_text, "heard you")
    events = await collected(await done(client(kind).responses.create(model=model(chain), input="hello", stream=True)))
    equal((events[0].type, events[-1].type), ("response.created", "response.completed"))


@scenario
async def transcription(chain, kind):
    sound = io.BytesIO(b"RIFF" + bytes(range(256)) * 100)
    sound.name = "sound.wav"
    name = model(chain)
    answer = await done(client(kind).audio.transcriptions.create(model=name, file=sound))
    equal(answer.text, f"25604 bytes for {name}")


@scenario
@only("steps")
async def base_url_without_v1(chain, kind):
    for path in ("", "/", "/v1/"):
        asking = client(kind, path)
        answer = await done(asking.chat.completions.create(model=model(chain), messages=user()))
        equal(answer.choices[0].finish_reason, "stop")
        chunks = await collected(
            await done(asking.chat.completions.create(model=model(chain), messages=user(), stream=True))
        )
        equal(chunks[-1].choices[0].finish_reason, "stop")
        assert "steps/chat" in [each.id for each in await collected(await done(asking.models.list()))]
        equal((await done(asking.models.retrieve("steps/chat"))).id, "steps/chat")


@scenario
@only("echo")
async def echo(chain, kind):
    answer = await ask(kind, "echo", tools=[WEATHER])
    assert answer.choices[0].message.content.startswith("1 message (1 user), 1 tool"), answer
    chunks = await ask(kind, "echo", stream=True, stream_options={"include_usage": True})
    assert chunks[-1].usage.prompt_tokens > 0
    equal(chunks[-2].choices[0].finish_reason, "stop")


run(("sync", openai.OpenAI), ("async", openai.AsyncOpenAI))
