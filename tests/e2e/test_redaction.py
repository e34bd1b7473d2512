"""A guard sees every string of a request: it is redacted or the request is refused, and never forwarded."""

import json
from collections.abc import Iterable, Iterator
from types import UnionType
from typing import Any, Literal, Required, Union, get_args, get_origin

import pytest
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from typing_extensions import get_type_hints, is_typeddict

from tests.e2e.conftest import Lab, Setup
from tests.e2e.servers import say

MARK = "marker.4711@example.com"
CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}"}}}}
models:
  - {{match: open, upstream: main, chain: open}}
  - {{match: "*", upstream: main}}
chains:
  default:
    - redact_secrets: {{}}
    - reject_oversize: {{}}
  open: []
records: {{text: true}}
"""


@pytest.fixture
async def setup(lab: Lab) -> Setup:
    return Setup(await lab.start(CONFIG.format(url=lab.behind.url)), lab.behind, lab.http)


def example(kind: Any) -> Any:
    """The smallest value of a type of the SDK."""
    origin, parts = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True).items()
        return {key: example(get_args(each)[0]) for key, each in hints if str(get_origin(each)) == str(Required)}
    if origin is Literal:
        return parts[0]
    if origin in (Union, UnionType):
        return example(parts[0])
    if origin in (list, Iterable) or str(origin) == "<class 'collections.abc.Iterable'>":
        return [example(parts[0])]
    return {str: "x", int: 1, float: 1.0, bool: True}.get(kind, {} if origin is dict or kind is dict else None)


def planted(kind: Any, path: str) -> Iterator[tuple[str, Any]]:
    """A value for each string in a type: with the marker there alone, and its path."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is str or origin is Literal:
        yield path, MARK
    elif origin is dict or kind is dict:
        yield from {f"{path}.*": {"key": [MARK]}, f"{path} (a key)": {MARK: 1}}.items()
    elif origin in (Union, UnionType):
        for place, each in enumerate(parts):
            yield from planted(each, f"{path}|{place}" if len(parts) > 2 else path)
    elif is_typeddict(kind):
        for key, each in get_type_hints(kind).items():
            yield from ((where, {**example(kind), key: value}) for where, value in planted(each, f"{path}.{key}"))
    elif parts:
        yield from ((where, [value]) for where, value in planted(parts[0], f"{path}[]"))


BODIES = dict(
    [*planted(CompletionCreateParamsNonStreaming, ""), *planted(CompletionCreateParamsStreaming, "")]
)  # fmt: skip


def test_the_fields_of_the_sdk_are_found() -> None:
    places = " ".join(BODIES)
    for name in (".user", ".metadata", ".prediction", ".stop", ".filename", ".image_url.url", ".functions", ".city"):
        assert name in places
    assert len(BODIES) > 100


async def test_no_string_of_the_sdk_gets_past_it(setup: Setup) -> None:
    refused, late = set[str](), list[str]()
    for place, body in BODIES.items():
        spoken = [{"role": "user", "content": "hi"}]
        messages = [*(body["messages"] if place.startswith(".messages") else ()), *spoken]
        body = {
            **body,
            "model": body["model"] if place == ".model" else "guarded",
            "messages": messages,
            "stream": False,
        }
        setup.upstream.reset()
        async with setup.session.post(setup.url, json=body) as response:
            await response.read()
            if response.status != 200:
                refused.add(place)
        late += [place for each in setup.upstream.received if MARK.encode() in each.body]
    assert late == []
    # a model cannot be redacted; the other is a name of the client's own where only known ones are read
    assert refused == {".model", ".tool_choice|1.allowed_tools.tools[].*"}


@pytest.mark.parametrize(
    ("body", "headers", "query", "status"),
    [
        pytest.param({"wish": f"for {MARK}"}, {}, "", 400, id="an unknown field"),
        pytest.param({"wish": [{MARK: 1}]}, {}, "", 400, id="a key of an unknown field"),
        pytest.param({MARK: 1}, {}, "", 400, id="the name of a field"),
        pytest.param({"messages": [{"role": "user", "content": "hi", "note": MARK}]}, {}, "", 400, id="in a message"),
        pytest.param({}, {"x-user-email": MARK, "x-team": "search"}, "", 200, id="a header"),
        pytest.param({}, {}, "user=marker.4711%40example.com", 400, id="the query"),
        pytest.param({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {
            "url": f"https://cdn.example.com/{MARK}.png"}}]}]}, {}, "", 200, id="the address of an image"),
        pytest.param({"messages": [{"role": "user", "content": json.dumps({"a": MARK}).replace("@", "\\u0040")}]},
                     {}, "", 200, id="escaped in JSON"),
    ],
)  # fmt: skip
async def test_nor_does_any_other(
    setup: Setup, body: dict[str, Any], headers: dict[str, str], query: str, status: int
) -> None:
    body = {"model": "guarded", "messages": [{"role": "user", "content": "hi"}], **body}
    async with setup.session.post(f"{setup.url}?{query}", json=body, headers=headers) as response:
        told = await response.text()
        assert response.status == status, told
    for each in setup.upstream.received:
        sent = f"{each.path} {each.headers} {each.body.decode()}"
        assert "4711" not in sent
        assert each.header("x-team") == headers.get("x-team")


@pytest.mark.parametrize("stream", [False, True])
async def test_the_client_has_again_what_the_model_never_saw(setup: Setup, stream: bool) -> None:
    async def echoing(upstream: Any, received: Any, writer: Any) -> None:
        text = json.loads(received.body)["messages"][-1]["content"]
        call = {"id": "c1", "type": "function", "function": {"name": "mail", "arguments": json.dumps({"to": text})}}
        message = {"role": "assistant", "content": f"You said: {text}", "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        await say(
            writer, received, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        )

    setup.upstream.respond = echoing
    body = {"model": "guarded", "messages": [{"role": "user", "content": f"I am {MARK}"}], "stream": stream}
    async with setup.session.post(setup.url, json=body) as response:
        told = (await response.read()).decode()
        number = response.headers["x-request-id"]
    if stream:
        chunks = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: {")]
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        told = "".join(delta.get("content") or "" for delta in deltas)
        told += "".join(call["function"].get("arguments", "") for each in deltas for call in each.get("tool_calls", ()))
    assert f"You said: I am {MARK}" in told
    assert told.count(MARK) == 2
    assert MARK.encode() not in setup.upstream.last.body
    await check_kept(setup, number)


async def check_kept(setup: Setup, number: str) -> None:
    """No record and no explanation that operators read has the secret."""
    for path in (f"/admin/requests/{number}?text=true", "/admin/conversations?text=true"):
        async with setup.session.get(f"{setup.base}{path}") as response:
            assert MARK not in await response.text()


async def test_the_same_conversation_sends_the_same_bytes(setup: Setup) -> None:
    messages = [{"role": "user", "content": f"I am {MARK}"}]
    bodies = list[str]()
    for n in range(3):
        async with setup.session.post(setup.url, json={"model": "guarded", "messages": messages}) as response:
            assert response.status == 200
        bodies.append(setup.upstream.last.body.decode().rpartition("]")[0])
        messages += [{"role": "assistant", "content": f"Hello {MARK}"}, {"role": "user", "content": f"{n}"}]
    assert bodies[1].startswith(bodies[0])
    assert bodies[2].startswith(bodies[1])
