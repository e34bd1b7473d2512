"""`penstock replay`, from files to the report."""

import json
import sys
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path


def talk(turns: int = 6) -> list[dict[str, Any]]:
    """Each order is named once, and the last answer needs the first."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You serve a shop. " * 8}]
    for turn in range(turns):
        messages.append({"role": "user", "content": f"My order is QX-{turn}-77, {'please look. ' * 12}"})
        messages.append({"role": "assistant", "content": f"Turn {turn} is looked at. {'All is well. ' * 10}"})
    asked = {"role": "user", "content": "Which was the first?"}
    return [*messages, asked, {"role": "assistant", "content": "QX-0-77."}]


def written(folder: Path, *rows: Any) -> str:
    path = folder / "talks.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


def run(folder: Path, *arguments: str) -> int:
    return main(["replay", *arguments, "--config", str(folder / "config.yaml")])


def report(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(folder, *arguments, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_cut_with_each_turn_is_told_for_what_it_costs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"model": "m", "messages": talk(), "request_points": [2, 4, 6, 8, 10, 12, 14]}
    found = report(folder, capsys, written(folder, row))
    total = found["total"]
    assert total["requests"] == 7
    assert total["tokens"]["after"] < total["tokens"]["before"]
    assert total["cost"]["own"] > 1
    assert total["usd"] / total["usd_unchanged"] == pytest.approx(total["cost"]["own"], rel=1e-3)
    broken = [turn["broken"] for turn in found["conversations"][0]["turns"]]
    assert [each and each["step"] for each in broken] == [None, None, *["window_history"] * 5]
    assert total["breaks"] == {"count": 5, "tokens": sum(each["lost"] for each in broken if each)}
    assert total["violations"]["requests"] == total["refused"] == total["failed_steps"] == 0


def test_values_are_visible_behind_a_handle_or_lost(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"model": "m", "messages": talk(), "tools": [dict(tool("look"))]}
    kept = report(folder, capsys, written(folder, row), "--chain", "default")
    lost = report(folder, capsys, written(folder, row), "--chain", "lossy")
    empty = report(folder, capsys, written(folder, row), "--chain", "empty")
    assert lost["total"]["values"] == {"needed": 1, "visible": 0, "retrievable": 0, "lost": 1, "survival": 0.0}
    assert lost["conversations"][0]["turns"][-1]["missing"] == ["QX-0-77"]
    assert lost["total"]["messages"]["gone"] == lost["total"]["messages"]["removed"] == 10
    assert kept["total"]["values"]["lost"] == 0
    assert kept["total"]["messages"]["gone"] == 0
    assert empty["total"]["values"]["visible"] == 1
    assert empty["total"]["cost"]["own"] == 1.0


def test_another_chain_is_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = written(folder, {"model": "m", "messages": talk()})
    found = report(folder, capsys, row, "--against", "empty")
    assert found["total"]["cost_against"]["own"] == found["total"]["cost"]["own"]
    (folder / "other.yaml").write_text(CONFIG.replace("keep_turns: 2", "keep_turns: 9"))
    found = report(folder, capsys, row, "--against-config", str(folder / "other.yaml"))
    assert found["against_total"]["breaks"]["count"] == 0
    assert found["total"]["cost_against"]["own"] > 1


def test_progress_is_shown_where_somebody_looks(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = written(folder, {"model": "m", "messages": talk(), "request_points": [2, 4, 6]})
    assert run(folder, row) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run(folder, row, "--against", "empty") == 0
    first, *_, last = capsys.readouterr().err.strip("\r").split("\r")
    assert first == f"{'#' * 5}{'.' * 25} 1 of 6 requests"
    assert last == f"{'#' * 30} 6 of 6 requests\n"


def test_bounds_make_it_a_test(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = written(folder, {"model": "m", "messages": talk()})
    assert run(folder, row, "--fail-if", "cost > 9", "--fail-if", "violations > 0") == 0
    assert run(folder, row, "--chain", "lossy", "--fail-if", "cost > 9", "--fail-if", "lost > 0") == 1
    assert capsys.readouterr().err == "penstock: failed: lost > 0: it is 1\n"
    assert run(folder, row, "--fail-if", "money > 0") == 1
    assert "names: cost, " in capsys.readouterr().err


def test_refused_requests_are_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(folder, capsys, written(folder, {"messages": talk()}), "--model", "small")
    assert 0 < found["total"]["refused"] < found["total"]["requests"]
    assert found["conversations"][0]["turns"][-1]["refused"] == "context_length_exceeded"
    assert found["total"]["values"]["lost"] == 1, "what is not sent helps nobody"
    assert found["total"]["too_large"] == {"unchanged": found["total"]["refused"], "sent": 0}
    assert run(folder, written(folder, {"messages": talk()}), "--model", "small") == 0
    assert "0  too large for the window; " in capsys.readouterr().out


def test_tools_that_were_left_out_and_called_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("book", "car", "dog", "egg", "fox", "hat", "ink", "jar", "gnu")
    tools = [tool(f"find_{name}", f"Finds {name}s.") for name in names]
    call = {"id": "c", "type": "function", "function": {"name": "find_gnu", "arguments": "{}"}}
    messages = [{"role": "user", "content": "Find a book, a car, a dog, an egg."}]
    answer = {"role": "assistant", "content": None, "tool_calls": [call]}
    row = {"model": "m", "tools": tools, "messages": [*messages, answer], "request_points": [1]}
    found = report(folder, capsys, written(folder, row), "--chain", "tools")
    assert found["conversations"][0]["turns"][0]["left_out"] == ["find_gnu"]
    assert found["total"]["left_out"] == 1


def test_reported_cache_reads_calibrate_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second request reads most of the first one; an upstream that says otherwise is not as we believe."""
    messages = talk()

    def rows(cached: int) -> str:
        usages = [{"prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": each}} for each in (0, cached)]
        requests = [{"model": "m", "messages": messages[:end]} for end in (8, 10)]
        pairs = zip(requests, usages, strict=True)
        return written(folder, *({"request": request, "usage": usage} for request, usage in pairs))

    known = report(folder, capsys, rows(5), "--chain", "empty")["total"]["calibration"]
    assert (known["turns"], known["met"], known["reported"]) == (2, 1, 5)
    nothing = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 0}}
    short = written(folder, {"request": {"model": "m", "messages": messages[:2]}, "usage": nothing})
    assert report(folder, capsys, short)["total"]["calibration"] is None
    assert run(folder, rows(5)) == 0
    assert "calibrated: 1 of 2 cache reads predicted within 5 % of the prompt" in capsys.readouterr().out


