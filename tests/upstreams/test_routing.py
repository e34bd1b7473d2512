"""The table of models."""

from typing import Any

import pytest

from proxy.chat.errors import NotFound
from proxy.config.settings import ModelSettings, Settings
from proxy.context import ModelProfile
from proxy.testing import profile
from proxy.upstreams.base import Upstream
from proxy.upstreams.echo import Echo
from proxy.upstreams.routing import Routes

ONE, TWO = Echo("one"), Echo("two")


def profile_of(name: str, entry: ModelSettings, upstream: Upstream) -> ModelProfile:
    return profile(name=name, window=entry.window or 1000)


def routes(*models: dict[str, Any], **fields: Any) -> Routes:
    settings = Settings.model_validate(
        {"upstreams": {"one": {"kind": "echo"}, "two": {"kind": "echo"}}, "models": models, **fields}
    )
    return Routes(settings, {"one": ONE, "two": TWO}, profile_of)


TABLE = (
    {"match": "fast", "upstream": "two", "model": "org/real-name", "chain": "small", "window": 4096},
    {"match": ["gpt-5", "gpt-*"], "upstream": "one"},
    {"match": "gpt-4", "upstream": "two"},
    {"match": "*:latest", "upstream": "two", "chain": "local"},
    {"match": "[ab]?", "upstream": "one", "model": "letters"},
)


@pytest.mark.parametrize(("model", "upstream", "chain", "sent", "label"), [
    pytest.param("fast", TWO, "small", "org/real-name", "fast", id="an alias has another name upstream"),
    pytest.param("gpt-5", ONE, "default", "gpt-5", "gpt-5", id="a name in full"),
    pytest.param("gpt-5-mini", ONE, "default", "gpt-5-mini", "gpt-*", id="a glob, which is the label"),
    pytest.param("gpt-4", ONE, "default", "gpt-4", "gpt-*", id="the first entry that matches wins"),
    pytest.param("org/m:latest", TWO, "local", "org/m:latest", "*:latest", id="slashes are letters like others"),
    pytest.param("ax", ONE, "default", "letters", "[ab]?", id="sets and question marks"),
])  # fmt: skip
def test_where_a_model_goes(model: str, upstream: Upstream, chain: str, sent: str, label: str) -> None:
    route = routes(*TABLE).of(model)

    assert route.upstream is upstream
    assert (route.chain, route.model, route.label) == (chain, sent, label)
    assert (route.profile.name, route.profile.window) == (sent, 4096 if model == "fast" else 1000)
    assert label in route.settings.match


@pytest.mark.parametrize("model", ["GPT-5", "fast ", "xgpt-5", "c1", "m", "openai/gpt-5", "x" * 100_000])
def test_an_unknown_model_is_not_found(model: str) -> None:
    with pytest.raises(NotFound) as caught:
        routes(*TABLE).of(model)

    told = f"The model `{model[:200]}` does not exist or you do not have access to it. No entry of `models`"
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")
    assert caught.value.message.startswith(told)


def test_the_names_that_clients_choose_are_not_kept_for_ever() -> None:
    looked_up: list[str] = []

    def counted(name: str, entry: ModelSettings, upstream: Upstream) -> ModelProfile:
        looked_up.append(name)
        return profile(name=name)

    settings = Settings.model_validate(
        {"upstreams": {"one": {"kind": "echo"}}, "models": [{"match": "*", "upstream": "one"}]}
    )
    table = Routes(settings, {"one": ONE}, counted)

    for number in range(10_000):
        assert table.of(f"m{number}") is table.of(f"m{number}")
    table.of("m0")

    assert looked_up.count("m0") == 2
    assert len(looked_up) == 10_001


@pytest.mark.parametrize(("model", "upstream", "serves"), [
    pytest.param("gpt-5", ONE, True, id="under its own name"),
    pytest.param("gpt-5", TWO, False, id="another upstream"),
    pytest.param("fast", TWO, False, id="an alias is not the upstream's name"),
    pytest.param("nobody", ONE, False, id="an unknown model"),
])  # fmt: skip
def test_whether_an_upstream_serves_a_model(model: str, upstream: Upstream, serves: bool) -> None:
    assert routes(*TABLE).serves(model, upstream) is serves


def test_names_in_full_are_listed_and_paths_without_a_model_go_to_the_default_upstream() -> None:
    assert routes(*TABLE).names() == ["fast", "gpt-5", "gpt-4"]
    assert routes(*TABLE).unnamed({}) is ONE
    assert routes(*TABLE, default_upstream="two").unnamed({}) is TWO
    assert routes(*TABLE).upstreams == (ONE, TWO)
