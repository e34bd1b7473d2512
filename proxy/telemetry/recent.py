"""The last requests of this process, and what was done to each: kept in memory, without any prompt text."""

from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple

from proxy.step import Step
from proxy.telemetry.bill import Estimate, estimated

MOST = 1000
"""Requests that are remembered."""


class Record(NamedTuple):
    """One request. Made for each, so it only refers to what is there; it is put into words when somebody asks."""

    request_id: str
    tenant: str
    """A hash, from which no key can be told."""
    config: str
    """The version of the configuration that it was served with."""
    when: float
    """Its end, in seconds since 1970."""
    known: dict[str, str | None]
    """Its route, model, upstream and chain, and the fields that the upstream has nothing for."""
    steps: Sequence[Step]
    before: int | None
    after: int | None
    window: int | None
    usd: float | None
    estimate: Estimate | None
    saved: float | None
    status: int
    seconds: float
    error: str | None
    stream: bool
    trace_id: str | None
    input_tokens: int | None = None
    """As upstreams reported them, those of internal rounds included."""
    output_tokens: int | None = None

    def shown(self) -> dict[str, Any]:
        """The request for machines, as JSON values; times in milliseconds."""
        ended = datetime.fromtimestamp(self.when, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {
            "request_id": self.request_id,
            "ended": ended,
            "tenant": self.tenant,
            "config": self.config,
            **{name: self.known.get(name) for name in ("route", "model", "upstream", "chain", "ignored")},
            "status": self.status,
            "error": self.error,
            "stream": self.stream,
            "milliseconds": round(self.seconds * 1000, 1),
            "tokens_before": self.before,
            "tokens_after": self.after,
            "window": self.window,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "usd": self.usd,
            **estimated(self.estimate),
            "usd_saved": self.saved,
            "trace_id": self.trace_id,
            "steps": [step.shown() for step in self.steps],
        }


class Recent:
    """A ring of records."""

    def __init__(self, most: int = MOST) -> None:
        self._records: deque[Record] = deque(maxlen=most)
        self._listener: Callable[[Record], None] | None = None

    def tell(self, listener: Callable[[Record], None]) -> None:
        """Tell of each request from now on as well; this must take no time, and not fail."""
        self._listener = listener

    def add(self, record: Record) -> None:
        """Remember a request; the oldest is forgotten for it."""
        self._records.append(record)
        if self._listener is not None:
            self._listener(record)

    def latest(self, limit: int, since: float = 0.0) -> list[Record]:
        """The last requests, the newest first; only such as ended at `since` (in seconds since 1970) or later."""
        newest = islice(reversed(self._records), limit)
        return [record for record in newest if record.when >= since]

    def forget(self, tenant: str) -> int:
        """Forget the requests of a tenant; how many there were."""
        kept = [record for record in self._records if record.tenant != tenant]
        count = len(self._records) - len(kept)
        self._records.clear()
        self._records.extend(kept)
        return count

    def find(self, request_id: str, tenant: str | None = None) -> Record | None:
        """The newest request of an id; with `tenant` only one of its own.

        It looks at all records whatever it finds: how long that takes tells nobody about the requests of others.
        """
        found = None
        for record in self._records:
            if (record.request_id == request_id) & (tenant is None or record.tenant == tenant):
                found = record
        return found
