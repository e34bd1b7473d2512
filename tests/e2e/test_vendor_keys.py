"""A client's key goes to no other vendor: the SDKs of OpenAI and Anthropic, through one proxy, over real sockets."""

import json
from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any

import anthropic
import openai
import pytest
from yarl import URL

from tests.e2e.conftest import Lab
from tests.e2e.servers import Received, Upstream, answering

ANTHROPICS, OPENAIS, ANYBODYS = "sk-ant-api03-secret", "sk-proj-secret", "sk-secret"
CONFIG = """
upstreams:
  openai: {{kind: openai, base_url: "{openai}"}}
  claude: {{kind: anthropic, base_url: "{anthropic}"}}
models:
  - {{match: "claude-*", upstream: claude}}
  - {{match: "*", upstream: openai}}
chains: {{default: []}}
"""
WITHOUT_CLAUDE = """
upstreams:
  openai: {{kind: openai, base_url: "{openai}"}}
models: [{{match: "*", upstream: openai}}]
chains: {{default: []}}
"""
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
    "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn", "stop_sequence": None,
    "usage": {"input_tokens": 9, "output_tokens": 2},
}  # fmt: skip
EMPTY = {"data": [], "has_more": False, "first_id": None, "last_id": None}
TURN: list[Any] = [{"role": "user", "content": "hi"}]


class World:
    """A proxy, a stand-in for each vendor, and their SDKs."""

    def __init__(self, base: str, openais: Upstream, anthropics: Upstream) -> None:
        self.base, self.openais, self.anthropics = base, openais, anthropics

    def openai(self, key: str = OPENAIS, **fields: Any) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.base}/v1", api_key=key, max_retries=0, **fields)

    def anthropic(self, **fields: Any) -> anthropic.AsyncAnthropic:
        fields = fields or {"api_key": ANTHROPICS}
        return anthropic.AsyncAnthropic(base_url=self.base, max_retries=0, **fields)

    @property
    def leaked(self) -> bool:
        """Whether a vendor has the other one's key."""
        return "sk-ant-" in repr(self.openais.received) or "sk-proj-" in repr(self.anthropics.received)


def key_in(received: Received) -> str:
    """Return the key of a request to Anthropic; SDKs send it in one of two headers."""
    return received.header("x-api-key") or (received.header("authorization") or "").removeprefix("Bearer ")


async def begin(lab: Lab, config: str = CONFIG) -> World:
    anthropics = await lab.upstream()
    anthropics.respond = answering(json.dumps(MESSAGE).encode())
    server = anthropics.url.removesuffix("/v1")
    base = await lab.start(config.format(openai=lab.behind.url, anthropic=server))
    return World(base, lab.behind, anthropics)


async def test_a_key_in_x_api_key_goes_to_anthropic_only(lab: Lab) -> None:
    world = await begin(lab)
    for key in (ANTHROPICS, ANYBODYS):
        for path in ("messages/batches", "files", "models"):
            async with lab.http.get(f"{world.base}/v1/{path}", headers={"x-api-key": key}) as response:
                assert response.status == 200, path
        body = {"model": "gpt-5", "messages": TURN}
        for path in ("messages", "chat/completions", "embeddings"):
            async with lab.http.post(f"{world.base}/v1/{path}", headers={"x-api-key": key}, json=body) as response:
                error = (await response.json())["error"]
                code = error["details"]["error_code"] if path == "messages" else error["code"]
                assert (response.status, code) == (400, "foreign_key"), path
    assert {each.header("x-api-key") for each in world.anthropics.received} == {ANTHROPICS, ANYBODYS}
    assert [each.path for each in world.openais.received] == ["/v1/models"] * 2
    assert "secret" not in repr(world.openais.received)


Ask = Callable[[anthropic.AsyncAnthropic], Awaitable[Any]]
NAMELESS: dict[str, tuple[Ask, str]] = {
    "batches": (lambda client: client.messages.batches.list(), "/v1/messages/batches"),
    "a new batch": (
        lambda client: client.messages.batches.create(
            requests=[{"custom_id": "a", "params": {"model": "claude-x", "max_tokens": 9, "messages": TURN}}]
        ),
        "/v1/messages/batches",
    ),
    "files": (lambda client: client.beta.files.list(), "/v1/files"),
    "any path": (lambda client: client.get("/v1/skills", cast_to=object), "/v1/skills"),
}


