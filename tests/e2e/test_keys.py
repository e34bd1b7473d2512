"""Keys of Penstock over real sockets: who gets in, what travels on, and what one tenant can learn of another."""

import asyncio
import logging
from typing import Any

import aiohttp
import openai
import pytest

from proxy.config.keys_file import hash_of
from tests.e2e.conftest import Answer, Client, Lab
from tests.e2e.servers import DEFAULT_ANSWER, JSON, Upstream, answering, filled

ANN, BOB, OLD, TIGHT = (f"pk-{name}-{'s3cret' * 8}" for name in ("ann", "bob", "old", "tight"))
OPERATOR = "the-operator"
CONFIG = """
server: {admin_key: the-operator}
upstreams:
  main: {kind: openai, base_url: "{url}", api_key: sk-operators-own}
  plain: {kind: openai, base_url: "{url}", keyless: true}
  claude: {kind: anthropic, base_url: "{server}", api_key: sk-operators-own}
  llama: {kind: ollama, base_url: "{server}", api_key: sk-operators-own}
  echo: {kind: echo}
models:
  - {match: "claude-*", upstream: claude}
  - {match: "llama-*", upstream: llama}
  - {match: ["echo", "echo-2"], upstream: echo, window: 8192}
  - {match: "keyless-*", upstream: plain}
  - {match: "*", upstream: main, window: 4000, reserve: 100, prices: {input: 1000000, output: 1000000}}
chains: {default: [], local: [], strict: [reject_oversize: {}]}
auth:
  kind: keys
  keys:
    - {name: ann, hash: {ann}}
    - {name: bob, hash: {bob}, models: ["echo", "gpt-*"], chains: [local]}
    - {name: old, hash: {old}, expires: 2026-01-01}
    - {name: tight, hash: {tight}, requests_per_minute: 40, tokens_per_minute: 2000, budget_per_day: 20,
       max_output_tokens: 50, max_n: 2, max_concurrent: 1}
telemetry: {log_level: info}
"""


CONFIG = filled(CONFIG, ann=hash_of(ANN), bob=hash_of(BOB), old=hash_of(OLD), tight=hash_of(TIGHT))


@pytest.fixture
async def client(lab: Lab) -> Client:
    return await lab.client(CONFIG, server=lab.behind.url.removesuffix("/v1"))


def sdk(client: Client, key: str) -> Any:
    """OpenAI's SDK without retries; untyped, because bodies are made of tables."""
    return openai.AsyncOpenAI(base_url=f"{client.base}/v1", api_key=key, max_retries=0)


def talk(model: str = "gpt-5", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], **fields}


async def test_the_sdk_chats_with_a_key_that_no_upstream_ever_sees(client: Client, behind: Upstream) -> None:
    async with sdk(client, ANN) as openais:
        for model in ("gpt-5", "keyless-1"):
            answer = await openais.chat.completions.create(**talk(model))
            assert answer.choices[0].message.content == "hi"
        headers = {"x-api-key": ANN, "api-key": ANN, "openai-organization": "org", "cookie": ANN}
        await openais.chat.completions.create(**talk(), extra_headers=headers, extra_query={"key": ANN, "v": "1"})
    assert (await client.post("/v1/embeddings", {"model": "gpt-e", "input": "x"}, key=ANN)).status == 200
    assert [received.header("authorization") for received in behind.received] == [
        "Bearer sk-operators-own", None, "Bearer sk-operators-own", "Bearer sk-operators-own",
    ]  # fmt: skip
    for received in behind.received:
        assert "pk-ann" not in repr(received)
        assert received.header("openai-organization") is None
    assert behind.received[2].path == "/v1/chat/completions?v=1"


async def test_without_a_key_that_counts_the_sdk_raises_at_once(client: Client, behind: Upstream) -> None:
    for key in ("sk-wrong", hash_of(ANN), OLD, f"{ANN}, {ANN}", "Bearer x"):
        async with sdk(client, key) as openais:
            with pytest.raises(openai.AuthenticationError) as caught:
                await openais.chat.completions.create(**talk())
        assert caught.value.code == "invalid_api_key"
        assert "s3cret" not in str(caught.value)
    assert behind.received == []


async def test_a_key_that_may_use_some_models_only_is_answered_by_no_other_one(lab: Lab) -> None:
    small = "match: gpt-small, upstream: main, window: 60, reserve: 0, chain: strict, larger: big, fallbacks: [big]"
    more = f"models:\n  - {{{small}}}\n  - {{match: big, upstream: echo, window: 100000}}"
    client = await lab.client(CONFIG.replace("models:", more, 1), server=lab.behind.url)
    lab.behind.respond = answering(b'{"error":{"message":"full","type":"t","param":null,"code":null}}', status=500)
    for key, expected in ((ANN, [200, 200]), (BOB, [400, 500])):
        assert [(await client.chat(text, "gpt-small", key=key)).status for text in ("word " * 200, "hi")] == expected


