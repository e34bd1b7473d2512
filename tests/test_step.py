"""One list of steps, rendered as response headers."""

import json

import pytest

from proxy.step import Step, Verdict, counts_header, findings_header, server_timing


def step(
    policy: str = "window_history", verdict: Verdict = "rewrite", why: str = "dropped 10 of 47 turns", **fields: object
) -> Step:
    known: dict[str, object] = {"seconds": 0.00031, "started": 0.0, "tokens_before": 100, "tokens_after": 40}
    return Step(policy, verdict, why, **(known | fields))  # type: ignore[arg-type]


def test_each_step_is_a_metric_with_milliseconds_and_what_it_did() -> None:
    steps = [step(), step("filter_tools", "keep", "12 tools", seconds=0.0021)]

    assert server_timing(steps) == (
        'window_history;dur=0.31;desc="dropped 10 of 47 turns", filter_tools;dur=2.10;desc="12 tools"'
    )


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


def test_a_name_that_is_no_token_is_made_one_and_no_steps_have_no_value() -> None:
    assert server_timing([step("my.policies:Trim, x")]).startswith("my.policies_Trim__x;dur=")
    assert server_timing([]) == ""


def test_a_long_list_loses_descriptions_first_and_never_exceeds_a_kilobyte() -> None:
    value = server_timing([step(f"policy_{i}", why="x" * 200) for i in range(200)])

    entries = value.split(", ")
    assert len(value) <= 1024
    assert entries[0] == f'policy_0;dur=0.31;desc="{"x" * 200}"'
    assert entries[-1].startswith("policy_")
    assert "desc" not in entries[-1]


def test_the_counts_header_has_a_dash_for_what_nobody_counted() -> None:
    assert counts_header(9000, 4000, 8192) == b"9000;4000;8192"
    assert counts_header(None, None, 8192) == b"-;-;8192"
    assert counts_header(0, 0, None) == b"0;0;-"


@pytest.mark.parametrize(("given", "compressed"), [
    pytest.param(step(), True, id="fewer tokens"),
    pytest.param(step(tokens_after=100), False, id="as many"),
    pytest.param(step(tokens_after=None), False, id="not counted"),
    pytest.param(step(verdict="fail"), False, id="a fault"),
    pytest.param(step(observed=True), False, id="shadow mode"),
])  # fmt: skip
def test_a_compression_is_a_rewrite_that_made_the_prompt_smaller(given: Step, compressed: bool) -> None:
    assert given.compressed is compressed


def test_findings_are_told_as_json_in_ascii_with_the_policy_that_has_them() -> None:
    odd = 'messages[1] says "ñ"\r\nx: y'
    header = findings_header([step("check_facts", findings=(odd,)), step(), step("clash", findings=("a", "b"))])

    assert header.isascii()
    assert header.isprintable()
    told = (("check_facts", odd), ("clash", "a"), ("clash", "b"))
    assert json.loads(header) == [{"policy": policy, "finding": finding} for policy, finding in told]


def test_no_findings_make_no_header_and_many_make_a_kilobyte_of_whole_ones() -> None:
    header = findings_header([step(findings=tuple(f"{n} {'x' * 100}" for n in range(20)))])

    assert findings_header([step()]) == ""
    assert len(header) <= 1024
    assert len(json.loads(header)) == 6
