"""How servers say that a prompt does not fit: their own bodies, and bodies that say something else."""

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from proxy.upstreams.refusal import Overflow, _patterns, openai_body, read_refusal

LIMIT = "This model's maximum context length is"
REDUCE = "Please reduce the length of the messages"


def error(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


REFUSALS: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("overflows.yaml").read_text())


@pytest.mark.parametrize("refused", REFUSALS, ids=lambda each: each["server"])
def test_each_servers_refusal_is_told_as_openais(refused: dict[str, Any]) -> None:
    said = refused["body"]
    body = said.encode() if isinstance(said, str) else json.dumps(said).encode()

    overflow = read_refusal(refused["status"], body)

    assert overflow == Overflow(refused["prompt"], refused["window"])
    told = orjson.loads(openai_body(body, overflow))["error"]
    assert told["code"] == "context_length_exceeded"
    assert "reduce the length of the messages" in told["message"]
    again = json.dumps({"error": told}).encode()
    assert read_refusal(400, again) == overflow
    assert openai_body(again, overflow) == again


def test_a_servers_own_fields_stay_and_a_list_with_an_error_is_told_as_an_object() -> None:
    body = json.dumps(REFUSALS[0]["body"]).encode()
    told = orjson.loads(openai_body(body, Overflow(2324, 2048)))["error"]
    assert (told["type"], told["n_ctx"], told["param"]) == ("exceed_context_size_error", 2048, "messages")
    assert told["message"].startswith(f"{LIMIT} 2048 tokens. However, your messages resulted in 2324 tokens. {REDUCE}.")
    body = json.dumps([error("prompt is too long: 5 tokens > 3 maximum", code="context_length_exceeded")]).encode()
    assert orjson.loads(openai_body(body, Overflow(5, 3)))["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize(("status", "said"), [
    pytest.param(400, error("max_tokens is too large: 99999. This model supports at most 16384 completion tokens."),
                 id="an answer too long"),
    pytest.param(413, error("Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 7000, "
                            "please reduce your message size and try again.", code="rate_limit_exceeded"), id="a rate"),
    pytest.param(429, error("context_length_exceeded"), id="another status"),
    pytest.param(422, {"detail": [{"msg": "Field required", "input": "prompt is too long: 5 tokens > 3 maximum"}]},
                 id="the client's own words"),
    pytest.param(400, error("Invalid 'messages': array too long."), id="too many messages"),
    pytest.param(400, error("This model does not support context caching."), id="a cache"),
    pytest.param(400, 5, id="a number"),
    pytest.param(400, [], id="nothing"),
    pytest.param(413, "<html>Request Entity Too Large</html>", id="bytes"),
    pytest.param(400, error("prompt is too long: 5 tokens > 3 maximum" + " " * 2**18), id="more than an error has"),
])  # fmt: skip
def test_other_refusals_are_not_taken_for_it(status: int, said: Any) -> None:
    assert read_refusal(status, json.dumps(said).encode()) is None


@pytest.mark.parametrize("worst", [" ", "exceed ", "exceed", "9", "9,", "(", "tokens ", "prompt (", "longer than the "])
def test_patterns_are_linear(worst: str) -> None:
    """Nothing to assert but that it ends: a pattern that goes back would take hours."""
    for pattern in (each for patterns in _patterns().values() for each in patterns):
        pattern.search(worst * (100_000 // len(worst)))
