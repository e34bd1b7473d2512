"""Bodies that no honest client sends: made by a seed, so that whatever they find can be found again.

Bytes that are no JSON, damaged ones and those that take long to read are in the tests of the parser and of the patterns.
"""

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]
Dice = random.Random


def _longer(value: Any) -> Any:
    """A text in which `<x*9>` is nine times what stands in front of the star."""
    repeated = re.compile(r"(?s)<(.+?)\*(\d+)>")
    return repeated.sub(lambda found: found[1] * int(found[2]), value) if isinstance(value, str) else value


_LISTS = yaml.safe_load(Path(__file__).with_name("hostile.yaml").read_text())
LISTS: Mapping[str, list[Any]] = {name: [*map(_longer, values)] for name, values in _LISTS.items()}
"""What is chosen from, by the names in `hostile.yaml`."""
KEYS, ODD = LISTS["keys"], [*LISTS["values"], -(10**400)]
RAW: list[bytes] = [each.encode("latin-1") for each in LISTS["raw"]]


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
    raw = dice.choice(RAW)
    if dice.random() < 0.5:
        return b'{"model":"m","messages":[{"role":"user","content":' + raw + b"}]}"
    return b'{"model":"m","messages":[{"role":"user","content":"x"}],' + encoded(dice.choice(KEYS)) + b":" + raw + b"}"


BODIES: tuple[Callable[[Dice, str], bytes], ...] = (odd_values, odd_values, odd_values, orders, addresses, raw_values)
"""Each makes a body of its kind; the address is one to which nothing may ever go."""
