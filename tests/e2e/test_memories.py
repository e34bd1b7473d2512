"""Applications store memories over real sockets, requests get them, and nobody gets another's."""

import json
from typing import Any

import openai
import pytest

from proxy.config.keys_file import hash_of
from tests.e2e.conftest import Answer, Client, Lab
from tests.e2e.servers import Upstream

KEY, OTHERS_KEY = "pk-1", "pk-2"
CONFIG = f"""
upstreams: {{main: {{kind: openai, base_url: "{{url}}", api_key: sk-own}}}}
server: {{max_body_mib: 0.5, admin_key: adm}}
chains: {{default: [{{select_memories: {{timeout: 30, wait: 20}}}}]}}
memories: {{max_import: 300, max_characters: 500}}
auth:
  kind: keys
  keys: [{{name: one, hash: {hash_of(KEY)}}}, {{name: two, hash: {hash_of(OTHERS_KEY)}}}]
"""
SHARED = "The canteen has tea, coffee and juice to drink"
TEA = "The user drinks green tea, coffee or juice"


async def imported(client: Client, lines: list[str]) -> Answer:
    headers = {"content-type": "application/x-ndjson"}
    return await client.send("POST", "/v1/memories/import", headers, data="\n".join(lines))


async def texts(client: Client, query: str, headers: Any = None) -> list[str]:
    """Return the texts that a list or a search gives."""
    return [each["text"] for each in (await client.get(f"/v1/memories?{query}", headers)).json["data"]]


async def sent(client: Client, behind: Upstream, said: str, **more: Any) -> list[str]:
    """Return the contents of the messages that reach the upstream."""
    assert (await client.chat(said, **more)).status == 200
    return [message["content"] for message in json.loads(behind.last.body)["messages"]]


def remembered(contents: list[str]) -> set[str]:
    """Return the memories in front of what was said."""
    return {line[2:] for line in "\n".join(contents[:-1]).splitlines() if line.startswith("- ")}


async def test_an_sdk_stores_finds_and_forgets(client: Client, behind: Upstream) -> None:
    async with openai.AsyncOpenAI(api_key="pk-1", base_url=f"{client.base}/v1", max_retries=0) as sdk:
        said = {"text": TEA, "kind": "preference", "source": "chat", "user": "ann"}
        made: Any = await sdk.post("/memories", body=said, cast_to=object)
        first = {"object": "memory", "status": "added", "kind": "preference", "sources": ["chat"]}
        assert made | first == made
        again: Any = await sdk.post("/memories", body={**said, "source": "crm"}, cast_to=object)
        assert (again["id"], again["status"], again["sources"]) == (made["id"], "repeated", ["chat", "crm"])
        more = {"memories": [{"text": "Lives in Bremen"}, {"text": "Rides a bicycle", "kind": "note"}], "user": "ann"}
        bulk: Any = await sdk.post("/memories", body=more, cast_to=object)
        assert (bulk["added"], len(bulk["data"])) == (2, 2)
        listed: Any = await sdk.get("/memories?user=ann&limit=2", cast_to=object)
        assert (len(listed["data"]), listed["has_more"]) == (2, True)
        notes: Any = await sdk.get("/memories?user=ann&kind=note", cast_to=object)
        assert [each["text"] for each in notes["data"]] == ["Rides a bicycle"]
        found: Any = await sdk.get("/memories?user=ann&query=green+tea", cast_to=object)
        assert [each["text"] for each in found["data"]] == [TEA]
        assert 0.7 < found["data"][0]["score"] <= 1
        one: Any = await sdk.get(f"/memories/{made['id']}?user=ann", cast_to=object)
        assert one["text"] == TEA
        gone: Any = await sdk.delete(f"/memories/{made['id']}?user=ann", cast_to=object)
        assert gone == {"id": made["id"], "object": "memory.deleted", "deleted": True}
        with pytest.raises(openai.NotFoundError):
            await sdk.get(f"/memories/{made['id']}?user=ann", cast_to=object)
        rest: Any = await sdk.delete("/memories?user=ann", cast_to=object)
        assert rest["deleted"] == 2
    assert not behind.received, "nothing of it reaches an upstream"
    told = (await client.get("/metrics", key="adm")).body.decode()
    changes = [
        f'memories_total{{change="{change}"}} {count}.0'
        for change, count in (("added", 3), ("repeated", 1), ("deleted", 3))
    ]
    for series in (*changes, 'memory_searches_total{found_by="words"} 1.0'):
        assert f"penstock_{series}" in told


