"""`penstock replay`, from files to the report."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from proxy.__main__ import main
from proxy.testing import lifelike, tool

CONFIG = """
upstreams: {main: {kind: openai, base_url: "http://127.0.0.1:9/v1"}}
models:
  - match: "m"
    upstream: main
    window: 100000
    prices: {input: 10, output: 30}
    cache: {read: 0.1, write: 1, minimum: 16, ttl: 300}
    tokenizer: chars
  - {match: small, upstream: main, window: 300, reserve: 0, tokenizer: chars, chain: strict}
chains:
  default: [window_history: {keep_turns: 2, stride: 1}]
  lossy: [window_history: {keep_turns: 2, stride: 1, summary: false}]
  strict: [reject_oversize: {}]
  tools: [filter_tools: {keep: 4, least: 1, strategy: select}]
  empty: []
embedding: {kind: none}
"""


def talk(turns: int = 6) -> list[dict[str, Any]]:
    """Each order is named once, and the last answer needs the first."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You serve a shop. " * 8}]
    for turn in range(turns):
        messages.append({"role": "user", "content": f"My order is QX-{turn}-77, {'please look. ' * 12}"})
        messages.append({"role": "assistant", "content": f"Turn {turn} is looked at. {'All is well. ' * 10}"})
    asked = {"role": "user", "content": "Which was the first?"}
    return [*messages, asked, {"role": "assistant", "content": "QX-0-77."}]


