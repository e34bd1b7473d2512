"""The page for operators: its files, and the headers under which a browser runs nothing else.

The page shows nothing by itself. What it asks for, under `/admin`, has its own doors.
"""

import asyncio
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import proxy
from proxy.access.browsers import is_loopback
from proxy.config.access_settings import KeysAuth
from proxy.config.settings import Settings

_FOLDER = Path(proxy.__file__).parent / "data" / "ui"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_FILES = {path.name: path for path in _FOLDER.iterdir() if path.suffix in _TYPES}

_HEADERS = {
    # Trusted Types: a browser that knows them makes no element from a string
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


def is_open(settings: Settings, host: str | None = None) -> bool:
    """Return whether the page needs no key on the main port: on loopback, and where all clients are of one house.

    Clients with keys of Penstock are kept apart: none of them is an operator. `host` is the address in use, if it is
    not the one of the settings.
    """
    server = settings.server
    has_key = server.admin_key is not None or isinstance(settings.auth, KeysAuth)
    return not has_key and server.admin_port is None and is_loopback(host or server.host)


async def page(request: Request) -> Response:
    """Return `GET /ui`."""
    return await _file("index.html")


async def page_file(request: Request) -> Response:
    """Return `GET /ui/{name}`: a script or a style of the page."""
    return await _file(request.path_params["name"])


async def to_page(request: Request) -> Response:
    """Return `GET /`: leads to the page, also where a proxy in front serves this under another path."""
    return Response(status_code=307, headers={"location": "ui", "cache-control": "no-store"})


async def _file(name: str) -> Response:
    path = _FILES.get(name)
    if path is None:
        raise HTTPException(404)
    content = await asyncio.to_thread(path.read_bytes)
    return Response(content, headers=_HEADERS, media_type=_TYPES[path.suffix])
