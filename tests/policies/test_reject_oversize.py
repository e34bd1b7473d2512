import pytest

from policies.reject_oversize import RejectOversize
from proxy.policy import Keep, Reject
from proxy.testing import CharTokens, chat, context


async def tokens_of(conversation: str) -> int:
    return (await CharTokens().count(chat(conversation))).total


@pytest.mark.parametrize(
    ("share", "verdict"),
    [pytest.param(1.0, Keep, id="exactly the limit fits"), pytest.param(0.99, Reject, id="one per cent less does not")],
)
async def test_the_share_of_the_window_decides(share: float, verdict: type) -> None:
    request = chat("s u1 a1 u2")
    window = await tokens_of("s u1 a1 u2")
    decision = await RejectOversize(share=share).apply(request, context(request, window=window))
    assert isinstance(decision, verdict)


async def test_the_answer_has_the_words_that_clients_look_for() -> None:
    request = chat("u1 a1 u2")
    decision = await RejectOversize().apply(request, context(request, window=10))
    assert isinstance(decision, Reject)
    assert decision.code == "context_length_exceeded"
    assert (decision.status, decision.param) == (400, "messages")
    limit = "This model's maximum context length is 10 tokens. However, your messages resulted in "
    assert decision.why.startswith(limit)
    assert decision.why.endswith("Please reduce the length of the messages. (context_length_exceeded)")


async def test_what_the_answer_may_take_is_not_the_prompts() -> None:
    window = await tokens_of("u1") * 2
    fits = chat("u1", max_tokens=window // 8)
    too_much = chat("u1", max_completion_tokens=window)
    ctx = context(window=window)
    assert isinstance(await RejectOversize().apply(fits, ctx), Keep)
    # however much the client allows, an answer needs at most an eighth of the window
    assert isinstance(await RejectOversize().apply(too_much, ctx), Keep)
    refused = await RejectOversize(share=0.5).apply(too_much, ctx)
    assert isinstance(refused, Reject)
    assert refused.why.endswith("Please reduce the length of the messages or completion. (context_length_exceeded)")
