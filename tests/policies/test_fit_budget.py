from typing import Any

import pytest
from pydantic import ValidationError

from policies.fit_budget import FitBudget
from proxy.chat import ChatRequest
from proxy.chat.wire import damage
from proxy.policy import Decision, Keep, Reject, Rewrite
from proxy.testing import Example, MemoryArchive, chat, context, profile, tool
from tests.decisions import rewrite

WINDOW = 10_000


def request_of(words: str = "s u1", *, blocks: int = 0, **fields: Any) -> ChatRequest:
    """A conversation behind so many exchanges, each with a block of about 500 tokens."""
    request = chat(words, **fields)
    old = [
        message.with_changes(content=f"<context>row {n} {'word ' * 390}</context> Question {n}?")
        if message.role == "user"
        else message
        for n in range(blocks)
        for message in chat(f"u{n} a{n}").messages
    ]
    return request.with_messages([*request.messages[:1], *old, *request.messages[1:]])


async def decided(request: ChatRequest, archive: Any = "", **settings: Any) -> Decision:
    model = profile(WINDOW, reserve=700, max_output=4000)
    ctx = context(request, model=model, archive=MemoryArchive() if archive == "" else archive)
    return await FitBudget(**settings).apply(request, ctx)


EXAMPLES = [Example(context(request_of(blocks=60), window=40_000))]


async def test_the_use_of_each_share_is_told() -> None:
    request = request_of("s" + "x" * 4000 + " u1", blocks=2, tools=[tool(description="d" * 8000)])
    decision = await decided(request)

    assert isinstance(decision, Keep)
    used = {kind: int(decision.facts[kind]) for kind in ("system", "tools", "knowledge", "conversation", "output")}
    count = await context(request).tokens.count(request)
    assert used["system"] == count.system
    assert used["tools"] == count.tools
    assert used["knowledge"] + used["conversation"] == count.messages
    assert used["output"] == 700
    assert decision.facts["over"] == "system,tools"


@pytest.mark.parametrize(("wanted", "settings", "output", "sent"), [
    pytest.param({}, {}, 700, {}, id="the reserve"),
    pytest.param({"max_tokens": 3000}, {}, 3000, {"max_tokens": 3000}, id="what the client asks for"),
    pytest.param({"max_tokens": 9000}, {}, 4000, {"max_tokens": 9000}, id="no more than the model can"),
    pytest.param({"max_tokens": 3000}, {"enforce": ["output"]}, 1000, {"max_tokens": 1000}, id="lowered"),
    pytest.param({"max_completion_tokens": 50}, {"enforce": ["output"]}, 50, {"max_completion_tokens": 50}, id="never raised"),
    pytest.param({}, {"enforce": ["output"]}, 700, {}, id="never set"),
])  # fmt: skip
async def test_output(wanted: dict[str, Any], settings: dict[str, Any], output: int, sent: dict[str, int]) -> None:
    request = chat("s u1", **wanted)
    decision = await decided(request, **settings)
    assert isinstance(decision, (Keep, Rewrite))
    assert decision.facts["output"] == output
    assert dict((decision.request if isinstance(decision, Rewrite) else request).rest) == sent


@pytest.mark.parametrize(
    ("kind", "param", "request_"),
    [
        ("system", "messages", request_of("s" + "x" * 5000 + " u1")),
        ("tools", "tools", request_of("s u1", tools=[tool(description="d" * 9000)])),
        ("conversation", "messages", request_of("s u1 a1 u" + "x" * 19_000)),
    ],
)
async def test_what_cannot_shrink_is_refused_only_if_asked_for(kind: str, param: str, request_: ChatRequest) -> None:
    assert isinstance(told := await decided(request_), Keep)
    assert told.facts["over"] == kind
    refused = await decided(request_, enforce=[kind])
    assert isinstance(refused, Reject)
    assert (refused.code, refused.param) == ("budget_exceeded", param)


async def test_the_oldest_knowledge_leaves_and_can_be_read_again() -> None:
    request, archive = request_of(blocks=4), MemoryArchive()
    decision = rewrite(await decided(request, archive))

    assert not damage(request, decision.request)
    assert decision.facts["left_blocks"] == len(archive.contents) == 3
    assert int(decision.facts["knowledge"]) <= 0.15 * WINDOW / 2
    first = decision.request.messages[1].text
    handle = next(iter(archive.contents))
    assert first.endswith(f'recall("{handle}") has them] Question 0?')
    assert archive.contents[handle].startswith("<context>row 0 ")
    assert decision.request.messages[-3:] == request.messages[-3:]
    assert isinstance(await decided(decision.request, archive), Keep)


async def test_knowledge_stays_without_an_enforced_share_and_results_of_named_tools_are_knowledge() -> None:
    assert isinstance(await decided(request_of(blocks=4), enforce=[]), Keep)
    assert isinstance(await decided(request_of(blocks=4), knowledge_tags=["documents"]), Keep)
    request = request_of("s u1 a!1 t1 a2 u2")
    for globs, known in [((), False), (("look_*",), True), (("search",), False)]:
        decision = await decided(request, knowledge_tools=globs)
        assert isinstance(decision, Keep)
        assert (int(decision.facts["knowledge"]) > 0) is known


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"system": 0.5, "tools": 0.5}, "the shares add up to 170% of the window; they must not exceed 100%"),
        ({"knowledge_tags": ["<context>"]}, "tag '<context>' must be a name without brackets"),
        ({"enforce": ["prompt"]}, "Input should be 'system', 'tools', 'knowledge', 'conversation' or 'output'"),
    ],
)
def test_settings_that_cannot_be_meant(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        FitBudget(**settings)
