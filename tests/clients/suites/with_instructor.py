"""instructor."""

import json

import instructor
import openai
from pydantic import BaseModel
from report import KEY, PENSTOCK, collected, done, equal, model, only, run, scenario, upstream


class City(BaseModel):
    """A city."""

    name: str
    rank: int
    rivers: list[str]


LYON = {"name": "Lyon", "rank": 7, "rivers": ["Lyon"]}


def client(kind, mode=instructor.Mode.TOOLS):
    return instructor.from_openai(kind(base_url=PENSTOCK + "/v1", api_key=KEY, timeout=30), mode=mode)


def user():
    return [{"role": "user", "content": "a city"}]


@scenario
async def forced_tool(chain, kind):
    name = model(chain)
    got = await done(client(kind).chat.completions.create(model=name, messages=user(), response_model=City))
    equal(got.model_dump(), LYON)
    assert '"tool_choice":' in upstream("last", name)["body"]


@scenario
async def schema(chain, kind):
    asking = client(kind, instructor.Mode.JSON_SCHEMA)
    got = await done(asking.chat.completions.create(model=model(chain), messages=user(), response_model=City))
    equal(got.model_dump(), LYON)


@scenario
async def partial(chain, kind):
    parts = client(kind).chat.completions.create_partial(model=model(chain), messages=user(), response_model=City)
    equal((await collected(await done(parts)))[-1].model_dump(), LYON)


OTHERS = [
    {"type": "function", "function": {"name": f"other_{n}", "description": f"Does the thing {n}.", "parameters": {}}}
    for n in range(60)
]


def with_others(kind):
    """A client of an application that has 60 tools beside the one that instructor forces."""
    made = kind(base_url=PENSTOCK + "/v1", api_key=KEY, timeout=30)
    create = made.chat.completions.create
    if kind is openai.AsyncOpenAI:

        async def adding(*arguments, **fields):
            return await create(*arguments, **{**fields, "tools": [*fields["tools"], *OTHERS]})

    else:

        def adding(*arguments, **fields):
            return create(*arguments, **{**fields, "tools": [*fields["tools"], *OTHERS]})

    made.chat.completions.create = adding
    return instructor.from_openai(made, mode=instructor.Mode.TOOLS)


@scenario
@only("many")
async def forced_tool_among_many(chain, kind):
    name = model(chain)
    got = await done(with_others(kind).chat.completions.create(model=name, messages=user(), response_model=City))
    equal(got.model_dump(), LYON)
    sent = json.loads(upstream("last", name)["body"])
    equal([tool["function"]["name"] for tool in sent["tools"]], ["City", *(f"other_{n}" for n in range(60))])
    equal(sent["tool_choice"], {"type": "function", "function": {"name": "City"}})


run(("sync", openai.OpenAI), ("async", openai.AsyncOpenAI))
