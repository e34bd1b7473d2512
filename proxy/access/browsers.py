"""What a web page may ask of Penstock where no key is asked for.

A browser reaches whatever listens on its machine, for any page that it shows. A page of another origin may send simple
requests there, and one whose name was made to resolve to this address ("DNS rebinding") may read the answers as well.
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
"""Content types that a page may send anywhere without asking first; forms with files are another."""
_OF_CONTAINERS = ("host.*.internal", "gateway.docker.internal")
"""Names under which containers reach their machine: `host.docker.internal`, `host.containers.internal` and their like.
Nobody can register a name under `.internal`."""


class Browsers:
    """Refuses what a page of another origin, or under a name that is not Penstock's, makes a browser send."""

    def __init__(self, server: ServerSettings, *, origins: bool = True, local: bool = False) -> None:
        """Without `origins` not even those that the settings name may ask; with `local` only this machine's own names
        are known."""
        self._names = tuple(
            name.lower() for name in (*_OF_CONTAINERS, *server.hosts, server.host, server.admin_host or "")
        )
        self._local = local
        self._origins = server.cors_origins if origins else ()
        self._is_known = lru_cache(256)(self._known)

    def check(self, method: str, headers: Mapping[str, str], *, takes_forms: bool = False) -> None:
        """Raises `BadRequest`; names of `headers` are in lower case."""
        host = headers.get("host", "")
        if not self._is_known(host):
            allows = (
                "only localhost and loopback addresses may ask here"
                if self._local
                else "to allow it, add it to `server.hosts` in the configuration"
            )
            raise _refused(f"the host {host[:100]!r} is not one of Penstock's: {allows}", "foreign_host")
        origin = headers.get("origin")
        if origin is None:
            site, mode = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
            if site in ("cross-site", "same-site") and mode != "navigate":
                raise _refused("a web page of another origin may not ask here", "foreign_origin")
        elif not self._may_ask(origin, host):
            told = f"web pages of {origin[:100]!r} may not ask here; server.cors_origins names those that may"
            raise _refused(told, "foreign_origin")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method not in ("GET", "HEAD") and (kind in _SIMPLE or (kind == "multipart/form-data" and not takes_forms)):
            raise _refused(f"the content type must be application/json, not {kind}", "unsupported_content_type", 415)

    def _may_ask(self, origin: str, host: str) -> bool:
        is_same = _without_port(origin.partition("://")[2]) == _without_port(host)
        return is_same or any(fnmatchcase(origin, glob) for glob in self._origins)

    def _known(self, host: str) -> bool:
        """Whether nobody else can own the name: an address, a name without a dot, or one that the settings have."""
        found = _AUTHORITY.fullmatch(host.lower())
        if found is None:
            return False
        name = found[1].strip("[]").rstrip(".")
        if self._local:
            return is_loopback(name)
        return "." not in name or _is_address(name) or any(fnmatchcase(name, glob) for glob in self._names)


def open_to(origins: tuple[str, ...], app: ASGIApp) -> ASGIApp:
    """An app that web pages of these origins, which are globs, may ask."""
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
    """Whether a name or address is this machine's own, whatever the name service says."""
    return name.lower() == "localhost" or (_is_address(name) and ip_address(name).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _without_port(authority: str) -> str:
    """An authority without the port that its scheme has anyway."""
    return re.sub(r":(80|443)?$", "", authority.lower())


def _refused(message: str, code: str, status: int = 403) -> BadRequest:
    return BadRequest(message, code=code, status=status, headers={"x-should-retry": "false"})
