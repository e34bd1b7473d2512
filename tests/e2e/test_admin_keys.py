"""Keys of Penstock in the hands of an operator: listed with their use, made, and revoked, over real sockets."""

import asyncio
import json
from typing import Any

import pytest

from proxy.config.keys_file import hash_of
from tests.e2e.conftest import Lab
from tests.e2e.served import served
from tests.e2e.servers import until_ready

ANN, BOB = "pk-ann-s3cret", "pk-bob-s3cret"
CONFIG = """
server: {{{server}}}
upstreams: {{main: {{kind: openai, base_url: "{url}", api_key: sk-operators-own}}}}
models: [{{match: "*", upstream: main, window: 8192, prices: {{input: 1000000, output: 1000000}}}}]
chains: {{default: [], lean: []}}
auth: {{kind: keys, {file} keys: [{{name: bob, hash: {bob}, tenant: acme, budget_per_day: 20}}]}}
limits: {{requests_per_minute: 100}}
vectors: none
"""
FILE = f"# the team's\nkeys:\n- name: ann\n  hash: {hash_of(ANN)}\n"
ADMIN = {"authorization": "Bearer the-operator"}


def config(lab: Lab, server: str = "admin_key: the-operator", file: str = "file: keys.yaml,") -> str:
    (lab.folder / "keys.yaml").write_text(FILE)
    return CONFIG.format(url=lab.behind.url, server=server, file=file, bob=hash_of(BOB))


async def ask(lab: Lab, method: str, url: str, body: Any = None, headers: Any = ADMIN) -> tuple[int, Any]:
    async with lab.http.request(method, url, json=body, headers=headers) as response:
        return response.status, await response.json()


async def talk(lab: Lab, base: str, key: str) -> int:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    return (await lab.chat(base, body, {"authorization": f"Bearer {key}"}))[0]


async def test_keys_are_listed_with_what_they_used_and_without_a_secret(lab: Lab) -> None:
    base = await lab.start(config(lab))
    assert [await talk(lab, base, key) for key in (ANN, ANN, BOB)] == [200] * 3
    async with asyncio.timeout(60):
        while True:
            status, told = await ask(lab, "GET", f"{base}/admin/keys")
            if sum(len(each["used"]["days"]) for each in told["keys"]) == 2:
                break
    assert status == 200
    bob, ann = told["keys"]
    assert (told["kind"], told["locked"]) == ("keys", None)
    assert (bob["name"], bob["tenant"], bob["revocable"], bob["limits"]["budget_per_day"]) == ("bob", "acme", False, 20)
    assert (ann["name"], ann["tenant"], ann["revocable"], ann["models"]) == ("ann", "ann", True, ["*"])
    assert ann["limits"]["requests_per_minute"] == 100, "the common one"
    assert ann["used"]["last"] == told["today"]
    assert ann["used"]["days"] == [{"day": told["today"], "requests": 2, "usd": 2 * bob["used"]["today"]}]
    assert ann["used"]["today"] == ann["used"]["month"] > 0
    shown = json.dumps(told)
    assert not any(secret in shown for secret in (ANN, BOB, hash_of(ANN), hash_of(BOB), "sk-operators"))


