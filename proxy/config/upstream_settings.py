"""What the settings of all upstreams that can fail have in common."""

from pydantic import Field

from proxy.config.fields import Base, Seconds


class BreakerSettings(Base):
    """When an upstream is asked no more for a while, because it fails.

    A failure is a connection that cannot be made, a time-out, an answer that breaks off, or a status of 502 and above.
    A 500 is none, because servers give it to requests that they stumble over: one client could close the way for all.
    A 429 is none either: it is about one key.
    """

    failures: int = Field(default=5, ge=0)
    """So many failures, which must be at least half of all answers in that time, open it; 0 never does."""

    within: Seconds = 30.0
    """Seconds in which they count."""

    open_for: Seconds = 10.0
    """Seconds for which requests get a 503 at once, or go to a fallback; then a single one is let through to see."""


class Guarded(Base):
    """What keeps an upstream in trouble from becoming everybody's trouble."""

    max_connections: int = Field(default=1000, ge=1)
    """The most requests under way at once in this process; each has a connection of its own until its answer ends."""

    max_waiting: int = Field(default=100, ge=0)
    """The most requests that wait for one of these to end. Further ones get a 503 at once, or go to a fallback."""

    max_wait: Seconds = 2.0
    """Seconds that a request waits, before it gets the same."""

    breaker: BreakerSettings = BreakerSettings()
    """When it is left alone for a while."""


class Translated(Base):
    """An upstream that requests are translated for."""

    strict_params: bool = False
    """Refuse a request with fields that the upstream has nothing for. Without it they are left out, and the header
    `x-penstock-ignored` names them: `n,seed,logprobs`."""


class Connected(Guarded):
    """An upstream that Penstock itself connects to."""

    connect_timeout: Seconds = 10.0
    """Seconds to reach the server."""

    idle_timeout: Seconds = 600.0
    """Seconds without a single byte after which an answer is given up. Loading a large model takes minutes."""

    max_answer_mib: float = Field(default=64, gt=0)
    """The largest answer, in MiB, that is held in memory: one that is not streamed. A larger one is a 502."""
