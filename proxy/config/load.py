"""Loads `config.yaml` into `Settings`: strict checks, and errors that name file, line and the right form."""

import importlib
import inspect
import os
import pkgutil
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from proxy.chat.errors import ConfigError
from proxy.config.checks import doubts, suggest, unknown_names, wrong_access, wrong_keys
from proxy.config.document import Document, Place, Sources, hash_of
from proxy.config.settings import KeysAuth, KeySettings, KeysFile, Settings, classes_of
from proxy.policy import Guard, Policy, ReadsFiles


@dataclass(frozen=True, slots=True)
class Config:
    """A valid configuration, and its origin."""

    settings: Settings
    path: Path
    version: str
    """A hash of the file's text and of the files that it names. Equal files have equal versions on all replicas."""
    files: Mapping[Path, str] = field(default_factory=dict, repr=False)
    """The files that were read, with the hash of each; empty for one that could not be read."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    warnings: tuple[str, ...] = ()
    text: str = field(default="", repr=False)
    """The file's text. It may hold secrets."""

    def again(self) -> "Config":
        """Load the same file as it is now. Raise `ConfigError`."""
        return load(self.path, self.environment)


def load(path: Path, environment: Mapping[str, str] = os.environ) -> Config:
    """Read a configuration file, fill in its variables and check it. Raise `ConfigError`."""
    sources = Sources(environment)
    try:
        return _loaded(path, sources.read(path), sources)
    except ConfigError as error:
        error.files = sources.files
        raise


def check(text: str, running: Config) -> tuple[list[str], list[str]]:
    """Return errors and warnings of a text that would replace the running file; it reads and imports nothing new."""
    sources = _within(running)
    try:
        found, errors = _loaded(running.path, text, sources).warnings, False
    except ConfigError as error:
        found, errors = tuple(str(error).split("\n")), True
    lines = [_masked(line.replace(str(running.path), running.path.name), sources) for line in found]
    return (lines, []) if errors else ([], lines)


def read_chain(text: str, running: Config) -> tuple[tuple[str, Policy], ...]:
    """Return the steps of a chain that is only tried, from its YAML, as `check` does. Raise `ConfigError`."""
    path, sources = running.path.with_name("chain"), _within(running)
    try:
        document = Document(path, text, sources, settled=False)
        steps = _chain(document, (), document.data or [])
        document.settle()
        return steps
    except ConfigError as error:
        raise ConfigError(_masked(str(error).replace(str(path), path.name), sources)) from None


def _within(running: Config) -> Sources:
    """Return the sources that a text has which is not in force."""
    policies = {name for steps in running.settings.chains.values() for name, _ in steps}
    return Sources(running.environment, running.files, policies)


def _masked(line: str, sources: Sources) -> str:
    for value, written in sources.values.items():
        line = line.replace(value, written)
    return line


