import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from proxy.config.load import policy_class, policy_names
from proxy.server.reference import config_markdown, config_schema

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads(config_schema())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
page_of = cache(config_markdown)


@pytest.mark.parametrize(
    ("path", "made"), [("docs/config.schema.json", config_schema), ("docs/configuration.md", page_of)]
)
def test_the_committed_reference_is_in_step_with_the_classes(path: str, made: Any) -> None:
    assert (ROOT / path).read_text() == made(), "run `make docs`"


def test_the_schema_is_one_that_the_shipped_file_names_for_editors() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    first = (ROOT / "config.yaml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=./docs/config.schema.json"


@pytest.mark.parametrize("path", ["config.yaml", "benchmarks/eval.yaml"])
def test_the_shipped_files_fit_the_schema(path: str) -> None:
    VALIDATOR.validate(yaml.safe_load((ROOT / path).read_text()))


@pytest.mark.parametrize("change", [
    pytest.param({"version": 2}, id="another version"),
    pytest.param({"chains": {"default": [{"window_histry": {}}]}}, id="an unknown policy"),
    pytest.param({"chains": {"default": [{"window_history": {"keep": 1}}]}}, id="an unknown setting"),
    pytest.param({"server": {"port": "many"}}, id="a port that is no number"),
    pytest.param({"upstreams": {"x": {"kind": "telepathy"}}}, id="an unknown kind"),
    pytest.param({"servr": {}}, id="an unknown section"),
])  # fmt: skip
def test_the_schema_refuses_what_the_loader_refuses(change: dict[str, Any]) -> None:
    data = yaml.safe_load((ROOT / "config.yaml").read_text()) | change
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(data)


def test_every_policy_and_setting_is_described() -> None:
    page = page_of()
    for name in SCHEMA["properties"].keys() - {"version", "default_upstream", "chains"}:
        assert f"\n## {name}" in page
    for name in policy_names():
        assert f"\n## {name}\n" in page
        for field in policy_class(name).model_fields:
            assert f"\n- `{field}` (" in page
    assert re.findall(r"(?m)^- `(\w+)` \([^)]*\):? *$", page) == []
