"""What the client sends is what the upstream gets, and the other way round."""

import asyncio
import gzip
import json
from contextlib import nullcontext
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import CONFIG, Answer, Client, Lab
from tests.e2e.odd_answers import ODD
from tests.e2e.servers import DEFAULT_ANSWER, Received, Upstream, answering, begin_stream, send_chunk, silent, streaming

ODD_BODY = (
    b'{ "x_first": 1.0, "model":"plain-1",\n "messages" : [{"content":"h\\u00e9llo", "role":"user","n":1e5}],'
    b' "seed":18446744073709551615, "stop":null,"x_last":{"b":1,"a":[ ]} }\n'
)


async def post(client: Client, body: bytes | dict[str, Any], **headers: str) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"content-type": "application/json", "authorization": "Bearer sk-client", **headers}
    return await client.send("POST", "/v1/chat/completions", sent, data=data)


def request(model: str, *texts: str, **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text} for text in texts or ("hi",)], **fields}


BODIES = [
    ODD_BODY,
    b' {\r\n  "messages" : [ { "content":"hi" ,"role":"user" } ] ,\t"model":"plain-1"\n}\n\n',
    b'{"model":"plain-1","temperature":1.0,"top_p":1e-2,"seed":-9223372036854775808,"messages":'
    b'[{"role":"user","content":"hi"}],"logit_bias":{"50256":-100}}',
    b'{"model":"plain-1","vendor":123456789012345678901234567890,"messages":[{"role":"user","content":"hi"}]}',
    b'{"model":"plain-1","messages":[{"role":"user","content":"\\u6c34\\/\\ud83d\\udeaa \xe6\xb0\xb4"}]}',
    b'{"model":"plain-1","tools":null,"stop":null,"stream":null,"messages":[{"x":1,"role":"user","content":"hi"}]}',
    b'{"model":"plain-1","messages":[{"role":"user","content":[{"type":"text","text":"hi"},'
    b'{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}}]}]}',
]
"""Bodies that a re-serialisation would change."""


async def test_bytes_go_through_a_chain_that_changes_nothing(client: Client, behind: Upstream) -> None:
    for body in BODIES:
        for model in (b"plain-1", b"chain-1"):
            sent = body.replace(b"plain-1", model)
            answer = await post(client, sent)
            assert (answer.status, answer.body, behind.last.body) == (200, DEFAULT_ANSWER, sent)
            assert answer.headers["x-penstock-context"].endswith(";8192") or model == b"plain-1"


async def test_a_rewrite_leaves_every_other_byte_alone(client: Client, behind: Upstream) -> None:
    old = b'{"role":"user", "content":"\\u00e9", "x":1.0}'
    turns = b",".join([b'{"role":"user","content":"old"}'] * 5 + [old])
    sent = b'{"temperature": 1e0, "model":"chain-1","messages":[' + turns + b'],"x_last":2.50}'
    await post(client, sent)
    forwarded = behind.last.body
    assert forwarded == (
        b'{"temperature":1e0,"model":"chain-1","messages":[{"role":"user","content":"old"},'
        b'{"role":"user","content":"old"},{"role":"user","content":"old"},' + old + b'],"x_last":2.50}'
    )


async def test_what_the_operator_does_not_allow_is_refused(lab: Lab) -> None:
    config = CONFIG.replace("server: {", "server: {may_bypass: false, may_choose_chain: false, ")
    client = await lab.client(config)
    for header, value, code in (
        ("x-penstock-bypass", "true", "bypass_not_allowed"),
        ("x-penstock-chain", "empty", "chain_not_allowed"),
    ):
        answer = await client.chat(model="chain-1", headers={header: value})
        assert answer.refusal == (400, code)
        assert header in answer.json["error"]["message"]
    assert lab.behind.received == []
    assert (await client.chat(model="chain-1")).status == 200


