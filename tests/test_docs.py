"""The pages are true: links lead somewhere, lists are complete, and what they show can be run."""

import ast
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.__main__ import _parser, main
from proxy.config.load import load

ROOT = Path(__file__).parent.parent
CHART = ROOT / "helm/penstock/README.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), CHART])


def text_of(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def blocks(language: str) -> list[Any]:
    """The fenced blocks of a language in all pages, with their page."""
    found = []
    for page in PAGES:
        if page == CHART and language == "yaml":  # values, which tests/helm checks
            continue
        for place, text in enumerate(re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.M)):
            found.append(pytest.param(text, id=f"{page.relative_to(ROOT)}-{place}"))
    return found


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    plain = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.M)
    headings = re.findall(r"^#+ (.*)$", plain, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    wrong = []
    for link in re.findall(r"\]\(((?!https?:)[^)\s]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert wrong == []


def test_the_index_links_every_page_and_code_names_only_pages_that_exist() -> None:
    index = text_of("README.md")
    pages = [str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")]
    assert [page for page in pages if page != "README.md" and f"]({page})" not in index] == []
    files = [ROOT / name for name in ("Dockerfile", "Makefile", "config.yaml", "compose.yaml", "pyproject.toml")]
    files += [path for folder in ("proxy", "policies", "helm", "benchmarks") for path in (ROOT / folder).rglob("*.*")]
    texts = {path: path.read_text() for path in files if path.suffix in {"", ".py", ".md", ".yaml", ".toml", ".txt"}}
    named = {
        (str(path.relative_to(ROOT)), page) for path in texts for page in re.findall(r"docs/[\w/-]+\.md", texts[path])
    }
    assert [each for each in named if not (ROOT / each[1]).exists()] == []


def test_the_table_of_policies_is_complete() -> None:
    folder = ROOT / "policies"
    names = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", text_of("policies.md"), re.M)
    assert sorted(name for name, _ in rows) == sorted(names - {"__init__"})
    steps = load(ROOT / "config.yaml").settings.chains["default"]
    assert {name for name, default in rows if default == "yes"} == {name for name, _ in steps}


def test_every_error_code_is_documented() -> None:
    rows = set(re.findall(r"^- `(\w+)` \([\dx, ]+\): ", text_of("troubleshooting.md"), re.M))
    sources = [path.read_text() for folder in ("proxy", "policies") for path in (ROOT / folder).rglob("*.py")]
    types = {"invalid_request_error", "server_error"}
    assert len(rows) > 60
    assert sorted(codes([ast.parse(source) for source in sources]) - types - rows) == []
    assert [code for code in rows if not any(f'"{code}"' in source for source in sources)] == []


def codes(trees: list[ast.Module]) -> set[str]:
    """Every text in the code that looks like an error's code, where an error is made."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.Call, ast.keyword, ast.Assign, ast.AnnAssign)
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, kinds)]
    makers = {"error_body", "Reject", "PenstockError", "_refuse"}
    for _ in range(3):  # classes of classes, functions that return them
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
        makers |= {node.name for node in classes if {ast.unparse(base) for base in node.bases} & makers}
        makers |= {node.name for node in nodes if isinstance(node, ast.FunctionDef) and returned(node) in makers}
    texts = [part for node in nodes for value in values(node, makers) for part in ast.walk(value)]
    named = {part.value for part in texts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    return {name for name in named if re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", name)}


def returned(node: ast.FunctionDef) -> str:
    return ast.unparse(node.returns).partition(" |")[0] if node.returns is not None else ""


def values(node: ast.AST, makers: set[str]) -> list[ast.expr]:
    """The expressions in a node that may hold a code."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in makers:
        return [each for each in node.args if isinstance(each, ast.Constant | ast.IfExp)]
    if isinstance(node, ast.keyword) and node.arg == "code":
        return [node.value]
    if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant | ast.IfExp | ast.Tuple):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [node.value] if any(re.search(r"\bcode\b", ast.unparse(each)) for each in targets) else []
    return []


@pytest.mark.parametrize("text", blocks("yaml"))
def test_yaml_is_a_configuration_that_loads(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(re.findall(r"\$\{(\w+)\}", text)):
        monkeypatch.setenv(name, "a" * 32)
    (tmp_path / "secret").write_text("a" * 32)
    text = re.sub(r"\$\{file:[^}]+\}", f"${{file:{tmp_path / 'secret'}}}", text)
    (tmp_path / "facts.txt").write_text("The capital of Australia is Canberra.\n")
    (tmp_path / "keys.yaml").write_text("keys: []\n")
    shown, whole = yaml.safe_load(text), yaml.safe_load((ROOT / "config.yaml").read_text())
    whole["upstreams"]["anthropic"]["api_key"] = whole["upstreams"]["openai"]["api_key"] = "a" * 32
    whole["upstreams"]["ollama"]["api_key"] = "a" * 32
    whole["judge"] = {"model": "echo-judge"}
    if isinstance(shown, list):
        shown = {"chains": {"default": shown}}
    if "keys" in shown:  # a file of keys
        shown = {"auth": {"kind": "keys", **shown}}
    for name, value in shown.items():
        if isinstance(value, dict) and name in ("upstreams", "chains"):
            whole[name].update(value)
        else:
            whole[name] = [*value, *whole[name]] if name == "models" else value
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(whole))
    load(path)


@pytest.mark.parametrize("text", blocks("json"))
def test_json_is_json(text: str) -> None:
    json.loads(text)


@pytest.mark.parametrize("text", blocks("python"))
def test_python_compiles(text: str) -> None:
    compile(text, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("text", blocks("sh"))
def test_commands_exist(text: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0].endswith("penstock"):
            _parser().parse_args(words[1:])
        elif words and words[0] == "make":
            assert [word for word in words[1:] if "=" not in word and word not in targets] == []
        elif words[:1] == ["curl"] and "-d" in words:  # else curl says that it is a form, which is refused
            assert "content-type: application/json" in map(str.lower, words)


def test_benchmarks_exist() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"\bbenchmarks\.([a-z_]+)", page.read_text())}
    assert len(named) > 5
    assert {name for name in named if not (ROOT / "benchmarks" / f"{name}.py").exists()} == set()


def test_the_tutorial_shows_what_new_policy_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new-policy", "my_company.policies.shorten_results"]) == 0
    page = text_of("writing-a-policy.md")
    assert (tmp_path / "my_company/policies/shorten_results.py").read_text() in page
