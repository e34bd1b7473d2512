"""How servers say that a prompt does not fit: their own bodies, and bodies that say something else."""

import json
import re
from typing import Any

import orjson
import pytest

from proxy.upstreams.refusal import Overflow, _patterns, find_overflow, openai_body, read_refusal, sentence

LIMIT = "This model's maximum context length is"
REDUCE = "Please reduce the length of the messages"


def error(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


REFUSALS: list[tuple[str, int, Any, int | None, int | None]] = [
    ("llama.cpp", 400, error("request (2324 tokens) exceeds the available context size (2048 tokens), try increasing it",
     code=400, type="exceed_context_size_error", n_prompt_tokens=2324, n_ctx=2048), 2324, 2048),
    ("llama.cpp, older", 500, error("the request exceeds the available context size. try increasing the context size "
     "or enable context shift", code=500, type="server_error"), None, None),
    ("llama-cpp-python", 400, error(f"{LIMIT} 2048 tokens. However, you requested 2285 tokens (2029 in the messages, "
     f"256 in the completion). {REDUCE} or completion.", code="context_length_exceeded"), 2029, 2048),
    ("llama-cpp-python, its exception", 500, error("Requested tokens (2285) exceed context window of 2048"), 2285, 2048),
    ("vLLM", 400, {"object": "error", "message": f"{LIMIT} 16384 tokens. However, you requested 19591 tokens (9591 in "
     f"the messages, 10000 in the completion). {REDUCE} or completion. None", "type": "BadRequestError",
     "param": None, "code": 400}, 9591, 16384),
    ("vLLM, input alone", 400, error(f"{LIMIT} 200 tokens. However, your request has 203 input tokens. Please reduce "
     "the length of the input messages. None", type="BadRequestError", code=400), 203, 200),
    ("vLLM, newer", 400, error("You passed 2049 input tokens and requested 0 output tokens. However, the model's context "
     "length is only 2048 tokens, resulting in a maximum input length of 2048 tokens. Please reduce the length of the "
     "input prompt. (parameter=input_tokens, value=2049)", type="BadRequestError", param="input_tokens", code=400),
     2049, 2048),
    ("vLLM, at least", 400, error(f"{LIMIT} 4096 tokens. However, you requested 0 output tokens and your prompt contains "
     "at least 4097 input tokens, for a total of at least 4097 tokens.", code=400), 4097, 4096),
    ("vLLM, no room for the answer", 400, error("'max_tokens' or 'max_completion_tokens' is too large: 1000. This model's "
     "maximum context length is 1000 tokens and your request has 203 input tokens (1000 > 1000 - 203). None"), 203, 1000),
    ("vLLM, the engine's", 400, error("The decoder prompt (length 40000) is longer than the maximum model length of "
     "32768. Make sure that `max_model_len` is no smaller than the number of text tokens."), 40000, 32768),
    ("SGLang", 400, {"object": "error", "message": "The input (61709 tokens) is longer than the model's context length "
     "(40960 tokens).", "type": "BadRequestError", "param": None, "code": 400}, 61709, 40960),
    ("SGLang, with the answer", 400, {"object": "error", "message": "Requested token count exceeds the model's maximum "
     "context length of 4096 tokens. You requested a total of 5000 tokens: 4000 tokens from the input messages and 1000 "
     f"tokens for the completion. {REDUCE} or completion.", "code": 400}, 4000, 4096),
    ("SGLang, its memory", 400, {"object": "error", "message": "Input length (160062 tokens) exceeds the maximum allowed "
     "length (59862 tokens). Use a shorter input or enable --allow-auto-truncate.", "code": 400}, 160062, 59862),
    ("TGI", 422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 3474 "
     "`inputs` tokens and 60 `max_new_tokens`", "error_type": "validation"}, 3474, 2048),
    ("TGI, input alone", 422, {"error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 1388",
     "error_type": "validation"}, 1388, 1024),
    ("Ollama", 400, error("prompt too long; exceeded max context length by 4096 tokens"), None, None),
    ("Ollama, its runner", 500, error("input length (5000 tokens) exceeds the model's maximum context length (4096 "
     "tokens)", type="api_error"), 5000, 4096),
    ("Ollama, in words", 400, error("the prompt is longer than the context length currently available to the model"),
     None, None),
    ("LM Studio", 400, {"error": "Trying to keep the first 10136 tokens when context the overflows. However, the model is "
     "loaded with context length of only 7866 tokens, which is not enough."}, 10136, 7866),
    ("LM Studio, newer", 400, {"error": "The number of tokens to keep from the initial prompt is greater than the context "
     "length (n_keep: 15969>= n_ctx: 4096). Try to load the model with a larger context length."}, 15969, 4096),
    ("Mistral", 400, {"object": "error", "message": "Prompt contains 300000 tokens and 0 draft tokens, too large for "
     "model with 131072 maximum context length", "type": "invalid_request_prompt_too_long", "code": "3051"},
     300000, 131072),
    ("Groq", 400, error(f"{REDUCE} or completion.", type="invalid_request_error", param="messages",
     code="context_length_exceeded"), None, None),
    ("Together", 400, error("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 80125 "
     "`inputs` tokens and 4096 `max_new_tokens`", type="invalid_request_error", param="max_tokens", code=None),
     80125, 4097),
    ("Together, newer", 400, error("The input (265330 tokens) is longer than the model's context length (262144 tokens)."),
     265330, 262144),
    ("Azure", 400, error(f"{LIMIT} 16384 tokens. However, your messages resulted in 16630 tokens. {REDUCE}.",
     type="invalid_request_error", param="messages", code="context_length_exceeded"), 16630, 16384),
    ("Azure, with the answer", 400, error(f"{LIMIT} 32768 tokens. However, you requested 35969 tokens (9969 in the "
     f"messages, 26000 in the completion). {REDUCE} or completion."), 9969, 32768),
    ("Azure, a limit of the input", 400, error("Input tokens exceed the configured limit of 272000 tokens. Your messages "
     f"resulted in 289650 tokens. {REDUCE}.", code="context_length_exceeded"), 289650, 272000),
    ("Azure's catalogue", 413, error("Request body too large for meta-llama-3-70b-instruct model. Max size: 8000 tokens.",
     code="tokens_limit_reached"), None, 8000),
    ("OpenAI", 400, error("Your input exceeds the context window of this model. Please adjust your input and try again."),
     None, None),
    ("Anthropic", 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: "
     "213462 tokens > 200000 maximum"}, "request_id": "req_1"}, 213462, 200000),
    ("Anthropic, with the answer", 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "input "
     "length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length or `max_tokens` and "
     "try again"}}, 178959, 200000),
    ("Gemini", 400, [{"error": {"code": 400, "message": "The input token count (1200293) exceeds the maximum number of "
     "tokens allowed (1048576).", "status": "INVALID_ARGUMENT"}}], 1200293, 1048576),
    ("Bedrock", 400, {"message": "Input is too long for requested model."}, None, None),
    ("xAI", 400, {"code": "invalid-argument", "error": "This model's maximum prompt length is 131072 but the request "
     "contains 537812 tokens."}, 537812, 131072),
    ("OpenRouter", 400, error("This endpoint's maximum context length is 131072 tokens. However, you requested about "
     "140000 tokens (120000 of text input, 20000 in the output). Please reduce the length of either one.", code=400),
     120000, 131072),
    ("a proxy, plain text", 400, "the request exceeds the available context size, try increasing it", None, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "said", "prompt", "window"), [pytest.param(*each[1:], id=each[0]) for each in REFUSALS]
)
def test_each_servers_refusal_is_told_as_openais(
    status: int, said: Any, prompt: int | None, window: int | None
) -> None:
    body = said.encode() if isinstance(said, str) else json.dumps(said).encode()

    overflow = read_refusal(status, body)

    assert overflow == Overflow(prompt, window)
    told = orjson.loads(openai_body(body, overflow))["error"]
    assert told["code"] == "context_length_exceeded"
    assert isinstance(told["message"], str)
    assert re.search(r"reduce the length of the messages", told["message"])
    again = json.dumps({"error": told}).encode()
    assert read_refusal(400, again) == overflow
    assert openai_body(again, overflow) == again