class Bench:
    """A folder with a configuration, in which conversations are replayed."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys, self.err = folder, capsys, ""
        self.write("config.yaml", CONFIG)

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def run(self, rows: Sequence[Any], *arguments: str, code: int = 0) -> str:
        """What a replay of a file with these rows prints."""
        file = self.write("talks.jsonl", "\n".join(map(json.dumps, rows)))
        assert main(["replay", file, *arguments, "--config", str(self.folder / "config.yaml")]) == code
        out, self.err = self._capsys.readouterr()
        return out

    def report(self, rows: Sequence[Any], *arguments: str) -> Any:
        return json.loads(self.run(rows, *arguments, "--json"))


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(tmp_path, capsys)


TALK = {"model": "m", "messages": talk()}


def test_a_cut_with_each_turn_is_told_for_what_it_costs(bench: Bench) -> None:
    found = bench.report([{**TALK, "request_points": [2, 4, 6, 8, 10, 12, 14]}])
    total = found["total"]
    assert total["requests"] == 7
    assert total["tokens"]["after"] < total["tokens"]["before"]
    assert total["cost"]["own"] > 1
    assert total["usd"] / total["usd_unchanged"] == pytest.approx(total["cost"]["own"], rel=1e-3)
    broken = [turn["broken"] for turn in found["conversations"][0]["turns"]]
    assert [each and each["step"] for each in broken] == [None, None, *["window_history"] * 5]
    assert total["breaks"] == {"count": 5, "tokens": sum(each["lost"] for each in broken if each)}
    assert total["violations"]["requests"] == total["refused"] == total["failed_steps"] == 0


def test_values_are_visible_behind_a_handle_or_lost(bench: Bench) -> None:
    rows = [{**TALK, "tools": [dict(tool("look"))]}]
    kept, lost, empty = (bench.report(rows, "--chain", chain) for chain in ("default", "lossy", "empty"))
    assert lost["total"]["values"] == {"needed": 1, "visible": 0, "retrievable": 0, "lost": 1, "survival": 0.0}
    assert lost["conversations"][0]["turns"][-1]["missing"] == ["QX-0-77"]
    assert lost["total"]["messages"]["gone"] == lost["total"]["messages"]["removed"] == 10
    assert kept["total"]["values"]["lost"] == 0
    assert kept["total"]["messages"]["gone"] == 0
    assert empty["total"]["values"]["visible"] == 1
    assert empty["total"]["cost"]["own"] == 1.0


def test_another_chain_is_compared(bench: Bench) -> None:
    found = bench.report([TALK], "--against", "empty")
    assert found["total"]["cost_against"]["own"] == found["total"]["cost"]["own"]
    other = bench.write("other.yaml", CONFIG.replace("keep_turns: 2", "keep_turns: 9"))
    found = bench.report([TALK], "--against-config", other)
    assert found["against_total"]["breaks"]["count"] == 0
    assert found["total"]["cost_against"]["own"] > 1


def test_progress_is_shown_where_somebody_looks(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{**TALK, "request_points": [2, 4, 6]}]
    bench.run(rows)
    assert bench.err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bench.run(rows, "--against", "empty")
    first, *_, last = bench.err.strip("\r").split("\r")
    assert first == f"{'#' * 5}{'.' * 25} 1 of 6 requests"
    assert last == f"{'#' * 30} 6 of 6 requests\n"


def test_bounds_make_it_a_test(bench: Bench) -> None:
    bench.run([TALK], "--fail-if", "cost > 9", "--fail-if", "violations > 0")
    bench.run([TALK], "--chain", "lossy", "--fail-if", "cost > 9", "--fail-if", "lost > 0", code=1)
    assert bench.err == "penstock: failed: lost > 0: it is 1\n"
    bench.run([TALK], "--fail-if", "money > 0", code=1)
    assert "names: cost, " in bench.err


def test_refused_requests_are_counted(bench: Bench) -> None:
    rows = [{"messages": talk()}]
    found = bench.report(rows, "--model", "small")
    assert 0 < found["total"]["refused"] < found["total"]["requests"]
    assert found["conversations"][0]["turns"][-1]["refused"] == "context_length_exceeded"
    assert found["total"]["values"]["lost"] == 1, "what is not sent helps nobody"
    assert found["total"]["too_large"] == {"unchanged": found["total"]["refused"], "sent": 0}
    text = " ".join(bench.run(rows, "--model", "small").split())
    assert f"too_large unchanged {found['total']['refused']}, sent 0" in text


def test_tools_that_were_left_out_and_called_are_told(bench: Bench) -> None:
    names = ("book", "car", "dog", "egg", "fox", "hat", "ink", "jar", "gnu")
    tools = [tool(f"find_{name}", f"Finds {name}s.") for name in names]
    call = {"id": "c", "type": "function", "function": {"name": "find_gnu", "arguments": "{}"}}
    messages = [{"role": "user", "content": "Find a book, a car, a dog, an egg."}]
    answer = {"role": "assistant", "content": None, "tool_calls": [call]}
    row = {"model": "m", "tools": tools, "messages": [*messages, answer], "request_points": [1]}
    found = bench.report([row], "--chain", "tools")
    assert found["conversations"][0]["turns"][0]["left_out"] == ["find_gnu"]
    assert found["total"]["left_out"] == 1


def test_reported_cache_reads_calibrate_it(bench: Bench) -> None:
    """The second request reads most of the first one; an upstream that says otherwise is not as we believe."""
    usages = [{"prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": each}} for each in (0, 5)]
    requests = [{"model": "m", "messages": talk()[:end]} for end in (8, 10)]
    rows = [{"request": request, "usage": usage} for request, usage in zip(requests, usages, strict=True)]
    known = bench.report(rows, "--chain", "empty")["total"]["calibration"]
    assert (known["turns"], known["met"], known["reported"]) == (2, 1, 5)
    nothing = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 0}}
    short = {"request": {"model": "m", "messages": talk()[:2]}, "usage": nothing}
    assert bench.report([short])["total"]["calibration"] is None
    assert "calibration     turns 2, met 1, " in bench.run(rows)


def test_rounds_of_internal_tools_are_told_because_they_are_not_played(bench: Bench) -> None:
    call = {"id": "i1", "type": "function", "function": {"name": "recall", "arguments": "{}"}}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    rounds = [calling, {"role": "tool", "tool_call_id": "i1", "content": "found"}]
    first = [{"role": "user", "content": "What was it?"}]
    second = [{"role": "assistant", "content": "This."}, {"role": "user", "content": "And?"}]
    rows = [
        {"request": {"model": "m", "messages": first}, "sent": {"messages": first}},
        {"request": {"model": "m", "messages": [*first, *second]}, "sent": {"messages": [*first, *rounds, *second]}},
    ]
    assert bench.report(rows)["total"]["internal_calls"] == 1
    assert "internal_calls  1\n" in bench.run(rows)


def test_a_conversation_finds_nothing_of_another(bench: Bench) -> None:
    both = bench.report([{"id": id, **TALK} for id in ("one", "two")])
    first, second = ([turn["cached"] for turn in each["turns"]] for each in both["conversations"])
    assert first == second


def test_the_page_holds_no_script_and_shows_content_as_text(bench: Bench) -> None:
    evil = '<img src=x onerror="alert(1)">'
    messages = talk()
    for said in messages[1::2]:
        said["content"] = f"{evil} {said['content']}"
    page = bench.folder / "report.html"
    bench.run(
        [{"id": evil, "source": evil, "model": "m", "messages": messages}], "--html", str(page), "--against", "empty"
    )
    text = page.read_text()
    assert "&lt;img src=x" in text
    assert "default-src &#x27;none&#x27;" in text or "default-src 'none'" in text
    assert not [each for each in (evil, "<script", "http://", "https://") if each in text]
    assert text.count("linear-gradient") == 7


def test_the_text_says_what_a_reader_has_to_know(bench: Bench) -> None:
    shown = bench.run([{"id": "shop", **TALK}], "--chain", "lossy")
    assert "1 conversation, 7 requests; chain lossy" in shown
    assert "shop, request 7: missing: QX-0-77" in shown
    assert "step window_history" in shown
    assert "calibration     –" in shown


@pytest.mark.parametrize(("row", "arguments", "told"), [
    ({}, (), "the file names no model: say which with --model"),
    ({"model": "n"}, (), "request 1: The model `n` does not exist"),
    ({"model": "m"}, ("--chain", "no"), "there is no chain 'no'"),
])  # fmt: skip
def test_what_cannot_be_played_is_told(bench: Bench, row: Any, arguments: tuple[str, ...], told: str) -> None:
    bench.run([{**row, "messages": [{"role": "user", "content": "x"}]}], *arguments, code=1)
    assert told in bench.err


def test_a_long_conversation_with_tools_breaks_no_rule(bench: Bench) -> None:
    request = lifelike(30)
    found = bench.report([{"tools": request.tools, "messages": request.messages}], "--model", "m")
    assert found["total"]["requests"] > 30
    assert found["total"]["violations"]["rules"] == {}
