"""Tokens of an identity provider as keys: real signatures, a real server with the provider's keys, hostile tokens."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from proxy.config.keys_file import hash_of
from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import Received, send

KEY = "pk-of.its.own"
ISSUER = "https://login.example.com/"
CONFIG = """
upstreams: {main: {kind: openai, base_url: "{url}", api_key: k}}
models: [{match: "*", upstream: main}]
server: {admin_key: adm}
auth:
  kind: keys
  keys: [{name: ann, hash: {hash}}]
  tokens:
    - name: staff
      issuer: {issuer}
      audience: penstock
      keys_url: "{keys}"
      {more}
records: {text: true}
"""
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
SIGNERS = {"RS256": RSA, "PS256": RSA, "ES256": EC, "EdDSA": ed25519.Ed25519PrivateKey.generate()}


def public(key: Any, **fields: str) -> dict[str, Any]:
    kinds: dict[type, Callable[..., Any]] = {
        rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm.to_jwk,
        ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm.to_jwk,
        ed25519.Ed25519PrivateKey: jwt.algorithms.OKPAlgorithm.to_jwk,
    }
    to_jwk = next(to_jwk for kind, to_jwk in kinds.items() if isinstance(key, kind))
    made: dict[str, Any] = json.loads(to_jwk(key.public_key()))
    made.pop("key_ops", None)
    return {**made, **fields}


def claims(**changes: Any) -> dict[str, Any]:
    made = {"iss": ISSUER, "aud": "penstock", "sub": "ann", "exp": int(time.time()) + 600, **changes}
    return {name: value for name, value in made.items() if value is not None}


def signed(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "one", **changes: Any) -> str:
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode(claims(**changes), key, algorithm, headers=headers)


class Provider:
    """The server of an identity provider, and a proxy that trusts it."""

    client: Client

    def __init__(self, lab: Lab) -> None:
        self.lab, self.keys, self.asked, self.is_down = lab, [public(RSA, kid="one")], 0, False

    async def start(self, more: str = "") -> None:
        server = await self.lab.upstream()
        server.respond = self._respond
        keys = f"{server.url.removesuffix('/v1')}/keys"
        self.client = await self.lab.client(CONFIG, issuer=ISSUER, keys=keys, more=more, hash=hash_of(KEY))

    async def _respond(self, upstream: Any, received: Received, writer: Any) -> None:
        self.asked += 1
        await send(writer, 500 if self.is_down else 200, json.dumps({"keys": self.keys}).encode())

    async def status(self, token: str, model: str = "gpt-4.1") -> int:
        return (await self.client.chat(model=model, key=token)).status


@pytest.fixture
def provider(lab: Lab) -> Provider:
    return Provider(lab)


@pytest.mark.parametrize("algorithm", SIGNERS)
@pytest.mark.parametrize("names_algorithm", [True, False])
async def test_each_algorithm_counts_named_or_not(provider: Provider, algorithm: str, names_algorithm: bool) -> None:
    key = SIGNERS[algorithm]
    provider.keys = [public(key, **({"alg": algorithm} if names_algorithm else {}))]
    await provider.start()
    assert await provider.status(signed(key, algorithm, None)) == 200
    assert provider.lab.behind.last.header("authorization") == "Bearer k", "the upstream does not get the token"


def with_parts(token: str, header: Any, secret: bytes) -> str:
    body = token.split(".")[1]
    head = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
    mac = hmac.new(secret, f"{head}.{body}".encode(), hashlib.sha256).digest() if secret else b""
    return f"{head}.{body}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


PEM = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
HOSTILE: dict[str, Callable[[], str]] = {
    "another key": lambda: signed(OTHER),
    "another issuer": lambda: signed(iss="https://evil.example.com/"),
    "another audience": lambda: signed(aud="billing"),
    "no audience": lambda: signed(aud=None),
    "no user": lambda: signed(sub=None),
    "no end": lambda: signed(exp=None),
    "expired": lambda: signed(exp=int(time.time()) - 60),
    "not yet": lambda: signed(nbf=int(time.time()) + 600),
    "an algorithm that is not allowed": lambda: signed(algorithm="RS512"),
    "no algorithm": lambda: with_parts(signed(), {"alg": "none", "kid": "one"}, b"") + "x",
    "the public key as a secret": lambda: with_parts(signed(), {"alg": "HS256", "kid": "one"}, PEM),
    "a changed claim": lambda: signed()[:60] + "A" + signed()[61:],
    "no token": lambda: "a.b.c",
    "a header that is a list": lambda: with_parts(signed(), [], b"x"),
}


async def test_a_token_that_is_not_right_is_refused(provider: Provider) -> None:
    await provider.start()
    for name, made in HOSTILE.items():
        answer = await provider.client.chat(key=(token := made()))
        assert answer.refusal == (401, "invalid_api_key"), name
        assert token.encode() not in answer.body
    assert provider.lab.behind.received == []


@pytest.mark.parametrize(
    "key",
    [public(RSA, kid="one", use="enc"), public(RSA, kid="one", alg="RS384"), public(EC, kid="one")],
    ids=["for encryption", "another algorithm", "another kind"],
)
async def test_a_key_for_something_else_signs_nothing(provider: Provider, key: Any) -> None:
    provider.keys = [key]
    await provider.start()
    assert await provider.status(signed()) == 401


async def test_an_unknown_key_is_looked_up_once_a_minute_and_the_last_keys_stay(provider: Provider) -> None:
    await provider.start()
    for _ in range(2):
        assert await provider.status(signed()) == 200
    provider.is_down = True
    for user in ("bob", "cid"):
        assert await provider.status(signed(OTHER, kid="two", sub=user)) == 401
        assert await provider.status(signed(sub=user)) == 200
    assert provider.asked == 1


async def test_without_the_providers_keys_nobody_is_let_in_and_it_is_no_fault_of_the_token(provider: Provider) -> None:
    provider.is_down = True
    await provider.start()
    assert (await provider.client.chat(key=signed())).refusal == (503, "upstream_unreachable")


async def test_claims_name_tenant_and_models(provider: Provider) -> None:
    await provider.start("tenant_claim: org\n      models_claim: models\n      tokens_per_day: 1000000")
    assert await provider.status(signed(org="acme")) == 404
    assert await provider.status(signed(org="acme", models="gpt-4.1* gpt-5"), "gpt-5") == 200
    assert await provider.status(signed(org="acme", models=["gpt-4*"]), "gpt-5") == 404
    assert await provider.status(signed(models=["*"])) == 401


async def test_users_and_a_key_with_the_name_of_one_are_tenants_of_their_own(provider: Provider) -> None:
    await provider.start()
    for token in (signed(), signed(sub="auth0|4711"), KEY):
        assert await provider.status(token) == 200
    rows = (await provider.client.get("/admin/requests", key="adm")).json["requests"]
    metrics = (await provider.client.get("/metrics", key="adm")).body.decode()
    assert len({row["tenant"] for row in rows}) == 3
    assert 'penstock_key_requests_total{key="staff",status="200"} 2.0' in metrics
    assert "4711" not in metrics
