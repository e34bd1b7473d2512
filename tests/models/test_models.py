"""What is known about models: configuration over litellm's list over our own table."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from proxy.config.settings import ModelSettings
from proxy.context import CacheRules, Prices
from proxy.models import Models, PriceList, with_window
from proxy.models.families import canonical
from proxy.testing import chat

TABLE = Models(PriceList(None))


def settings(**given: Any) -> ModelSettings:
    return ModelSettings(match=("*",), upstream="u", **given)


def listing(tmp_path: Path, **entries: Any) -> Models:
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"sample_spec": {"max_input_tokens": "text", "mode": "one of"}, **entries}))
    return Models(PriceList(path))


@pytest.mark.parametrize(("name", "window", "max_output", "encoding", "source"), [
    ("gpt-3.5-turbo", 16385, 4096, "cl100k_base", "table"),
    ("azure/gpt-35-turbo", 16385, 4096, "cl100k_base", "table"),
    ("gpt-4o", 128_000, 16384, "o200k_base", "table"),
    ("openai/gpt-4o-mini-2024-07-18", 128_000, 16384, "o200k_base", "table"),
    ("ft:gpt-4o-mini-2024-07-18:acme::abc", 128_000, 16384, "o200k_base", "table"),
    ("gpt-oss:20b", 131_072, 131_072, "o200k_base", "table"),
    ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", 200_000, 8192, "o200k_base", "table"),
    ("claude-3-5-sonnet@20240620", 200_000, 8192, "o200k_base", "table"),
    ("openrouter/anthropic/claude-opus-5", 1_000_000, 128_000, "o200k_base", "table"),
    ("gemini/gemini-2.5-flash", 1_114_112, 65536, "o200k_base", "table"),
    ("qwen3:8b", 40_960, 32768, "o200k_base", "table"),
    ("no-such-model", 128_000, 65536, "o200k_base", "default"),
    ("", 128_000, 65536, "o200k_base", "default"),
])  # fmt: skip
def test_the_table(name: str, window: int, max_output: int, encoding: str, source: str) -> None:
    found = TABLE.resolve(name)
    assert (found.name, found.window, found.max_output) == (name, window, max_output)
    assert (found.encoding, found.source) == (encoding, source)


def test_every_line_of_the_table_can_be_reached_and_fits_together() -> None:
    for row in TABLE.table.models:
        found = TABLE.resolve(row.match[0].rstrip("*"))
        known = (row.window, row.max_output, Prices(*row.prices, *(row.above or ())))
        assert (found.window, found.max_output, found.prices) == known, f"an earlier line hides {row.match[0]}"
        assert 0 < found.reserve < found.window
        assert found.exact is (row.exact and row.factor == 1.0)
        assert found.source == "table"


@pytest.mark.parametrize(("name", "rules"), [
    ("gpt-4", CacheRules()),
    ("gpt-4o", CacheRules(0.5, 1.0, 1024, 600, keyed=True)),
    ("gpt-5.6-terra", CacheRules(0.1, 1.25, 1024, 1800, keyed=True)),
    ("claude-opus-5", CacheRules(0.1, 1.25, 512, 300, marked=True)),
    ("claude-opus-5-5", CacheRules(0.05, 1.25, 512, 300, marked=True)),
    ("gemini-2.5-pro", CacheRules(0.1, 1.0, 2048, 3600)),
    ("no-such-model", CacheRules()),
])  # fmt: skip
def test_cache_rules(name: str, rules: CacheRules) -> None:
    assert TABLE.resolve(name).cache == rules


@pytest.mark.parametrize(("name", "wanted", "usable"), [
    pytest.param("gpt-4o", None, 128_000 - 4096, id="an ordinary answer is kept free"),
    pytest.param("gpt-4o", 1000, 127_000, id="what the client wants is kept free"),
    pytest.param("gpt-4o", 10**6, 128_000 - 16_000, id="but no more than an eighth of the window"),
    pytest.param("gpt-5", None, 272_000, id="the prompt has a limit of its own"),
    pytest.param("o3", None, 175_000, id="a reasoning model thinks first"),
    pytest.param("gemini-2.5-pro", 65536, 1_048_576, id="input and output apart"),
    pytest.param("gpt-4", None, 8192 - 819, id="a tenth of a small window"),
])  # fmt: skip
def test_usable(name: str, wanted: int | None, usable: int) -> None:
    rest: dict[str, Any] = {} if wanted is None else {"max_completion_tokens": wanted}
    assert TABLE.resolve(name).usable(chat("u1", **rest)) == usable


def entry(limit: Any, output: Any, mode: str = "chat", **more: Any) -> dict[str, Any]:
    return {"max_input_tokens": limit, "max_output_tokens": output, "max_tokens": 1, "mode": mode, **more}


@pytest.mark.parametrize(("name", "listed", "window", "max_output", "max_input"), [
    pytest.param("gpt-4o", entry(200_000, 20_000), 200_000, 20_000, None, id="the whole window"),
    pytest.param("gpt-5", entry(300_000, 100_000), 400_000, 100_000, 300_000, id="the prompt's limit"),
    pytest.param("gpt-5.4", entry(1_050_000, 128_000), 1_050_000, 128_000, 922_000, id="the whole, limit known"),
    pytest.param("gpt-5-pro", entry(128_000, 272_000), 400_000, 128_000, 272_000, id="figures the wrong way round"),
    pytest.param("new", entry(64_000, 8_000), 64_000, 8_000, None, id="a model that only the list has"),
    pytest.param("new", entry(2e6, 2e6), 2_000_000, 2_000_000, None, id="floats"),
    pytest.param("gpt-4o", entry(9, 9, mode="embedding"), 128_000, 16384, None, id="not a chat model"),
    pytest.param("gpt-4o", {"mode": "chat"}, 128_000, 16384, None, id="no figures"),
    pytest.param("gpt-4o", ["odd"], 128_000, 16384, None, id="no object"),
])  # fmt: skip
def test_the_list_over_the_table(
    name: str, listed: Any, window: int, max_output: int, max_input: int | None, tmp_path: Path
) -> None:
    found = listing(tmp_path, **{name: listed}).resolve(name)
    assert (found.window, found.max_output) == (window, max_output)
    assert found.max_input == max_input


def test_prices_and_cache_rules_of_the_list(tmp_path: Path) -> None:
    costs: dict[str, Any] = {"input_cost_per_token": 2e-6, "output_cost_per_token": 8e-6}
    costs["cache_read_input_token_cost"] = 2e-7
    new = entry(1, 1, **costs, cache_creation_input_token_cost=2.5e-6)
    free = entry(1, 1, input_cost_per_token=0.0, output_cost_per_token=0.0)
    models = listing(tmp_path, **{"gpt-4o": entry(1, 1, **costs), "new": new, "free": free})
    assert models.resolve("gpt-4o").prices == Prices(2, 8)
    assert models.resolve("gpt-4o").cache == CacheRules(0.1, 1.0, 1024, 600, keyed=True)
    assert models.resolve("new").cache == CacheRules(0.1, 1.25, 1024, 300)
    assert models.resolve("free").cache == CacheRules()
    assert models.resolve("gpt-4o").source == "litellm"


@pytest.mark.parametrize("name", ["gpt-4o-2024-08-06", "openai/gpt-4o", "GPT-4o", "gpt-4o-latest"])
def test_spellings_find_the_listed_model(name: str, tmp_path: Path) -> None:
    assert listing(tmp_path, **{"gpt-4o": entry(777_777, 7)}).resolve(name).window == 777_777


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 1'])
def test_a_damaged_list_is_no_list(content: str, tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(content)
    assert Models(PriceList(tmp_path / "list.json")).resolve("gpt-4o") == TABLE.resolve("gpt-4o")
    assert Models(PriceList(tmp_path / "absent.json")).resolve("gpt-4o") == TABLE.resolve("gpt-4o")


def test_the_installed_list_is_read_without_importing_litellm() -> None:
    models, before = Models(), "litellm" in sys.modules
    assert models.resolve("gpt-4o").window == 128_000
    assert models.resolve("sample_spec").source == "default"
    assert ("litellm" in sys.modules) is before


@pytest.mark.parametrize(
    "name", ["gpt-5", "gpt-5.4", "gpt-5.5", "claude-sonnet-4-5", "gemini-2.5-pro", "o3", "gpt-4.1"]
)
def test_the_installed_list_and_the_table_agree(name: str) -> None:
    listed, tabled = Models().resolve(name), TABLE.resolve(name)
    assert listed.window == pytest.approx(tabled.window, abs=1)
    assert listed.usable(chat("u1")) == tabled.usable(chat("u1"))
    assert listed.cache == tabled.cache


@pytest.mark.parametrize(("given", "expected"), [
    pytest.param({"window": 50_000}, {"window": 50_000, "max_output": 16384, "source": "config"}, id="window"),
    pytest.param({"max_output": 99}, {"max_output": 99, "reserve": 99, "source": "config"}, id="answer"),
    pytest.param({"reserve": 0}, {"reserve": 0}, id="no reserve"),
    pytest.param({"window": 100, "reserve": 500}, {"reserve": 99}, id="a reserve that leaves something"),
    pytest.param({"tokenizer": "chars"}, {"encoding": "chars", "factor": 1.0, "exact": False}, id="tokenizer"),
    pytest.param({"tokenizer": "o200k_base"}, {"factor": 1.0, "exact": True}, id="the same tokenizer"),
    pytest.param({"factor": 1.3}, {"encoding": "o200k_base", "factor": 1.3, "exact": False}, id="factor"),
    pytest.param({"prices": {"input": 1, "output": 2}}, {"prices": Prices(1, 2)}, id="prices"),
    pytest.param({"cache": {"read": 0.2, "ttl": 9}}, {"cache": CacheRules(0.2, 1.0, 0, 9)}, id="cache"),
    pytest.param({"num_ctx": 9}, {"window": 128_000, "source": "table"}, id="num_ctx is Ollama's"),
])  # fmt: skip
def test_configuration_over_everything(given: dict[str, Any], expected: dict[str, Any]) -> None:
    found = TABLE.resolve("gpt-4o", settings(**given))
    assert {key: getattr(found, key) for key in expected} == expected


def test_a_configured_window_and_step_are_the_whole_truth(tmp_path: Path) -> None:
    listed = listing(tmp_path, **{"gpt-4o": entry(200_000, 20_000)}).resolve("gpt-4o", settings(window=10_000))
    assert (listed.window, listed.max_output, listed.source) == (10_000, 10_000, "config")
    tabled = TABLE.resolve("gpt-5", settings(window=8000))
    assert (tabled.window, tabled.max_input, tabled.reserve) == (8000, None, 800)
    prices = {"input": 1, "output": 2, "above": 1000, "input_above": 3, "output_above": 4}
    assert TABLE.resolve("gpt-4o", settings(prices=prices)).prices.at(1001) == Prices(3, 4)


@pytest.mark.parametrize(("given", "window", "source"), [
    ({}, 4096, "default"), ({"window": 9000}, 9000, "config"), ({"num_ctx": 8000, "window": 9000}, 8000, "config"),
])  # fmt: skip
def test_ollama_runs_models_with_its_own_window(given: dict[str, Any], window: int, source: str) -> None:
    found = TABLE.resolve("qwen3:8b", settings(**given), ollama=True)
    assert (found.window, found.max_output, found.source) == (window, window, source)
    assert (found.encoding, found.factor, found.prices) == ("o200k_base", 1.05, Prices())


def test_a_window_that_was_found_out() -> None:
    guessed = TABLE.resolve("qwen3:8b", settings(prices={"input": 1}), ollama=True)
    found = with_window(guessed, 32768, "ollama")
    assert (found.window, found.max_output, found.reserve, found.source) == (32768, 32768, 3276, "ollama")
    assert found.prices == guessed.prices
    chosen = with_window(TABLE.resolve("qwen3:8b", settings(reserve=100), ollama=True), 32768, "ollama")
    assert chosen.reserve == 100


@pytest.mark.parametrize(("name", "bare"), [
    (" OpenAI/GPT-4o ", "gpt-4o"),
    ("qwen3:8b", "qwen3-8b"),
    ("ft:gpt-4o:acme::x", "gpt-4o"),
    ("ft:", ""),
    ("eu.anthropic.claude-opus-4-1-20250805-v1:0", "claude-opus-4-1-20250805"),
    ("deepseek.v3-v1:0", "deepseek-v3"),
    ("", ""),
])  # fmt: skip
def test_canonical_names(name: str, bare: str) -> None:
    assert canonical(name) == bare


def test_what_counts_for_the_models_of_a_configuration() -> None:
    entries: list[dict[str, Any]] = [
        {"match": ["gpt-4", "*"]},
        {"match": "mine", "tokenizer": "chars"},
        {"match": "alias", "model": "gpt-4"},
    ]
    made = [ModelSettings.model_validate({"upstream": "main", **each}) for each in entries]
    assert TABLE.encodings(made) == {"cl100k_base", "o200k_base", "chars"}
    assert TABLE.encodings(made[1:2]) == {"chars"}
    assert TABLE.encodings([]) == frozenset()


@pytest.mark.parametrize(("name", "prompt", "prices"), [
    ("gemini-2.5-pro", 200_000, (1.25, 10)),
    ("gemini-2.5-pro", 200_001, (2.5, 15)),
    ("gpt-5.4", 272_001, (5, 22.5)),
    ("gpt-5.5-2026-04-23", 300_000, (10, 45)),
    ("gpt-4o", 10**6, (2.5, 10)),
])  # fmt: skip
@pytest.mark.parametrize("models", [TABLE, Models()], ids=["table", "installed list"])
def test_prompts_above_a_step_cost_more(models: Models, name: str, prompt: int, prices: tuple[float, float]) -> None:
    found = models.resolve(name).prices.at(prompt)
    assert (found.input, found.output) == prices


def test_names_that_clients_make_up_do_not_pile_up() -> None:
    models = Models(PriceList(None))
    for index in range(10_000):
        models.resolve(f"made-up-{index}")
    assert models._known.cache_info().currsize <= 4096
    assert models.resolve("gpt-4o") is models.resolve("gpt-4o")


@pytest.mark.parametrize(("name", "bound"), [
    ("claude-3-7-sonnet-20250219", False),
    ("anthropic/claude-opus-4-8", False),
    ("claude-opus-5", False),
    ("claude-sonnet-5-5", True),
    ("us.anthropic.claude-opus-5-5-20260801-v1:0", True),
    ("gpt-4o", False),
    ("a-model-that-nobody-knows", True),
    ("qwen3-32b", False),
])  # fmt: skip
def test_reasoning_is_bound_from_a_version_on(name: str, *, bound: bool) -> None:
    assert TABLE.resolve(name).binds_reasoning is bound
    assert not TABLE.resolve(name, ollama=True).binds_reasoning
    assert TABLE.resolve(name, settings(binds_reasoning=not bound)).binds_reasoning is not bound