async def test_a_request_without_a_model_goes_to_the_vendor_of_its_key(lab: Lab) -> None:
    world = await begin(lab)
    world.anthropics.respond = answering(json.dumps(EMPTY).encode())
    for credentials in ({"api_key": ANTHROPICS}, {"auth_token": "sk-ant-oat01-x"}, {"auth_token": "x"}):
        async with world.anthropic(**credentials) as client:
            for ask, sent_to in NAMELESS.values():
                await ask(client)
                assert URL(world.anthropics.last.path).path == sent_to
                assert key_in(world.anthropics.last) == next(iter(credentials.values()))
    assert len(world.anthropics.received) == 3 * len(NAMELESS)
    assert world.openais.received == []


async def test_the_same_paths_go_to_openai_with_its_key(lab: Lab) -> None:
    world = await begin(lab)
    world.openais.respond = answering(json.dumps({"object": "list", **EMPTY}).encode())
    async with world.openai() as client:
        await client.files.list()
        await client.batches.list()
    assert [URL(each.path).path for each in world.openais.received] == ["/v1/files", "/v1/batches"]
    assert world.anthropics.received == []


async def test_a_key_whose_vendor_is_not_configured_is_refused(lab: Lab) -> None:
    world = await begin(lab, WITHOUT_CLAUDE)
    async with world.anthropic() as client:
        for ask, _ in NAMELESS.values():
            with pytest.raises(anthropic.BadRequestError, match="`kind` or `provider` is `anthropic`"):
                await ask(client)
        with pytest.raises(anthropic.BadRequestError, match="default_upstream"):
            await client.models.list()
    assert world.openais.received == []


async def test_a_model_of_another_vendor_is_refused_with_the_entry_that_is_missing(lab: Lab) -> None:
    world = await begin(lab, WITHOUT_CLAUDE)
    async with world.anthropic() as client, world.openai(ANTHROPICS) as other:
        with pytest.raises(anthropic.BadRequestError, match="add an entry to `models` that sends 'claude-x' to"):
            await client.messages.create(model="claude-x", max_tokens=9, messages=TURN)
        counted = await client.messages.count_tokens(model="claude-x", messages=TURN)
        assert counted.input_tokens > 0, "it is counted here"
        with pytest.raises(anthropic.BadRequestError, match="'claude-x'"):
            await client.models.retrieve("claude-x")
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError, match="'gpt-5'") as caught:
                await other.chat.completions.create(model="gpt-5", messages=TURN, stream=stream)
            assert (caught.value.code, caught.value.response.headers["x-should-retry"]) == ("foreign_key", "false")
        with pytest.raises(openai.BadRequestError):
            await other.embeddings.create(model="text-embedding-3-small", input="x")
        with pytest.raises(openai.BadRequestError):
            await other.responses.create(model="gpt-5", input="x")
        with pytest.raises(openai.BadRequestError):
            await other.models.list()
    assert world.openais.received == []


async def test_openais_key_does_not_go_to_anthropic(lab: Lab) -> None:
    world = await begin(lab)
    for key in (OPENAIS, "sk-svcacct-secret", f"sk-{'a' * 20}T3BlbkFJ{'b' * 20}"):
        async with world.openai(key) as client:
            with pytest.raises(openai.BadRequestError, match="`authorization` is for openai"):
                await client.chat.completions.create(model="claude-x", messages=TURN)
            await client.chat.completions.create(model="gpt-5", messages=TURN)
        assert world.openais.last.header("authorization") == f"Bearer {key}"
    assert world.anthropics.received == []


async def test_a_bearer_token_goes_where_the_model_is_served(lab: Lab) -> None:
    world = await begin(lab)
    for key in (ANTHROPICS, ANYBODYS):
        async with world.openai(key) as client:
            answer = await client.chat.completions.create(model="claude-x", messages=TURN)
            assert answer.choices[0].message.content == "hi"
        assert world.anthropics.last.header("x-api-key") == key
    async with world.anthropic() as other:
        assert (await other.messages.create(model="claude-x", max_tokens=9, messages=TURN)).id == "msg_1"
    assert key_in(world.anthropics.last) == ANTHROPICS


