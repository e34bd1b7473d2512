"""Keys: made at random, kept as hashes, told from headers, and what each may ask for."""

import hashlib
import re
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from proxy.access.callers import Caller, Callers, without_account, without_secrets
from proxy.chat.errors import NotFound, Unauthorized, UpstreamFailed
from proxy.config.keys_file import entry_of, hash_of, new_key
from proxy.config.settings import KeysAuth, KeySettings, KeysFile, PassThroughAuth
from proxy.identity import tenant_of
from proxy.upstreams.base import Reply
from tests.scripted import Chunks

KEY = "pk-" + "a" * 52


def key(name: str = "ann", secret: str = KEY, **fields: Any) -> KeySettings:
    return KeySettings.model_validate({"name": name, "hash": hash_of(secret), **fields})


def callers(*keys: KeySettings, now: float = 0.0) -> Callers:
    return Callers(KeysAuth(kind="keys", keys=keys), clock=lambda: now)


def test_a_new_key_has_256_bits_and_nothing_is_left_once_it_was_told() -> None:
    made = new_key()
    assert re.fullmatch(r"pk-[a-z2-7]{52}", made)
    assert made != new_key()
    entry = KeysFile.model_validate({"keys": yaml.safe_load(entry_of("ann", made, "acme: x"))}).keys[0]
    assert (entry.name, entry.tenant) == ("ann", "acme: x")
    assert entry.hash == hashlib.sha256(made.encode()).hexdigest()
    assert made not in entry_of("ann", made)
    headers = {
        "authorization": "a", "api-key": "b", "x-api-key": "c", "cookie": "d", "proxy-authorization": "e",
        "openai-organization": "f", "openai-project": "g", "x-penstock-session": "s", "user-agent": "u",
    }  # fmt: skip
    assert without_account(headers) == {"x-penstock-session": "s", "user-agent": "u"}


@pytest.mark.parametrize("headers", [
    pytest.param({"authorization": f"Bearer {KEY}"}, id="OpenAI's SDKs"),
    pytest.param({"authorization": f"bearer  {KEY} "}, id="in lower case"),
    pytest.param({"authorization": KEY}, id="without a scheme"),
    pytest.param({"api-key": KEY}, id="Azure's"),
    pytest.param({"x-api-key": KEY}, id="Anthropic's"),
    pytest.param({"authorization": "", "x-api-key": KEY}, id="besides an empty one"),
])  # fmt: skip
def test_a_key_is_told_from_the_headers_that_sdks_send(headers: dict[str, str]) -> None:
    caller = callers(key("bob", "other"), key()).of(headers)
    assert caller.key == key()


@pytest.mark.parametrize("headers", [
    pytest.param({}, id="none"),
    pytest.param({"authorization": ""}, id="an empty one"),
    pytest.param({"authorization": f"Bearer {KEY}x"}, id="a longer one"),
    pytest.param({"authorization": f"Bearer {KEY}, Bearer {KEY}"}, id="two"),
    pytest.param({"authorization": f"Basic {KEY}"}, id="another scheme"),
    pytest.param({"authorization": "Bearer wrong", "x-api-key": KEY}, id="a wrong one in front"),
    pytest.param({"authorization": f"Bearer {hash_of(KEY)}"}, id="its hash"),
    pytest.param({"authorization": "Bearer \udcff"}, id="no text"),
    pytest.param({"cookie": KEY, "proxy-authorization": KEY}, id="elsewhere"),
])  # fmt: skip
def test_any_other_key_is_refused_without_a_word_of_it(headers: dict[str, str]) -> None:
    with pytest.raises(Unauthorized) as caught:
        callers(key()).of(headers)
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
    assert caught.value.headers == {"www-authenticate": "Bearer"}
    assert "pk-" not in str(caught.value)


@pytest.mark.parametrize(("now", "counts"), [("2026-12-31T23:59:59", True), ("2027-01-01T00:00:00", False)])
def test_a_key_ends_when_it_expires(now: str, counts: bool) -> None:
    moment = datetime.fromisoformat(now).replace(tzinfo=UTC).timestamp()
    told = callers(key(expires="2027-01-01T01:00:00+01:00"), now=moment)
    if counts:
        assert told.of({"x-api-key": KEY}).key
    else:
        with pytest.raises(Unauthorized, match="expired"):
            told.of({"x-api-key": KEY})


