"""An upstream's refusals in OpenAI's terms."""

from collections.abc import Iterable, Mapping

from proxy.chat.errors import PenstockError
from proxy.upstreams.base import Call
from proxy.upstreams.overflow import CODE, Overflow, sentence

_BY_STATUS = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "permission_denied"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("service_unavailable_error", "server_is_overloaded"),
}
"""OpenAI's type and code; other statuses have a type of their hundred and no code."""

RETRY_HEADERS = ("retry-after", "retry-after-ms", "x-should-retry")
"""Headers of an error that tell SDKs when to try again."""


def advice(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers of an error that tell SDKs when to try again."""
    told = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    return {name: told[name] for name in RETRY_HEADERS if name in told}


class Refused(PenstockError):
    """The upstream answered with an error."""

    def __init__(
        self,
        message: str,
        status: int,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, status=status, code=code, param=param, headers=headers)
        self.type = kind_of(status)[0]


def kind_of(status: int) -> tuple[str, str | None]:
    """Return OpenAI's type and code for a status."""
    return _BY_STATUS.get(status) or ("server_error" if status >= 500 else "invalid_request_error", None)


def overflowed(text: str, overflow: Overflow, call: Call) -> Refused:
    """Return the refusal of a prompt that does not fit. Our own figures fill those that the server left out."""
    prompt = overflow.prompt or (call.counted.total if call.counted else None)
    window = overflow.window or (call.profile.window if call.profile else None)
    return Refused(sentence(text, prompt, window), 400, code=CODE, param="messages")


def answered_with(
    status: int, text: str, call: Call, *, is_own: bool, headers: Mapping[str, str] | None = None
) -> Refused:
    """Return the error for a status, with the server's words. If not `is_own`, it comes from something in front."""
    if status == 404 and is_own:
        text = f"The model `{call.model[:200]}` does not exist or you do not have access to it. {text}"
    told = text or f"The upstream answered with status {status}."
    return Refused(told, status, code=kind_of(status)[1] if is_own else None, headers=headers)
