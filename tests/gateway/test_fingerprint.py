"""The keys of answers: the same however a conversation came to be known."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.chat import Message
from proxy.gateway.fingerprint import AnswerKeys, next_key

texts = st.sampled_from(["yes", "no", "a b", ""])
said = st.builds(
    lambda role, text: Message({"role": role, "content": text}), st.sampled_from(["user", "assistant"]), texts
)
messages = st.lists(said, max_size=6)


def fresh(talk: list[Message], scope: str) -> dict[int, str]:
    return {
        place: next_key(talk[:place], scope, message)
        for place, message in enumerate(talk)
        if message.role == "assistant"
    }


@given(st.lists(st.tuples(messages, st.integers(0, 12), st.sampled_from("ab")), max_size=8), st.integers(0, 20))
def test_what_was_seen_before_changes_no_key(steps: list[tuple[list[Message], int, str]], most: int) -> None:
    """Conversations grow, fork and are cut back, in two scopes, with hardly any room to remember them."""
    keys = AnswerKeys(most)
    talk: list[Message] = []
    for added, kept, scope in steps:
        talk = [*talk[:kept], *(Message(message) for message in added)]
        for _ in range(2):
            assert keys.of(talk, scope) == fresh(talk, scope)


def test_only_what_is_new_is_read() -> None:
    class Unread(Message):
        def get(self, *_: object) -> object:
            raise AssertionError("read again")

    talk = [Message({"role": "user", "content": "hi"}), Message({"role": "assistant", "content": "yes"})]
    keys = AnswerKeys()
    known = keys.of(talk, "a")
    again: list[Message] = [Unread(message, message.raw) for message in talk]
    new = Message({"role": "assistant", "content": "no"})
    assert keys.of([*again, new], "a") == known | {2: next_key(talk, "a", new)}


def test_what_is_remembered_is_bounded() -> None:
    keys = AnswerKeys(most=10)
    for n in range(100):
        keys.of([Message({"role": "user", "content": str(n)})], "a")
    assert len(keys._known) <= 10