@pytest.mark.parametrize("text", [
    "2027-01-01",
    "2027-01-01 00:00:00",
    "2027-01-01T00:00:00Z",
    '"2027-01-01"',
    '"2027-01-01T00:00:00"',
    '"2027-01-01T00:00:00Z"',
])  # fmt: skip
def test_an_expiry_without_a_zone_is_utc(text: str) -> None:
    assert key(expires=yaml.safe_load(text)).expires == datetime(2027, 1, 1, tzinfo=UTC)


def test_keys_of_a_tenant_share_it_and_no_header_makes_it() -> None:
    told = callers(key("a1", "1", tenant="a"), key("a2", "2", tenant="a"), key("b", "3"), key("a", "4"))
    tenants = [told.of({"x-api-key": str(n)}).tenant for n in range(1, 5)]
    assert tenants[0] == tenants[1] == tenants[3]
    assert tenants[2] != tenants[0]
    assert {tenant_of({"authorization": text}) for text in ("a", "tenant\\0a", "Bearer 1")}.isdisjoint(tenants)
    accounts = {told.of({"x-api-key": str(n)}).account for n in range(1, 5)}
    assert len(accounts) == 4, "each key has limits of its own"


def test_in_pass_through_mode_every_key_is_a_tenant_whichever_header_holds_it() -> None:
    told = Callers(PassThroughAuth(kind="pass-through"))
    headers: list[dict[str, str]] = [
        {}, {"authorization": "Bearer a"}, {"authorization": "Bearer b"}, {"api-key": "a"}, {"x-api-key": "a"},
        {"x-api-key": "b"}, {"authorization": "Bearer a", "x-api-key": "b"},
    ]  # fmt: skip
    assert len({told.of(each).tenant for each in headers}) == len(headers)
    assert told.of({"authorization": "Bearer a"}).may_use("anything")


@pytest.mark.parametrize(("fields", "model", "may"), [
    ({}, "anything", True),
    ({"models": "gpt-*"}, "gpt-5", True),
    ({"models": "gpt-*"}, "GPT-5", False),
    ({"models": "gpt-*"}, "x-gpt-5", False),
])  # fmt: skip
def test_a_key_may_use_the_models_that_it_names(fields: dict[str, Any], model: str, may: bool) -> None:
    assert Caller("t", key(**fields)).may_use(model) is may


@pytest.mark.parametrize(("method", "path", "may"), [
    ("POST", "/embeddings", True),
    ("POST", "/images/generations", True),
    ("GET", "/embeddings", False),
    ("GET", "/files", False),
    ("POST", "/responses", False),
    ("POST", "/images/%2e%2e/files", False),
    ("POST", "/images/..%2ffiles", False),
    ("POST", "/images//files", False),
    ("POST", "/embeddings/", False),
])  # fmt: skip
def test_what_is_stored_under_the_provider_key_is_out_of_reach(method: str, path: str, may: bool) -> None:
    caller = callers(key()).of({"x-api-key": KEY})
    if may:
        caller.check_path(method, path)
    else:
        with pytest.raises(NotFound):
            caller.check_path(method, path)
    Caller("pass-through").check_path(method, path)


async def test_an_answer_says_nothing_about_the_operators_account() -> None:
    sent = [(b"x-ratelimit-limit-requests", b"9"), (b"openai-organization", b"acme"), (b"content-type", b"a/b"),
            (b"anthropic-organization-id", b"acme"), (b"anthropic-ratelimit-tokens-remaining", b"9")]  # fmt: skip
    reply = Reply(200, [*sent], body=b"{}")
    assert (await Caller("t", key()).shown(reply, set())).headers == [(b"content-type", b"a/b")]
    assert (await Caller("t").shown(reply, set())).headers == sent
    assert (await Caller("t").shown(reply, {b"x-ratelimit-limit-requests"})).headers == sent[1:]
    chunks = Chunks([b"x"])
    with pytest.raises(UpstreamFailed) as caught:
        await Caller("t", key()).shown(Reply(401, [], chunks=chunks), set())
    assert caught.value.code == "upstream_unauthorized"
    assert chunks.closed


@pytest.mark.parametrize(("query", "kept"), [
    ("", ""),
    ("api-version=1&limit=2", "api-version=1&limit=2"),
    ("key=x&api-version=1&api_key=y&API-KEY=z&token=t&access_token=u", "api-version=1"),
    ("keyword=x&key", "keyword=x"),
    ("%6Bey=x&a=1", "a=1"),
])  # fmt: skip
def test_a_query_carries_no_key(query: str, kept: str) -> None:
    assert without_secrets(query) == kept