async def test_no_path_under_v1_is_open(client: Client, behind: Upstream) -> None:
    for method, path in (
        ("POST", "/v1/chat/completions"), ("POST", "/chat/completions"), ("POST", "/v1//chat/completions"),
        ("POST", "/V1/chat/completions"), ("GET", "/v1/models"), ("GET", "/models"), ("GET", "/v1/models/gpt-5"),
        ("POST", "/v1/compress"), ("GET", f"/v1/retrieve/{'a' * 20}"), ("POST", "/v1/embeddings"), ("GET", "/v1/files"),
        ("DELETE", "/v1/models/gpt-5"),
    ):  # fmt: skip
        answer = await client.send(method, path, json=talk())
        assert answer.status == (404 if path.startswith("/V1") else 401), path
        assert set(answer.json["error"]) == {"message", "type", "param", "code"}
    assert behind.received == []
    assert (await client.get("/healthz")).status == 200


async def test_a_refusal_does_not_wait_for_the_body(client: Client) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(client.base.rpartition(":")[2]))
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 30000000\r\n\r\n{")
    async with asyncio.timeout(60):
        assert b" 401 " in await reader.readline()
    writer.close()
    await writer.wait_closed()


async def test_a_model_that_a_key_may_not_use_does_not_exist_for_it(client: Client, behind: Upstream) -> None:
    async with sdk(client, BOB) as openais:
        for model in ("echo-2", "claude", "nothing-like-that"):
            with pytest.raises(openai.NotFoundError) as caught:
                await openais.chat.completions.create(**talk(model))
            told = f"The model `{model}` does not exist or you do not have access to it."
            assert (caught.value.code, str(caught.value.message).count(told)) == ("model_not_found", 1)
            with pytest.raises(openai.NotFoundError):
                await openais.models.retrieve(model)
            with pytest.raises(openai.NotFoundError):
                await openais.embeddings.create(model=model, input="x")
            assert (await client.post("/v1/compress", talk(model), key=BOB)).status == 404
        assert [model.id async for model in openais.models.list()] == ["echo"]
        assert (await openais.models.retrieve("gpt-5")).id == "gpt-5"
    form = aiohttp.FormData({"model": "gpt-5"})
    form.add_field("model", "claude")
    form.add_field("file", b"x", filename="a.wav")
    answer = await client.send("POST", "/v1/audio/transcriptions", key=BOB, data=form)
    assert answer.refusal == (400, "unsupported_content_type")
    assert not [received.path for received in behind.received if received.method == "POST"]


async def test_what_is_stored_under_the_operators_key_is_out_of_reach(client: Client, behind: Upstream) -> None:
    for method, path in [
        ("GET", "/files"), ("GET", "/files/file-1/content"), ("POST", "/batches"), ("GET", "/chat/completions"),
        ("GET", "/responses/resp_1"), ("POST", "/responses/resp_1/cancel"), ("DELETE", "/models/gpt-5"), ("POST", "/fine_tuning/jobs"),
        ("POST", "/images/%2e%2e%2ffiles"), ("GET", "/organization/admin_api_keys"),
    ]:  # fmt: skip
        status, code = (await client.send(method, f"/v1{path}", key=ANN, json=talk())).refusal
        assert (status, code) == (404, "not_found"), path
    reference = [{"type": "item_reference", "id": "msg_1"}]
    for stored in ({"previous_response_id": "resp_1"}, {"conversation": "conv_1"}, {"input": reference}):
        answer = await client.post("/v1/responses", {"model": "gpt-5", "input": "x", **stored}, key=ANN)
        assert answer.refusal == (400, "stored_not_allowed")
    answer = await client.post("/v1/embeddings", {"input": "x"}, key=ANN)
    assert (answer.status, answer.json["error"]["param"]) == (400, "model")
    assert behind.received == []


async def test_a_key_chooses_only_its_own_chains(client: Client) -> None:
    for key, chain, status in [(ANN, "strict", 200), (BOB, "local", 200), (BOB, "strict", 400), (ANN, "none", 400)]:
        assert (await client.chat(model="echo", key=key, headers={"x-penstock-chain": chain})).status == status, chain
    told = await client.chat(model="echo", key=BOB, headers={"x-penstock-chain": "x"})
    assert "strict" not in told.json["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/compress"])
