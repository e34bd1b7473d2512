"""What went wrong at a provider, in OpenAI's terms, from the exceptions that litellm makes of it.

litellm's own classes are only asked what the statuses cannot say (a full context window): they turn a 403 into a
connection error, a 529 into a 500 and a refused connection into a 500. What happened stands further down the chain of
causes. Classes are compared by name, because nothing here may import litellm.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from proxy.chat.errors import PenstockError, UpstreamFailed, UpstreamTimeout
from proxy.upstreams.overflow import CODE, Overflow, find_overflow, sentence

LATE = frozenset({"TimeoutError", "TimeoutException", "APITimeoutError"})
UNREACHED = frozenset({"TransportError", "ClientConnectionError", "ConnectionError"})
ANSWERED = frozenset({"HTTPStatusError", "APIStatusError"})
CONTEXT_FULL = "ContextWindowExceededError"

BY_STATUS = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "permission_denied"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("service_unavailable_error", "server_is_overloaded"),
}
"""OpenAI's type and code; other statuses have a type of their hundred and no code."""

RETRY_HEADERS = ("retry-after", "retry-after-ms", "x-should-retry")
LONGEST_MESSAGE = 2000
"""Characters of a provider's text that are passed on."""

SHORTEST_SECRET = 6
"""Characters: shorter settings are words that a message may need."""

_PREFIX = re.compile(r"(?:(?:litellm\.|(?<!\w))\w*(?:Error|Exception|litellm\.Timeout)\s*(?::|-)\s+)+")
_TAIL = re.compile(
    r"(?<!\s)\s*(?:\nReceived Messages=|\nTraceback|\. Handle with `litellm|\nModel: |\nAPI Base).*", re.DOTALL
)


class ProviderRefused(PenstockError):
    """The provider answered with an error."""

    def __init__(self, message: str, status: int, kind: tuple[str, str | None], headers: dict[str, str]) -> None:
        super().__init__(message, status=status, code=kind[1], headers=headers)
        self.type = kind[0]


def explain(error: BaseException, upstream: str, hide: Iterable[str]) -> PenstockError:
    """What to tell the client: `ProviderRefused`, or `UpstreamFailed` where no answer came. Hides the given texts."""
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
        return UpstreamTimeout(f"Upstream {upstream!r} did not answer in time.")
    return _refused(error, wrapper, wrapper, hide)


def _failed(error: BaseException, upstream: str) -> PenstockError | None:
    """What an error means after which there is no answer of the provider's; None for all others."""
    if isinstance(error, PenstockError):
        return error
    if isinstance(error, ImportError):
        return UpstreamFailed(f"Upstream {upstream!r} needs the Python package {error.name!r}.")
    if LATE & _classes(error):
        return UpstreamTimeout(f"Upstream {upstream!r} did not answer in time.")
    if UNREACHED & _classes(error):
        return UpstreamFailed(f"Upstream {upstream!r} could not be reached.")
    return None


def _refused(
    error: BaseException, wrapper: BaseException | None, answer: BaseException | None, hide: Iterable[str]
) -> ProviderRefused:
    """The provider's refusal: its words stand in `wrapper`, its status and headers in `answer`; both may be missing."""
    status = _status(answer or error)
    text = _hidden(_text(wrapper or error), hide) or f"The provider answered with status {status}."
    overflow = find_overflow(text) if status in (400, 413, 422) else None
    if overflow is not None or any(CONTEXT_FULL in _classes(link) for link in _chain(error)):
        overflow = overflow or Overflow()
        message = sentence(text, overflow.prompt, overflow.window)
        return ProviderRefused(message, 400, ("invalid_request_error", CODE), {})
    headers = _retry_headers(answer, error)
    if answer is None and status >= 500:
        # litellm stumbled over the request itself; it would do so again.
        headers["x-should-retry"] = "false"
        text = "The request could not be translated for this provider."
    status = 503 if status == 529 else status
    kind = BY_STATUS.get(status) or ("server_error" if status >= 500 else "invalid_request_error", None)
    return ProviderRefused(text, status, kind, headers)


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


def _text(error: BaseException) -> str:
    """The provider's own words."""
    raw = getattr(error, "message", None) or str(error)
    text = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    try:
        said = json.loads(text)
    except ValueError:
        said = getattr(error, "body", None) or text
    if isinstance(said, list) and said:
        said = said[0]
    if isinstance(said, dict):
        inner = said.get("error", said)
        said = inner.get("message") if isinstance(inner, dict) else inner
        said = said or text
    words = _TAIL.sub("", _PREFIX.sub("", str(said))).strip()
    return "" if words.startswith("<") else words[:LONGEST_MESSAGE]


def _hidden(text: str, hide: Iterable[str]) -> str:
    for secret in sorted(hide, key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return text
