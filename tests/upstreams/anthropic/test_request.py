"""The fields of a request: what reaches Anthropic, what it has nothing for, and that this is told."""

from typing import Any

import pytest

from proxy.models import Models
from tests.upstreams.anthropic.conftest import TOOL, Client, user
from tests.upstreams.anthropic.stand_in import StandIn

BUDGET, ADAPTIVE, NEW, ALWAYS, BETWEEN = (
    "claude-opus-4-5", "claude-opus-4-6", "claude-opus-5", "claude-opus-5-5", "claude-sonnet-5-5",
)  # fmt: skip
SCHEMA = {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}}
CLOSED = {
    "type": "object", "properties": {"a": {"type": "object", "properties": {}, "additionalProperties": False}},
    "additionalProperties": False,
}  # fmt: skip
OTHER = {"type": "function", "function": {"name": "other"}}
NAMED = {"type": "function", "function": {"name": "look_up"}}


def ignored(answered: Any) -> str:
    assert answered.status == 200, answered.text
    return str(answered.headers.get("x-penstock-ignored", ""))


@pytest.mark.parametrize(("fields", "sent"), [
    ({"max_tokens": 7}, {"max_tokens": 7}),
    ({"max_completion_tokens": 8, "max_tokens": 7}, {"max_tokens": 8}),
    ({"stop": "x"}, {"stop_sequences": ["x"]}),
    ({"stop": ["x", "y"]}, {"stop_sequences": ["x", "y"]}),
    ({"stop": None}, {"stop_sequences": None}),
    ({"temperature": 0.5}, {"temperature": 0.5}),
    ({"top_p": 0.5}, {"top_p": 0.5}),
    ({"user": "u-1"}, {"metadata": {"user_id": "u-1"}}),
    ({"safety_identifier": "s", "user": "u"}, {"metadata": {"user_id": "s"}}),
    ({"metadata": {"user_id": "m", "x": "y"}, "user": "u"}, {"metadata": {"user_id": "m"}}),
    ({"service_tier": "auto"}, {"service_tier": "auto"}),
    ({"service_tier": "default"}, {"service_tier": "standard_only"}),
    ({"tool_choice": "required"}, {"tool_choice": {"type": "any"}}),
    ({"tool_choice": "auto"}, {"tool_choice": None}),
    ({"tool_choice": "none"}, {"tool_choice": {"type": "none"}}),
    ({"tool_choice": NAMED}, {"tool_choice": {"type": "tool", "name": "look_up"}}),
    ({"tool_choice": {"type": "any"}}, {"tool_choice": {"type": "any"}}),
    ({"parallel_tool_calls": False}, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    ({"reasoning_effort": "none"}, {"thinking": None}),
    ({"reasoning_effort": "high"}, {"thinking": {"type": "enabled", "budget_tokens": 16_384}}),
    ({"reasoning": {"effort": "low"}}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
    ({"reasoning_effort": "high", "max_tokens": 3000}, {"thinking": {"type": "enabled", "budget_tokens": 1500}}),
    ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, {"thinking": {"type": "enabled", "budget_tokens": 2000}}),
    ({"response_format": {"type": "text"}}, {"output_config": None}),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
     {"output_config": {"format": {"type": "json_schema", "schema": CLOSED}}}),
    ({"n": 1, "logprobs": False, "store": True, "verbosity": "medium", "prompt_cache_key": "k"}, {}),
])  # fmt: skip
async def test_taken_fields(client: Client, anthropic: StandIn, fields: dict[str, Any], sent: dict[str, Any]) -> None:
    assert ignored(await client.chat(model=BUDGET, tools=[TOOL, OTHER], **fields)) == ""
    assert {name: anthropic.bodies[0].get(name) for name in sent} == sent
    assert len(anthropic.bodies[0]["tools"]) == 2


@pytest.mark.parametrize(("fields", "told"), [
    ({"n": 2, "seed": 0, "logprobs": True, "top_logprobs": 3}, "logprobs,n,seed,top_logprobs"),
    ({"verbosity": "low", "logit_bias": {"1": 1}, "frequency_penalty": 0.5}, "frequency_penalty,logit_bias,verbosity"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"stop": "\n"}, "stop"),
    ({"stop": ["\n", "x"]}, "stop"),
    ({"temperature": 1.5}, "temperature"),
    ({"temperature": 0.5, "top_p": 0.5}, "top_p"),
    ({"service_tier": "flex"}, "service_tier"),
    ({"user": "a@example.com"}, "user"),
    ({"user": "+49 170 1234567"}, "user"),
    ({"max_tokens": 10**6}, "max_tokens"),
    ({"reasoning_effort": "low", "max_tokens": 1024}, "reasoning_effort"),
    ({"reasoning_effort": "low", "temperature": 0}, "temperature"),
    ({"reasoning_effort": "low", "top_k": 5}, "top_k"),
    ({"reasoning_effort": "low", "tool_choice": "required"}, "reasoning_effort"),
    ({"unheard_of\r\nx-evil": 1}, "unheard_of__x-evil"),
])  # fmt: skip
async def test_what_is_left_out_is_told(client: Client, anthropic: StandIn, fields: dict[str, Any], told: str) -> None:
    assert ignored(await client.chat(model=BUDGET, tools=[TOOL], **fields)) == told
    assert anthropic.refused == []


