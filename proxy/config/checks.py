"""Checks that the parts of a configuration fit together: every name is defined, and no key goes to a wrong server."""

import difflib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from proxy.config.access_settings import BYPASS, KeysAuth, KeySettings
from proxy.config.document import Document, Place
from proxy.config.settings import (
    Chain,
    ModelSettings,
    OpenAIUpstream,
    Settings,
    UpstreamSettings,
)
from proxy.policy import Guard, Policy, RefusesContent, Stage


def check_names(document: Document, settings: Settings) -> None:
    """Check that every name in the file is defined. Raise `ConfigError`."""
    for index, model in enumerate(settings.models):
        _check_known(document, ("models", index, "upstream"), model.upstream, settings.upstreams)
        _check_known(document, ("models", index, "chain"), model.chain, settings.chains)
        _check_detours(document, index, settings)
    if settings.default_upstream is not None:
        _check_known(document, ("default_upstream",), settings.default_upstream, settings.upstreams)
    _check_models_of_steps(document, settings)


def open_guards(document: Document, settings: Settings) -> Iterator[str]:
    """Yield a line with its place for each way past a guard, or past a step that refuses content."""
    for name, steps in settings.chains.items():
        for index, (policy, step) in enumerate(steps):
            place = ("chains", name, index, policy)
            if isinstance(step, RefusesContent) and step.refuses and step.on_error == "skip":
                yield str(document.error(place, "`on_error: skip` lets a request pass when the step fails"))
            if isinstance(step, Guard):
                yield from (str(document.error(place, reason)) for reason in _openings(step, steps[:index]))
    for index, entry in enumerate(settings.models):
        guards = {policy for policy, step in settings.chains[entry.chain] if isinstance(step, Guard)}
        for other in filter(None, (*entry.fallbacks, entry.larger)):
            taken = _entry_of(other, settings)
            having = {policy for policy, _ in settings.chains[taken.chain]} if taken is not None else guards
            if guards - having:
                reason = f"{other!r} may be asked instead, without the guard {min(guards - having)!r}"
                yield str(document.error(("models", index), reason))


def doubts(document: Document, settings: Settings) -> Iterator[str]:
    """Yield a line with its place for what is valid, and probably not what was meant."""
    for place, told in (*_of_chains(settings), *_of_models(settings), *_of_upstreams(settings)):
        yield str(document.error(place, told))


_DOES = {
    Stage.SHORTENS: "makes the conversation shorter",
    Stage.RESTORES: "puts content back",
    Stage.BOUNDS: "refuses what does not fit",
    Stage.MARKS: "marks what the provider keeps in its cache",
}


def _of_chains(settings: Settings) -> Iterator[tuple[Place, str]]:
    for name, steps in settings.chains.items():
        for index, (policy, step) in enumerate(steps):
            place = ("chains", name, index, policy)
            again = next((n for n, (_, other) in enumerate(steps[:index]) if _is_again(other, step)), None)
            if again is not None:
                yield place, f"the same step stands in this chain already, as number {again + 1}"
                continue
            late = next(((each, other.stage) for each, other in steps[:index] if _is_late(step, other)), None)
            if late is not None and late[1] is not None:
                does = _DOES[step.stage] if step.stage is not None else "adds to the prompt"
                yield place, f"it {does}, but stands behind {late[0]!r}, which {_DOES[late[1]]}: put it in front"


def _is_again(one: Policy, other: Policy) -> bool:
    is_same = type(one) is type(other) and one.when == other.when and one.mode == other.mode
    return is_same and not isinstance(other, Guard)


def _is_late(step: Policy, before: Policy) -> bool:
    if before.stage is None or step.mode == "observe":
        return False
    if step.stage is not None:
        return step.stage < before.stage
    return step.may_grow and before.stage >= Stage.BOUNDS and not isinstance(step, Guard)


def _of_models(settings: Settings) -> Iterator[tuple[Place, str]]:
    known: list[str] = []
    for index, entry in enumerate(settings.models):
        for glob in entry.match:
            hiding = next((each for each in known if _covers(each, glob)), None)
            if hiding is not None:
                told = f"{glob!r} is never reached: {hiding!r} stands before it, and the first match counts"
                yield ("models", index), told
        known += entry.match
        if entry.larger in entry.match:
            yield ("models", index, "larger"), f"{entry.larger!r} is this entry itself: what is too long stays too long"


def _covers(glob: str, other: str) -> bool:
    """Return whether every name that matches `other` matches `glob`, as far as that is plain to see."""
    return glob == other or (not set("?[") & set(glob) and fnmatchcase(other, glob))


def _of_upstreams(settings: Settings) -> Iterator[tuple[Place, str]]:
    for name, upstream in settings.upstreams.items():
        if isinstance(upstream, OpenAIUpstream) and urlsplit(upstream.base_url).path in ("", "/"):
            told = f"most servers have the API under /v1: did you mean {upstream.base_url.rstrip('/') + '/v1'!r}?"
            yield ("upstreams", name, "base_url"), told


