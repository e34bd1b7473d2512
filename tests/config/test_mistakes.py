"""Each mistake in a configuration is one line with its place and what would be right."""

import json
import re
from pathlib import Path

import pytest

from proxy.chat.errors import ConfigError
from proxy.config.load import load, policy_class, policy_names
from tests.config.files import BASE, ROOT, loaded, refusal


@pytest.mark.parametrize(("added", "place", "right"), [
    pytest.param("telemetry: {zzz: 1}", "config.yaml:6: telemetry.zzz", "unknown key; known: endpoint, protocol",
                 id="nothing similar"),
    pytest.param("chains:\n  default:\n    - window_history:\n        when:\n          context_ovr: 1",
                 "config.yaml:10: chains.default.0.window_history.when.context_ovr",
                 "unknown key; did you mean 'context_over'?", id="a condition"),
    pytest.param("version: 2", "config.yaml:6: version", "1", id="another version"),
    pytest.param("telemetry:\n  log_level: loud", "config.yaml:7: telemetry.log_level", "'debug', 'info'",
                 id="a word that is not one of some"),
    pytest.param("telemetry:\n  endpoint: host:4318", "config.yaml:7: telemetry.endpoint", "http:// or https://",
                 id="an address without a scheme"),
    pytest.param("chains: []", "config.yaml:6: chains", "names to lists of policies", id="chains that are a list"),
    pytest.param("chains:\n  default: window_history", "config.yaml:7: chains.default", "- window_history:",
                 id="a chain that is a word"),
    pytest.param("chains:\n  default:\n    - []", "config.yaml:8: chains.default.0", "- window_history:",
                 id="a step that is a list"),
    pytest.param("chains:\n  default:\n    - {}", "config.yaml:8: chains.default.0", "- window_history:",
                 id="a step without a name"),
    pytest.param("chains:\n  default:\n    - a: {}\n      b: {}", "config.yaml:8: chains.default.0",
                 "- window_history:", id="two policies in a step"),
    pytest.param("chains:\n  default:\n    - window_history\n    - isolate_tasks",
                 "config.yaml:9: chains.default.1.isolate_tasks", "must stand before all other steps",
                 id="a step that must come first"),
    pytest.param("chains:\n  default:\n    - zzz", "config.yaml:8: chains.default.0", "window_history",
                 id="a policy that resembles none"),
    pytest.param("chains:\n  default:\n    - window_history:\n        on_error: ignore",
                 "config.yaml:9: chains.default.0.window_history.on_error", "'skip' or 'reject'",
                 id="a setting that all policies have"),
    pytest.param("chains:\n  default:\n    - compress_history: {cut_to: 0.9}",
                 "config.yaml:8: chains.default.0.compress_history", "cut_to", id="settings that contradict"),
    pytest.param("chains: {small: []}", "config.yaml:5: models.0.chain", "there is no 'default'; known: small",
                 id="no default chain"),
    pytest.param("models: []", "config.yaml:6: models", "twice", id="a section twice"),
])  # fmt: skip
def test_a_mistake_has_its_place_and_what_would_be_right(tmp_path: Path, added: str, place: str, right: str) -> None:
    is_refused(tmp_path, BASE + added, place, right)


def is_refused(folder: Path, text: str, place: str, right: str) -> None:
    said = refusal(folder, text)
    assert said.startswith(f"{place}: ")
    assert right in said


@pytest.mark.parametrize(("text", "place", "right"), [
    pytest.param("hello", "config.yaml:1", "must be a mapping that starts with `version: 1`", id="a word"),
    pytest.param("- a\n- b", "config.yaml:1", "must be a mapping that starts with `version: 1`", id="a list"),
    pytest.param("upstreams:\n  a: {kind: echo}", "config.yaml:1: models", "required", id="no models"),
    pytest.param("upstreams: {}\nmodels: [{match: a, upstream: b}]", "config.yaml:1: upstreams", "at least 1",
                 id="no upstream"),
    pytest.param("upstreams:\n  a: {base_url: http://h}\nmodels: [{match: x, upstream: a}]",
                 "config.yaml:2: upstreams.a", "kind", id="no kind"),
    pytest.param("upstreams:\n  a:\n    kind: openai\n    base_url: h:1\nmodels: [{match: x, upstream: a}]",
                 "config.yaml:4: upstreams.a.base_url", "http:// or https://", id="an address without a scheme"),
    pytest.param("upstreams:\n  a: {kind: echo}\nmodels:\n  - match: []\n    upstream: a",
                 "config.yaml:4: models.0.match", "at least 1", id="no glob"),
])  # fmt: skip
def test_so_is_a_mistake_in_what_every_file_needs(tmp_path: Path, text: str, place: str, right: str) -> None:
    is_refused(tmp_path, text, place, right)


