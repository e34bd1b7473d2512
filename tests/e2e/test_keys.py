"""Keys of Penstock over real sockets: who gets in, what travels on, and what one tenant can learn of another."""

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import Any

import aiohttp
import openai
import pytest

from proxy.config.keys_file import hash_of
from tests.e2e.conftest import Lab
from tests.e2e.servers import DEFAULT_ANSWER, JSON, Upstream, answering

ANN, ANNS_OTHER, BOB, OLD, TIGHT, SINGLE = (
    f"pk-{name}-{'s3cret' * 8}" for name in ("ann", "ann2", "bob", "old", "tight", "single")
)

OPERATOR = "the-operator"

CONFIG = """
server: {{admin_key: the-operator}}
upstreams:
  main: {{kind: openai, base_url: "{url}", api_key: sk-operators-own}}
  plain: {{kind: openai, base_url: "{url}", keyless: true}}
  claude: {{kind: anthropic, base_url: "{server}", api_key: sk-operators-own}}
  llama: {{kind: ollama, base_url: "{server}", api_key: sk-operators-own}}
  echo: {{kind: echo}}
models:
  - {{match: "claude-*", upstream: claude}}
  - {{match: "llama-*", upstream: llama}}
  - {{match: ["echo", "echo-2"], upstream: echo, window: 8192}}
  - {{match: "keyless-*", upstream: plain}}
  - {{match: "*", upstream: main, window: 4000, reserve: 100, prices: {{input: 1000000, output: 1000000}}}}
chains: {{default: [], local: [], strict: [reject_oversize: {{}}]}}
auth:
  kind: keys
  keys:
    - {{name: ann, hash: {ann}}}
    - {{name: ann2, hash: {anns_other}, tenant: ann}}
    - {{name: bob, hash: {bob}, models: ["echo", "gpt-*"], chains: [local]}}
    - {{name: old, hash: {old}, expires: 2026-01-01}}
    - {{name: single, hash: {single}, max_concurrent: 1}}
    - {{name: tight, hash: {tight}, requests_per_minute: 40, tokens_per_minute: 2000, budget_per_day: 20,
       max_output_tokens: 50, max_n: 2, max_concurrent: 1}}
telemetry: {{log_level: info}}
"""


def config(url: str) -> str:
    hashes = {"ann": ANN, "anns_other": ANNS_OTHER, "bob": BOB, "old": OLD, "tight": TIGHT, "single": SINGLE}
    return CONFIG.format(
        url=url, server=url.removesuffix("/v1"), **{name: hash_of(key) for name, key in hashes.items()}
    )


@dataclass
class Setup:
    base: str
    behind: Upstream
    http: aiohttp.ClientSession

    def client(self, key: str) -> Any:
        """OpenAI's SDK without retries; untyped, because bodies are made of tables."""
        return openai.AsyncOpenAI(base_url=f"{self.base}/v1", api_key=key, max_retries=0)

    async def ask(
        self, key: str | None, path: str = "/v1/chat/completions", method: str = "POST", **options: Any
    ) -> tuple[int, Any, Any]:
        headers = options.pop("headers", {}) | ({"authorization": f"Bearer {key}"} if key else {})
        async with self.http.request(method, self.base + path, headers=headers, **options) as response:
            body = await response.read()
            return response.status, response.headers, json.loads(body) if body.startswith(b"{") else body


@pytest.fixture
async def setup(lab: Lab) -> Setup:
    return Setup(await lab.start(config(lab.behind.url)), lab.behind, lab.http)


def talk(model: str = "gpt-5", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], **fields}


