"""No view of one tenant shows what another one said: every endpoint is asked, with the texts of records kept.

Two clients give their requests, conversations and users the same names. Whatever they say has a word of their own.
"""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from starlette.routing import Route

from proxy.config.keys_file import hash_of
from proxy.server import admin, app
from proxy.server.app import CHAT
from tests.e2e.default_chain import MARKER
from tests.e2e.servers import Received, Upstream, filled, proxy, send
from tests.scripted import answer

CONFIG = """
upstreams: {main: {kind: openai, base_url: "{url}"{key}}}
models: [{match: "*", upstream: main, window: 8192, prices: {input: 2, output: 8}, cache: {read: 1}}]
chains:
  default:
    - compact_tool_results: {over: 600, read_again: 0}
    - window_history: {keep_turns: 2, stride: 1, summary: false}
    - keep_notes: {}
    - select_memories: {threshold: 0.1, fallback: 0, floor: 0}
    - include_shared: {}
    - offer_recall: {}
vectors: none
records: {text: true}
"""
KEYS = f"""
server: {{admin_key: s3cret}}
auth: {{kind: keys, keys: [{{name: ann, hash: {hash_of("pk-ann")}}}, {{name: bob, hash: {hash_of("pk-bob")}}}]}}
"""
WORDS = {"ann": "marmalade", "bob": "turpentine"}
NAMED = {"x-request-id": "same", "x-penstock-session": "same", "x-penstock-agent": "same", "x-penstock-user": "same"}
MESSAGES = ("/v1/messages", "/v1/messages/count_tokens")
RESPONSES = ("/v1/responses", "/v1/responses/input_tokens")
TEXTS = {"/admin/conversations", "/admin/conversations/{id}", "/admin/conversations/{id}/export", "/admin/requests",
         "/admin/requests/{request_id:path}", "/admin/explain",
         "/admin/requests/{request_id:path}/archive/{handle}"}  # fmt: skip
"""The paths that show operators what a client said; lists do in the titles of conversations."""
PLAIN = ("/admin/policies", "/admin/periods", "/admin/config", "/admin/keys")


async def telling(behind: Upstream, received: Received, writer: Any) -> None:
    """A model that says the word that it was told."""
    told = next((word for word in WORDS.values() if word in received.body.decode()), "nothing")
    await send(writer, 200, json.dumps(answer(f"So it is {told}.")).encode())


@dataclass
class Site:
    """A running proxy, and all that was asked of it."""

    base: str
    http: aiohttp.ClientSession
    routes: set[str]
    operator: dict[str, str]
    asked: set[str]

    async def ask(
        self, route: str, headers: dict[str, str], method: str = "GET", query: str = "", body: Any = None, **parts: str
    ) -> tuple[int, str]:
        """The status and the text of an answer, which nothing but the word of `headers` may be in."""
        assert route in self.routes
        self.asked.add(route)
        path = route
        for name, value in parts.items():
            path = path.replace(f"{{{name}:path}}", quote(value)).replace(f"{{{name}}}", quote(value))
        url = f"{self.base}{path}?{query}"
        async with self.http.request(method, url, headers=headers, json=body, allow_redirects=False) as response:
            return response.status, await response.text()

    async def told(self, route: str, method: str = "GET", query: str = "", body: Any = None, **parts: str) -> Any:
        """What an operator is told."""
        status, text = await self.ask(route, self.operator, method, query, body, **parts)
        assert status == 200, text
        return json.loads(text)


