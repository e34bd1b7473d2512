"""Keys: those of a client that an upstream gets, and the operator's own.

The form of a client's key names its vendor, else its header does. A bearer token of another form has none: it goes to
the upstream of the model that the client names.
"""

import re
from collections.abc import Iterator, Mapping

from pydantic import SecretStr

from proxy.chat.errors import BadRequest
from proxy.http.headers import CREDENTIALS
from proxy.upstreams.base import Upstream

_FORMS = {
    "anthropic": re.compile(r"\bsk-ant-"),
    "openai": re.compile(r"\bsk-(?:proj|svcacct|admin)-|T3BlbkFJ"),  # older keys have its name inside, in base64
}
_HEADERS = {"x-api-key": "anthropic", "x-goog-api-key": "gcp.gemini"}
"""Headers of keys that the SDKs of one vendor send."""


def fitting(headers: Mapping[str, str], upstream: Upstream, model: str) -> Mapping[str, str]:
    """Return the headers without keys of other vendors than the upstream's.

    `model` is empty if the request names none. Raise `BadRequest` if all keys are of other vendors.
    """
    foreign = dict(_foreign(headers, upstream.provider))
    if not foreign:
        return headers
    fit = {name: value for name, value in headers.items() if name not in foreign}
    if CREDENTIALS.isdisjoint(fit):
        raise _foreign_key(foreign, upstream, model)
    return fit


def fits(headers: Mapping[str, str], provider: str) -> bool:
    """Return whether a provider may get one of the keys, or there are none."""
    keys = CREDENTIALS & headers.keys()
    return not keys or len(dict(_foreign(headers, provider))) < len(keys)


def _foreign_key(foreign: Mapping[str, str], upstream: Upstream, model: str) -> BadRequest:
    """Return the error for keys of another vendor, by header. It names the entry that the configuration lacks."""
    header, vendor = next(iter(foreign.items()))
    provider = upstream.provider
    subject, entry = (
        (f"the model {model[:200]!r}", f"add an entry to `models` that sends {model[:200]!r} to")
        if model
        else ("a request that names no model", "configure exactly one address, or `default_upstream`, for")
    )
    return BadRequest(
        f"The key in `{header}` is for {vendor}, but {subject} goes to the upstream {upstream.name!r} ({provider}), "
        f"which does not get it. Send a key for {provider}, or {entry} an upstream whose `kind` or `provider` is "
        f"`{vendor}`.",
        code="foreign_key",
        headers={"x-should-retry": "false"},
    )


def _foreign(headers: Mapping[str, str], provider: str) -> Iterator[tuple[str, str]]:
    for name in CREDENTIALS & headers.keys():
        vendors = {vendor for vendor, form in _FORMS.items() if form.search(headers[name])}
        if not vendors:
            by_header = "anthropic" if "anthropic-version" in headers else _HEADERS.get(name)
            vendors = {by_header} if by_header else set()
        if other := vendors - {provider}:
            yield name, other.pop()


_SECRET = re.compile(r"auth|cookie|key|password|secret|token", re.IGNORECASE)
"""Parts of the names of headers and options that hold a secret."""


def keys_of(settings: object) -> tuple[str, ...]:
    """Return the operator's keys among the settings of an upstream."""
    given: dict[str, SecretStr] = {**getattr(settings, "headers", {}), **getattr(settings, "options", {})}
    found = [value for name, value in given.items() if _SECRET.search(name)]
    if (key := getattr(settings, "api_key", None)) is not None:
        found.append(key)
    return tuple(each.get_secret_value().rpartition(" ")[2] for each in found)