def _openings(guard: Guard, before: Chain) -> Iterator[str]:
    if guard.mode == "observe":
        yield "`mode: observe` only reports: requests go on unchanged"
    if guard.when is not None:
        yield "requests that do not meet `when` pass unchecked"
    if any(isinstance(step, type(guard)) for _, step in before):
        return
    first = next((name for name, step in before if not (isinstance(step, Guard) or step.defines_conversation)), None)
    if first is not None:
        yield f"{first!r} stands before it: it sees and may archive or send elsewhere what the guard takes out"


def _check_detours(document: Document, index: int, settings: Settings) -> None:
    """Check that `fallbacks` and `larger` are routed, and that none needs the client's key at another server."""
    entry = settings.models[index]
    places: list[tuple[Place, str]] = [
        (("models", index, "fallbacks", n), name) for n, name in enumerate(entry.fallbacks)
    ]
    places += [(("models", index, "larger"), entry.larger)] if entry.larger is not None else []
    for place, name in places:
        other = _entry_of(name, settings)
        if other is None:
            document.add(place, f"no entry of models matches {name!r}")
            continue
        one, two = settings.upstreams.get(entry.upstream), settings.upstreams.get(other.upstream)
        if entry.upstream == other.upstream or one is None or two is None:
            continue
        if not two.has_own_key and (one.has_own_key or _address(one) is None or _address(one) != _address(two)):
            document.add(
                place,
                f"{name!r} goes to the upstream {other.upstream!r}, which is another server and has no api_key: the "
                "client's key is not sent there. Set its api_key (any word if the server needs none)",
            )


def _entry_of(name: str, settings: Settings) -> ModelSettings | None:
    return next((each for each in settings.models if any(fnmatchcase(name, glob) for glob in each.match)), None)


def _address(upstream: UpstreamSettings) -> tuple[str, str] | None:
    address = getattr(upstream, "base_url", None)
    return None if address is None else (address, getattr(upstream, "provider", upstream.kind))


def _check_models_of_steps(document: Document, settings: Settings) -> None:
    """Check that the writer and the judge are there if a step needs them, and that their models are routed."""
    for section, used in (("writer", settings.writer), ("judge", settings.judge)):
        if used is not None:
            _check_routed(document, (section, "model"), used.model, settings)
    for name, steps in settings.chains.items():
        for index, (policy, step) in enumerate(steps):
            place = ("chains", name, index, policy)
            if "writer" in step.needs and settings.writer is None:
                document.add(place, "needs a model for summaries: name one in `writer: {model: NAME}`")
            if "judge" in step.needs and settings.judge is None:
                document.add(place, "needs a judge: name one in `judge: {model: NAME}`")


def _check_routed(document: Document, place: Place, model: str, settings: Settings) -> None:
    if not any(fnmatchcase(model, glob) for entry in settings.models for glob in entry.match):
        document.add(place, f"no entry of models matches {model!r}")


def _check_known(document: Document, place: Place, name: str, known: Iterable[str]) -> None:
    names = list(known)
    if name not in names:
        document.add(place, f"there is no {name!r}; {suggest(name, names)}")


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the nearest known one, or all of them."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names) or 'none'}"


def check_keys(
    document: Document,
    place: Place,
    settings: Settings,
    keys: Iterable[KeySettings],
    before: Iterable[KeySettings] = (),
) -> None:
    """Check that names and hashes of keys are unique, and that their chains exist; the document gets the errors."""
    names, hashes = {key.name for key in before}, {key.hash for key in before}
    for index, key in enumerate(keys):
        here = (*place, index)
        if key.name in names:
            document.add((*here, "name"), f"another key is called {key.name!r} already")
        if key.hash in hashes:
            document.add((*here, "hash"), "another key has this hash: make a new key for each client")
        names.add(key.name)
        hashes.add(key.hash)
        unknown = [name for name in key.chains or () if name not in settings.chains and name != BYPASS]
        if unknown:
            known = ", ".join(sorted({*settings.chains, BYPASS}))
            document.add((*here, "chains"), f"there is no {unknown[0]!r}; known: {known}")


def check_tokens(document: Document, auth: KeysAuth) -> None:
    """Check that names and issuers of identity providers are unique; the document gets the errors."""
    for field in ("name", "issuer"):
        values = [getattr(each, field) for each in auth.tokens]
        for index, value in enumerate(values):
            if value in values[:index]:
                document.add(("auth", "tokens", index, field), f"another provider has the {field} {value!r} already")


def check_upstreams(document: Document, settings: Settings) -> None:
    """Check that every upstream has its own key or needs none: with `auth.kind: keys`, clients have none for it."""
    for name, upstream in settings.upstreams.items():
        if not upstream.has_own_key:
            told = "with `auth: {kind: keys}` clients have no key for this upstream: set api_key"
            more = ", or `keyless: true` for a server that needs none" if isinstance(upstream, OpenAIUpstream) else ""
            document.add(("upstreams", name), told + more)
