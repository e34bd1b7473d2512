"""What must hold of keys and upstreams where clients have keys of Penstock."""

from collections.abc import Iterable

from proxy.config.access_settings import BYPASS, KeySettings
from proxy.config.document import Document, Place
from proxy.config.settings import AnthropicUpstream, ForeignUpstream, OpenAIUpstream, Settings

_CREDENTIAL_HEADERS = frozenset({"authorization", "api-key", "x-api-key"})


def check_keys(
    document: Document,
    place: Place,
    settings: Settings,
    keys: Iterable[KeySettings],
    before: Iterable[KeySettings] = (),
) -> None:
    """Every key has a name and a hash of its own, and chains that there are. Raises `ConfigError`."""
    names, hashes = {key.name for key in before}, {key.hash for key in before}
    for index, key in enumerate(keys):
        here = (*place, index)
        if key.name in names:
            raise document.error((*here, "name"), f"another key is called {key.name!r} already")
        if key.hash in hashes:
            raise document.error((*here, "hash"), "another key has this hash: each needs a key of its own")
        names.add(key.name)
        hashes.add(key.hash)
        unknown = [name for name in key.chains or () if name not in settings.chains and name != BYPASS]
        if unknown:
            known = ", ".join(sorted({*settings.chains, BYPASS}))
            raise document.error((*here, "chains"), f"there is no {unknown[0]!r}; known: {known}")


def check_upstreams(document: Document, settings: Settings) -> None:
    """Every upstream has a key of its own or wants none: clients have none for it. Raises `ConfigError`."""
    for name, upstream in settings.upstreams.items():
        if not _has_its_own(upstream):
            told = "`auth` gives clients keys of Penstock, which no upstream gets: set api_key"
            more = ", or `keyless: true` for a server that wants none" if isinstance(upstream, OpenAIUpstream) else ""
            raise document.error(("upstreams", name), told + more)


def _has_its_own(upstream: object) -> bool:
    if isinstance(upstream, OpenAIUpstream):
        named = {header.lower() for header in upstream.headers}
        return upstream.keyless or upstream.api_key is not None or bool(named & _CREDENTIAL_HEADERS)
    if isinstance(upstream, AnthropicUpstream):
        return upstream.api_key is not None
    if isinstance(upstream, ForeignUpstream):
        return upstream.has_own_key
    return True  # an echo has no use for a key, and Ollama is never sent the client's
