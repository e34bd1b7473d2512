"""The contract of a policy: its settings, and the conditions under which it runs."""

from typing import Any

import pytest
from pydantic import ValidationError

from proxy.chat import ChatRequest
from proxy.context import Context
from proxy.policy import Decision, Keep, Policy, When
from proxy.testing import chat, context, tool


class LeaveAlone(Policy):
    """Leaves every request as it is."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        return Keep("as it was")


TOOLS = chat("u1", tools=[tool()])
NO_TOOLS = chat("u1")


@pytest.mark.parametrize(("when", "share", "unmet"), [
    pytest.param({}, 0.99, None, id="no condition"),
    pytest.param({"context_over": 0.7}, 0.71, None, id="over the mark"),
    pytest.param({"context_over": 0.7}, 0.7, "context at 70%, not over 70%", id="at the mark is not over it"),
    pytest.param({"context_over": 0.7}, 0.1, "context at 10%, not over 70%", id="not over the mark"),
    pytest.param({"context_over": 1.5}, 1.6, None, id="a mark beyond the window"),
    pytest.param({"context_under": 0.5}, 0.49, None, id="under the mark"),
    pytest.param({"context_under": 0.5}, 0.5, "context at 50%, not under 50%", id="at the mark is not under it"),
    pytest.param({"context_over": 0.2, "context_under": 0.5}, 0.3, None, id="between two marks"),
    pytest.param({"context_over": 0.2, "context_under": 0.5}, 0.6, "context at 60%, not under 50%", id="over both"),
])  # fmt: skip
def test_a_step_runs_by_the_share_of_the_window(when: dict[str, Any], share: float, unmet: str | None) -> None:
    assert When(**when).unmet(NO_TOOLS, context(), share) == unmet


@pytest.mark.parametrize(("globs", "model", "runs"), [
    pytest.param(["gpt-*"], "gpt-5", True, id="a glob that matches"),
    pytest.param(["o1", "gpt-?"], "gpt-5", True, id="one of several"),
    pytest.param(["gpt-*"], "claude-4", False, id="none"),
    pytest.param(["GPT-*"], "gpt-5", False, id="case counts"),
    pytest.param(["*"], "org/any:latest", True, id="everything"),
])  # fmt: skip
def test_a_step_runs_by_model(globs: list[str], model: str, runs: bool) -> None:
    """By the name that the client gives, whatever the request has by then."""
    unmet = When(models=tuple(globs)).unmet(NO_TOOLS, context(chat("u1", model=model)), 0.5)
    assert unmet == (None if runs else f"model is none of {', '.join(globs)}")


@pytest.mark.parametrize(("condition", "headers", "runs"), [
    pytest.param("x-team", {"x-team": "search"}, True, id="present"),
    pytest.param("x-team", {"x-team": ""}, True, id="present and empty"),
    pytest.param("x-team", {}, False, id="absent"),
    pytest.param("X-Team", {"x-team": "a"}, True, id="names have no case"),
    pytest.param("x-team: search", {"x-team": "search"}, True, id="with its value"),
    pytest.param("x-team:search", {"x-team": "search"}, True, id="without a blank"),
    pytest.param("x-team: search", {"x-team": "Search"}, False, id="values have case"),
    pytest.param("x-team: search", {"x-team": "searching"}, False, id="only the whole value"),
    pytest.param("x-url: http://a:1", {"x-url": "http://a:1"}, True, id="a value with colons"),
    pytest.param("x-team:", {"x-team": "any"}, True, id="an empty value is any value"),
])  # fmt: skip
def test_a_step_runs_by_header(condition: str, headers: dict[str, str], runs: bool) -> None:
    unmet = When(header=condition).unmet(NO_TOOLS, context(headers=headers), 0.5)

    assert unmet == (None if runs else f"no header {condition!r}")


@pytest.mark.parametrize(("has_tools", "request_", "unmet"), [
    pytest.param(True, TOOLS, None, id="tools wanted and there"),
    pytest.param(True, NO_TOOLS, "no tools", id="tools wanted and absent"),
    pytest.param(False, NO_TOOLS, None, id="no tools wanted, none there"),
    pytest.param(False, TOOLS, "has tools", id="no tools wanted, some there"),
])  # fmt: skip
def test_a_step_runs_by_tools(has_tools: bool, request_: ChatRequest, unmet: str | None) -> None:
    assert When(has_tools=has_tools).unmet(request_, context(TOOLS), 0.5) == unmet, "as the request is by then"


def test_all_conditions_must_hold() -> None:
    when = When(models=("gpt-*",), header="x-team", has_tools=True, context_over=0.5)
    ctx = context(chat("u1", model="gpt-5"), headers={"x-team": "a"})

    assert when.unmet(TOOLS, ctx, 0.6) is None
    assert when.unmet(TOOLS, ctx, 0.4) == "context at 40%, not over 50%"
    assert when.unmet(NO_TOOLS, ctx, 0.6) == "no tools"
    assert when.unmet(TOOLS, context(chat("u1", model="gpt-5")), 0.6) == "no header 'x-team'"


@pytest.mark.parametrize("settings", [
    pytest.param({"when": {"context_over": 0}}, id="a mark of zero"),
    pytest.param({"when": {"context_over": 70}}, id="a percentage for a share"),
    pytest.param({"when": {"context_above": 0.5}}, id="an unknown condition"),
    pytest.param({"timeout": 0}, id="no time at all"),
    pytest.param({"on_error": "ignore"}, id="an unknown answer to faults"),
    pytest.param({"mode": "off"}, id="an unknown mode"),
    pytest.param({"keep": 1}, id="an unknown setting"),
])  # fmt: skip
def test_wrong_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LeaveAlone.model_validate(settings)


def test_a_policy_runs_always_skips_faults_and_enforces_unless_told_otherwise() -> None:
    policy = LeaveAlone()

    assert (policy.when, policy.on_error, policy.mode, policy.timeout) == (None, "skip", "enforce", 1.0)
    assert not policy.may_grow
    assert policy.prefix_breaks_per_turn == 0
    with pytest.raises(ValidationError, match="frozen"):
        policy.timeout = 2


def test_every_setting_that_all_policies_share_is_documented() -> None:
    for schema in (LeaveAlone.model_json_schema(), When.model_json_schema()):
        assert all(field.get("description") for field in schema["properties"].values())
