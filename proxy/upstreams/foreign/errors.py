"""A provider's failures in OpenAI's terms, from the exceptions that litellm raises.

litellm's own classes are asked only about a full context window, which no status tells: they turn a 403 into a
connection error, a 529 into a 500 and a refused connection into a 500. The real error is further down the chain of
causes. Classes are compared by name, because nothing here may import litellm.
"""

import ast
import json
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from proxy.chat.errors import PenstockError, Unanswered, UpstreamFailed, UpstreamTimeout
from proxy.text.json_values import json_objects
from proxy.upstreams.refusal import LONGEST_MESSAGE, RETRY_HEADERS, Refused, error_in, refused

LATE = frozenset({"TimeoutError", "TimeoutException", "APITimeoutError"})
UNREACHED = frozenset({"ConnectError", "ConnectTimeout", "ConnectTimeoutError", "EndpointConnectionError"})
BROKEN = frozenset({"TransportError", "ClientConnectionError", "ConnectionError"})
ANSWERED = frozenset({"HTTPStatusError", "APIStatusError"})
CONTEXT_FULL = "ContextWindowExceededError"

EXTRAS = {"boto3": "bedrock", "botocore": "bedrock", "google": "vertex"}
"""The extra of Penstock's that brings a package which litellm wants for some providers."""

NO_FETCHING = "Image URL download is disabled"
"""litellm's words where an image is given by its address, and the provider takes only data."""

LONGEST_BODY = 100_000
"""Characters of an error that are read as a literal."""

SHORTEST_SECRET = 6
"""Characters: shorter settings are words that a message may need."""

_PREFIX = re.compile(r"(?:(?:litellm\.|(?<!\w))\w*(?:Error|Exception|litellm\.Timeout)\s*(?::|-)\s+)+")
_TAIL = re.compile(
    r"(?<!\s)\s*(?:\nReceived Messages=|\nTraceback|\. Handle with `litellm|\nModel: |\nAPI Base).*", re.DOTALL
)


_log = logging.getLogger("penstock.foreign")


def explain(error: BaseException, upstream: str, hide: Iterable[str]) -> PenstockError:
    """Return the client's error: `Refused`, or `UpstreamFailed` if no answer came. Hide the given texts."""
    wrapper: BaseException | None = None
    for link in _chain(error):
        if type(link).__module__ == "litellm.exceptions":
            continue
        if wrapper is None and isinstance(getattr(link, "status_code", None), int):
            wrapper = link
        if ANSWERED & _classes(link):
            return _refused(error, wrapper or link, link, hide)
        failed = _failed(link, upstream)
        if failed is not None:
            return failed
    if wrapper is None and any("Timeout" in _classes(link) for link in _chain(error)):
        return UpstreamTimeout(f"upstream {upstream!r} did not answer in time; it may have processed the request")
    return _refused(error, wrapper, wrapper, hide)


def _failed(error: BaseException, upstream: str) -> PenstockError | None:
    """Return the error after which there is no answer of the provider's; None for all others."""
    if isinstance(error, PenstockError):
        return error
    if isinstance(error, ImportError):
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        hint = f": pip install 'penstock[{extra}]'" if extra else ""
        return UpstreamFailed(f"upstream {upstream!r} needs the Python package {error.name!r}{hint}")
    classes = _classes(error)
    if UNREACHED & classes:
        return UpstreamFailed(f"upstream {upstream!r} could not be reached", status=504 if LATE & classes else None)
    if LATE & classes:
        return UpstreamTimeout(f"upstream {upstream!r} did not answer in time; it may have processed the request")
    if BROKEN & classes:
        return Unanswered(f"upstream {upstream!r} broke off its answer; it may have processed the request")
    return None


