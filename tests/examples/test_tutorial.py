"""The tests of the tutorial's policies: what their author writes."""

import re
from pathlib import Path

import pytest

from proxy.policy import Choose, Keep, Reject, Rewrite
from proxy.testing import chat, conform, context
from tests.examples.add_disclaimer import AddDisclaimer
from tests.examples.refuse_project import RefuseProject
from tests.examples.route_by_size import RouteBySize

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("name", ["add_disclaimer", "redact_emails"])
def test_the_tutorial_shows_each_policy_whole(name: str) -> None:
    page = (ROOT / "docs/writing-a-policy.md").read_text()
    assert f"```python\n{(ROOT / f'tests/examples/{name}.py').read_text()}```\n" in page


async def test_a_request_that_names_the_project_is_refused() -> None:
    await conform(RefuseProject, [chat("uBluebird"), chat("u1 aBluebird u2")])
    request = chat("s uTell_me_of_Bluebird")
    decision = await RefuseProject().decide(request, context(request))
    assert isinstance(decision, Reject)
    assert decision.code == "project_named"


async def test_short_conversations_go_to_the_cheaper_model() -> None:
    await conform(RouteBySize, [chat("s u1"), chat("s u1 a1 u2")])
    for words, kind in (("u1", Choose), ("u1 " + "a" * 9000 + " u2", Keep)):
        request = chat(words)
        assert isinstance(await RouteBySize(most=1000).decide(request, context(request)), kind)


async def test_the_disclaimer_stands_behind_the_system_prompt_once() -> None:
    await conform(AddDisclaimer, [chat("s u1"), chat("u1 a1 u2")])
    request = chat("sRules u1")
    decision = await AddDisclaimer().decide(request, context(request))
    assert isinstance(decision, Rewrite)
    assert [each.text for each in decision.request.messages] == ["sRules", AddDisclaimer().text, "u1"]


def test_requests_and_messages_have_what_the_tutorial_names() -> None:
    page = (ROOT / "docs/writing-a-policy.md").read_text()
    section = page.partition("## What a request has")[2].partition("## What the context")[0]
    request = chat("s u1 a1! t1 a2", temperature=0.5)
    called, result = request.messages[2:4]
    owners = {"request": request, "message": called, "tool": request.tools[0]}
    named = {
        name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)[1:] for name in re.findall(r"`(\w+)`", row)
    }
    assert named
    assert [name for name in named if not any(hasattr(owner, name) for owner in owners.values())] == []
    for owner, name in re.findall(r"`(request|message|tool)\.(\w+)`", section):
        assert hasattr(owners[owner], name)
    assert request.rest.get("temperature") == 0.5
    assert (called.called_tools, called.call_ids, result["tool_call_id"]) == (("look_up",), ("1",), "1")
