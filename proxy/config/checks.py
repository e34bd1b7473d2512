"""Whether the parts of a configuration fit each other: every name names something, and no key goes astray."""

import difflib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from proxy.config.document import Document, Place
from proxy.config.judge_settings import UpstreamJudgeSettings
from proxy.config.settings import (
    AnthropicUpstream,
    Chain,
    ForeignUpstream,
    ModelSettings,
    OpenAIUpstream,
    Settings,
    UpstreamSettings,
)
from proxy.policy import Guard, Policy


def check_names(document: Document, settings: Settings) -> None:
    """Every name that one part of the file uses is defined in another."""
    for index, model in enumerate(settings.models):
        _check_known(document, ("models", index, "upstream"), model.upstream, settings.upstreams)
        _check_known(document, ("models", index, "chain"), model.chain, settings.chains)
        _check_detours(document, index, settings)
    if settings.default_upstream is not None:
        _check_known(document, ("default_upstream",), settings.default_upstream, settings.upstreams)

    _check_writer(document, settings)
    _check_judge(document, settings)


def open_guards(document: Document, settings: Settings) -> Iterator[str]:
    """Where a guard, or a step that refuses content, lets requests pass, each as a line with its place."""
    for name, steps in settings.chains.items():
        for index, (policy, step) in enumerate(steps):
            place = ("chains", name, index, policy)
            if step.refuses and step.on_error == "skip":
                yield str(document.error(place, "`on_error: skip` lets a request pass when the step fails"))
            if isinstance(step, Guard):
                yield from (str(document.error(place, told)) for told in _openings(step, steps[:index]))
    for index, entry in enumerate(settings.models):
        guards = {policy for policy, step in settings.chains[entry.chain] if isinstance(step, Guard)}
        for other in filter(None, (*entry.fallbacks, entry.larger)):
            taken = _entry_of(other, settings)
            having = {policy for policy, _ in settings.chains[taken.chain]} if taken is not None else guards
            if guards - having:
                told = f"{other!r} may be asked instead, without the guard {min(guards - having)!r}"
                yield str(document.error(("models", index), told))


def _openings(guard: Guard, before: Chain) -> Iterator[str]:
    if guard.mode == "observe":
        yield "`mode: observe` only reports: requests go on as they came"
    if guard.when is not None:
        yield "requests that do not meet `when` pass unchecked"
    if any(isinstance(step, type(guard)) for _, step in before):
        return
    first = next((name for name, step in before if not _may_precede(step)), None)
    if first is not None:
        yield f"{first!r} stands before it: it sees and may archive or send elsewhere what the guard takes out"


def _may_precede(step: Policy) -> bool:
    return isinstance(step, Guard) or step.defines_conversation


def _check_judge(document: Document, settings: Settings) -> None:
    """There is a judge where a step asks for one, and the model of an upstream is routed."""
    steps = ((name, n, step) for name, steps in settings.chains.items() for n, step in enumerate(steps))
    for name, index, (policy, step) in steps:
        if step.needs_judge and settings.judge is None:
            raise document.error(
                ("chains", name, index, policy),
                "wants a judge: name it in `judge: {model: DIRECTORY}` or `judge: {kind: upstream, model: NAME}`",
            )
    judge = settings.judge
    if isinstance(judge, UpstreamJudgeSettings):
        _check_routed(document, ("judge", "model"), judge.model, settings)


def _check_detours(document: Document, index: int, settings: Settings) -> None:
    """The models that are asked instead are routed, to where the client's key may go or none of it is needed."""
    entry = settings.models[index]
    places: list[tuple[Place, str]] = [
        (("models", index, "fallbacks", n), name) for n, name in enumerate(entry.fallbacks)
    ]
    places += [(("models", index, "larger"), entry.larger)] if entry.larger is not None else []
    for place, name in places:
        other = _entry_of(name, settings)
        if other is None:
            raise document.error(place, f"no entry of models matches {name!r}")
        one, two = settings.upstreams.get(entry.upstream), settings.upstreams.get(other.upstream)
        if entry.upstream == other.upstream or one is None or two is None:
            continue
        if not _has_key(two) and (_has_key(one) or _address(one) is None or _address(one) != _address(two)):
            raise document.error(
                place,
                f"{name!r} goes to the upstream {other.upstream!r}, which is another server and has no api_key: the "
                "client's key is not sent there. Give it one of its own (any word, where it wants none)",
            )


def _entry_of(name: str, settings: Settings) -> ModelSettings | None:
    return next((each for each in settings.models if any(fnmatchcase(name, glob) for glob in each.match)), None)


def _has_key(upstream: UpstreamSettings) -> bool:
    """Whether an upstream needs none of the client's key."""
    match upstream:
        case OpenAIUpstream():
            has_one = upstream.api_key is not None or upstream.keyless
            return has_one or "authorization" in {name.lower() for name in upstream.headers}
        case AnthropicUpstream():
            return upstream.api_key is not None
        case ForeignUpstream():
            return upstream.api_key is not None or bool(upstream.options)
    return True


def _address(upstream: UpstreamSettings) -> tuple[str, str] | None:
    address = getattr(upstream, "base_url", None)
    return None if address is None else (address, getattr(upstream, "provider", upstream.kind))


def _check_writer(document: Document, settings: Settings) -> None:
    """The model that writes summaries is routed, and there is one where a step asks for it."""
    if settings.writer is None:
        for name, steps in settings.chains.items():
            for index, (policy, step) in enumerate(steps):
                if step.needs_writer:
                    place = ("chains", name, index, policy)
                    raise document.error(place, "wants summaries of a model: name it in `writer: {model: NAME}`")
        return
    _check_routed(document, ("writer", "model"), settings.writer.model, settings)


def _check_routed(document: Document, place: Place, model: str, settings: Settings) -> None:
    if not any(fnmatchcase(model, glob) for entry in settings.models for glob in entry.match):
        raise document.error(place, f"no entry of models matches {model!r}")


def _check_known(document: Document, place: Place, name: str, known: Iterable[str]) -> None:
    names = list(known)
    if name not in names:
        raise document.error(place, f"there is no {name!r}; {suggest(name, names)}")


def suggest(name: str, known: Iterable[str]) -> str:
    """What would be right instead of a name that is not known."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names) or 'none'}"