def test_rounds_of_internal_tools_are_told_because_they_are_not_played(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = {"id": "i1", "type": "function", "function": {"name": "recall", "arguments": "{}"}}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    rounds = [calling, {"role": "tool", "tool_call_id": "i1", "content": "found"}]
    first = [{"role": "user", "content": "What was it?"}]
    second = [{"role": "assistant", "content": "This."}, {"role": "user", "content": "And?"}]
    rows = [
        {"request": {"model": "m", "messages": [*first, *second]}, "sent": {"messages": [*first, *rounds, *second]}},
        {"request": {"model": "m", "messages": first}, "sent": {"messages": first}},
    ]
    file = written(folder, *reversed(rows))
    assert report(folder, capsys, file)["total"]["internal_calls"] == 1
    run(folder, file)
    told = "not played: 1 call of internal tools, so later prompts are shorter than they were"
    assert told in capsys.readouterr().out
    run(folder, written(folder, rows[1]))
    assert "internal tools" not in capsys.readouterr().out


def test_a_conversation_finds_nothing_of_another(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = {"id": "one", "model": "m", "messages": talk()}
    both = report(folder, capsys, written(folder, one, {**one, "id": "two"}))
    first, second = (each["turns"] for each in both["conversations"])
    assert [turn["cached"] for turn in first] == [turn["cached"] for turn in second]


def test_the_page_holds_no_script_and_shows_content_as_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = '<img src=x onerror="alert(1)">'
    messages = talk()
    for said in messages[1::2]:
        said["content"] = f"{evil} {said['content']}"
    row = {"id": evil, "source": evil, "model": "m", "messages": messages}
    page = folder / "report.html"
    assert run(folder, written(folder, row), "--html", str(page), "--against", "empty") == 0
    text = page.read_text()
    assert evil not in text
    assert "&lt;img src=x" in text
    assert "<script" not in text
    assert "default-src &#x27;none&#x27;" in text or "default-src 'none'" in text
    assert "http://" not in text
    assert "https://" not in text
    assert text.count("<g>") == 7


def test_the_text_says_what_a_reader_has_to_know(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, written(folder, {"id": "shop", "model": "m", "messages": talk()}), "--chain", "lossy") == 0
    shown = capsys.readouterr().out
    assert "1 conversation, 7 requests; chain lossy" in shown
    assert "shop, request 7: values lost: QX-0-77" in shown
    assert "by window_history" in shown
    assert "not calibrated" in shown


@pytest.mark.parametrize(("row", "arguments", "told"), [
    ({"messages": [{"role": "user", "content": "x"}]}, (), "the file names no model: say which with --model"),
    ({"model": "n", "messages": [{"role": "user", "content": "x"}]}, (), "request 1: The model `n` does not exist"),
    ({"model": "m", "messages": [{"role": "user", "content": "x"}]}, ("--chain", "no"), "there is no chain 'no'"),
])  # fmt: skip
def test_what_cannot_be_played_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str], row: Any, arguments: tuple[str, ...], told: str
) -> None:
    assert run(folder, written(folder, row), *arguments) == 1
    assert told in capsys.readouterr().err


def test_a_long_conversation_with_tools_breaks_no_rule(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = lifelike(30)
    row = {"tools": request.tools, "messages": request.messages}
    found = report(folder, capsys, written(folder, row), "--model", "m")
    assert found["total"]["requests"] > 30
    assert found["total"]["violations"]["rules"] == {}