async def test_a_key_that_may_not_skip_its_chain_is_told_so(client: Client, path: str) -> None:
    async def asked(key: str, **headers: str) -> Answer:
        named = {f"x-penstock-{name}": value for name, value in headers.items()}
        return await client.chat(model="echo", path=path, key=key, headers=named)

    for skips in ({"bypass": "True"}, {"bypass": "True", "chain": "local"}):
        answer = await asked(BOB, **skips)
        assert answer.refusal == (400, "bypass_not_allowed")
        assert answer.json["error"]["type"] == "invalid_request_error"
        assert (await asked(ANN, **skips)).status == 200
    assert (await asked(BOB, bypass="false")).status == 200


async def test_the_operators_account_stays_hidden(client: Client, behind: Upstream) -> None:
    refusal = b'{"error":{"message":"Incorrect API key provided: sk-op***own","code":"invalid_api_key"}}'
    head = f"{JSON}x-ratelimit-limit-requests: 7\r\n"
    behind.respond = answering(refusal, status=401, headers=head)
    for model in ("gpt-5", "claude-sonnet-4-5", "llama-3"):
        answer = await client.chat(model=model, key=ANN)
        assert (answer.refusal, answer.headers["x-should-retry"]) == ((502, "upstream_unauthorized"), "false")
        assert b"sk-op" not in answer.body
    behind.respond = answering(DEFAULT_ANSWER, headers=f"{head}openai-organization: acme\r\nx-other: 1\r\n")
    headers = (await client.chat(key=ANN)).headers
    assert headers["x-other"] == "1"
    assert not {"openai-organization", "x-ratelimit-limit-requests"} & {name.lower() for name in headers}
    assert (await client.chat(key=TIGHT)).headers.getall("x-ratelimit-limit-requests") == ["40"]


async def test_limits_as_the_sdk_sees_them(client: Client, behind: Upstream) -> None:
    async with sdk(client, TIGHT) as openais:
        beyond: list[dict[str, Any]] = [{"max_tokens": 51}, {"n": 3}]
        for fields in beyond:
            with pytest.raises(openai.BadRequestError) as wrong:
                await openais.chat.completions.create(**talk(**fields))
            assert wrong.value.code == "integer_above_max_value"
        assert behind.received == []
        raw = await openais.chat.completions.with_raw_response.create(**talk())
        assert raw.headers["x-ratelimit-limit-requests"] == "40"
        assert raw.headers["x-ratelimit-remaining-requests"] == "37"
        assert raw.headers["x-ratelimit-limit-tokens"] == "2000"
        assert raw.headers["x-ratelimit-reset-requests"].endswith("s")
        # eleven dollars each, counted behind the answer: the day's twenty are soon spent, which no retry changes
        with pytest.raises(openai.RateLimitError) as caught:
            for _ in range(20):
                await openais.chat.completions.create(**talk())
        assert (caught.value.code, caught.value.type) == ("insufficient_quota", "insufficient_quota")
        assert caught.value.response.headers["x-should-retry"] == "false"
    assert (await client.chat(key=ANN)).status == 200
    assert len(behind.received) < 20


async def test_no_key_is_in_any_log_metric_error_or_repr(
    client: Client, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    answers: list[Any] = []
    for key in (ANN, BOB, OLD, TIGHT, "pk-unknown-s3cret"):
        for model in ("gpt-5", "claude", "echo"):
            sent: list[dict[str, str]] = [{}, {"x-api-key": key}, {"x-penstock-session": key}]
            answers += [await client.chat(model=model, key=key, headers=headers) for headers in sent]
        answers += [await client.get("/v1/retrieve/aaaaaaaaaaaaaaaaaaaa", key=key, params={"key": key})]
    answers += [await client.get("/metrics", key=OPERATOR)]
    written = [caplog.text, str(answers), "".join(capfd.readouterr())]
    written += [str(record.__dict__) for record in caplog.records]
    assert "'key': 'ann'" in "".join(written), "the key's name is"
    for text in written:
        assert "s3cret" not in text
        assert "sk-operators" not in text


async def test_what_each_key_used_is_counted_under_its_name(client: Client) -> None:
    for key in (ANN, ANN, BOB, "pk-unknown-s3cret", None):
        await client.chat(model="gpt-5", key=key)
    await client.chat(model="claude", key=BOB)
    for key in (ANN, "pk-unknown-s3cret", None):
        assert (await client.get("/metrics", key=key)).status == 401, "what others use is not for clients"
    told = (await client.get("/metrics", key=OPERATOR)).body.decode()
    found = {line for line in told.splitlines() if line.startswith("penstock_key_") and "_created" not in line}
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