def test_a_servers_own_fields_stay() -> None:
    body = json.dumps(REFUSALS[0][2]).encode()
    told = orjson.loads(openai_body(body, Overflow(2324, 2048)))["error"]
    assert (told["type"], told["n_ctx"], told["param"]) == ("exceed_context_size_error", 2048, "messages")
    assert told["message"].startswith(f"{LIMIT} 2048 tokens. However, your messages resulted in 2324 tokens. {REDUCE}.")


@pytest.mark.parametrize(
    ("status", "said"),
    [
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
    ],
)  # fmt: skip
def test_other_refusals_are_not_taken_for_it(status: int, said: Any) -> None:
    assert read_refusal(status, json.dumps(said).encode()) is None


def test_what_is_told_is_found_again() -> None:
    assert find_overflow(sentence("no", 7, 5)) == Overflow(7, 5)
    assert find_overflow(sentence("no", None, None)) == Overflow()


@pytest.mark.parametrize("worst", [" ", "exceed ", "exceed", "9", "9,", "(", "tokens ", "prompt (", "longer than the "])
def test_patterns_are_linear(worst: str) -> None:
    """Nothing to assert but that it ends: a pattern that goes back would take hours."""
    for pattern in (each for patterns in _patterns().values() for each in patterns):
        pattern.search(worst * (100_000 // len(worst)))