async def test_a_key_is_made_shown_once_and_revoked(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    base = await lab.start(config(lab))
    wanted = {"name": "eve", "tenant": "${HOME} <b>é😀", "models": ["gpt-*", "m"], "budget_per_day": 2.5,
              "expires": "2097-01-31T00:00:00Z", "chains": ["lean"]}  # fmt: skip
    status, made = await ask(lab, "POST", f"{base}/admin/keys", wanted)
    assert (status, made["name"], made["in_force"]) == (201, "eve", True), made
    assert await talk(lab, base, made["key"]) == 200, "at once"
    file = lab.folder / "keys.yaml"
    assert file.read_text().startswith(FILE)
    assert made["key"] not in file.read_text()
    listed = {each["name"]: each for each in (await ask(lab, "GET", f"{base}/admin/keys"))[1]["keys"]}
    shown = {**listed["eve"], **listed["eve"]["limits"]}
    assert {name: shown[name] for name in wanted} == wanted
    assert made["key"] not in json.dumps(listed) + caplog.text

    status, told = await ask(lab, "DELETE", f"{base}/admin/keys/eve")
    assert (status, told) == (200, {"object": "key.revoked", "name": "eve", "in_force": True})
    assert await talk(lab, base, made["key"]) == 401
    assert file.read_text() == FILE
    assert await talk(lab, base, ANN) == 200
    assert (await ask(lab, "DELETE", f"{base}/admin/keys/eve"))[1]["error"]["code"] == "unknown_key"
    status, told = await ask(lab, "DELETE", f"{base}/admin/keys/bob")
    assert (status, "in the configuration itself" in told["error"]["message"]) == (404, True)


async def test_what_is_wrong_changes_nothing(lab: Lab) -> None:
    base = await lab.start(config(lab))
    for body, param in (
        ({}, "name"), ({"name": "a b"}, "name"), ({"name": "../x"}, "name"), ({"name": "<img src=x>"}, "name"),
        ({"name": "ann"}, "name"), ({"name": "bob"}, "name"), ({"name": "x", "hash": "0" * 64}, "hash"),
        ({"name": "x", "budget_per_day": 0}, "budget_per_day"), ({"name": "x", "models": []}, "models"),
        ({"name": "x", "chains": ["none"]}, "chains"), ({"name": "x", "tenant": "a\u2028b"}, "tenant"),
        ({"name": "x", "expires": "soon"}, "expires"), ({"name": "x", "admin": True}, "admin"), ([], None),
    ):  # fmt: skip
        status, told = await ask(lab, "POST", f"{base}/admin/keys", body)
        assert (status, told["error"]["param"]) == (400, param), told
    assert (lab.folder / "keys.yaml").read_text() == FILE
    (lab.folder / "keys.yaml").write_text(f"{FILE}- oops\n")
    status, told = await ask(lab, "POST", f"{base}/admin/keys", {"name": "x"})
    assert (status, told["error"]["code"]) == (409, "keys_not_changed")
    assert "oops" not in json.dumps(await ask(lab, "GET", f"{base}/admin/keys"))


async def test_nobody_else_changes_keys(lab: Lab) -> None:
    base = await lab.start(config(lab))
    for headers in ({}, {"authorization": f"Bearer {ANN}"}, {"authorization": "Basic the-operator"}):
        for method, path in (("POST", ""), ("DELETE", "/ann"), ("GET", "")):
            status, _ = await ask(lab, method, f"{base}/admin/keys{path}", {"name": "x"}, headers)
            assert status == 401, (method, headers)
    assert (lab.folder / "keys.yaml").read_text() == FILE


async def test_an_operator_without_a_key_only_looks(lab: Lab) -> None:
    async with served(config(lab, "admin_port: 0"), lab.folder) as running:
        assert running.process.stdout is not None
        line = (await running.process.stdout.readline()).decode()
        base = line[line.index("http://") :].split()[0].removesuffix("/ui")
        await until_ready(running.base)
        for method, path in (("POST", "/admin/keys"), ("DELETE", "/admin/keys/ann")):
            status, told = await ask(lab, method, base + path, {"name": "x"}, {})
            assert (status, told["error"]["code"]) == (403, "admin_key_needed")
        _, told = await ask(lab, "GET", f"{base}/admin/keys", None, {})
        assert "server.admin_key" in told["locked"]
        assert not any(each["revocable"] for each in told["keys"])
    assert (lab.folder / "keys.yaml").read_text() == FILE


async def test_without_a_file_nothing_is_changed_here(lab: Lab) -> None:
    base = await lab.start(config(lab, file=""))
    assert (await ask(lab, "POST", f"{base}/admin/keys", {"name": "x"}))[1]["error"]["code"] == "no_file_of_keys"
    _, told = await ask(lab, "GET", f"{base}/admin/keys")
    assert "auth.file" in told["locked"]
    assert [each["revocable"] for each in told["keys"]] == [False]


async def test_a_key_that_is_not_in_force_is_called_so(lab: Lab) -> None:
    base = await lab.start(config(lab))
    (lab.folder / "config.yaml").write_text("chians: 1\n")
    status, told = await ask(lab, "DELETE", f"{base}/admin/keys/ann")
    assert (status, told["in_force"]) == (200, False)
