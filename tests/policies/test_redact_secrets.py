"""What `redact_secrets` takes for a secret, and what it leaves."""

import json
import threading
from typing import Any, ClassVar

import pytest

from policies.redact_secrets import RedactSecrets
from proxy.chat import ChatRequest
from proxy.chat.placeholders import Restoring
from proxy.context import Identity
from proxy.policy import Keep, Reject, Rewrite
from proxy.state.cache import OnceService
from proxy.testing import chat, context, message, tool
from tests.decisions import rewrite
from tests.talk import calls, user

KEY = "sk-proj-a1B2c3D4e5F6g7H8i9J0k1L2"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq9\nZm9v\n-----END RSA PRIVATE KEY-----"
EXAMPLES = [
    chat("uana@example.com a1 u2"),
    chat(f"s u1 a1! t1 a:{KEY} u2"),
    chat("u1", user="ana@example.com", tools=[tool("find", "Ask ana@example.com how to use it.")]),
]


def saying(text: str) -> ChatRequest:
    return chat("u1").with_messages([user(text)])


async def redacted(request: ChatRequest, **settings: Any) -> ChatRequest:
    decision = await RedactSecrets(**settings).decide(request, context(request))
    return decision.request if isinstance(decision, Rewrite) else request


@pytest.mark.parametrize(
    ("kind", "secret", "text"),
    [
        ("key", KEY, "export OPENAI_API_KEY={}"),
        ("key", "sk-ant-api03-Ab1Cd2Ef3Gh4Ij5Kl6Mn7", "x-api-key: {}"),
        ("key", "ghp_" + "a1B2" * 9, 'token "{}"'),
        ("key", "AKIAIOSFODNN7EXAMPLE", "id={};"),
        ("key", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "aws_secret_access_key = {}"),
        ("key", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N", "cookie jwt={}"),
        ("key", PEM, "the key:\n{}\nbye"),
        ("key", "abcdefghijklmnop1234567890", "Authorization: Bearer {}"),
        ("key", "s3cr3t-pw", "postgres://bob:{}@localhost/db"),
        ("key", KEY, "a line of a log\\n{}\\n"),
        ("email", "ana.ruiz+x@mail.example.co.uk", "write to {}."),
        ("email", "jörg@müller.de", "mailto:{}"),
        ("card", "4111 1111 1111 1111", "card {} until 12/29"),
        ("card", "5555-5555-5555-4444", "{}"),
        ("card", "378282246310005", "amex {}"),
        ("iban", "ES91 2100 0418 4502 0005 1332", "pay to {} TODAY"),
        ("iban", "DE89370400440532013000", "IBAN:{}"),
        ("iban", "gb82 west 1234 5698 7654 32", "{}"),
        ("phone", "+34 600 123 456", "Mi número es el {}."),
        ("phone", "+1 (415) 555-2671", "call {}"),
        ("phone", "+442083661177", "tel:{}"),
    ],
)
def test_a_secret_is_found_alone(kind: str, secret: str, text: str) -> None:
    found = list[tuple[str, str]]()
    RedactSecrets().redact(text.format(secret), lambda *each: found.append(each) or "")  # type: ignore[func-returns-value]
    assert found == [(kind, secret)]


@pytest.mark.parametrize(
    "text",
    [
        "git clone git@github.com:org/repo.git",
        "icon@2x.png and pkg@1.2.3",
        "class sk-folding-cube-animation-something",
        "4111111111111112 has no right check digit, nor has DE89370400440532013001",
        "order 1234567890123456, at 1700000000000000000 ns, uuid 123e4567-e89b-12d3-a456-426614174000",
        "@@ -1,5 +12,7 @@\n+2024-01-15 10:00:00 up\n+203.0.113.25\n+1700000000\n+86400000",
        "2 + 34600123456",
        "data:image/png;base64,ana@example.com",
        "A1" * 300,
    ],
)
async def test_what_only_looks_like_one_stays(text: str) -> None:
    request = saying(text)
    assert await redacted(request) is request


async def test_placeholders_are_the_same_in_each_request_and_differ_by_conversation() -> None:
    async def name(secret: bytes, conversation: str) -> str:
        request = chat(conversation)
        decision = rewrite(await RedactSecrets().decide(request, context(request, secret=secret)))
        assert "ana@" not in repr(decision)  # a log may have it
        return decision.request.messages[0].text

    assert await name(b"one", "uana@example.com") == await name(b"one", "uana@example.com a1 ubob@example.com")
    assert await name(b"one", "uana@example.com") != await name(b"two", "uana@example.com")


@pytest.mark.parametrize("kind", ["keys", "emails", "cards", "ibans", "phones"])
async def test_each_kind_can_be_switched_off(kind: str) -> None:
    secrets = {"keys": KEY, "emails": "a@b.de", "cards": "4111111111111111", "ibans": "DE89370400440532013000",
               "phones": "+442083661177"}  # fmt: skip
    text = (await redacted(saying(" ".join(secrets.values())), **{kind: False})).messages[0].text
    assert [name for name, secret in secrets.items() if secret in text] == [kind]


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        pytest.param({"to": "ana@example.com", "n": 1.50}, {"n": 1.50}, id="a value"),
        pytest.param({"ana@example.com": 1}, {}, id="a key"),
        pytest.param({"card": 4111111111111111}, {}, id="a number"),
        pytest.param({"body": json.dumps({"to": "ana@example.com", "n": [1]})}, {}, id="JSON in JSON"),
    ],
)
async def test_arguments_stay_json(arguments: dict[str, Any], left: dict[str, Any]) -> None:
    text = json.dumps(arguments).replace("@", "\\u0040")
    request = chat("u1 a1! t1").with_messages([message("u1"), calls("1", arguments=text), message("t1")])
    sent = (await redacted(request)).messages[1]["tool_calls"][0]["function"]["arguments"]
    assert "example.com" not in sent
    assert "4111" not in sent
    assert left.items() <= json.loads(sent).items()
    assert not isinstance(arguments.get("body"), str) or json.loads(json.loads(sent)["body"])["n"] == [1]