@pytest.mark.parametrize(("more", "said"), [
    ("chains: {default: [check_facts: {judge: 0.5}]}", "config.yaml:6: chains.default.0.check_facts: needs a judge"),
    ("chains: {default: [resolve_clashes: {reconcile: open}]}", "chains.default.0.resolve_clashes: needs a judge"),
    ("judge: {modle: a}", "judge.modle: unknown key; did you mean 'model'?"),
    ("records: 0", "config.yaml:6: records: input should be a mapping"),
    ("chains: {default: [compress_history: {summary: written}]}", "needs a model for summaries"),
    ("writer: {model: none}", "config.yaml:6: writer.model: no entry of models matches 'none'"),
])  # fmt: skip
def test_a_step_needs_its_small_model_and_that_its_upstream(tmp_path: Path, more: str, said: str) -> None:
    text = BASE.replace('match: "*"', "match: a")
    assert said in refusal(tmp_path, text + more)


def errors(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    return str(caught.value).replace(f"{tmp_path}/", "").split("\n")


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    assert errors(tmp_path, "") == ["config.yaml: upstreams: field required", "config.yaml: models: field required"]
    text = """modls: []
server:
  prot: 1
  port: "${NOPE}"
  drain: 0
upstreams:
  one: {kind: opnai}
  two: {kind: openai, base_ulr: x}
models:
  - {match: "*", upstrem: one, prices: {inptu: 1}}
chains:
  default:
    - window_histry: {}
    - recall_history: {wiat: 1, timeout: 0}
    - reject_oversize: {share: 95}
"""
    assert errors(tmp_path, text) == [
        "config.yaml:1: modls: unknown key; did you mean 'models'?",
        "config.yaml:3: server.prot: unknown key; did you mean 'port'?",
        "config.yaml:4: server.port: ${NOPE} is not set; set it, or write ${NOPE:-default}",
        "config.yaml:5: server.drain: input should be greater than 0",
        "config.yaml:7: upstreams.one: unknown kind 'opnai'; did you mean 'openai'?",
        "config.yaml:8: upstreams.two.base_ulr: unknown key; did you mean 'base_url'?",
        "config.yaml:10: models.0.prices.inptu: unknown key; did you mean 'input'?",
        "config.yaml:10: models.0.upstrem: unknown key; did you mean 'upstream'?",
        "config.yaml:13: chains.default.0: unknown policy 'window_histry'; did you mean 'window_history'?",
        "config.yaml:14: chains.default.1.recall_history.wiat: unknown key; did you mean 'wait'?",
        "config.yaml:14: chains.default.1.recall_history.timeout: input should be greater than 0",
        "config.yaml:15: chains.default.2.reject_oversize.share: input should be less than or equal to 1; did you mean 0.95?",
    ]


@pytest.mark.parametrize("value", ["1.95", ".inf", ".nan"])
def test_a_share_beyond_the_whole_is_refused(tmp_path: Path, value: str) -> None:
    (told,) = refusal(tmp_path, f"{BASE}chains: {{default: [{{reject_oversize: {{share: {value}}}}}]}}").splitlines()
    assert told.startswith("config.yaml:6: chains.default.0.reject_oversize.share: input should be ")
    assert "did you mean" not in told


def test_every_setting_that_is_a_share_has_an_upper_bound() -> None:
    """By their descriptions: of the configuration file and of every policy."""
    parts = [*json.loads((ROOT / "docs/config.schema.json").read_text())["$defs"].items()]
    parts += [(name, policy_class(name).model_json_schema()) for name in policy_names()]
    fields = [(name, key, each) for name, part in parts for key, each in part.get("properties", {}).items()]
    shares = [
        (f"{name}.{key}", kind.get("maximum", kind.get("exclusiveMaximum")))
        for name, key, each in fields
        for kind in (each, *each.get("anyOf", ()))
        if kind.get("type") == "number" and re.search(r"\bshare\b", each.get("description", ""))
    ]
    assert len(shares) > 20
    assert [each for each in shares if each[1] is None or each[1] > 2] == []


def test_names_that_do_not_exist_are_all_told(tmp_path: Path) -> None:
    text = """upstreams: {echo: {kind: echo}}
models:
  - {match: a, upstream: ehco}
  - {match: b, upstream: echo, chain: defualt, larger: c}
default_upstream: eco
"""
    assert errors(tmp_path, text) == [
        "config.yaml:3: models.0.upstream: there is no 'ehco'; did you mean 'echo'?",
        "config.yaml:4: models.1.chain: there is no 'defualt'; did you mean 'default'?",
        "config.yaml:4: models.1.larger: no entry of models matches 'c'",
        "config.yaml:5: default_upstream: there is no 'eco'; did you mean 'echo'?",
    ]


@pytest.mark.parametrize(("written", "hint"), [("95", "0.95"), ("80%", "0.8"), ("12.5 %", "0.125")])
def test_a_share_in_percent_is_met_with_the_number(tmp_path: Path, written: str, hint: str) -> None:
    said = refusal(tmp_path, BASE + f"chains:\n  default:\n    - compress_history: {{compress_at: {written}}}")

    assert said.endswith(f"; did you mean {hint}?")


@pytest.mark.parametrize(("text", "line", "said"), [
    pytest.param("server:\n\tport: 1", 2, "there is a tab in this line; indent with spaces", id="a tab"),
    pytest.param("server:\n    port: 1\n  host: x", 3, "unlike the block that begins in line 1", id="less"),
    pytest.param("server:\n  port: 1\n    host: x", 3, "check the indentation of this line", id="more"),
    pytest.param("server:\n  port 1\n  host: x", 3, "line 2 has no colon behind its key", id="no colon"),
    pytest.param("a: b: c", 1, "or put the value in quotes", id="two colons"),
    pytest.param("a: 'x\nb: 1", 2, "the quote that opens in line 1 is never closed", id="an open quote"),
    pytest.param("a: {b: 1\nc: 3", 2, "the bracket that opens in line 1 is not closed", id="an open bracket"),
])  # fmt: skip
def test_what_is_no_yaml_is_told_in_words(tmp_path: Path, text: str, line: int, said: str) -> None:
    told = refusal(tmp_path, text)

    assert told.startswith(f"config.yaml:{line}: not valid YAML: ")
    assert said in told


def warnings(tmp_path: Path, text: str) -> list[str]:
    return [each.replace(f"{tmp_path}/", "") for each in loaded(tmp_path, text).warnings]


@pytest.mark.parametrize(("steps", "said"), [
    pytest.param("recall_history, compress_history", "config.yaml:6: chains.default.1.compress_history: it makes the "
                 "conversation shorter, but stands behind 'recall_history', which puts content back: put it in front",
                 id="what cuts behind what brings back"),
    pytest.param("reject_oversize, window_history", "makes the conversation shorter, but stands behind 'reject_oversize', which refuses",
                 id="too late for what was refused"),
    pytest.param("reject_oversize, self_correct", "adds to the prompt, but stands behind 'reject_oversize'", id="what grows behind the bound"),
    pytest.param("mark_cache, reject_oversize", "behind 'mark_cache', which marks", id="behind the marks"),
    pytest.param("pin_context, consolidate_system, pin_context", "the same step stands in this chain already, as number 1", id="twice"),
])  # fmt: skip
def test_an_order_that_undoes_itself_is_warned_of(tmp_path: Path, steps: str, said: str) -> None:
    (told,) = warnings(tmp_path, BASE + f"chains: {{default: [{steps}]}}")

    assert said in told


@pytest.mark.parametrize("steps", [
    "compact_tool_results, compress_history, pin_context, recall_history, offer_recall, reject_oversize, mark_cache",
    "consolidate_system, compress_history",
    "window_history: {when: {models: [a]}}, window_history: {when: {models: [b]}}",
    "recall_history, compress_history: {mode: observe}",
])  # fmt: skip
def test_no_order_is_warned_of_that_has_a_reason(tmp_path: Path, steps: str) -> None:
    assert warnings(tmp_path, BASE + f"chains: {{default: [{steps}]}}") == []


def test_every_chain_of_the_shipped_configuration_is_without_a_warning() -> None:
    assert load(ROOT / "config.yaml", {}).warnings == ()


def test_a_rule_never_reached_and_a_larger_model_that_is_itself_are_warned_of(tmp_path: Path) -> None:
    text = "upstreams: {echo: {kind: echo}}\nmodels:\n  - {match: ['gpt-*', x], upstream: echo}\n"
    text += "  - {match: [gpt-4, other], upstream: echo}\n  - {match: 'o?', upstream: echo}\n  - {match: 'o*', upstream: echo}\n"

    assert warnings(tmp_path, text) == [
        "config.yaml:4: models.1: 'gpt-4' is never reached: 'gpt-*' stands before it, and the first match counts"
    ]
    text = "upstreams: {echo: {kind: echo}}\nmodels:\n  - {match: [a, b], upstream: echo, larger: b}\n"

    (told,) = warnings(tmp_path, text)
    assert told == "config.yaml:3: models.0.larger: 'b' is this entry itself: what is too long stays too long"


@pytest.mark.parametrize(("url", "warned"), [
    ("http://h:8000", True), ("http://h:8000/", True), ("http://h:8000/v1", False), ("https://h/openai", False),
])  # fmt: skip
def test_an_address_without_v1_is_warned_of(tmp_path: Path, url: str, warned: bool) -> None:
    text = f"upstreams: {{one: {{kind: openai, base_url: '{url}'}}}}\nmodels: [{{match: '*', upstream: one}}]\n"

    assert [told.endswith("did you mean 'http://h:8000/v1'?") for told in warnings(tmp_path, text)] == [True] * warned


def test_a_file_that_cannot_be_read_and_a_misspelt_variable_are_told(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(BASE.encode() + b"# \xff")
    for name, told in {"none.yaml": "No such file", "": "Is a directory", "config.yaml": "it is not UTF-8"}.items():
        with pytest.raises(ConfigError, match=f"{name}: cannot be read: {told}"):
            load(tmp_path / name, {})
    for written in ("${NO-PE}", "${}", "a${VAR:default}"):
        with pytest.raises(ConfigError, match=r"a variable is written \$\{NAME\}"):
            loaded(tmp_path, BASE + f"default_upstream: '{written}'\n")
