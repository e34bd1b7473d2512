"""Keys of Penstock in the hands of an operator: listed with their use, made, and revoked, over real sockets."""

import json
from pathlib import Path

import pytest

from proxy.config.keys_file import hash_of
from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import filled, until

ANN, BOB = "pk-ann-s3cret", "pk-bob-s3cret"
CONFIG = """
server: {{server}}
upstreams: {main: {kind: openai, base_url: "{url}", api_key: sk-operators-own}}
models: [{match: "*", upstream: main, window: 8192, prices: {input: 1000000, output: 1000000}}]
chains: {default: [], lean: []}
auth: {kind: keys, {file} keys: [{name: bob, hash: {bob}, tenant: acme, budget_per_day: 20}]}
limits: {requests_per_minute: 100}
vectors: none
"""
FILE = f"# the team's\nkeys:\n- name: ann\n  hash: {hash_of(ANN)}\n"


def config(lab: Lab, file: str = "file: keys.yaml,") -> str:
    (lab.folder / "keys.yaml").write_text(FILE)
    return filled(CONFIG, file=file, bob=hash_of(BOB))


@pytest.fixture
async def operator(lab: Lab) -> Client:
    return await lab.client(config(lab), "the-operator", server="admin_key: the-operator")


async def status(operator: Client, key: str) -> int:
    """The status of a chat with this key."""
    return (await operator.chat(key=key)).status


async def test_keys_are_listed_with_what_they_used_and_without_a_secret(operator: Client) -> None:
    assert [await status(operator, key) for key in (ANN, ANN, BOB)] == [200] * 3
    answer = await until(
        lambda: operator.get("/admin/keys"),
        lambda got: sum(len(each["used"]["days"]) for each in got.json["keys"]) == 2,
    )
    told = answer.json
    bob, ann = told["keys"]
    assert (answer.status, told["kind"], told["locked"]) == (200, "keys", None)
    assert (bob["name"], bob["tenant"], bob["revocable"], bob["limits"]["budget_per_day"]) == ("bob", "acme", False, 20)
    assert (ann["name"], ann["tenant"], ann["revocable"], ann["models"]) == ("ann", "ann", True, ["*"])
    assert ann["limits"]["requests_per_minute"] == 100, "the common one"
    assert ann["used"]["last"] == told["today"]
    assert ann["used"]["days"] == [{"day": told["today"], "requests": 2, "usd": 2 * bob["used"]["today"]}]
    assert ann["used"]["today"] == ann["used"]["month"] > 0
    shown = answer.body.decode()
    assert not any(secret in shown for secret in (ANN, BOB, hash_of(ANN), hash_of(BOB), "sk-operators"))


async def test_a_key_is_made_and_revoked(operator: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wanted = {"name": "eve", "tenant": "${HOME} <b>é😀", "models": ["gpt-*", "m"], "budget_per_day": 2.5,
              "expires": "2097-01-31T00:00:00Z", "chains": ["lean"]}  # fmt: skip
    answer, file = await operator.post("/admin/keys", wanted), tmp_path / "keys.yaml"
    made = answer.json
    assert (answer.status, made["name"], made["in_force"]) == (201, "eve", True), made
    assert await status(operator, made["key"]) == 200, "at once"
    assert file.read_text().startswith(FILE)
    assert made["key"] not in file.read_text()
    listed = {each["name"]: each for each in (await operator.get("/admin/keys")).json["keys"]}
    assert wanted.items() <= {**listed["eve"], **listed["eve"]["limits"]}.items()
    assert made["key"] not in json.dumps(listed) + caplog.text

    answer = await operator.send("DELETE", "/admin/keys/eve")
    assert (answer.status, answer.json) == (200, {"object": "key.revoked", "name": "eve", "in_force": True})
    assert await status(operator, made["key"]) == 401
    assert file.read_text() == FILE
    assert await status(operator, ANN) == 200
    assert (await operator.send("DELETE", "/admin/keys/eve")).refusal == (404, "unknown_key")
    answer = await operator.send("DELETE", "/admin/keys/bob")
    assert (answer.status, b"in the configuration itself" in answer.body) == (404, True)


async def test_a_file_that_is_wrong_is_not_changed(operator: Client, tmp_path: Path) -> None:
    (tmp_path / "keys.yaml").write_text(f"{FILE}- oops\n")
    assert (await operator.post("/admin/keys", {"name": "x"})).refusal == (409, "keys_not_changed")
    assert b"oops" not in (await operator.get("/admin/keys")).body


async def test_nobody_else_changes_keys(operator: Client, tmp_path: Path) -> None:
    for headers in ({}, {"authorization": f"Bearer {ANN}"}, {"authorization": "Basic the-operator"}):
        for method, path in (("POST", ""), ("DELETE", "/ann"), ("GET", "")):
            answer = await operator.send(method, f"/admin/keys{path}", headers, key="", json={"name": "x"})
            assert answer.status == 401, (method, headers)
    assert (tmp_path / "keys.yaml").read_text() == FILE


async def test_an_operator_without_a_key_only_looks(lab: Lab) -> None:
    async with lab.served(config(lab), server="admin_port: 0") as running:
        operator = Client(await running.admin(), lab.http)
        for method, path in (("POST", "/admin/keys"), ("DELETE", "/admin/keys/ann")):
            assert (await operator.send(method, path, json={"name": "x"})).refusal == (403, "admin_key_needed")
        told = (await operator.get("/admin/keys")).json
        assert "server.admin_key" in told["locked"]
        assert not any(each["revocable"] for each in told["keys"])
    assert (lab.folder / "keys.yaml").read_text() == FILE


async def test_without_a_file_nothing_is_changed_here(lab: Lab) -> None:
    operator = await lab.client(config(lab, ""), "the-operator", server="admin_key: the-operator")
    assert (await operator.post("/admin/keys", {"name": "x"})).refusal[1] == "no_file_of_keys"
    told = (await operator.get("/admin/keys")).json
    assert "auth.file" in told["locked"]
    assert [each["revocable"] for each in told["keys"]] == [False]


async def test_a_key_that_is_not_in_force_is_called_so(operator: Client, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("chians: 1\n")
    answer = await operator.send("DELETE", "/admin/keys/ann")
    assert (answer.status, answer.json["in_force"]) == (200, False)