async def test_calls_and_results_stay_pairs_and_chosen_tools_stay_offered() -> None:
    words, name = "u1 aana@example.com! tana@example.com u2", "mail_ana@example.com"
    choice = {"type": "function", "function": {"name": name}}
    request = chat(words, tools=[tool(name)], tool_choice=choice)
    made = await redacted(request)
    assert made.messages[1].call_ids == (made.messages[2]["tool_call_id"],)
    assert made.rest["tool_choice"]["function"]["name"] == made.tools[0].name
    assert made.tools[0].name.startswith("mail_") is False  # all before the @ belongs to the address


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (chat("u1", wish="ana"), "wish"),
        (chat("u1").with_messages([message("u1").with_changes(note={"deep": "ana"})]), "messages[0].note"),
        (chat("u1", model="ana@example.com"), None),
    ],
)
async def test_what_it_cannot_read_is_refused(request_: ChatRequest, param: str | None) -> None:
    decision = await RedactSecrets().decide(request_, context(request_))
    assert isinstance(decision, Reject)
    assert (decision.code, decision.param) == ("unguarded_field", param)


async def test_unknown_fields_without_text_pass_and_others_are_read_where_that_is_configured() -> None:
    request = chat("u1", top_k=5, wish={"mail": "ana@example.com"})
    assert isinstance(await RedactSecrets().decide(chat("u1", top_k=5), context(request)), Keep)
    made = await redacted(request, unknown_fields="read")
    assert "ana@" not in str(made.rest)


class Watched(RedactSecrets):
    read: ClassVar[list[str]] = []
    threads: ClassVar[set[int]] = set()

    def redact(self, text: str, stand_in: Any) -> str:
        self.read.append(text)
        self.threads.add(threading.get_ident())
        return super().redact(text, stand_in)


async def test_a_large_request_is_read_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watched, "threads", set())
    request, once = chat("u" + "x" * 800_000), OnceService()
    try:
        await Watched().decide(request, context(request, once=once.bind(Identity("test"))))
    finally:
        once.close()
    assert Watched.threads
    assert threading.get_ident() not in Watched.threads


async def test_a_message_is_read_once_and_an_answer_may_repeat_a_schema_with_several_types() -> None:
    request = chat("ufirst")
    for _ in range(3):
        await Watched().decide(request, context(request))
    assert Watched.read.count("ufirst") == 1
    stand_in = "redacted-key-bcdfghjkmnpqrs"
    schema = {"type": ["string", "null"], "description": f"of {stand_in}"}
    assert Restoring({stand_in: "k"}).value({"tools": [schema]}) == {"tools": [{**schema, "description": "of k"}]}


async def test_what_it_took_out_can_be_put_back() -> None:
    request = saying(f"{KEY} and {PEM}")
    decision = rewrite(await RedactSecrets().decide(request, context(request)))
    assert Restoring(decision.restores).text(decision.request.messages[0].text) == f"{KEY} and {PEM}"
    kept = rewrite(await RedactSecrets(restore=False).decide(request, context(request)))
    assert kept.restores == {}
