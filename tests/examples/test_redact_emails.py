"""The test of a policy that stands outside the repository: what its author writes."""

import pytest

from proxy.policy import Keep, Rewrite
from proxy.testing import chat, conform, context, message
from tests.examples.redact_emails import RedactEmails


async def test_it_keeps_to_the_contract() -> None:
    await conform(RedactEmails, [chat("s uana@example.com"), chat("u1 a1! t1 aana@example.com u2")])


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ("umail:ana.ruiz@mail.example.com,please", "umail:[e-mail address withheld],please"),
        ("sana@example.com", "[e-mail address withheld]"),
        ("aana@example.com", "[e-mail address withheld]"),
        ("u@ana", None),
    ],
)
async def test_addresses_are_replaced(said: str, sent: str | None) -> None:
    request = chat("u1").with_messages([message(said)])
    decision = await RedactEmails().decide(request, context(request))
    if sent is None:
        assert isinstance(decision, Keep)
    else:
        assert isinstance(decision, Rewrite)
        assert decision.request.messages[0].text == sent
