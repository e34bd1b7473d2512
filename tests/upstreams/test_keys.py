"""Keys: which of a client an upstream gets, where one without a model goes, and that the operator's is in no answer."""

import json
from typing import Any

import pytest

from proxy.chat.errors import BadRequest
from proxy.config.settings import Settings
from proxy.upstreams import base
from proxy.upstreams.echo import Echo
from proxy.upstreams.keys import fits, fitting
from proxy.upstreams.routing import Routes
from tests.e2e.conftest import Lab
from tests.e2e.servers import Received, Upstream, send

ALL = ("anthropic", "openai", "gcp.gemini")
CLAUDE: dict[str, Any] = {"kind": "anthropic", "base_url": "http://claude"}
GPT: dict[str, Any] = {"kind": "openai", "base_url": "http://gpt"}


def vendor(provider: str, name: str = "main") -> base.Upstream:
    made = Echo(name)
    made.provider, made.address = provider, f"http://{name}"
    return made


def bearer(key: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}", **more}


KEYS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "no key": ({}, ALL),
    "no known form": (bearer("sk-secret"), ALL),
    "no known form, from Anthropic's SDK": (bearer("sk-secret") | {"anthropic-version": "2023-06-01"}, ("anthropic",)),
    "no known form, in Anthropic's header": ({"x-api-key": "sk-secret"}, ("anthropic",)),
    "no known form, in Google's header": ({"x-goog-api-key": "AIza-secret"}, ("gcp.gemini",)),
    "Anthropic's form": (bearer("sk-ant-api03-secret"), ("anthropic",)),
    "OpenAI's form": (bearer("sk-proj-secret"), ("openai",)),
    "OpenAI's form of a service account": (bearer("sk-svcacct-secret"), ("openai",)),
    "OpenAI's form of an administrator": (bearer("sk-admin-secret"), ("openai",)),
    "OpenAI's older form": (bearer("sk-secretT3BlbkFJsecret"), ("openai",)),
    "OpenAI's form in another header": ({"x-api-key": "sk-proj-secret"}, ("openai",)),
}


@pytest.mark.parametrize(("headers", "takers"), KEYS.values(), ids=KEYS)
def test_a_key_goes_to_its_vendor_alone(headers: dict[str, str], takers: tuple[str, ...]) -> None:
    assert [provider for provider in ALL if fits(headers, provider)] == [each for each in ALL if each in takers]
    assert all(fitting(headers, vendor(taker), "m") == headers for taker in takers)
    for other in set(ALL) - set(takers):
        with pytest.raises(BadRequest) as caught:
            fitting(headers, vendor(other), "m")
        assert (caught.value.code, caught.value.headers["x-should-retry"]) == ("foreign_key", "false")
        assert "secret" not in caught.value.message


def test_of_several_keys_each_vendor_gets_its_own() -> None:
    keys = bearer("sk-proj-a") | {"x-api-key": "sk-ant-b", "x-goog-api-key": "AIza", "x-other": "1"}
    for provider, own in zip(ALL, ("x-api-key", "authorization", "x-goog-api-key"), strict=True):
        assert fits(keys, provider)
        assert fitting(keys, vendor(provider), "m") == {own: keys[own], "x-other": "1"}


PLACES: dict[str, tuple[str | None, str, dict[str, Any]]] = {
    "to the only server of its vendor": ("claude", "sk-ant-x", {"gpt": GPT, "claude": CLAUDE}),
    "of no known form: to the default": ("gpt", "sk-x", {"gpt": GPT, "claude": CLAUDE}),
    "to a default that has its own": ("gpt", "sk-ant-x", {"gpt": {**GPT, "api_key": "sk-own"}}),
    "to a default without keys": ("gpt", "sk-ant-x", {"gpt": {**GPT, "keyless": True}}),
    "nowhere: which of two is not said": (None, "sk-ant-x", {"gpt": GPT, "claude": CLAUDE, "other": CLAUDE}),
    "nowhere: its vendor's has its own": (None, "sk-ant-x", {"gpt": GPT, "claude": {**CLAUDE, "api_key": "sk-own"}}),
    "nowhere: there is none of its vendor": (None, "sk-ant-x", {"gpt": GPT}),
}


@pytest.mark.parametrize(("place", "key", "upstreams"), PLACES.values(), ids=PLACES)
def test_where_a_key_without_a_model_goes(place: str | None, key: str, upstreams: dict[str, Any]) -> None:
    settings = Settings.model_validate({"upstreams": upstreams, "models": [{"match": "*", "upstream": "gpt"}]})
    routes = Routes(settings, {name: vendor(each["kind"], name) for name, each in upstreams.items()})
    if place is not None:
        assert routes.unnamed(bearer(key)).name == place
    else:
        with pytest.raises(BadRequest, match="configure exactly one address, or `default_upstream`, for an upstream"):
            routes.unnamed(bearer(key))


OWN = "sk-operators-own-key"
CONFIG = """
upstreams:
  main: {kind: openai, base_url: "{url}", api_key: sk-operators-own-key, headers: {x-api-key: Zaubernuss, x-team: blue}}
models: [{match: m, upstream: main}]
"""
TOLD_KEYS = {"error": {"message": f"Incorrect API key {OWN}, Zaubernuss of team blue", "type": "x"}}


@pytest.mark.parametrize("status", [200, 401, 503])
@pytest.mark.parametrize("path", ["chat/completions", "embeddings"])
async def test_an_answer_has_no_key_of_the_operators(lab: Lab, status: int, path: str) -> None:
    async def echo(behind: Upstream, received: Received, writer: Any) -> None:
        head = f"content-type: application/json\r\nx-debug: {received.header('authorization')}\r\n"
        await send(writer, status, json.dumps(TOLD_KEYS).encode(), head)

    lab.behind.respond = echo
    got = await (await lab.client(CONFIG)).chat(path=f"/v1/{path}")
    assert (got.status, got.headers["x-debug"]) == (status, "Bearer [key]")
    assert got.json["error"]["message"] == "Incorrect API key [key], [key] of team blue"
