"""The writer, in front of a model that answers by a script."""

import logging

import pytest

from proxy.chat import Message
from proxy.config.settings import Settings, WriterSettings
from proxy.context import Material
from proxy.llm.writer import Writer
from proxy.telemetry.metrics import Metrics
from proxy.testing import profile
from proxy.upstreams.base import Reply
from proxy.upstreams.routing import Routes
from tests.scripted import Scripted, reply, whole

SUMMARY = "- The wood burns in the harbour\n- The harbour is closed"
SAID = "The wood burns in the harbour. " * 40


def writer(behind: Scripted) -> Writer:
    document = {"upstreams": {"small": {"kind": "echo"}}, "models": [{"match": "tiny", "upstream": "small"}]}
    routes = Routes(Settings.model_validate(document), {"small": behind}, lambda *_: profile())
    return Writer(WriterSettings(model="tiny"), routes, Metrics("1"))


async def test_a_lone_surrogate_loses_no_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "penstock.writer")
    behind = Scripted(whole(SUMMARY))
    torn = Message({"role": "user", "content": f"{SAID} \ud83d"})
    text = await writer(behind).write(Material("m", "Before \udc00", (torn,), 1200), {})
    assert text is not None
    assert "The wood burns in the harbour" in text
    assert "harbour.  ?" in behind.sent(0).messages[1].text or "harbour. ?" in behind.sent(0).messages[1].text
    assert b"Before ?" in behind.calls[0].body
    assert caplog.records == []


def refused(param: str, code: str) -> Reply:
    """What OpenAI says to a field that a model does not take."""
    return reply({"error": {"message": "no", "type": "invalid_request_error", "param": param, "code": code}}, 400)


async def test_refused_fields_are_left_out() -> None:
    no_limit, no_heat = refused("max_tokens", "unsupported_parameter"), refused("temperature", "unsupported_value")
    behind = Scripted(no_limit, no_heat, whole(SUMMARY), whole(SUMMARY), no_limit)
    asking = writer(behind)
    material = Material("m", "", (Message({"role": "user", "content": SAID}),), 1200)
    for text in (await asking.write(material, {}), await asking.write(material, {})):
        assert text is not None
    expected = [
        {"max_tokens", "temperature"},
        {"max_completion_tokens", "temperature"},
        *[{"max_completion_tokens"}] * 2,
    ]
    assert [behind.sent(place).rest.keys() - {"stream"} for place in range(4)] == expected
    assert await asking.write(material, {}) is None, "what is refused again is not asked again"
    assert len(behind.calls) == 5
