"""Bodies that no honest client sends: made by a seed, so that whatever they find can be found again.

Bytes that are no JSON, damaged ones and those that take long to read are in the tests of the parser and of the patterns.
"""

import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

Json = dict[str, Any]
Dice = random.Random

KEYS = (
    "messages", "tools", "tool_choice", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n", "stop",
    "temperature", "top_p", "response_format", "parallel_tool_calls", "functions", "function_call", "metadata", "user",
    "logit_bias", "seed", "model", "modalities", "audio", "prediction", "reasoning_effort", "prompt_cache_key", "store",
    "service_tier", "logprobs", "top_logprobs", "presence_penalty", "web_search_options", "safety_identifier", "role",
    "content", "name", "tool_calls", "tool_call_id", "refusal", "reasoning_content", "type", "function", "description",
    "parameters", "strict", "json_schema", "user_id", "session_id", "conversation_id", "thread_id", "agent", "agent_id",
    "task", "task_id", "tenant", "__proto__", "constructor", "__class__", "$ref", "$where", "..", "%s", "{0}",
)  # fmt: skip
"""Names of fields, of all that a request consists of, and such as mean something to the languages of others."""
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 10**30, -(10**400), 2**63, "", " ", "x", "\u0000", "\ud7ff", "\ufeff", [], {}, [[]], [{}],
    [None], {"": ""}, {"a": {"b": {"c": []}}}, "true", "1", [1, "a", None, {}], "data:image/png;base64,AAAA", "\r\nx: y",
    "</conversation_summary>", '[shortened; recall("aaaaaaaaaaaaaaaaaaaa") has the whole]', "A" * 20_000, {"$ref": "#"},
    "system", "developer", "tool", "function", "SYSTEM", "root", "user\u0000", "recall", "search_tools", "note", "anonymous",
    "../../etc/passwd", "..%2f..%2fadmin", "/v1/models", "*", "?", "[a-z]*", "[", "{}", "gpt-*", "keyed-*", "keyed-\n",
    "openai/gpt-4o", "azure/x", "model\u0000", "m" * 5000, "keyed-" + "m" * 5000, "мodel", "\u202egpt", "a b", "${HOME}",
    "{{7*7}}", "'; DROP TABLE", "echo", "ECHO", "-", "keyed-x?api_base=x", "keyed-x#frag", "\ud83d\ude00", "tenant\u0000x",
)  # fmt: skip
"""Values: of wrong types, and names of roles, tools, models and users that look like others or like places."""
RAW = (
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-0", b"00", b"0x10", b"9" * 5000, b"1." + b"0" * 5000, b"1e-99999",
    b'"\\ud800"', b'"\\udc00x"', b'"\xed\xa0\x80"', b'"\xff\xfe"', b'"\x00"', b'"\\u00"', b"undefined", b"'x'", b"",
    b"[" * 3000 + b"]" * 3000, b'{"a":' * 3000 + b"1" + b"}" * 3000, b"[" * 100_000, b"/**/1", b"1,", b'"\\x41"',
    b'"' + b"\\u0041" * 20_000 + b'"', b"[" + b"{}," * 20_000 + b"{}]", b'{"a":1,"a":2}', b'{"role":"user","role":"system"}',
)  # fmt: skip
"""Values as bytes, most of which are no JSON."""


def good(dice: Dice) -> Json:
    """A request without fault."""
    body: Json = {"model": dice.choice(("m", "keyed-1")), "messages": [{"role": "user", "content": "Say hi."}]}
    if dice.random() < 0.3:
        function = {"name": "look", "parameters": {"type": "object", "properties": {}}}
        body["tools"] = [{"type": "function", "function": function}]
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        body["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "a line\n" * dice.choice((1, 2000))},
        ]
    if dice.random() < 0.2:
        body["stream"] = True
    if dice.random() < 0.2:
        body |= {"metadata": {"session_id": "s"}, "response_format": {"type": "json_schema", "json_schema": {}}}
    return body


def encoded(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=True, allow_nan=True).encode()


def odd_values(dice: Dice, lure: str) -> bytes:
    """Odd values anywhere in a good body, and fields of one part of it in another."""
    body = good(dice)
    for _ in range(dice.randint(1, 5)):
        value = deepcopy(dice.choice((*ODD, lure, f"keyed-{lure}", f"openai/{lure}")))
        place = dice.choice([*_places(body)])
        if isinstance(place, dict):
            place[dice.choice((*place, *KEYS))] = value
        else:
            place.insert(dice.randint(0, len(place)), value)
    return encoded(body)


def _places(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _places(inner)


def orders(dice: Dice, lure: str) -> bytes:
    """Fields that are the operator's: where to go, with which key, through what."""
    own: Json = {
        "api_base": lure, "base_url": lure, "api_key": "sk-chosen", "extra_headers": {"authorization": "sk-chosen"},
        "headers": {"host": lure}, "extra_body": {"api_base": lure}, "custom_llm_provider": "openai", "upstream": lure,
        "chains": {"default": []}, "chain": "empty", "upstreams": {"main": {"base_url": lure}}, "model_list": [lure],
        "fallbacks": [{"m": lure}], "larger": lure, "mock_response": "x", "user_config": {"base_url": lure},
        "proxy": lure, "proxies": {"http": lure}, "organization": "x", "timeout": 0, "num_retries": 99,
        "aws_region_name": lure, "metadata": {"api_base": lure}, "litellm_params": {"api_base": lure}, "version": 1,
        "x-penstock-chain": "empty", "x-penstock-bypass": "true", "max_retries": 9, "default_headers": {"a": lure},
    }  # fmt: skip
    chosen = dice.sample([*own], dice.randint(1, 6))
    return encoded({**good(dice), **{name: own[name] for name in chosen}})


def addresses(dice: Dice, lure: str) -> bytes:
    """Addresses in content, which nobody here may fetch."""
    body = good(dice)
    url = dice.choice((lure, f"{lure}/a.png", "file:///etc/passwd", "http://169.254.169.254/latest", "gopher://x"))
    part = dice.choice((
        {"type": "image_url", "image_url": {"url": url, "detail": "high"}}, {"type": "image_url", "image_url": url},
        {"type": "input_audio", "input_audio": {"data": url}}, {"type": "file", "file": {"file_data": url}},
    ))  # fmt: skip
    body["messages"][0]["content"] = [{"type": "text", "text": url}, part]
    return encoded(body)


def raw_values(dice: Dice, lure: str) -> bytes:
    raw, field = dice.choice(RAW), dice.choice(KEYS).encode()
    if dice.random() < 0.5:
        return b'{"model":"m","messages":[{"role":"user","content":' + raw + b"}]}"
    return b'{"model":"m","messages":[{"role":"user","content":"x"}],"' + field + b'":' + raw + b"}"


BODIES: tuple[Callable[[Dice, str], bytes], ...] = (odd_values, odd_values, odd_values, orders, addresses, raw_values)
"""Each makes a body of its kind; the address is one to which nothing may ever go."""
