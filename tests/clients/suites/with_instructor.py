"""instructor."""

import instructor
import openai
from pydantic import BaseModel
from report import KEY, PENSTOCK, collected, done, equal, model, run, scenario, upstream


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


run(("sync", openai.OpenAI), ("async", openai.AsyncOpenAI))
