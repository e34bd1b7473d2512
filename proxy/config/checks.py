"""Checks that the parts of a configuration fit together: every name is defined, and no key goes to a wrong server."""

import difflib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from proxy.config.document import Place
from proxy.config.settings import (
    BYPASS,
    Chain,
    KeysAuth,
    KeySettings,
    ModelSettings,
    OpenAIUpstream,
    Settings,
    UpstreamSettings,
)
from proxy.policy import Guard, Policy, RefusesContent, Stage

Found = tuple[Place, str]


def unknown_names(settings: Settings) -> Iterator[Found]:
    """Yield each name that nothing in the file defines, and each step without the model that it needs."""
    for index, model in enumerate(settings.models):
        yield from _unknown(("models", index, "upstream"), model.upstream, settings.upstreams)
        yield from _unknown(("models", index, "chain"), model.chain, settings.chains)
        yield from _wrong_detours(index, settings)
    if settings.default_upstream is not None:
        yield from _unknown(("default_upstream",), settings.default_upstream, settings.upstreams)
    for section, used in (("writer", settings.writer), ("judge", settings.judge)):
        if used is not None and _entry_of(used.model, settings) is None:
            yield (section, "model"), f"no entry of models matches {used.model!r}"
    for place, step, _ in _steps(settings):
        if "writer" in step.needs and settings.writer is None:
            yield place, "needs a model for summaries: name one in `writer: {model: NAME}`"
        if "judge" in step.needs and settings.judge is None:
            yield place, "needs a judge: name one in `judge: {model: NAME}`"


def _steps(settings: Settings) -> Iterator[tuple[Place, Policy, Chain]]:
    for name, steps in settings.chains.items():
        for index, (policy, step) in enumerate(steps):
            yield ("chains", name, index, policy), step, steps[:index]


def doubts(settings: Settings) -> Iterator[Found]:
    """Yield what is valid and probably not what was meant: first each way past a guard, or a step that refuses."""
    for place, step, before in _steps(settings):
        if isinstance(step, RefusesContent) and step.refuses and step.on_error == "skip":
            yield place, "`on_error: skip` lets a request pass when the step fails"
        if isinstance(step, Guard):
            yield from ((place, reason) for reason in _openings(step, before))
    for index, entry in enumerate(settings.models):
        guards = {policy for policy, step in settings.chains[entry.chain] if isinstance(step, Guard)}
        for other in filter(None, (*entry.fallbacks, entry.larger)):
            taken = _entry_of(other, settings)
            having = {policy for policy, _ in settings.chains[taken.chain]} if taken is not None else guards
            if guards - having:
                yield ("models", index), f"{other!r} may be asked instead, without the guard {min(guards - having)!r}"
    yield from _of_chains(settings)
    yield from _of_models(settings)
    yield from _of_upstreams(settings)


_DOES = {
    Stage.SHORTENS: "makes the conversation shorter",
    Stage.RESTORES: "puts content back",
    Stage.BOUNDS: "refuses what does not fit",
    Stage.MARKS: "marks what the provider keeps in its cache",
}


def _of_chains(settings: Settings) -> Iterator[Found]:
    for place, step, before in _steps(settings):
        again = next((n for n, (_, other) in enumerate(before) if _is_again(other, step)), None)
        if again is not None:
            yield place, f"the same step stands in this chain already, as number {again + 1}"
            continue
        late = next(((each, other.stage) for each, other in before if _is_late(step, other)), None)
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


def _of_models(settings: Settings) -> Iterator[Found]:
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


def _of_upstreams(settings: Settings) -> Iterator[Found]:
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


def _wrong_detours(index: int, settings: Settings) -> Iterator[Found]:
    """Yield `fallbacks` and `larger` that are not routed, or that need the client's key at another server."""
    entry = settings.models[index]
    places: list[Found] = [(("models", index, "fallbacks", n), name) for n, name in enumerate(entry.fallbacks)]
    places += [(("models", index, "larger"), entry.larger)] if entry.larger is not None else []
    for place, name in places:
        other = _entry_of(name, settings)
        if other is None:
            yield place, f"no entry of models matches {name!r}"
            continue
        one, two = settings.upstreams.get(entry.upstream), settings.upstreams.get(other.upstream)
        if entry.upstream == other.upstream or one is None or two is None:
            continue
        if not two.has_own_key and (one.has_own_key or _address(one) is None or _address(one) != _address(two)):
            yield (
                place,
                f"{name!r} goes to the upstream {other.upstream!r}, which is another server and has no api_key: the "
                "client's key is not sent there. Set its api_key (any word if the server needs none)",
            )


def _entry_of(name: str, settings: Settings) -> ModelSettings | None:
    return next((each for each in settings.models if any(fnmatchcase(name, glob) for glob in each.match)), None)


def _address(upstream: UpstreamSettings) -> tuple[str, str] | None:
    address = getattr(upstream, "base_url", None)
    return None if address is None else (address, getattr(upstream, "provider", upstream.kind))


def _unknown(place: Place, name: str, known: Iterable[str]) -> Iterator[Found]:
    names = list(known)
    if name not in names:
        yield place, f"there is no {name!r}; {suggest(name, names)}"


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the nearest known one, or all of them."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names) or 'none'}"


def wrong_keys(
    place: Place, settings: Settings, keys: Iterable[KeySettings], before: Iterable[KeySettings] = ()
) -> Iterator[Found]:
    """Yield names and hashes of keys that are not unique, and chains that do not exist."""
    names, hashes = {key.name for key in before}, {key.hash for key in before}
    for index, key in enumerate(keys):
        here = (*place, index)
        if key.name in names:
            yield (*here, "name"), f"another key is called {key.name!r} already"
        if key.hash in hashes:
            yield (*here, "hash"), "another key has this hash: make a new key for each client"
        names.add(key.name)
        hashes.add(key.hash)
        if unknown := [name for name in key.chains or () if name not in {*settings.chains, BYPASS}]:
            known = ", ".join(sorted({*settings.chains, BYPASS}))
            yield (*here, "chains"), f"there is no {unknown[0]!r}; known: {known}"


def wrong_access(settings: Settings, auth: KeysAuth) -> Iterator[Found]:
    """Yield what does not fit where clients have keys of Penstock, which no upstream takes."""
    yield from wrong_keys(("auth", "keys"), settings, auth.keys)
    for field in ("name", "issuer"):
        values = [getattr(each, field) for each in auth.tokens]
        for index, value in enumerate(values):
            if value in values[:index]:
                yield ("auth", "tokens", index, field), f"another provider has the {field} {value!r} already"
    for name, upstream in settings.upstreams.items():
        if not upstream.has_own_key:
            told = "with `auth: {kind: keys}` clients have no key for this upstream: set api_key"
            more = ", or `keyless: true` for a server that needs none" if isinstance(upstream, OpenAIUpstream) else ""
            yield ("upstreams", name), told + more
