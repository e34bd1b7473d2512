"""Protection against web pages where Penstock asks for no key.

A page of another origin may send simple requests to any port of its machine. One whose host name was made to resolve to
this address (DNS rebinding) may also read the answers.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from ipaddress import ip_address

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from proxy.chat.errors import BadRequest
from proxy.config.settings import ServerSettings

_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]@,/]+)(?::\d*)?")
_SIMPLE = ("text/plain", "application/x-www-form-urlencoded")
"""Content types that a page may send without a CORS preflight, besides `multipart/form-data`."""
_OF_CONTAINERS = ("host.*.internal", "gateway.docker.internal")
"""Host names under which containers reach their machine. Nobody can register a name under `.internal`."""


class Browsers:
    """A check that refuses requests of pages of another origin, or sent to a host name that is not Penstock's."""

    def __init__(self, server: ServerSettings, *, origins: bool = True, local: bool = False) -> None:
        """Without `origins` no other origin is allowed; with `local` only `localhost` and loopback addresses are."""
        self._names = tuple(
            name.lower() for name in (*_OF_CONTAINERS, *server.hosts, server.host, server.admin_host or "")
        )
        self._local = local
        self._origins = server.cors_origins if origins else ()
        self._is_known = lru_cache(256)(self._known)

    def check(self, method: str, headers: Mapping[str, str], *, takes_forms: bool = False) -> None:
        """Raise `BadRequest` if the request must be refused. Names of `headers` are in lower case."""
        host = headers.get("host", "")
        if not self._is_known(host):
            advice = (
                "use localhost or a loopback address"
                if self._local
                else "to allow it, add it to `server.hosts` in the configuration"
            )
            raise _refused(f"the host {host[:100]!r} is not one of Penstock's: {advice}", "foreign_host")
        origin = headers.get("origin")
        if origin is None:
            site, mode = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
            if site in ("cross-site", "same-site") and mode != "navigate":
                raise _refused("requests of web pages of another origin are refused", "foreign_origin")
        elif not (_is_same(origin, host) or any(fnmatchcase(origin, glob) for glob in self._origins)):
            message = f"requests of web pages of {origin[:100]!r} are refused; allow them in server.cors_origins"
            raise _refused(message, "foreign_origin")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method not in ("GET", "HEAD") and (kind in _SIMPLE or (kind == "multipart/form-data" and not takes_forms)):
            raise _refused(f"the content type must be application/json, not {kind}", "unsupported_content_type", 415)

    def _known(self, host: str) -> bool:
        """Return whether nobody else can own the host: an IP address, a name without a dot, or one of the settings."""
        match = _AUTHORITY.fullmatch(host.lower())
        if match is None:
            return False
        name = match[1].strip("[]").rstrip(".")
        if self._local:
            return is_loopback(name)
        return "." not in name or _is_address(name) or any(fnmatchcase(name, glob) for glob in self._names)


def open_to(origins: tuple[str, ...], app: ASGIApp) -> ASGIApp:
    """Return an app that allows web pages of these origins, which are globs, by CORS."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origin_regex="|".join(map(translate, origins)),
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=["*"],
        allow_private_network=True,
    )


def is_loopback(name: str) -> bool:
    """Return whether a host is `localhost` or a loopback address. No name is resolved."""
    return name.lower() == "localhost" or (_is_address(name) and ip_address(name).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_same(origin: str, host: str) -> bool:
    """Return whether an origin is this host, with the usual port or without one."""
    one, other = (re.sub(r":(80|443)?$", "", each.lower()) for each in (origin.partition("://")[2], host))
    return one == other


def _refused(message: str, code: str, status: int = 403) -> BadRequest:
    return BadRequest(message, code=code, status=status, headers={"x-should-retry": "false"})
