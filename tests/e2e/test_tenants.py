"""What one tenant can learn of another: nothing by reading, nothing by guessing, nothing by what its own requests do."""

import json
import re
from typing import Any

import pytest

from proxy.config.keys_file import hash_of
from proxy.state.cache import OnceService
from proxy.state.sqlite import SqliteStore
from tests.e2e.conftest import Lab
from tests.e2e.default_chain import Client, chatting, config

ANN, BOB = "pk-ann", "pk-bob"
NAMED = {"x-penstock-session": "release"}
KEYS = f"""embedding: {{kind: none}}
auth:
  kind: keys
  keys:
    - {{name: ann, hash: {hash_of(ANN)}}}
    - {{name: bob, hash: {hash_of(BOB)}}}
"""


@pytest.fixture(params=["pass-through", "keys"])
async def people(request: pytest.FixtureRequest, lab: Lab) -> tuple[Client, Client]:
    made = config(lab.behind.url, lab.folder / "state", KEYS if request.param == "keys" else "embedding: {kind: none}")
    if request.param == "keys":
        made, places = re.subn(r"(    kind: )(openai|anthropic)  ", r"    api_key: sk-own\n\1\2  ", made)
        assert places == 2
    base = await lab.start(made)
    return Client(base, lab.behind, lab.http, key=ANN), Client(base, lab.behind, lab.http, key=BOB)


async def test_a_hit_takes_the_work_of_a_miss(people: tuple[Client, Client], monkeypatch: pytest.MonkeyPatch) -> None:
    ann, bob = people
    ann.headers = NAMED
    await ann.work(3)
    done: list[tuple[str, str]] = []

    def noting(name: str, real: Any) -> Any:
        def noted(self: SqliteStore, key: Any, *arguments: Any, **options: Any) -> Any:
            done.append((name, str(key)))
            return real(self, key, *arguments, **options)

        return noted

    for name in ("get", "get_all", "put", "put_all", "add", "touch", "delete", "keys"):
        monkeypatch.setattr(SqliteStore, name, noting(name, getattr(SqliteStore, name)))

    async def work(handle: str, headers: dict[str, str]) -> list[tuple[str, str]]:
        done.clear()
        await bob.send("GET", f"/v1/retrieve/{handle}", headers=headers)
        return [(name, key.replace(handle, "HANDLE")) for name, key in done]

    for headers in ({}, NAMED):
        nothing = await work("a" * 20, headers)
        assert nothing
        for handle in ann.named:
            assert await work(handle, headers) == nothing


async def test_what_a_tenant_sends_goes_out_as_if_it_were_alone(lab: Lab, people: tuple[Client, Client]) -> None:
    """Memos, replayed rounds, summaries and recalled passages of the other, under the same name of the conversation."""
    ann, bob = people
    secret = chatting()
    secret[0] = {"role": "user", "content": "Ann's secret: the vault opens with marmalade-77. " + "lorem " * 300}

    async def conversation(person: Client) -> list[str]:
        person.headers = NAMED
        return [await person.work(3), await person.ask(chatting(29)), await person.ask(chatting(31))]

    base = await lab.start(config(lab.behind.url, lab.folder / "alone" / "state"), "alone")
    alone = await conversation(Client(base, lab.behind, lab.http, key="nobody else"))
    ann.headers = NAMED
    await ann.ask(secret)
    await ann.work(5)
    assert await conversation(bob) == alone
    assert not any("marmalade" in body for body in alone)
    for path in ("/v1/compress", "/v1/chat/completions"):
        body = {"model": "echo", "messages": [{"role": "user", "content": "Which vault opens with marmalade?"}]}
        assert "marmalade-77" not in json.dumps(await bob.send("POST", path, json=body))


async def test_the_same_content_takes_the_same_work_for_each_tenant(
    people: tuple[Client, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered of a text would tell by its speed who else has it."""
    done: list[int] = []
    real = OnceService.run

    def noted(self: OnceService, tenant: str, size: int, work: Any, remember: Any) -> Any:
        done.append(size)
        return real(self, tenant, size, work, remember)

    monkeypatch.setattr(OnceService, "run", noted)
    taken = []
    for person in people:
        done.clear()
        await person.work(3)
        await person.ask(chatting())
        taken.append(list(done))
    assert taken[0] == taken[1]
    assert taken[0]
    done.clear()
    await people[1].ask(chatting())
    assert len(done) < len(taken[0]), "for the same tenant it is there"