@pytest.mark.parametrize(("model", "fields", "sent", "told"), [
    (ADAPTIVE, {"reasoning_effort": "xhigh"}, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}, ""),
    (NEW, {"reasoning_effort": "minimal"}, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, ""),
    (NEW, {"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}, ""),
    (NEW, {"temperature": 0, "top_p": 0.5, "top_k": 5}, {"temperature": None}, "temperature,top_k,top_p"),
    (NEW, {"tool_choice": "required"}, {"tool_choice": {"type": "any"}}, ""),
    (ALWAYS, {"reasoning_effort": "high"}, {"thinking": None, "output_config": {"effort": "high"}}, ""),
    (ALWAYS, {"reasoning_effort": "none"}, {"thinking": None, "output_config": {"effort": "low"}}, "reasoning_effort"),
    (ALWAYS, {"tool_choice": "required"}, {"tool_choice": None}, "tool_choice"),
    (BETWEEN, {"reasoning_effort": "none"}, {"thinking": {"type": "between_tools"}}, ""),
    ("claude-3-haiku-20240307", {"reasoning_effort": "low"}, {"thinking": None}, "reasoning_effort"),
])  # fmt: skip
async def test_each_model_gets_what_it_takes(
    client: Client, anthropic: StandIn, model: str, fields: dict[str, Any], sent: dict[str, Any], told: str
) -> None:
    assert ignored(await client.chat(model=model, tools=[TOOL], **fields)) == told
    assert {name: anthropic.bodies[0].get(name) for name in sent} == sent


async def test_a_choice_among_some_tools_offers_only_these(client: Client, anthropic: StandIn) -> None:
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED]}}
    await client.chat(tools=[TOOL, OTHER], tool_choice=allowed)

    assert [tool["name"] for tool in anthropic.bodies[0]["tools"]] == ["look_up"]


async def test_tools_of_anthropics_own_and_fields_of_its_tools(client: Client, anthropic: StandIn) -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}
    deferred = {"type": "function", "function": {"name": "later", "strict": True}, "defer_loading": True}
    await client.chat(tools=[search, deferred])

    schema = {"type": "object"}
    assert anthropic.bodies[0]["tools"] == [
        search, {"name": "later", "input_schema": schema, "strict": True, "defer_loading": True},
    ]  # fmt: skip


@pytest.mark.parametrize(("fields", "param"), [
    ({"tool_choice": "maybe"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "unknown"}}}, "tool_choice"),
    ({"reasoning_effort": "extreme"}, "reasoning_effort"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"tools": [{"type": "custom", "custom": {"name": "c"}}]}, "tools[0].type"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [user([{"type": "image_url", "image_url": {"url": "data:image/png,x"}}])]},
     "messages[0].content[0].image_url.url"),
    ({"messages": [user([{"type": "image_url", "image_url": {"url": "data:;base64,eHh4"}}])]},
     "messages[0].content[0].image_url.url"),
    ({"messages": [user([{"type": "image_url", "image_url": {"url": "data:im age/png;base64,eHh4"}}])]},
     "messages[0].content[0].image_url.url"),
    ({"messages": [user([{"type": "file", "file": {"file_data": "data:text/plain;base64,a"}}])]},
     "messages[0].content[0].file.file_data"),
    ({"messages": [user("a"), {"role": "assistant", "tool_calls": [{"id": "c"}]}]},
     "messages[1].tool_calls[0].function"),
    ({"messages": [user("a"), {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]},
     "messages[1].tool_calls[0].id"),
    ({"metadata": {"user_id": 5}}, "metadata.user_id"),
    ({"output_config": 5}, "output_config"),
])  # fmt: skip
async def test_wrong_types_are_refused(client: Client, anthropic: StandIn, fields: dict[str, Any], param: str) -> None:
    answered = await client.chat(**{"tools": [TOOL], **fields})

    assert (answered.status, answered.error["param"]) == (400, param)
    assert anthropic.bodies == []


async def test_what_was_left_out_is_a_fact_of_the_request(client: Client) -> None:
    answered = await client.stream(n=2, seed=5)
    explained = await client.any.get(f"/v1/explain/{answered.headers['x-request-id']}")

    assert explained.json["ignored"] == "n,seed"


@pytest.mark.parametrize(
    ("model", "most"), [("claude-opus-5", 128_000), ("claude-opus-9", 128_000), ("claude-haiku-4-5", 64_000)]
)
async def test_an_answer_may_have_the_models_maximum(client: Client, anthropic: StandIn, model: str, most: int) -> None:
    await client.chat(model=model)
    assert anthropic.bodies[0]["max_tokens"] == most


async def test_an_answer_may_have_what_the_window_has_room_for(client: Client, anthropic: StandIn) -> None:
    answered = await client.chat(user("one two three four " * 37_000), model="claude-haiku-4-5")

    assert ignored(answered) == ""
    asked = anthropic.bodies[0]["max_tokens"]
    assert 4096 <= asked < 40_000
    assert asked + anthropic.usages[0]["input_tokens"] <= 200_000


@pytest.mark.parametrize("name", ["claude-opus-7", "claude-sonnet-9-1", "claude-epic-1", "claude-fable-6"])
def test_an_unknown_newer_model_has_the_profile_of_the_newest(name: str) -> None:
    profile = Models().resolve(name)

    assert (profile.window, profile.max_output) == (1_000_000, 128_000)
    assert profile.cache.ttl
    assert profile.binds_reasoning
