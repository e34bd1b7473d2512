"""What was sent is kept where an answer has signed reasoning, and only there."""

import pytest

from proxy.chat import Message, encode
from proxy.gateway.hidden import Hidden, HiddenParts
from proxy.gateway.signed import SignedAnswer
from proxy.testing import chat
from tests.scripted import Kept, answer

THOUGHT = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]
SIGNED = {**answer("Yes.")["choices"][0]["message"], "thinking_blocks": THOUGHT}


class Settling:
    """Counts how often what was sent is kept."""

    count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.mark.parametrize(
    ("body", "times"),
    [
        (encode({"choices": [{"index": 0, "message": SIGNED}]}), 1),
        (b'data: {"choices":[{"delta":{"thinking_blocks":[{"signature":"s"}]}}]}\n\n' * 3, 1),
        (b'event: content_block_delta\ndata: {"delta":{"type":"signature_delta","signature":"s"}}\n\n', 1),
        (b'data: {"item":{"type":"reasoning","encrypted_content":"x"}}\n\n', 1),
        (encode({"choices": [{"index": 0, "message": {"content": "Sign it.", "reasoning_content": "Hm."}}]}), 0),
        (encode(answer("The signature is missing.")), 0),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_an_answer_shows_its_signature_however_it_is_cut(body: bytes, times: int, size: int) -> None:
    settle = Settling()
    watch = SignedAnswer(settle)
    for start in range(0, len(body), size):
        watch.feed(body[start : start + size])
    assert settle.count == times


@pytest.mark.parametrize(("last", "times"), [(SIGNED, 1), ({"role": "assistant", "content": "Yes."}, 0)])
async def test_hidden_reasoning_counts_as_the_shown(last: dict[str, object], times: int) -> None:
    settle = Settling()
    recorder = HiddenParts(Kept()).recorder(chat("u1"), "tenant", settle)
    assert await recorder(Hidden(Message({"role": "assistant", "content": "Yes."}), (), Message(last)))
    assert settle.count == times
