"""The contract of a policy: settings, conditions, the headers of its steps, and the kit for its author."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from proxy.chat import ChatRequest
from proxy.chat.wire import flaws
from proxy.context import Context
from proxy.gateway.relay import counts_header, findings_header, server_timing
from proxy.policy import Decision, Keep, Policy, When
from proxy.step import Step, Verdict
from proxy.testing import CharTokens, chat, context, message, script, tool


class Decides(Policy):
    """Decides by itself, without a thread and whatever its request is."""

    def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        raise NotImplementedError

    async def decide(self, request: ChatRequest, ctx: Context) -> Decision:
        return Keep("decided")


class DecidesLater(Decides):
    """Inherits the decision."""


@pytest.mark.parametrize("policy", [Decides(), DecidesLater()])
async def test_an_own_decide_of_a_policy_is_called(policy: Policy) -> None:
    request = chat("u1")
    assert (await policy.decide(request, context(request))).why == "decided"


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


def step(
    policy: str = "window_history", verdict: Verdict = "rewrite", why: str = "dropped 10 of 47 turns", **fields: object
) -> Step:
    known: dict[str, object] = {"seconds": 0.00031, "started": 0.0, "tokens_before": 100, "tokens_after": 40}
    return Step(policy, verdict, why, **(known | fields))  # type: ignore[arg-type]


def test_each_step_is_a_metric_and_a_long_list_stays_below_a_kilobyte() -> None:
    steps = [step(), step("filter_tools", "keep", "12 tools", seconds=0.0021)]

    assert server_timing(steps) == (
        'window_history;dur=0.31;desc="dropped 10 of 47 turns", filter_tools;dur=2.10;desc="12 tools"'
    )
    value = server_timing([step(f"policy_{i}", why="x" * 200) for i in range(200)])

    entries = value.split(", ")
    assert len(value) <= 1024
    assert entries[0] == f'policy_0;dur=0.31;desc="{"x" * 200}"'
    assert entries[-1].startswith("policy_")
    assert "desc" not in entries[-1]


@pytest.mark.parametrize(("given", "desc"), [
    pytest.param(step(verdict="skip", why="no tools"), "skip: no tools", id="a step that did not run"),
    pytest.param(step(verdict="fail", why="ValueError"), "fail: ValueError", id="a fault"),
    pytest.param(step(verdict="reject", why="too large"), "reject: too large", id="a refusal"),
    pytest.param(step(observed=True), "observed: dropped 10 of 47 turns", id="shadow mode"),
])  # fmt: skip
def test_what_is_no_plain_success_says_so(given: Step, desc: str) -> None:
    assert server_timing([given]) == f'window_history;dur=0.31;desc="{desc}"'


@pytest.mark.parametrize(("why", "desc"), [
    pytest.param('said "no"', r"said \"no\"", id="quotes"),
    pytest.param(r"a\b", r"a\\b", id="backslashes"),
    pytest.param("a\r\nset-cookie: x", "aset-cookie: x", id="line breaks cannot add a header"),
    pytest.param("caf\xe9 \u2028\x7f\x00", "caf ", id="what is not ASCII leaves"),
])  # fmt: skip
def test_a_description_stays_inside_its_quotes(why: str, desc: str) -> None:
    assert server_timing([step(why=why)]) == f'window_history;dur=0.31;desc="{desc}"'


def test_counts_have_a_dash_for_what_nobody_counted_and_names_are_made_tokens() -> None:
    assert counts_header(9000, 4000, 8192) == b"9000;4000;8192"
    assert counts_header(None, None, 8192) == b"-;-;8192"
    assert counts_header(0, 0, None) == b"0;0;-"
    assert server_timing([step("my.policies:Trim, x")]).startswith("my.policies_Trim__x;dur=")
    assert server_timing([]) == ""


@pytest.mark.parametrize(("given", "compressed"), [
    pytest.param(step(), True, id="fewer tokens"),
    pytest.param(step(tokens_after=100), False, id="as many"),
    pytest.param(step(tokens_after=None), False, id="not counted"),
    pytest.param(step(verdict="fail"), False, id="a fault"),
    pytest.param(step(observed=True), False, id="shadow mode"),
])  # fmt: skip
def test_a_compression_is_a_rewrite_that_made_the_prompt_smaller(given: Step, compressed: bool) -> None:
    assert given.compressed is compressed


def test_findings_are_told_as_json_in_ascii_and_many_make_a_kilobyte() -> None:
    odd = 'messages[1] says "ñ"\r\nx: y'
    header = findings_header([step("check_facts", findings=(odd,)), step(), step("clash", findings=("a", "b"))])

    assert header.isascii()
    assert header.isprintable()
    told = (("check_facts", odd), ("clash", "a"), ("clash", "b"))
    assert json.loads(header) == [{"policy": policy, "finding": finding} for policy, finding in told]
    header = findings_header([step(findings=tuple(f"{n} {'x' * 100}" for n in range(20)))])

    assert findings_header([step()]) == ""
    assert len(header) <= 1024
    assert len(json.loads(header)) == 6


names = st.text("abcxyz0189_-", min_size=1, max_size=4)
a_word = (
    st.builds("{}{}".format, st.sampled_from("sduat"), names)
    | names.map("a{}!".format)
    | st.lists(names, min_size=2, max_size=3).map(lambda ids: "a!" + ",".join(ids))
)


@given(st.lists(a_word).map(" ".join))
@settings(max_examples=100, deadline=None)
def test_every_conversation_reads_back_as_it_was_written(conversation: str) -> None:
    assert script(chat(conversation)) == conversation


@pytest.mark.parametrize(("word", "sent"), [
    pytest.param("s", {"role": "system", "content": "s"}, id="system"),
    pytest.param("d1", {"role": "developer", "content": "d1"}, id="developer"),
    pytest.param("u1", {"role": "user", "content": "u1"}, id="user"),
    pytest.param("a1", {"role": "assistant", "content": "a1"}, id="assistant"),
    pytest.param("tx", {"role": "tool", "tool_call_id": "x", "content": "result x"}, id="tool"),
])  # fmt: skip
def test_what_a_word_stands_for(word: str, sent: dict[str, str]) -> None:
    assert message(word) == sent


@pytest.mark.parametrize(
    ("word", "ids"), [("a1!", ("1",)), ("a1!x", ("x",)), ("a1!x,y", ("x", "y")), ("a!x,y", ("x", "y"))]
)
def test_a_word_with_a_bang_calls_tools(word: str, ids: tuple[str, ...]) -> None:
    made = message(word)

    assert made.call_ids == ids
    assert made.called_tools == ("look_up",) * len(ids)
    assert made["content"] is None


def test_a_conversation_with_calls_offers_the_tool_that_it_calls() -> None:
    assert [item.name for item in chat("u1 ax! tx").tools] == ["look_up"]
    assert chat("u1 a1").tools == ()
    assert [item.name for item in chat("u1 ax! tx", tools=[tool("f")]).tools] == ["f"]
    assert flaws(chat("s u1 a!x,y tx ty a1")) == set()


async def test_four_characters_are_a_token() -> None:
    tokens = CharTokens()
    request = chat("s u1 ax! tx")

    sizes = await tokens.sizes(request.messages)
    count = await tokens.count(request)
    assert sizes == tuple(len(item.raw) // 4 for item in request.messages)
    (tools,) = await tokens.tool_sizes(request.tools)
    assert (count.system, count.tools, count.messages) == (sizes[0], tools, sum(sizes[1:]))
    assert count.total == count.system + count.tools + count.messages
    assert not count.exact