async def test_of_several_keys_each_vendor_gets_its_own(lab: Lab) -> None:
    world = await begin(lab)
    other = {"x-api-key": ANTHROPICS, "x-goog-api-key": "AIza-secret"}
    async with world.openai(default_headers=other) as client:
        await client.chat.completions.create(model="gpt-5", messages=TURN)
        await client.embeddings.create(model="text-embedding-3-small", input="x", encoding_format="float")
        await client.chat.completions.create(model="claude-x", messages=TURN)
        await client.models.list()
    assert {each.header("authorization") for each in world.openais.received} == {f"Bearer {OPENAIS}"}
    assert world.anthropics.received[0].header("x-api-key") == ANTHROPICS
    assert not world.leaked
    assert "AIza" not in repr(world.openais.received) + repr(world.anthropics.received)


async def test_the_list_of_models_is_asked_with_the_key_of_its_vendor(lab: Lab) -> None:
    world = await begin(lab)
    listed = {**EMPTY, "data": [{"type": "model", "id": "claude-x", "display_name": "X", "created_at": "2026-01-01"}]}
    world.anthropics.respond = answering(json.dumps(listed).encode())
    async with world.anthropic() as client:
        assert "claude-x" in [model.id async for model in client.models.list()]
    assert [each.header("x-api-key") for each in world.anthropics.received] == [ANTHROPICS]
    assert [each.header("authorization") for each in world.openais.received] == [None]
    assert not world.leaked


async def test_an_upstream_that_names_its_provider_takes_its_keys(lab: Lab) -> None:
    text = WITHOUT_CLAUDE.replace('"{openai}"', '"{openai}", provider: anthropic')
    world = await begin(lab, text)
    async with world.openai(ANTHROPICS) as client:
        await client.chat.completions.create(model="claude-x", messages=TURN)
    assert world.openais.last.header("authorization") == f"Bearer {ANTHROPICS}"


@pytest.mark.parametrize("own", ["keyless: true", "api_key: sk-own"])
async def test_an_upstream_that_needs_no_key_of_the_clients_gets_none(lab: Lab, own: str) -> None:
    world = await begin(lab, WITHOUT_CLAUDE.replace('"{openai}"', f'"{{openai}}", {own}'))
    async with world.anthropic() as client, world.openai(ANTHROPICS) as other:
        await client.messages.create(model="claude-x", max_tokens=9, messages=TURN)
        await other.chat.completions.create(model="gpt-5", messages=TURN)
        await client.models.list()
    assert len(world.openais.received) == 3
    assert not world.leaked


REFUSALS = {"openai": {"error": {"message": "Incorrect API key provided.", "type": "invalid_request_error", "param": None,
                                 "code": "invalid_api_key"}},
            "anthropic": {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}},
            "something in front": "no"}  # fmt: skip


async def test_a_wrong_key_is_refused_in_the_list_of_models(lab: Lab) -> None:
    world = await begin(lab)
    for (vendor, body), status in product(REFUSALS.items(), (401, 403)):
        world.openais.respond = answering(json.dumps(body).encode(), status=status)
        async with world.openai() as client:
            with pytest.raises(openai.APIStatusError) as caught:
                await client.models.list()
            with pytest.raises(openai.APIStatusError) as caught_one:
                await client.models.retrieve("gpt-5")
        assert (caught.value.status_code, caught_one.value.status_code) == (status, status)
        if vendor == "openai":
            assert "Incorrect API key provided" in caught.value.message
            assert caught.value.code == "invalid_api_key"


async def test_a_wrong_key_of_anthropics_is_refused_in_the_list_of_models(lab: Lab) -> None:
    world = await begin(lab)
    world.anthropics.respond = answering(json.dumps(REFUSALS["anthropic"]).encode(), status=401)
    async with world.anthropic() as client, world.openai(ANTHROPICS) as other:
        with pytest.raises(anthropic.AuthenticationError, match="invalid x-api-key"):
            await client.models.list()
        with pytest.raises(openai.AuthenticationError, match="invalid x-api-key"):
            await other.models.list()
    async with world.openai() as fine:
        assert (await fine.models.list()).object == "list", "it says nothing about the key of another vendor"


async def test_the_operators_wrong_key_leaves_a_gap_in_the_list(lab: Lab) -> None:
    text = WITHOUT_CLAUDE.replace('"{openai}"', '"{openai}", api_key: sk-own')
    world = await begin(lab, text.replace("models: [", "models: [{{match: named, upstream: openai}}, "))
    world.openais.respond = answering(json.dumps(REFUSALS["openai"]).encode(), status=401)
    async with world.openai() as client:
        assert [model.id async for model in client.models.list()] == ["named"]