async def test_the_sdk_chats_with_a_key_that_no_upstream_ever_sees(setup: Setup) -> None:
    async with setup.client(ANN) as client:
        for model in ("gpt-5", "keyless-1"):
            answer = await client.chat.completions.create(**talk(model))
            assert answer.choices[0].message.content == "hi"
        headers = {"x-api-key": ANN, "api-key": ANN, "openai-organization": "org", "cookie": ANN}
        await client.chat.completions.create(**talk(), extra_headers=headers, extra_query={"key": ANN, "v": "1"})
    assert (await setup.ask(ANN, "/v1/embeddings", json={"model": "gpt-e", "input": "x"}))[0] == 200
    assert [received.header("authorization") for received in setup.behind.received] == [
        "Bearer sk-operators-own", None, "Bearer sk-operators-own", "Bearer sk-operators-own",
    ]  # fmt: skip
    for received in setup.behind.received:
        assert "pk-ann" not in repr(received)
        assert received.header("openai-organization") is None
    assert setup.behind.received[2].path == "/v1/chat/completions?v=1"


async def test_without_a_key_that_counts_the_sdk_raises_at_once(setup: Setup) -> None:
    for key in ("sk-wrong", hash_of(ANN), OLD, f"{ANN}, {ANN}", "Bearer x"):
        async with setup.client(key) as client:
            with pytest.raises(openai.AuthenticationError) as caught:
                await client.chat.completions.create(**talk())
        assert caught.value.code == "invalid_api_key"
        assert "s3cret" not in str(caught.value)
    assert setup.behind.received == []


async def test_a_key_that_may_use_some_models_only_is_answered_by_no_other_one(lab: Lab) -> None:
    small = "match: gpt-small, upstream: main, window: 60, reserve: 0, chain: strict, larger: big, fallbacks: [big]"
    more = f"models:\n  - {{{small}}}\n  - {{match: big, upstream: echo, window: 100000}}"
    setup = Setup(await lab.start(config(lab.behind.url).replace("models:", more, 1)), lab.behind, lab.http)
    too_long = {"model": "gpt-small", "messages": [{"role": "user", "content": "word " * 200}]}
    lab.behind.respond = answering(b'{"error":{"message":"full","type":"t","param":null,"code":null}}', status=500)
    for key, expected in ((ANN, (200, 200)), (BOB, (400, 500))):
        assert tuple([(await setup.ask(key, json=body))[0] for body in (too_long, talk("gpt-small"))]) == expected


async def test_no_path_under_v1_is_open(setup: Setup) -> None:
    for method, path in (
        ("POST", "/v1/chat/completions"), ("POST", "/chat/completions"), ("POST", "/v1//chat/completions"),
        ("POST", "/V1/chat/completions"), ("GET", "/v1/models"), ("GET", "/models"), ("GET", "/v1/models/gpt-5"),
        ("POST", "/v1/compress"), ("GET", f"/v1/retrieve/{'a' * 20}"), ("POST", "/v1/embeddings"), ("GET", "/v1/files"),
        ("DELETE", "/v1/models/gpt-5"),
    ):  # fmt: skip
        status, _, answer = await setup.ask(None, path, method, json=talk())
        assert status == (404 if path.startswith("/V1") else 401), path
        assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert setup.behind.received == []
    assert (await setup.ask(None, "/healthz", "GET"))[0] == 200


