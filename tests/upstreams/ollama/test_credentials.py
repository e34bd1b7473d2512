"""Whose key and settings reach Ollama: the operator's, never the client's, on other paths too."""

from pydantic import SecretStr

from proxy.upstreams.base import Call
from proxy.upstreams.ollama import Ollama
from tests.scripted import read
from tests.upstreams.ollama.calls import KEY, ask, body, call, ollama
from tests.upstreams.ollama.fake_ollama import FakeOllama


async def test_the_clients_key_stays_here(fake: FakeOllama, upstream: Ollama) -> None:
    await upstream.send(call())
    await upstream.models({"authorization": f"Bearer {KEY}"})

    assert KEY not in str(fake.headers)
    assert "cookie" not in fake.headers[0]
    assert fake.headers[0]["content-type"] == "application/json"
    assert fake.headers[0]["traceparent"] == "00-1-2-01"


async def test_the_operators_settings_go_along(fake: FakeOllama) -> None:
    upstream = ollama(fake.url, 8192, api_key=SecretStr("sk-own"), keep_alive="-1")

    reply = await upstream.send(call(ask(n=2, num_ctx=5)))

    assert fake.headers[0]["authorization"] == "Bearer sk-own"
    assert fake.bodies[0]["options"] == {"num_ctx": 8192}
    assert fake.bodies[0]["keep_alive"] == -1
    assert reply.facts["ignored"] == "n,num_ctx"
    await upstream.aclose()


async def test_other_paths_pass_through(fake: FakeOllama, upstream: Ollama) -> None:
    raw = b'{"model": "m",  "input": "x"}'
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}

    reply = await upstream.send(Call("/embeddings", "m", raw, headers, query="a=b%20c"))
    stream = await upstream.send(Call("/completions", "m", b'{"stream":true}', headers))

    assert body(reply) == {"path": "/v1/embeddings?a=b%20c"}
    assert await read(stream) == b'data: {"choices":[]}\n\ndata: [DONE]\n\n'
    assert fake.paths == ["/v1/embeddings?a=b%20c", "/v1/completions"]
    assert KEY not in str(fake.headers)
