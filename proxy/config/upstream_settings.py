"""Common settings of all upstreams that can fail."""

from pydantic import Field

from proxy.config.fields import Base, Seconds


class BreakerSettings(Base):
    """The circuit breaker: stops asking an upstream that fails, for a while.

    A failure is a failed connection, a timeout, an answer that breaks off, or a status from 502 on. A 500 or 429 may be
    about one request or key.
    """

    failures: int = Field(default=5, ge=0)
    """Failures that open it, if they are at least half of all answers in that time; 0 turns it off."""

    within: Seconds = 30.0
    """Seconds within which failures count."""

    open_for: Seconds = 10.0
    """Seconds for which requests get a 503 at once, or go to a fallback. Then a single one tries."""


class Guarded(Base):
    """Bounds that keep a slow or failing upstream from affecting the others."""

    max_connections: int = Field(default=1000, ge=1)
    """Requests under way in this process."""

    max_waiting: int = Field(default=100, ge=0)
    """Requests that wait for a free connection. Further ones get a 503 at once, or go to a fallback."""

    max_wait: Seconds = 2.0
    """Seconds that a request waits for a free connection; then it gets a 503, or goes to a fallback."""

    breaker: BreakerSettings = BreakerSettings()
    """The circuit breaker."""


class Translated(Base):
    """An upstream that requests are translated for."""

    strict_params: bool = False
    """Refuse requests with fields that the upstream cannot take. By default they are left out, and `x-penstock-ignored`
    names them."""

    fetch_images_from: tuple[str, ...] = ()
    """Hosts (with an unusual port) from which Penstock fetches images that a request names by address, where the
    provider takes only bytes. Redirects are not followed. Other hosts are a 400."""


class Connected(Guarded):
    """An upstream that Penstock itself connects to."""

    connect_timeout: Seconds = 10.0
    """Seconds to reach the server."""

    idle_timeout: Seconds = 600.0
    """Seconds of silence after which an answer is given up. Loading a large model takes minutes."""

    max_answer_mib: float = Field(default=64, gt=0)
    """The largest answer that is not streamed. A larger one is a 502."""
