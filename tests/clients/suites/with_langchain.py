"""langchain-openai."""

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from report import KEY, PENSTOCK, equal, model, only, raised, requests_for, run, scenario


class City(BaseModel):
    """A city."""

    name: str
    rank: int


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sun in {city}"


def chat_model(name, **options):
    return ChatOpenAI(model=name, base_url=PENSTOCK + "/v1", api_key=KEY, timeout=30, **options)


@scenario
def invoke(chain):
    answer = chat_model(model(chain)).invoke("good morning")
    equal(answer.content, "heard 1 messages (user), the last says: good morning")
    assert answer.usage_metadata["input_tokens"] > 0


@scenario
def stream(chain):
    chunks = list(chat_model(model(chain), stream_usage=True).stream("hello"))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    equal(whole.content.strip(), "heard 1 messages (user), the last says: hello")
    equal(whole.usage_metadata["output_tokens"], 12)


@scenario
def tools(chain):
    bound = chat_model(model(chain)).bind_tools([get_weather])
    question = HumanMessage("the weather in Lyon?")
    called = bound.invoke([question])
    equal([(call["name"], call["args"]) for call in called.tool_calls], [("get_weather", {"city": "Lyon"})])
    result = get_weather.invoke(called.tool_calls[0])
    assert isinstance(result, ToolMessage)
    said = bound.invoke([question, called, result])
    equal(said.content, "heard 3 messages (user assistant tool), the last says: sun in Lyon")


@scenario
def tools_streamed(chain):
    whole = None
    for chunk in chat_model(model(chain)).bind_tools([get_weather]).stream("twice"):
        whole = chunk if whole is None else whole + chunk
    equal([call["args"] for call in whole.tool_calls], [{"city": "Lyon"}] * 2)


@scenario
def structured_output(chain):
    for method in ("json_schema", "function_calling"):
        got = chat_model(model(chain)).with_structured_output(City, method=method).invoke("a city")
        equal(got, City(name="Lyon", rank=7))


@scenario
@only("small")
async def overflow_found_by_penstock(chain):
    name = model(chain)
    error = await raised(ContextOverflowError, lambda: chat_model(name).ainvoke("word " * 500))
    assert "maximum context length is 300 tokens" in str(error), str(error)
    equal(requests_for(name), 0)


run()
