"""Telemetry of a request: spans, metrics, a record and a line in the log."""

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from proxy import __version__
from proxy.config.settings import TelemetrySettings
from proxy.models.vendor_reports import ReportMemory
from proxy.state.warnings import Warnings
from proxy.telemetry.bill import MOST_BYTES, Bills
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.observation import Observation
from proxy.telemetry.records import Records

if TYPE_CHECKING:
    from proxy.telemetry.tracing import Tracing

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class Telemetry:
    """The telemetry of one app; nothing of it is shared with another in the same process."""

    def __init__(
        self,
        metrics: Metrics,
        tracing: "Tracing | None" = None,
        *,
        warn_at: float = 0.7,
        records: Records | None = None,
        remembers: int = MOST_BYTES,
    ) -> None:
        """Call a context nearly full above the share `warn_at` of the usable window; remember so many bytes."""
        self.metrics = metrics
        self.bills, self.warn_at = Bills(remembers), warn_at
        self._unshortened = Warnings(logging.getLogger("penstock.context"), "context was not shortened")
        self._records = records
        if records is not None:
            records.skipped, records.forgotten = metrics.of("records_skipped").inc, self.bills.forget
        self._tracing = tracing

    @classmethod
    def open(
        cls, settings: TelemetrySettings, records: Records | None = None, remembers: int = MOST_BYTES
    ) -> "Telemetry":
        """Set up the telemetry of the settings and the environment.

        OpenTelemetry is loaded only if there is somewhere to send spans. Raises `ConfigError` if that cannot work.
        """
        tracing = None
        if _traced(settings):
            from proxy.telemetry.tracing import Tracing

            tracing = Tracing(settings)
        return cls(Metrics(__version__), tracing, warn_at=settings.warn_at, records=records, remembers=remembers)

    def begin(
        self,
        method: str,
        route: str,
        headers: Mapping[str, str],
        *,
        path: str | None = None,
        request_id: str = "",
        tenant: str = "",
        config: str = "",
    ) -> Observation:
        """Begin to observe a request; `end` of the observation must be called.

        `route` is a path of the app's own, such as `/v1/chat/completions`, never the client's; `headers` are the
        client's, names in lower case; `config` is the version of the configuration. Health and metrics endpoints are
        not to be observed.
        """
        span = self._tracing.begin(method, route, path or route, headers) if self._tracing is not None else None
        if headers.get("x-stainless-retry-count", "0").strip("0").isdigit():
            self.metrics.of("client_retries").inc()
        explains = headers.get("x-penstock-explain", "0").lower() in ("1", "true")
        return Observation(
            self.metrics,
            span,
            self._records,
            self.warn_at,
            self._unshortened,
            explains=explains,
            tenant=tenant,
            config=config,
            known={"request_id": request_id or None, "route": route},
            bills=self.bills,
        )

    @property
    def reports(self) -> ReportMemory:
        """The memory of vendors' reports."""
        return self.bills.reports

    async def aclose(self, seconds: float = 5.0) -> None:
        """Send the last spans, for at most so many seconds."""
        self.metrics.close()
        if self._tracing is not None:
            await self._tracing.aclose(seconds)


def _traced(settings: TelemetrySettings) -> bool:
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    return settings.console or settings.endpoint is not None or any(os.environ.get(name) for name in _ENDPOINTS)
