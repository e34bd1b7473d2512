"""pydantic-ai."""

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from report import KEY, PENSTOCK, equal, model, only, raised, requests_for, run, scenario


class City(BaseModel):
    """A city."""

    name: str
    rank: int


def agent(name, **options):
    provider = OpenAIProvider(base_url=PENSTOCK + "/v1", api_key=KEY)
    return Agent(OpenAIChatModel(name, provider=provider), **options)


@scenario
async def run_once(chain):
    result = await agent(model(chain), instructions="Be brief.").run("good morning")
    equal(result.output, "heard 2 messages (system user), the last says: good morning")
    assert result.all_messages()[-1].usage.input_tokens > 0


@scenario
async def run_stream(chain):
    async with agent(model(chain)).run_stream("hello") as result:
        parts = [part async for part in result.stream_text(delta=True, debounce_by=None)]
    equal("".join(parts).strip(), "heard 1 messages (user), the last says: hello")
    assert len(parts) > 3, parts


@scenario
async def tool(chain):
    talking = agent(model(chain))

    @talking.tool_plain
    def get_weather(city: str) -> str:
        """The weather of a city."""
        return f"sun in {city}"

    result = await talking.run("the weather in Lyon, twice")
    equal(result.output, "heard 4 messages (user assistant tool tool), the last says: sun in Lyon")
    again = await talking.run("and now?", message_history=result.all_messages())
    assert "the last says: sun in Lyon" in again.output, again.output


@scenario
async def output_type(chain):
    equal((await agent(model(chain), output_type=City).run("a city")).output, City(name="Lyon", rank=7))
    native = agent(model(chain), output_type=NativeOutput(City))
    equal((await native.run("a city")).output, City(name="Lyon", rank=7))


@scenario
async def output_type_streamed(chain):
    async with agent(model(chain), output_type=City).run_stream("a city") as result:
        equal(await result.get_output(), City(name="Lyon", rank=7))


@scenario
async def overflow_of_the_upstream(chain):
    error = await raised(ModelHTTPError, lambda: agent(model(chain, "overflow")).run("hello"))
    equal((error.status_code, error.body["code"]), (400, "context_length_exceeded"))


@scenario
@only("small")
async def overflow_found_by_penstock(chain):
    name = model(chain)
    error = await raised(ModelHTTPError, lambda: agent(name).run("word " * 500))
    equal((error.status_code, error.body["code"]), (400, "context_length_exceeded"))
    equal(requests_for(name), 0)


run()
