"""Checks of keys and upstreams for `auth: {kind: keys}`."""

from collections.abc import Iterable

from proxy.config.access_settings import BYPASS, KeySettings
from proxy.config.document import Document, Place
from proxy.config.settings import OpenAIUpstream, Settings


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


def check_upstreams(document: Document, settings: Settings) -> None:
    """Check that every upstream has its own key or needs none, because clients have none for it; the
    document gets the errors."""
    for name, upstream in settings.upstreams.items():
        if not upstream.has_own_key:
            told = "with `auth: {kind: keys}` clients have no key for this upstream: set api_key"
            more = ", or `keyless: true` for a server that needs none" if isinstance(upstream, OpenAIUpstream) else ""
            document.add(("upstreams", name), told + more)
