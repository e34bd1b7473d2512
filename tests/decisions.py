"""Reading what a policy decided."""

from proxy.policy import Decision, Rewrite


def rewrite(decision: Decision) -> Rewrite:
    """The decision, which is to change the request."""
    assert isinstance(decision, Rewrite), decision
    return decision


def texts(decision: Decision) -> list[str]:
    """The texts of the messages that are sent instead."""
    return [message.text for message in rewrite(decision).request.messages]