async def test_a_request_gets_its_users_memories_and_nobody_elses(client: Client, behind: Upstream) -> None:
    bobs, others = "The user drinks black coffee with juice", "The user drinks orange juice, tea or coffee"
    for key, text, owner in (
        ("pk-1", TEA, {"user": "ann"}), ("pk-1", bobs, {"user": "bob"}), ("pk-1", SHARED, {}), ("pk-2", others, {"user": "ann"}),
    ):  # fmt: skip
        assert (await client.post("/v1/memories", {"text": text, **owner}, key=key)).status == 200
    asked = "What does the user drink: tea, coffee, juice? Drinks!"
    for key, user, expected in (
        ("pk-1", "ann", {TEA, SHARED}), ("pk-1", "bob", {bobs, SHARED}), ("pk-1", "", {SHARED}), ("pk-2", "ann", {others}), ("pk-2", "bob", set()),
    ):  # fmt: skip
        ways: list[dict[str, Any]] = [
            {"headers": {"x-penstock-user": user}}, {"user": user}, {"safety_identifier": user, "user": "bob"},
        ]  # fmt: skip
        for way in ways if user else ({},):
            got = await sent(client, behind, asked, key=key, **way)
            assert (remembered(got), got[-1]) == (expected, asked), (key, way)


async def test_lines_are_imported_whole_or_not_at_all(client: Client) -> None:
    lines = [
        json.dumps({"text": f"fact number {n}", "user": ("ann", "bob")[n % 2], "created": 1000 + n}) for n in range(300)
    ]
    broken = await imported(client, [*lines[:299], "", "{no"])
    assert (broken.status, broken.json["error"]["message"]) == (400, "line 301 is not valid JSON")
    assert await texts(client, "user=ann") == []
    for added in (300, 0):
        answer = await imported(client, [*lines, ""])
        assert (answer.status, answer.json["added"], answer.json["repeated"]) == (200, added, 300 - added)
    (latest,) = (await client.get("/v1/memories?user=bob&limit=1")).json["data"]
    assert (latest["text"], latest["created"]) == ("fact number 299", 1299.0)
    assert (await imported(client, [*lines, lines[0]])).refusal == (400, "too_many_memories")


SCOPED: dict[str, dict[str, str]] = {
    "drinks tea": {},
    "drinks juice": {"agent": "planner"},
    "drinks coffee": {"agent": "writer"},
    "drinks water": {"task": "hotel"},
    "drinks milk": {"session": "trip-7", "agent": "planner"},
    "drinks cocoa": {"session": "trip-7"},
}


