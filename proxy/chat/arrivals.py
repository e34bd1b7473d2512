"""What is new in a request: clients send the whole conversation each time."""

from collections.abc import Sequence

from proxy.chat import Message


def arrived(messages: Sequence[Message]) -> frozenset[int]:
    """The identities (`id`) of the messages that no earlier request of this conversation had, as far as one can tell.

    They are the last assistant message, which the client has put there, and what follows it. Without an answer yet
    all is new. So each message of a conversation is new once, but for those that were there before it was first seen.
    """
    backwards = range(len(messages) - 1, -1, -1)
    start = next((place for place in backwards if messages[place].get("role") == "assistant"), 0)
    return frozenset(map(id, messages[start:]))