async def test_a_refusal_does_not_wait_for_the_body(setup: Setup) -> None:
    host, _, port = setup.base.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 30000000\r\n\r\n{")
    async with asyncio.timeout(60):
        assert b" 401 " in await reader.readline()
    writer.close()
    await writer.wait_closed()


async def test_a_model_that_a_key_may_not_use_does_not_exist_for_it(setup: Setup) -> None:
    async with setup.client(BOB) as client:
        for model in ("echo-2", "claude", "nothing-like-that"):
            with pytest.raises(openai.NotFoundError) as caught:
                await client.chat.completions.create(**talk(model))
            told = f"The model `{model}` does not exist or you do not have access to it."
            assert (caught.value.code, str(caught.value.message).count(told)) == ("model_not_found", 1)
            with pytest.raises(openai.NotFoundError):
                await client.models.retrieve(model)
            with pytest.raises(openai.NotFoundError):
                await client.embeddings.create(model=model, input="x")
            assert (await setup.ask(BOB, "/v1/compress", json=talk(model)))[0] == 404
        assert [model.id async for model in client.models.list()] == ["echo"]
        assert (await client.models.retrieve("gpt-5")).id == "gpt-5"
    form = aiohttp.FormData({"model": "gpt-5"})
    form.add_field("model", "claude")
    form.add_field("file", b"x", filename="a.wav")
    status, _, answer = await setup.ask(BOB, "/v1/audio/transcriptions", data=form)
    assert (status, answer["error"]["code"]) == (400, "unsupported_content_type")
    assert [received.path for received in setup.behind.received if received.method == "POST"] == []


async def test_what_is_stored_under_the_operators_key_is_out_of_reach(setup: Setup) -> None:
    for method, path in [
        ("GET", "/files"), ("GET", "/files/file-1/content"), ("POST", "/batches"), ("GET", "/chat/completions"),
        ("GET", "/responses/resp_1"), ("POST", "/responses/resp_1/cancel"), ("DELETE", "/models/gpt-5"), ("POST", "/fine_tuning/jobs"),
        ("POST", "/images/%2e%2e%2ffiles"), ("GET", "/organization/admin_api_keys"),
    ]:  # fmt: skip
        status, _, answer = await setup.ask(ANN, f"/v1{path}", method, json=talk())
        assert status == 404, path
        assert answer["error"]["code"] in ("not_found", None)
    reference = [{"type": "item_reference", "id": "msg_1"}]
    for stored in ({"previous_response_id": "resp_1"}, {"conversation": "conv_1"}, {"input": reference}):
        body = {"model": "gpt-5", "input": "x", **stored}
        status, _, answer = await setup.ask(ANN, "/v1/responses", "POST", json=body)
        assert (status, answer["error"]["code"]) == (400, "stored_not_allowed")
    status, _, answer = await setup.ask(ANN, "/v1/embeddings", json={"input": "x"})
    assert (status, answer["error"]["param"]) == (400, "model")
    assert setup.behind.received == []


async def test_a_key_chooses_only_its_own_chains(setup: Setup) -> None:
    for key, chain, status in [(ANN, "strict", 200), (BOB, "local", 200), (BOB, "strict", 400), (ANN, "none", 400)]:
        got, _, answer = await setup.ask(key, json=talk("echo"), headers={"x-penstock-chain": chain})
        assert got == status, (chain, answer)
    assert (
        "strict"
        not in (await setup.ask(BOB, json=talk("echo"), headers={"x-penstock-chain": "x"}))[2]["error"]["message"]
    )


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/compress"])
async def test_a_key_that_may_not_skip_its_chain_is_told_so(setup: Setup, path: str) -> None:
    for skips in ({}, {"x-penstock-chain": "local"}):
        headers = {**skips, "x-penstock-bypass": "True"}
        status, _, answer = await setup.ask(BOB, path, json=talk("echo"), headers=headers)
        assert (status, answer["error"]["code"]) == (400, "bypass_not_allowed")
        assert answer["error"]["type"] == "invalid_request_error"
        assert (await setup.ask(ANN, path, json=talk("echo"), headers=headers))[0] == 200
    assert (await setup.ask(BOB, path, json=talk("echo"), headers={"x-penstock-bypass": "false"}))[0] == 200


async def test_the_operators_account_stays_hidden(setup: Setup) -> None:
    refusal = b'{"error":{"message":"Incorrect API key provided: sk-op***own","code":"invalid_api_key"}}'
    head = f"{JSON}x-ratelimit-limit-requests: 7\r\n"
    setup.behind.respond = answering(refusal, status=401, headers=head)
    for model in ("gpt-5", "claude-sonnet-4-5", "llama-3"):
        status, headers, told = await setup.ask(ANN, json=talk(model))
        assert (status, told["error"]["code"], headers["x-should-retry"]) == (502, "upstream_unauthorized", "false")
        assert "sk-op" not in json.dumps(told)
    setup.behind.respond = answering(DEFAULT_ANSWER, headers=f"{head}openai-organization: acme\r\nx-other: 1\r\n")
    _, headers, _ = await setup.ask(ANN, json=talk())
    assert headers["x-other"] == "1"
    assert not {"openai-organization", "x-ratelimit-limit-requests"} & {name.lower() for name in headers}
    _, headers, _ = await setup.ask(TIGHT, json=talk())
    assert headers.getall("x-ratelimit-limit-requests") == ["40"]


async def test_limits_as_the_sdk_sees_them(setup: Setup) -> None:
    async with setup.client(TIGHT) as client:
        beyond: list[dict[str, Any]] = [{"max_tokens": 51}, {"n": 3}]
        for fields in beyond:
            with pytest.raises(openai.BadRequestError) as wrong:
                await client.chat.completions.create(**talk(**fields))
            assert wrong.value.code == "integer_above_max_value"
        assert setup.behind.received == []
        raw = await client.chat.completions.with_raw_response.create(**talk())
        assert raw.headers["x-ratelimit-limit-requests"] == "40"
        assert raw.headers["x-ratelimit-remaining-requests"] == "37"
        assert raw.headers["x-ratelimit-limit-tokens"] == "2000"
        assert raw.headers["x-ratelimit-reset-requests"].endswith("s")
        # eleven dollars each, counted behind the answer: the day's twenty are soon spent, which no retry changes
        with pytest.raises(openai.RateLimitError) as caught:
            for _ in range(20):
                await client.chat.completions.create(**talk())
        assert (caught.value.code, caught.value.type) == ("insufficient_quota", "insufficient_quota")
        assert caught.value.response.headers["x-should-retry"] == "false"
    async with setup.client(ANN) as client:
        await client.chat.completions.create(**talk())
    assert len(setup.behind.received) < 20


async def test_no_key_is_in_any_log_metric_error_or_repr(
    setup: Setup, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    answers: list[Any] = []
    for key in (ANN, BOB, OLD, TIGHT, "pk-unknown-s3cret"):
        for model in ("gpt-5", "claude", "echo"):
            sent: list[dict[str, str]] = [{}, {"x-api-key": key}, {"x-penstock-session": key}]
            answers += [await setup.ask(key, json=talk(model), headers=headers) for headers in sent]
        answers += [await setup.ask(key, "/v1/retrieve/aaaaaaaaaaaaaaaaaaaa", "GET", params={"key": key})]
    _, _, metrics = await setup.ask(OPERATOR, "/metrics", "GET")
    written = [caplog.text, str(answers), str(metrics), "".join(capfd.readouterr())]
    written += [str(record.__dict__) for record in caplog.records]
    assert "'key': 'ann'" in "".join(written), "the key's name is"
    for text in written:
        assert "s3cret" not in text
        assert "sk-operators" not in text


async def test_what_each_key_used_is_counted_under_its_name(setup: Setup) -> None:
    for key in (ANN, ANN, BOB, "pk-unknown-s3cret", None):
        await setup.ask(key, json=talk())
    await setup.ask(BOB, json=talk("claude"))
    for key in (ANN, "pk-unknown-s3cret", None):
        assert (await setup.ask(key, "/metrics", "GET"))[0] == 401, "what others use is not for clients"
    _, _, told = await setup.ask(OPERATOR, "/metrics", "GET")
    lines = {line for line in told.decode().splitlines() if line.startswith("penstock_key_")}
    found = {line for line in lines if "_created" not in line}
    assert found == {
        'penstock_key_requests_total{key="ann",status="200"} 2.0',
        'penstock_key_requests_total{key="bob",status="200"} 1.0',
        'penstock_key_requests_total{key="bob",status="404"} 1.0',
        'penstock_key_tokens_total{key="ann",kind="input"} 18.0',
        'penstock_key_tokens_total{key="ann",kind="output"} 4.0',
        'penstock_key_tokens_total{key="bob",kind="input"} 9.0',
        'penstock_key_tokens_total{key="bob",kind="output"} 2.0',
        'penstock_key_cost_usd_total{key="ann"} 22.0',
        'penstock_key_cost_usd_total{key="bob"} 11.0',
    }