def hashes(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the present hashes of files, as in `Config.files`. Read them all: call it in a thread."""
    result = {}
    for path in paths:
        try:
            result[path] = hash_of(path.read_bytes())
        except OSError:
            result[path] = ""
    return result


def _loaded(path: Path, text: str, sources: Sources) -> Config:
    document = Document(path, text, sources, settled=False)
    settings = _validated(document)
    document.add_all(unknown_names(settings))
    for policy in [policy for steps in settings.chains.values() for _, policy in steps]:
        for file in policy.files if isinstance(policy, ReadsFiles) else ():
            if file not in sources.files:
                sources.read(file)
    if isinstance(settings.auth, KeysAuth):
        settings = _with_keys(document, settings, settings.auth)
    document.settle()
    warnings = tuple(str(document.error(place, told)) for place, told in doubts(settings))
    version = sources.version.hexdigest()[:12]
    return Config(settings, path, version, sources.files, sources.environment, warnings, text)


def _with_keys(document: Document, settings: Settings, auth: KeysAuth) -> Settings:
    document.add_all(wrong_access(settings, auth))
    document.settle()
    if auth.file is None:
        return settings
    path = document.path.parent / Path(auth.file).expanduser()
    listed = Document(path, document.sources.read(path), document.sources)
    further = keys_of(listed)
    listed.add_all(wrong_keys(("keys",), settings, further, auth.keys))
    listed.settle()
    auth = auth.model_copy(update={"keys": (*auth.keys, *further)})
    return settings.model_copy(update={"auth": auth})


def keys_of(listed: Document) -> tuple[KeySettings, ...]:
    """Return the keys of a file of keys. Raise `ConfigError`."""
    try:
        return KeysFile.model_validate(listed.data).keys
    except ValidationError as error:
        add_mistakes(listed, (), error, KeysFile)
        listed.settle()
        raise


def policy_names() -> list[str]:
    """Return the names of the policies that come with Penstock."""
    package = importlib.import_module("policies")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def policy_class(name: str, folder: Path | None = None) -> type[Policy]:
    """Return a policy's class by its name: in `policies/`, an entry point, or a module's path. Raise `LookupError`."""
    known = policy_names()
    if name in known:
        return _only_policy(name, importlib.import_module(f"policies.{name}"))
    installed = {each.name: each for each in entry_points(group="penstock.policies") if "." in each.name}
    if "." not in name:
        raise LookupError(f"unknown policy {name!r}; {suggest(name, [*known, *installed])}")
    try:
        policy = installed[name].load() if name in installed else _imported(name, folder)
    except Exception as error:  # the module is the operator's own, and may fail in any way
        reason = " ".join(str(error).split())
        kind = "" if isinstance(error, ImportError) else f"{type(error).__name__}: "
        raise LookupError(f"policy {name!r} cannot be imported: {kind}{reason}") from None
    if isinstance(policy, ModuleType):
        return _only_policy(name, policy)
    if not (isinstance(policy, type) and issubclass(policy, Policy)):
        raise LookupError(f"policy {name!r}: its entry point names no policy class")
    return policy


def _imported(name: str, folder: Path | None) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # at the end of the path, so that it hides nothing that is installed
        if folder is None or error.name != name.partition(".")[0] or str(folder) in sys.path:
            raise
        sys.path.append(str(folder))
        importlib.invalidate_caches()
        return importlib.import_module(name)


def _only_policy(name: str, module: ModuleType) -> type[Policy]:
    policies = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Policy)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
    ]
    if len(policies) != 1:
        raise LookupError(f"policy {name!r} must define one policy class, not {len(policies)}")
    return policies[0]


def _validated(document: Document) -> Settings:
    data = document.data
    if not isinstance(data, dict):
        raise document.error((), "must be a mapping that starts with `version: 1`")
    chains = data.get("chains", {"default": []})
    if not isinstance(chains, dict):
        document.add(("chains",), "must be a mapping from names to lists of policies")
        document.settle()
        chains = {}
    data = {**data, "chains": {name: _chain(document, ("chains", name), steps) for name, steps in chains.items()}}
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        add_mistakes(document, (), error, Settings)
        document.settle()
        raise


def _chain(document: Document, place: Place, steps: Any) -> tuple[tuple[str, Policy], ...]:
    if steps is None:
        return ()
    if not isinstance(steps, list):
        document.add(place, "must be a list of policies: `- window_history: {keep_turns: 40}`")
        return ()
    candidates = [_step(document, (*place, index), step) for index, step in enumerate(steps)]
    for index, each in enumerate(candidates):
        before = [step for _, step in filter(None, candidates[:index])]
        if (
            each is not None
            and each[1].defines_conversation
            and not all(step.defines_conversation or isinstance(step, Guard) for step in before)
        ):
            document.add((*place, index, each[0]), "must stand before all other steps of its chain")
    return tuple(filter(None, candidates))


def _step(document: Document, place: Place, step: Any) -> tuple[str, Policy] | None:
    if isinstance(step, str):
        step = {step: None}
    if not isinstance(step, dict) or len(step) != 1:
        document.add(place, "must be one policy with its settings: `- window_history: {keep_turns: 40}`")
        return None
    ((name, settings),) = step.items()
    allowed = document.sources.only_policies
    if allowed is not None and "." in name and name not in allowed:
        document.add(place, f"{name!r} is not imported here; `penstock check` on the server does it")
        return None
    try:
        kind = policy_class(name, document.path.parent.absolute())
        return name, kind.model_validate(settings or {}, context={"directory": document.path.parent})
    except LookupError as error:
        document.add(place, str(error))
    except ValidationError as error:
        add_mistakes(document, (*place, name), error, kind)
    return None


_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_UNIONS = ("embedding", "state", "auth", "vectors")
_PERCENT = re.compile(r"\s*(\d{1,3}(?:\.\d+)?)\s*%\s*")


def add_mistakes(document: Document, place: Place, error: ValidationError, kind: type[BaseModel]) -> None:
    """Add to the document each mistake in the settings at a place, which are of this class."""
    # of a misspelt key that is needed, the one that is there helps more than the one that is missing
    mistakes = sorted(error.errors(include_url=False), key=lambda each: each["type"] not in _UNKNOWN)
    meant: set[Place] = set()
    for each in mistakes:
        if each["type"] == "too_short" and any(
            other["loc"][: len(each["loc"])] == each["loc"] != other["loc"] for other in mistakes
        ):
            continue  # what would be in it is wrong, and is told
        steps = _keys_of(each["loc"])
        where, parent = (*place, *steps), (*place, *steps[:-1])
        if each["type"] in _UNKNOWN:
            known = _siblings(kind, each["loc"])
            document.add(where, f"unknown key; {(hint := suggest(str(steps[-1]), known))}")
            meant |= {(*parent, name) for name in known if f"{name!r}?" in hint}
        elif each["type"].startswith("union_tag"):
            document.add(where, _unknown_kind(each.get("ctx", {})))
        elif not (each["type"] == "missing" and where in meant):
            document.add(where if each["type"] == "missing" else document.known(where), _in_words(each))


def _keys_of(loc: Iterable[str | int]) -> Place:
    """Return the keys of the file, without pydantic's names for members of unions."""
    steps = list(loc)
    if steps[:1] == ["upstreams"] and len(steps) > 3:
        del steps[2]
    if steps and steps[0] in _UNIONS and len(steps) > 2:
        del steps[1]
    return tuple(steps)


def _unknown_kind(ctx: Mapping[str, Any]) -> str:
    kinds = [tag.strip("' ") for tag in ctx.get("expected_tags", "").split(",") if tag]
    kind = ctx.get("tag")
    return f"unknown kind {kind!r}; {suggest(str(kind), kinds)}" if kind else "needs a kind: echo, openai, ..."


_KINDS = {"tuple_type": "a list", "list_type": "a list", "dict_type": "a mapping", "model_type": "a mapping"}
"""The kinds of values by pydantic's errors, which name types of Python."""


def _in_words(error: Mapping[str, Any]) -> str:
    if kind := _KINDS.get(error["type"]):
        return f"input should be {kind}"
    message = str(error["msg"]).removeprefix("Value error, ")
    return message[0].lower() + message[1:] + _share(error)


def _share(error: Mapping[str, Any]) -> str:
    number: Any = error.get("input")
    ctx = error.get("ctx") or {}
    if isinstance(number, str) and error["type"] in ("float_parsing", "int_parsing"):
        found = _PERCENT.fullmatch(number)
        return f"; did you mean {float(found[1]) / 100:g}?" if found else ""
    bound = ctx.get("le", ctx.get("lt"))
    # the bound of a whole number is an int
    is_percent = isinstance(number, int | float) and isinstance(bound, float) and bound <= 2 <= number <= 100
    return f"; did you mean {number / 100:g}?" if is_percent else ""


def _siblings(kind: type[Any], loc: Iterable[str | int]) -> list[str]:
    classes, is_entry = [kind], False
    for part in list(loc)[:-1]:
        field = None if is_entry else next((each.__pydantic_fields__.get(str(part)) for each in classes), None)
        if field is not None:
            classes = [*classes_of(field.annotation)]
            is_entry = get_origin(field.annotation) in (dict, tuple)  # its key or index comes next
        elif is_entry:
            is_entry = False
        else:  # pydantic's name of a member of a union
            classes = [each for each in classes if part in get_args(each.__pydantic_fields__["kind"].annotation)]
    return list(classes[0].__pydantic_fields__)