async def test_shadow_mode_forwards_the_clients_bytes_and_says_more(client: Client, behind: Upstream) -> None:
    sent = json.dumps(request("chain-1", "a", "b", "c")).encode()
    answer = await post(client, sent, **{"x-penstock-chain": "observed"})
    assert behind.last.body == sent
    assert "observed: dropped 2 of 3 turns" in answer.headers["server-timing"]


async def test_an_alias_changes_the_model_and_nothing_else(client: Client, behind: Upstream) -> None:
    await post(client, b'{"model": "alias", "messages": [{"role":"user","content":"x"}], "n": 1.0}')
    assert behind.last.body == (b'{"model":"the-real-name","messages":[{"role":"user","content":"x"}],"n":1.0}')


async def test_the_clients_headers_travel_on_but_no_connections(client: Client, behind: Upstream) -> None:
    on = {"authorization": "Bearer sk-client", "openai-organization": "org-1", "x-vendor": "yes"}
    trace = "00-0af7651916cd43dd8448eb211c80319c-"
    gone = {"cookie": "a=b", "x-penstock-tag": "1", "x-forwarded-for": "10.0.0.1", "baggage": "user=1", "x-hop": "1"}
    connection = {"connection": "keep-alive, x-hop", "traceparent": f"{trace}b7ad6b7169203331-01"}
    await post(client, ODD_BODY, **on, **gone, **connection)
    sent = {name.lower(): value for name, value in behind.last.headers}
    assert sent.items() >= on.items()
    assert sent["traceparent"].startswith(trace)
    assert (sent["host"], sent["accept-encoding"]) == (f"127.0.0.1:{behind.port}", "identity")
    assert not sent.keys() & {*gone, "x-request-id"}


async def test_the_upstreams_headers_come_back(client: Client, behind: Upstream) -> None:
    extra = (
        "content-type: application/json\r\nx-request-id: req_up\r\nx-ratelimit-remaining-tokens: 7\r\n"
        "retry-after-ms: 5\r\nset-cookie: a=b\r\nx-many: 1\r\nx-many: 2\r\nconnection: x-secret\r\nx-secret: 1\r\n"
    )
    slow = b'{"error":{"message":"slow","type":"tokens","param":null,"code":"x"}}'
    behind.respond = answering(slow, status=429, headers=extra)
    answer = await post(client, ODD_BODY, **{"x-request-id": "mine-1"})
    assert answer.status == 429
    assert answer.body.startswith(b'{"error":{"message":"slow"')
    kept = {"x-request-id": "mine-1", "x-upstream-request-id": "req_up", "retry-after-ms": "5"}
    assert {name: answer.headers.get(name) for name in kept} == kept
    assert answer.headers.getall("x-many") == ["1", "2"]
    assert not {"set-cookie", "x-secret"} & {name.lower() for name in answer.headers}
    assert len(behind.received) == 1, "a 4xx is never tried again"


RELAYED = ("content-type", "content-encoding", "location", "retry-after")
"""Response headers that must come through as they are, or stay away."""


