"""What an upstream refused, in OpenAI's terms."""

from collections.abc import Mapping

from proxy.chat.errors import PenstockError
from proxy.upstreams.overflow import CODE, Overflow, sentence

_BY_STATUS = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "permission_denied"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("service_unavailable_error", "server_is_overloaded"),
}
"""OpenAI's type and code; other statuses have a type of their hundred and no code."""

LONGEST_MESSAGE = 2000
"""Characters of a server's text that are passed on."""


class Refused(PenstockError):
    """The upstream answered with an error."""

    def __init__(
        self,
        message: str,
        status: int,
        kind: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, status=status, code=code, param=param, headers=headers)
        self.type = kind


def kind_of(status: int) -> tuple[str, str | None]:
    """OpenAI's type and code for a status."""
    return _BY_STATUS.get(status) or ("server_error" if status >= 500 else "invalid_request_error", None)


def overflowed(text: str, overflow: Overflow, *, prompt: int | None, window: int | None) -> Refused:
    """The refusal of a prompt that does not fit; what the server did not tell is filled in, in tokens."""
    message = sentence(text, overflow.prompt or prompt, overflow.window or window)
    return Refused(message, 400, "invalid_request_error", code=CODE, param="messages")
