"""`penstock new-policy`: a policy of the operator's own, its test, and the package around them."""

import argparse
import re
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from string import Template

from proxy.chat.errors import ConfigError


def write_policy(options: argparse.Namespace) -> None:
    """Write the files of a new policy. Raise `ConfigError` for a name that is none, and where a file exists."""
    *folders, last = parts = options.name.split(".")
    here = not folders and Path("tests/policies").is_dir()  # in a checkout of Penstock
    are_modules = all(re.fullmatch("[a-z][a-z0-9_]*", each) and not iskeyword(each) for each in parts)
    if not are_modules or not (folders or here):
        raise ConfigError(f"{options.name!r} is not a valid policy name; write it like my_company.redact_names")
    module = f"policies.{last}" if here else options.name
    folder = Path(*module.split(".")[:-1])
    names = {
        "name": options.name,
        "module": module,
        "class": "".join(part.capitalize() for part in last.split("_")),
        "top": module.partition(".")[0],
        "project": options.name.replace(".", "-").replace("_", "-"),
    }
    paths = {"policy": folder / f"{last}.py", "test": ("tests" if here else ".") / folder / f"test_{last}.py"}
    if options.package:
        paths |= {
            "pyproject": Path("pyproject.toml"),
            "config": Path("config.yaml"),
            "conversations": Path("conversations.jsonl"),
            "workflow": Path(".github/workflows/checks.yml"),
        }
    for path in paths.values():
        if path.exists():
            raise ConfigError(f"{path} exists already")
    for template, path in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        text = files("proxy").joinpath(f"data/new_policy/{template}.txt").read_text(encoding="utf-8")
        path.write_text(Template(text).substitute(names), encoding="utf-8")
    print(f"created {', '.join(map(str, paths.values()))}; run the test: python -m pytest {paths['test']}")
    print(f"add it to a chain of the configuration: - {options.name}: {{}}")