class TestStreams:
    async def test_each_chunk_arrives_before_the_next_is_sent(self, client: Client, behind: Upstream) -> None:
        step = asyncio.Event()
        events = [b'data: {"n":%d}\n\n' % n for n in range(5)]

        async def answer(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
            await begin_stream(writer)
            for event in events:
                await send_chunk(writer, event)
                await asyncio.wait_for(step.wait(), 60)
                step.clear()
            await send_chunk(writer, b"")

        behind.respond = answer
        async with client.http.post(
            f"{client.base}/v1/chat/completions", json=request("plain-1", stream=True)
        ) as response:
            assert response.headers["content-type"] == "text/event-stream"
            assert response.headers["cache-control"] == "no-cache"
            for event in events:
                assert await asyncio.wait_for(response.content.readany(), 60) == event
                step.set()

    @pytest.mark.parametrize("split", [None, 1])
    async def test_answers_are_never_reframed(self, client: Client, behind: Upstream, split: int | None) -> None:
        """Where Penstock looks for usage that it asked for itself, ends of lines may change."""
        for name, odd in ODD.items():
            whole = b"".join(odd.parts)
            if split and len(whole) > 10_000:
                continue
            parts = odd.parts if split is None else [whole[at : at + split] for at in range(0, len(whole), split)]
            head = "".join(f"{key}: {value}\r\n" for key, value in odd.headers.items())
            behind.respond = streaming(*filter(None, parts), status=odd.status, headers=head)
            for model in ("plain-1", "chain-1", "asking-1"):
                answer = await post(client, request(model, stream=True))
                # nobody asked for gzip: it is read, and the answer goes on without it
                body, told = answer.body, gzip.decompress(whole) if "Content-Encoding" in odd.headers else whole
                if model == "asking-1":
                    if "usage" in name:
                        continue
                    body, told = (each.replace(b"\r\n", b"\n") for each in (body, told))
                assert (answer.status, body) == (odd.status, told), (name, model)
                sent = {key.lower(): value for key, value in odd.headers.items() if key != "Content-Encoding"}
                assert {key: answer.headers.get(key) for key in RELAYED} == {key: sent.get(key) for key in RELAYED}, (
                    name
                )

    async def test_usage_that_only_the_proxy_asked_for_stays_away(self, client: Client, behind: Upstream) -> None:
        async def answer(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
            asked = json.loads(received.body).get("stream_options", {}).get("include_usage")
            await begin_stream(writer)
            null = b',"usage":null' if asked else b""
            await send_chunk(writer, b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]' + null + b"}\n\n")
            if asked:
                await send_chunk(writer, b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1}}\n\n')
            await send_chunk(writer, b"data: [DONE]\n\n")
            await send_chunk(writer, b"")

        behind.respond = answer
        assert b"usage" not in (await post(client, request("asking-1", stream=True))).body
        assert json.loads(behind.last.body)["stream_options"] == {"include_usage": True}
        wanted = await post(client, request("asking-1", stream=True, stream_options={"include_usage": True}))
        assert b'"prompt_tokens":5' in wanted.body
        assert 'penstock_tokens_total{kind="input",model="asking-1"} 10.0' in await client.metrics()


class TestOtherPaths:
    async def test_a_form_names_its_model_too(self, client: Client, behind: Upstream) -> None:
        form = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nkeyed-1\r\n--x--\r\n'
        headers = {"content-type": "multipart/form-data; boundary=x"}
        assert (await client.send("POST", "/v1/audio/transcriptions", headers, data=form)).status == 200
        assert behind.last.header("authorization") == "Bearer sk-operators-own"
        assert behind.last.body == form

    async def test_sound_is_heard_as_it_is_made(self, client: Client, behind: Upstream) -> None:
        heard = asyncio.Event()

        async def speak(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
            await begin_stream(writer, "content-type: audio/mpeg\r\n")
            await send_chunk(writer, b"one")
            await asyncio.wait_for(heard.wait(), 60)
            await send_chunk(writer, b"two")
            if b"whole" in received.body:
                await send_chunk(writer, b"")
            else:
                writer.close()

        behind.respond = speak
        for text in ("whole", "broken"):
            heard.clear()
            asked = {"model": "plain-1", "input": text}
            async with client.http.post(f"{client.base}/v1/audio/speech", json=asked) as response:
                assert (response.status, response.headers["content-type"]) == (200, "audio/mpeg")
                assert await response.content.readexactly(3) == b"one"
                heard.set()
                with nullcontext() if text == "whole" else pytest.raises(aiohttp.ClientPayloadError):
                    assert await response.read() == b"two"

    async def test_an_upstream_that_never_lists_its_models_is_left_out(
        self, client: Client, behind: Upstream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("proxy.server.api.models._PATIENCE", 0.1)
        behind.respond = silent
        for path in ("/v1/models", "/v1/models/alias"):
            assert (await client.get(path)).status == 200
