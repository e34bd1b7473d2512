"""Bodies of an agent, and made from the SDKs' types: read and written, they are the client's own bytes."""

import json
from typing import Any

import pytest
from anthropic.types.beta.message_create_params import MessageCreateParamsNonStreaming as MessagesParams
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming as ResponsesParams

from proxy.chat import ChatRequest
from proxy.chat.errors import BadRequest
from proxy.chat.parse import Body
from proxy.chat.wire import flaws
from proxy.wires.messages import MessagesBody
from proxy.wires.responses import ResponsesBody
from tests.sdk_types import values_of
from tests.wires import test_messages, test_responses

WIRES: list[tuple[type[Body], Any]] = [(MessagesBody, MessagesParams), (ResponsesBody, ResponsesParams)]
KINDS = pytest.mark.parametrize(("kind", "params"), WIRES, ids=[kind.wire for kind, _ in WIRES])
SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck))


def read(kind: type[Body], body: dict[str, Any], indent: int | None = None) -> tuple[bytes, ChatRequest] | None:
    """Return the bytes and the request of a body; None for a thread, or one whose strings are no valid ones."""
    raw = json.dumps({"input": "hi", **body, "model": "m"} if kind is ResponsesBody else body, indent=indent).encode()
    try:
        return raw, kind(raw).parse()
    except BadRequest as error:
        assert kind is MessagesBody, error
        assert error.param == "thread" or "model" in str(error) or "content" in str(error), error
        return None


@pytest.mark.parametrize(("kind", "body"), [(MessagesBody, test_messages.AGENT), (ResponsesBody, test_responses.AGENT)])
@pytest.mark.parametrize("indent", [None, 1])
def test_an_edit_changes_only_its_span(kind: type[Body], body: Any, indent: int | None) -> None:
    raw = json.dumps({**body, "x_new": [1.50, "\u00e9"]}, indent=indent, ensure_ascii=indent is None).encode()
    request = kind(raw).parse()

    assert request.encode() == raw
    assert request.with_messages(list(request.messages)).encode() == raw
    assert request.with_tools(list(request.tools)).encode() == raw
    if kind is MessagesBody:
        assert not flaws(request)
    for text in (b"I look.", b"one", b"two", b"And now?"):
        messages = [
            each.with_changes(content=f"{each.text}!") if each.text.encode() == text else each
            for each in request.messages
        ]
        assert request.with_messages(messages).encode() == raw.replace(b'"%b"' % text, b'"%b!"' % text)


@KINDS
@SLOW
@given(st.data())
def test_what_is_read_and_written_is_the_same_object(kind: type[Body], params: Any, data: st.DataObject) -> None:
    found = read(kind, data.draw(values_of(params)), data.draw(st.sampled_from([None, 1])))
    if found is None:
        return
    raw, request = found
    assert request.encode() is raw
    assert request.with_messages(list(request.messages)).encode() == raw
    if request.tools:
        assert request.with_tools(list(request.tools)).encode() == raw


@KINDS
@SLOW
@given(st.data())
def test_an_edit_of_a_result_changes_nothing_else(kind: type[Body], params: Any, data: st.DataObject) -> None:
    found = read(kind, data.draw(values_of(params)))
    places = [n for n, each in enumerate(found[1].messages) if each.role == "tool" and each.text] if found else []
    if found is None or not places:
        return
    raw, request = found
    place = data.draw(st.sampled_from(places))
    new = request.messages[place].with_texts(lambda text: f"{text}!")
    made = request.with_messages([*request.messages[:place], new, *request.messages[place + 1 :]])
    before, after = json.loads(raw), json.loads(made.encode())
    name = kind.conversation[0]
    assert {key: value for key, value in after.items() if key != name} == {
        key: value for key, value in before.items() if key != name
    }
    assert sum(one != other for one, other in zip(before[name], after[name], strict=True)) == 1
