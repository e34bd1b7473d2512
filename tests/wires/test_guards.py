"""A guard reads every string of a body of each wire: it takes it out or refuses the request."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from anthropic.types.beta.message_create_params import MessageCreateParamsNonStreaming as MessagesParams
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as ChatParams
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming as ResponsesParams

from policies.redact_secrets import RedactSecrets
from proxy.chat.errors import BadRequest
from proxy.chat.parse import Body
from proxy.policy import Reject, Rewrite
from proxy.testing import context
from proxy.wires.messages import MessagesBody
from proxy.wires.native import Unwritable
from proxy.wires.responses import ResponsesBody
from tests.sdk_types import MARK, planted

PLANTED: Mapping[type[Body], dict[str, Any]] = {
    Body: dict(planted(ChatParams, "")),
    MessagesBody: dict(planted(MessagesParams, "")),
    ResponsesBody: dict(planted(ResponsesParams, "")),
}
WIRES = (MessagesBody, ResponsesBody)


async def redacted(kind: type[Body], body: Any) -> bytes | None:
    """Return what is sent of a body; None for one that is refused."""
    try:
        request = kind(json.dumps(body).encode()).parse()
        decision = await RedactSecrets().decide(request, context(request))
    except (BadRequest, Unwritable):
        return None
    if not isinstance(decision, Rewrite):
        return None if isinstance(decision, Reject) else request.encode()
    assert decision.request.flaw() is None
    return decision.request.encode()


def bodies(kind: type[Body], place: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a body with user messages around what it says, and one in which the model says that."""
    name, turn = kind.conversation[0], [{"role": "user", "content": "hi"}]
    if not place.startswith(".model"):
        body = {**body, "model": "m"}
    if not place.startswith(f".{name}"):
        yield {**body, name: turn}
    elif isinstance(listed := body[name], str):
        yield body
    else:
        yield {**body, name: [*turn, *listed, *turn]}
        if "content" in listed[0] and not place.endswith(".role"):
            yield {**body, name: [*turn, {**listed[0], "role": "assistant"}, *turn]}


@pytest.mark.parametrize("kind", PLANTED)
async def test_no_string_of_the_sdk_gets_past_a_guard(kind: type[Body]) -> None:
    refused, late = set[str](), list[str]()
    for place, body in PLANTED[kind].items():
        for each in bodies(kind, place, body):
            assert MARK in json.dumps(each)
            sent = await redacted(kind, each)
            if sent is None:
                refused.add(place)
            elif MARK.encode() in sent:
                late.append(place)
    assert len(PLANTED[kind]) > (100 if kind is Body else 500)
    assert late == []
    # a model cannot be redacted, a thread is never read, a message without content is a system message; in a choice
    # of tools only known names are read
    known = {".stream", ".messages[]|2.role", ".tool_choice|1.allowed_tools.tools[].*"}
    assert {place for place in refused if not place.startswith((".model", ".thread"))} <= known


SECRET = "ana@example.com"
SEALED: Mapping[type[Body], dict[str, Any]] = {
    MessagesBody: {"type": "thinking", "thinking": f"Mail {SECRET}.", "signature": "c2ln"},
    ResponsesBody: {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": f"Mail {SECRET}."}], "encrypted_content": "c2Vh"},
}  # fmt: skip


def answered(kind: type[Body], *said: dict[str, Any], text: str = "hi", **more: Any) -> bytes:
    """Return the body of a request behind what a model has said."""
    answer = [{"role": "assistant", "content": [*said, {"type": "text", "text": "Done."}]}]
    if kind is ResponsesBody:
        answer = [*said, {"type": "message", "id": "msg_1", "role": "assistant", "content": "Done."}]
    turns = [{"role": "user", "content": text}, *answer, {"role": "user", "content": "Go on."}]
    return json.dumps({"model": "m", kind.conversation[0]: turns, **more}, indent=1).encode()


@pytest.mark.parametrize("kind", WIRES)
async def test_sealed_reasoning_with_a_secret_leaves_whole(kind: type[Body]) -> None:
    sent = await redacted(kind, json.loads(answered(kind, SEALED[kind])))
    assert sent is not None
    assert SECRET.encode() not in sent
    assert b"Done." in sent
    assert not {b"c2ln", b"c2Vh", b"msg_1"} & {*sent.replace(b'"', b" ").split()}


@pytest.mark.parametrize("kind", WIRES)
async def test_a_guard_changes_only_the_span_of_a_secret(kind: type[Body]) -> None:
    sealed = json.loads(json.dumps(SEALED[kind]).replace(SECRET, "her"))
    raw = answered(kind, sealed, text=f"Mail {SECRET}!", x_number=1.50)
    decision = await RedactSecrets(unknown_fields="read").decide(request := kind(raw).parse(), context(request))
    assert isinstance(decision, Rewrite)
    ((placeholder, secret),) = decision.restores.items()
    assert secret == SECRET
    assert decision.request.encode() == raw.replace(SECRET.encode(), placeholder.encode())


@pytest.mark.parametrize("kind", WIRES)
async def test_the_next_request_has_the_same_messages(kind: type[Body]) -> None:
    raw = answered(kind, text=f"Mail {SECRET}!")
    request = kind(raw).parse()
    made = [await RedactSecrets().decide(request, context(request)) for _ in range(2)]
    first, second = [each.request.messages for each in made if isinstance(each, Rewrite)]
    assert [*map(id, first)] == [*map(id, second)]


@pytest.mark.parametrize(
    "hidden",
    [
        b'"%b": [{"role": "user", "content": "ana@example.com", "content": "hi"}]',
        b'"%b": [{"role": "user", "content": "hi"}], "metadata": {"user_id": "ana@example.com", "user_id": "u"}',
        b'"%b": [{"role": "user", "content": [{"type": "text", "text": "ana@example.com", "t\\u0065xt": "hi"}]}]',
    ],
)
@pytest.mark.parametrize("kind", [Body, *WIRES])
async def test_a_name_that_stands_twice_is_refused(kind: type[Body], hidden: bytes) -> None:
    raw = b'{"model": "m", %b}' % hidden.replace(b"%b", kind.conversation[0].encode())
    request = kind(raw).parse()
    decision = await RedactSecrets().decide(request, context(request))
    assert isinstance(decision, Reject)
    assert decision.code == "unguarded_field"
