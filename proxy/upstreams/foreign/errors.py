"""A provider's failures in OpenAI's terms.

The provider's own answer says most: its status, its words and when to try again. litellm changes all three: it turns a
403 into a connection error, and a 529 into a 500. The exceptions that it raises are asked where no answer came, and
about errors within a stream. Classes are compared by name, because nothing here may import litellm.
"""

import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from proxy.chat.errors import PenstockError, UpstreamFailed
from proxy.http.client import broken_off, redirected, too_late, unreached
from proxy.text.json_values import json_objects
from proxy.upstreams.completion import nonsense
from proxy.upstreams.foreign.library import LastAnswer
from proxy.upstreams.refusal import LONGEST_MESSAGE, advice, refused, words_of

LATE = frozenset({"TimeoutError", "TimeoutException", "APITimeoutError"})
UNREACHED = frozenset({"ConnectError", "ConnectTimeout", "ConnectTimeoutError", "EndpointConnectionError"})
BROKEN = frozenset({"TransportError", "ClientConnectionError", "ConnectionError"})
STUMBLED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of code that reads what is not as it expects."""

EXTRAS = {"boto3": "bedrock", "botocore": "bedrock", "google": "vertex"}
"""The extra of Penstock's that brings a package which litellm wants for some providers."""

NO_FETCHING = "Image URL download is disabled"
"""litellm's words where an image is given by its address, and the provider takes only data."""

SHORTEST_SECRET = 6
"""Characters: shorter settings are words that a message may need."""

_PREFIX = re.compile(r"(?:(?:litellm\.|(?<!\w))\w*(?:Error|Exception|litellm\.Timeout)\s*(?::|-)\s+)+")
_TAIL = re.compile(
    r"(?<!\s)\s*(?:\nReceived Messages=|\nTraceback|\. Handle with `litellm|\nModel: |\nAPI Base).*", re.DOTALL
)

_log = logging.getLogger("penstock.foreign")


def explain(error: BaseException, upstream: str, answer: LastAnswer, hide: Iterable[str]) -> PenstockError:
    """Return the client's error: `Refused`, or `UpstreamFailed` if no answer came. Hide the given texts."""
    links = [*_chain(error)]
    real = [link for link in links if type(link).__module__ != "litellm.exceptions"]
    if 300 <= answer.status < 400:
        return redirected(upstream)
    if answer.status < 400 and (failure := next(filter(None, (_failure(link, upstream) for link in real)), None)):
        return failure
    if answer.status < 400 and any("Timeout" in _classes(link) for link in links):
        return too_late(upstream)
    cause = next(filter(_status, real), None)
    text = _text(answer, links, cause or error)
    if 0 < answer.status < 400 and not text:
        return nonsense("this provider")
    status = answer.status if answer.status >= 400 else _status(cause or error) or 500
    if not answer.status and cause is None and status >= 500:
        return _stumbled(links)
    if any("ContextWindowExceededError" in _classes(link) for link in links):
        status = 413  # no status tells it
    elif _detail(answer.error, "reason") == "API_KEY_INVALID":
        status = 401
    headers = advice(answer.headers) or _retry_info(answer.error)
    return refused(status, _hidden(text, hide)[:LONGEST_MESSAGE], None, is_own=True, headers=headers)


def _stumbled(links: Iterable[BaseException]) -> PenstockError:
    """Return the error for a request that litellm stumbled over before it was sent. It would do so again."""
    chain = " < ".join(type(link).__name__ for link in links)  # their texts may hold parts of a prompt
    _log.warning("a request could not be translated", extra={"fields": {"error": chain}})
    text = "The request could not be translated for this provider."
    return refused(500, text, None, is_own=True, headers={"x-should-retry": "false"})


def _text(answer: LastAnswer, links: Iterable[BaseException], cause: BaseException) -> str:
    """Return the provider's words: those of its answer, else those in litellm's error about a part of a stream."""
    if answer.body is not None:
        return words_of(answer.error) or (answer.text if answer.status >= 400 else "")
    if answer.status and any(isinstance(link, STUMBLED) for link in links):
        return ""
    # litellm puts its own around them
    text = _TAIL.sub("", _PREFIX.sub("", str(getattr(cause, "message", None) or cause))).strip()
    if text.startswith(NO_FETCHING):
        return "This provider takes images as data only: send them as data: URLs, or set fetch_images_from."
    return text


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: Any = error
    while isinstance(link, BaseException) and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = getattr(link, "original_exception", None) or link.__cause__ or link.__context__


def _classes(error: BaseException) -> set[str]:
    return {cls.__name__ for cls in type(error).__mro__}


def _failure(error: BaseException, upstream: str) -> PenstockError | None:
    """Return the error after which there is no answer of the provider's; None for all others."""
    if isinstance(error, PenstockError):
        return error
    if isinstance(error, ImportError):
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        hint = f": pip install 'penstock[{extra}]'" if extra else ""
        return UpstreamFailed(f"upstream {upstream!r} needs the Python package {error.name!r}{hint}")
    classes = _classes(error)
    if UNREACHED & classes:
        return unreached(upstream, is_late=bool(LATE & classes))
    if LATE & classes:
        return too_late(upstream)
    return broken_off(upstream) if BROKEN & classes else None


def _status(error: BaseException) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) and 400 <= status <= 599 else None


def _detail(error: Mapping[str, Any], name: str) -> Any:
    """Return a field of Google's details of an error (google.rpc.ErrorInfo, RetryInfo)."""
    return next((each[name] for each in json_objects(error.get("details")) if each.get(name)), None)


def _retry_info(error: Mapping[str, Any]) -> dict[str, str]:
    """Return `retry-after`, in whole seconds, from Google's RetryInfo (`"retryDelay": "21.5s"`)."""
    with suppress(ValueError, OverflowError):
        return {"retry-after": str(math.ceil(float(str(_detail(error, "retryDelay")).removesuffix("s"))))}
    return {}


def _hidden(text: str, hide: Iterable[str]) -> str:
    for secret in sorted(hide, key=len, reverse=True):
        text = text.replace(secret, "***") if len(secret) >= SHORTEST_SECRET else text
    return text