def client(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer pk-{name}", **NAMED}


@pytest.fixture(params=["keys", "open"])
async def site(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    behind: Upstream,
    http: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncGenerator[Site, None]:
    """With keys of Penstock and of an operator, and open to the machine that it runs on."""
    behind.respond = telling
    routes: set[str] = set()

    class Noted(Route):
        def __init__(self, path: str, *given: Any, **more: Any) -> None:
            routes.add(path)
            super().__init__(path, *given, **more)

    monkeypatch.setattr(app, "HttpRoute", Noted)
    monkeypatch.setattr(admin, "Route", Noted)
    has_keys = request.param == "keys"
    text = filled(CONFIG, url=behind.url, key=", api_key: sk-own" if has_keys else "")
    async with proxy(text + KEYS * has_keys, tmp_path) as base:
        yield Site(base, http, routes, {"authorization": "Bearer s3cret"} if has_keys else {}, set())


def conversation(word: str) -> list[Any]:
    """Texts of all kinds that have a word: what is said, called, read, and taken out."""
    call = {"name": f"find_{word}", "arguments": json.dumps({"what": word})}
    talk: list[Any] = [{"role": "system", "content": f"You know of {word}."}]
    for n in range(5):
        rows = [{"id": f"A-{n}-{row}", "note": f"much {word}, and {row * 7} more of it"} for row in range(80)]
        talk += [
            {"role": "user", "content": f"Where is the {word} of part {n}?"},
            {"role": "assistant", "tool_calls": [{"id": f"c{n}", "type": "function", "function": call}]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": json.dumps(rows)},
            {"role": "assistant", "content": f"The {word} is in row {n}."},
        ]
    return [*talk, {"role": "user", "content": f"Thanks for the {word}."}]


def body(word: str, messages: list[Any]) -> dict[str, Any]:
    function = {"name": f"find_{word}", "description": f"Finds {word}.", "parameters": {"type": "object"}}
    return {"model": "m", "messages": messages, "tools": [{"type": "function", "function": function}], "user": word}


async def lives(site: Site, name: str) -> dict[str, str]:
    """What a client leaves: two requests, a memory, something shared. Returns the ids that it knows."""
    word, headers = WORDS[name], client(name)
    talk = conversation(word)
    for end in (len(talk) - 4, len(talk)):
        status, text = await site.ask(CHAT, headers, "POST", body=body(word, talk[:end]))
        assert status == 200, text
        assert word in text
    memory = {"text": f"The user likes {word} in the morning.", "user": "same"}
    status, text = await site.ask("/v1/memories", headers, "POST", body=memory)
    assert status in (200, 201), text
    gift = {"to": {"agent": "other"}, "content": f"There is {word} for you."}
    status, given = await site.ask("/v1/context/share", headers, "POST", body=gift)
    assert status == 200, given
    return {"memory": json.loads(text)["id"], "share": json.loads(given)["id"]}


async def looked_at(site: Site, tenant: str, handles: set[str]) -> dict[str, str]:
    """All that an operator sees of a tenant, by path."""
    of, one = f"tenant={tenant}", "/admin/requests/{request_id:path}"
    seen = {
        path: json.dumps(await site.told(path, query=of))
        for path in ("/admin/conversations", "/admin/requests", "/admin/policies", "/admin/periods")
    }
    (listed,) = json.loads(seen["/admin/conversations"])["conversations"]
    assert listed["tenant"] == tenant
    whole = await site.told("/admin/conversations/{id}", query="text=true", id=listed["id"])
    seen["/admin/conversations/{id}"] = json.dumps(whole)
    assert len(whole["requests"]) == 2
    path = "/admin/conversations/{id}/export"
    status, seen[path] = await site.ask(path, site.operator, query="format=jsonl", id=listed["id"])
    assert status == 200
    record = await site.told(one, query=of, request_id="same")
    seen[one] = json.dumps(record)
    handles |= {*MARKER.findall(seen[one])}
    originals = {
        handle: (await site.ask(f"{one}/archive/{{handle}}", site.operator, query=of, request_id="same", handle=handle))
        for handle in handles
    }
    seen[f"{one}/archive/{{handle}}"] = "\n".join(text for _, text in originals.values())
    assert {status for status, _ in originals.values()} <= {200, 404}
    tried = {"request_id": "same", "tenant": tenant, "chain_yaml": "- select_memories: {}", "against": "default"}
    seen["/admin/explain"] = json.dumps(await site.told("/admin/explain", "POST", body=tried))
    return seen


async def test_no_view_of_one_tenant_shows_what_another_one_said(site: Site) -> None:
    ids = {name: await lives(site, name) for name in WORDS}
    tenants = {each["tenant"] for each in (await site.told("/admin/requests"))["requests"]}
    assert len(tenants) == 2
    seen, handles = set[str](), set[str]()
    for tenant in (*tenants, *tenants):  # the second time with the handles of both
        found = await looked_at(site, tenant, handles)
        (name,) = [each for each, word in WORDS.items() if word in found["/admin/requests/{request_id:path}"]]
        (other,) = {*WORDS} - {name}
        assert [path for path, text in found.items() if WORDS[other] in text] == []
        assert {path for path, text in found.items() if WORDS[name] in text} == TEXTS
        seen.add(name)
    assert seen == {*WORDS}
    assert len(handles) >= len(WORDS)

    # what shows no texts has none of anybody's
    everything = [
        *[await site.ask(path, site.operator) for path in (*PLAIN, "/admin/replays", "/metrics", "/ui", "/")],
        await site.ask("/ui/{name}", site.operator, name="app.js"),
        await site.ask("/admin/check", site.operator, "POST", body={"yaml": "version: 1"}),
        await site.ask("/admin/reload", site.operator, "POST"),
        await site.ask("/admin/keys/{name}", site.operator, "DELETE", name="ann"),
    ]
    # without a key there is no reload; without a file of keys none is revoked
    assert [status for status, _ in everything if status >= 400] == ([409] if site.operator else [404, 404])
    assert not any(word in text for _, text in everything for word in WORDS.values())

    pairs = [(client(name), WORDS[other], ids[other]) for name, other in (("ann", "bob"), ("bob", "ann"))]
    assert {await _pries(site, *each, handles) for each in pairs} == tenants
    for tenant in tenants if site.operator else ():
        told = await site.told("/admin/tenants/{tenant:path}", "DELETE", tenant=tenant)
        assert told["complete"]
        left = json.dumps((await site.told("/admin/requests"))["requests"])
        assert tenant not in left
    unasked = {path for path in site.routes - site.asked if not path.startswith("/chat") and "/models" not in path}
    assert unasked == (set() if site.operator else {"/admin/tenants/{tenant:path}"})


async def _pries(site: Site, headers: dict[str, str], word: str, ids: dict[str, str], handles: set[str]) -> Any:
    """A client asks everything for what another one said, by all the names that this one has. Returns its tenant."""
    status, record = await site.ask("/v1/explain/{request_id:path}", headers, request_id="same")
    assert status == 200
    assert not any(each in record for each in WORDS.values()), "clients get no texts"
    asked = {"role": "user", "content": "What do I like in the morning, and where is it?"}
    question = {"model": "m", "messages": [asked]}
    path = "/v1/{path:path}"
    answers = [
        await site.ask(CHAT, {**headers, "x-penstock-explain": "1"}, "POST", body=question),
        await site.ask("/v1/explain", headers, "POST", body={"request": question, "before": [question]}),
        await site.ask("/v1/explain", headers),
        await site.ask("/v1/compress", headers, "POST", body=question),
        *[await site.ask("/v1/retrieve", headers, query=f"handle={handle}") for handle in handles],
        *[await site.ask("/v1/retrieve/{handle:path}", headers, handle=handle) for handle in handles],
        *[await site.ask(each, headers) for each in ("/v1/memories", "/v1/context/share")],
        await site.ask("/v1/memories", headers, query="user=same&query=morning"),
        await site.ask("/v1/memories/{id:path}", headers, id=ids["memory"]),
        await site.ask("/v1/memories/aggregate", headers, "POST", body={"user": "same"}),
        await site.ask("/v1/memories/import", headers, "POST", body={"text": "The user likes tea.", "user": "same"}),
        await site.ask("/v1/context/share", {**headers, "x-penstock-agent": "other"}),
        await site.ask("/v1/context/share/{id:path}", {**headers, "x-penstock-agent": "other"}, id=ids["share"]),
        await site.ask(path, headers, path="responses/same"),
        *[await site.ask(each, headers, "POST", body=question | {"max_tokens": 9}) for each in MESSAGES],
        *[await site.ask(each, headers, "POST", body={"model": "m", "input": "What do I like?"}) for each in RESPONSES],
    ]
    if "/v1/usage" in site.routes:
        answers.append(await site.ask("/v1/usage", headers))
    assert not any(word in text for _, text in answers)
    own = next(each for each in WORDS.values() if each != word)
    assert sum(own in text for _, text in answers) >= 5, "each finds its own"
    for route in sorted({*TEXTS, *PLAIN}):
        for given in (headers, NAMED) if site.operator else (headers,):
            method = "POST" if route == "/admin/explain" else "GET"
            status, text = await site.ask(route, given, method, request_id="same", id="same", handle="a" * 20)
            assert status in (401, 404)
            assert word not in text
    return json.loads(record)["tenant"]