def _refused(
    error: BaseException, wrapper: BaseException | None, answer: BaseException | None, hide: Iterable[str]
) -> Refused:
    """Return the provider's refusal.

    Its words are in `wrapper`, its status and headers in `answer`; both may be missing.
    """
    body = _error_object(wrapper or error, answer)
    status = 401 if _detail(body, "reason") == "API_KEY_INVALID" else _status(answer or error)
    text = _hidden(_words(wrapper or error, body), hide) or f"The provider answered with status {status}."
    if any(CONTEXT_FULL in _classes(link) for link in _chain(error)):
        status = 413
    if text.startswith(NO_FETCHING):
        text = "This provider takes images as data only: send them as data: URLs, or set fetch_images_from."
    headers = _retry_headers(answer, error) or _retry_info(body)
    if answer is None and status >= 500:
        # litellm stumbled over the request itself; it would do so again.
        _log.warning("a request could not be translated", extra={"fields": {"error": _cause(error)}})
        headers["x-should-retry"] = "false"
        text = "The request could not be translated for this provider."
    return refused(503 if status == 529 else status, text, None, is_own=True, headers=headers)


def _classes(error: BaseException) -> set[str]:
    return {cls.__name__ for cls in type(error).__mro__}


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: Any = error
    while isinstance(link, BaseException) and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = getattr(link, "original_exception", None) or link.__cause__ or link.__context__


def _status(error: BaseException) -> int:
    status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) and 400 <= status <= 599 else 500


def _retry_headers(*errors: BaseException | None) -> dict[str, str]:
    for error in errors:
        given = getattr(getattr(error, "response", None), "headers", None)
        given = given or getattr(error, "litellm_response_headers", None)
        if given:
            return {name: given[name] for name in RETRY_HEADERS if name in given}
    return {}


def _error_object(error: BaseException, answer: BaseException | None) -> Mapping[str, Any]:
    response = getattr(answer, "response", None)
    for raw in (getattr(error, "message", None) or str(error), getattr(error, "body", None), response):
        said = _parsed(_body(raw) if raw is response else raw)
        if isinstance(said, Mapping) or (isinstance(said, list) and said and isinstance(said[0], Mapping)):
            return error_in(said)
    return {}


def _body(response: Any) -> Any:
    with suppress(Exception):  # a stream's body may not have been read
        return response.text
    return None


def _parsed(raw: Any) -> Any:
    """Return a parsed body; litellm gives some as the text of a bytes literal."""
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        if isinstance(raw, str) and raw[:2] in ("b'", 'b"') and len(raw) <= LONGEST_BODY:
            raw = ast.literal_eval(raw)
        return json.loads(raw) if isinstance(raw, str | bytes) else raw
    return None


def _detail(body: Mapping[str, Any], name: str) -> Any:
    """Return a field of Google's details of an error (google.rpc.ErrorInfo, RetryInfo)."""
    return next((each[name] for each in json_objects(body.get("details")) if each.get(name)), None)


def _retry_info(body: Mapping[str, Any]) -> dict[str, str]:
    """Return `retry-after`, in whole seconds, from Google's RetryInfo (`"retryDelay": "21.5s"`)."""
    with suppress(ValueError, OverflowError):
        return {"retry-after": str(math.ceil(float(str(_detail(body, "retryDelay")).removesuffix("s"))))}
    return {}


def _cause(error: BaseException) -> str:
    """Return the classes of what went wrong, the first cause last; their texts may hold parts of a prompt."""
    return " < ".join(type(link).__name__ for link in _chain(error))


def _words(error: BaseException, body: Mapping[str, Any]) -> str:
    raw = getattr(error, "message", None) or str(error)
    said = body.get("message") or (raw.decode(errors="replace") if isinstance(raw, bytes) else raw)
    words = _TAIL.sub("", _PREFIX.sub("", str(said))).strip()
    return "" if words.startswith("<") else words[:LONGEST_MESSAGE]


def _hidden(text: str, hide: Iterable[str]) -> str:
    for secret in sorted(hide, key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return text
