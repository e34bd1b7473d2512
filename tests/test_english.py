"""Plain English by lint: docstrings, comments and names of the code."""

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(path for folder in ("proxy", "policies", "benchmarks") for path in ROOT.glob(f"{folder}/**/*.py"))

INDIRECT = re.compile(r"[\W_]*(What|Whether|Who|Whoever|How|That|Those|Of which)\b")
VAGUE = frozenset({"told", "said", "found", "made", "given", "held", "left", "kept", "taken", "some", "what"})
LIFE = 5
"""Lines within which a variable may have a vague name."""


def faults(source: str) -> Iterator[str]:
    """Yield the faults of a module, each with its line."""
    yield from _docstrings(tree := ast.parse(source))
    yield from _names(tree)
    for token in tokenize.generate_tokens(iter(source.splitlines(keepends=True)).__next__):
        if token.type == tokenize.COMMENT and INDIRECT.match(token.string):
            yield f"{token.start[0]}: indirect comment: {token.string}"


def _docstrings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))) if INDIRECT.match(text):
                yield f"{node.lineno}: indirect docstring: {text.splitlines()[0]}"


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef():
                yield from _fields(node)
            case ast.Attribute(attr=name, ctx=ast.Store()) if name.lstrip("_") in VAGUE:
                yield f"{node.lineno}: vague attribute: {name}"
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _of_function(node)


def _of_function(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    if function.name.lstrip("_") in VAGUE:
        yield f"{function.lineno}: vague function: {function.name}"
    names = function.args
    for arg in (*names.posonlyargs, *names.args, *names.kwonlyargs):
        if arg.arg in VAGUE:
            yield f"{arg.lineno}: vague parameter: {arg.arg}"
    lines: dict[str, list[int]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id in VAGUE:
            lines.setdefault(node.id, []).append(node.lineno)
    for name, places in lines.items():
        if max(places) - min(places) > LIFE:
            yield f"{min(places)}: vague variable: {name}"


def _fields(kind: ast.ClassDef) -> Iterator[str]:
    for node in kind.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)) if name.lstrip("_") in VAGUE:
                yield f"{node.lineno}: vague field: {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_reads_as_plain_english(path: Path) -> None:
    assert [*faults(path.read_text())] == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ('"""What a thing is."""', "1: indirect docstring: What a thing is."),
        ('class A:\n    x: int\n    """Whether it is."""', "3: indirect docstring: Whether it is."),
        ("x = 1  # how it is made", None),
        ("x = 1  # How it is made", "1: indirect comment: # How it is made"),
        ("def f(found: int) -> int: ...", "1: vague parameter: found"),
        ("def _said() -> str: ...", "1: vague function: _said"),
        ("def f():\n    found = 1\n    return found", None),
        ("def f():\n    found = 1\n" + "    g()\n" * 6 + "    return found", "2: vague variable: found"),
        ("class A:\n    told: str", "2: vague field: told"),
        ("def f(self):\n    self._held = 1", "2: vague attribute: _held"),
        ('def f():\n    """Return what is left."""', None),
    ],
)
def test_faults_name_the_line_of_an_indirect_text_or_a_vague_name(source: str, fault: str | None) -> None:
    assert [*faults(source)] == ([] if fault is None else [fault])