async def test_endpoints_see_one_scope_and_forget_a_user_whole(client: Client) -> None:
    some = [{"text": text, **names} for text, names in SCOPED.items()]
    added = (await client.post("/v1/memories", {"memories": some, "user": "ann"})).json["data"]
    ids = {each["text"]: each["id"] for each in added}
    assert {each["text"]: each["scope"] for each in added} == {text: [*names] for text, names in SCOPED.items()}
    for text, names in SCOPED.items():
        query = "&".join(f"{kind}={name}" for kind, name in {"user": "ann", **names}.items())
        assert await texts(client, query) == await texts(client, f"{query}&query=drinks") == [text]
        for other, id in ids.items():
            assert (await client.get(f"/v1/memories/{id}?{query}")).status == (200 if other == text else 404)
            if other != text:
                assert (await client.send("DELETE", f"/v1/memories/{id}?{query}")).status == 404
    # a client that always sends its names by headers means the user all the same
    named = {"x-penstock-agent": "planner", "x-penstock-session": "trip-7"}
    again = (await client.post("/v1/memories", {"text": "drinks tea", "user": "ann"}, named)).json
    assert (again["status"], again["scope"]) == ("repeated", [])
    assert await texts(client, "user=ann", named) == ["drinks tea"]
    assert {*await texts(client, "user=ann&scope=all")} == {*ids}
    one = f"/v1/memories/{ids['drinks milk']}?user=ann&scope=all"
    assert (await client.send("DELETE", one)).status == 200
    assert (await client.send("DELETE", "/v1/memories?user=ann&agent=planner")).json["deleted"] == 1
    whole = await client.send("DELETE", "/v1/memories?user=ann", named)
    assert whole.json["deleted"] == len(SCOPED) - 2, "forgetting a user forgets it in all scopes"
    assert await texts(client, "user=ann&scope=all") == []


NOTED = {"name": "note", "arguments": json.dumps({"text": "The user is a vegetarian"})}
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "You are a concierge."},
    {"role": "user", "content": "I'm vegetarian. We are four people."},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": NOTED}]},
    {"role": "tool", "tool_call_id": "c1", "content": "Noted."},
    {"role": "assistant", "content": "Good. " + "Let us see what there is. " * 40},
    {"role": "user", "content": "Which museums are open on Monday?"},
    {"role": "assistant", "content": "The Prado. " + "It is worth a visit. " * 40},
    {"role": "user", "content": "Plan a dinner for us."},
]
ONCE = """
upstreams: {main: {kind: openai, base_url: "{url}", api_key: sk-own}}
models: [{match: "*", upstream: main, window: {window}}]
chains:
  default:
    - window_history: {keep_turns: 1, stride: 1}
    - keep_notes: {}
    - inject_facts: {always: true}
    - recall_history: {}
    - include_shared: {}
    - select_memories: {timeout: 30, wait: 20, threshold: 0.5, fallback: 0.2, floor: 0.2}
embedding: {kind: static}
"""


@pytest.mark.parametrize("window", [16_000, 8_000])
async def test_a_fact_from_five_sources_stands_once(lab: Lab, window: int) -> None:
    client = await lab.client(ONCE, "pk-1", window=window)
    for text in ("The user is a vegetarian.", "The user is allergic to peanuts"):
        assert (await client.post("/v1/memories", {"text": text, "user": "ann"})).status == 200
    same = {"planner": "The user is vegetarian.", "booker": "User is a vegetarian"}
    own, shared = "I'm vegetarian. We are four people.", "The table is for 7 pm. The user is vegetarian."
    for agent, content in {**same, "writer": shared}.items():
        headers = {"x-penstock-session": "s1", "x-penstock-agent": agent}
        given = await client.post("/v1/context/share", {"to": {"session": "s1"}, "content": content}, headers)
        assert given.status == 200
    tools = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
    asked: dict[str, Any] = {"tools": tools, "headers": {"x-penstock-user": "ann", "x-penstock-session": "s1"}}
    got = await sent(client, lab.behind, "", messages=TALK, **asked)
    working = [*TALK, {"role": "assistant", "content": "I look for one."}]
    later = await sent(client, lab.behind, "", messages=working, **asked)
    assert later[: len(got)] == got, "while the model works nothing changes"
    blocks = "\n".join(text for text in got if text.startswith("<"))
    assert blocks.count(own) == 1, "the user's own words stand"
    assert blocks.count(shared) == 1, "a text that says more stands whole"
    rest = blocks.replace(own, "").replace(shared, "").replace("[note(The user is a vegetarian)]", "")
    assert "vegetarian" not in rest
    assert "- The user is allergic to peanuts" in blocks, "a dinner brings the allergy, which has no word of it"
