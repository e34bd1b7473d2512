"""Telemetry of requests: each is observed from its first byte to its last, for spans, metrics, a record and the log."""

import logging
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from time import perf_counter, time
from typing import TYPE_CHECKING

from proxy import __version__
from proxy.chat import ChatRequest
from proxy.chat.errors import OVERFLOW, NotInTime, NotKept, PenstockError
from proxy.chat.parse import Body
from proxy.config.settings import TelemetrySettings
from proxy.context import Context, ModelProfile
from proxy.models.usage import Usage
from proxy.policy import Fact
from proxy.state.cache import REMEMBERED, SharedLimit
from proxy.state.warnings import Warnings
from proxy.step import Step
from proxy.telemetry.bill import Bills
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.record import NONE, PARSED, Record
from proxy.telemetry.records import Records
from proxy.text.tables import sections

if TYPE_CHECKING:
    from proxy.telemetry.tracing import CallSpan, RequestSpan, Tracing

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

OPERATIONS: Mapping[str, str] = dict(line.split() for line in sections("spans")["operations"])
"""The operations of paths below `/v1`, as far as the GenAI conventions have a name for them."""
_LOGGED = {"milliseconds": "ms"}
_NOT_LOGGED = frozenset({"window", "usd_unchanged", "cached_expected"})
_KIND = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_access = logging.getLogger("penstock.access")
_context = logging.getLogger("penstock.context")

_log = logging.getLogger("penstock.telemetry")


class Telemetry:
    """The telemetry of one app; nothing of it is shared with another in the same process."""

    def __init__(
        self,
        metrics: Metrics,
        tracing: "Tracing | None" = None,
        *,
        warn_at: float = 0.7,
        records: Records | None = None,
        limit: SharedLimit | None = None,
    ) -> None:
        """Call a context nearly full above the share `warn_at` of the usable window. `limit` is what caches share."""
        self.metrics, self.records, self.warn_at = metrics, records, warn_at
        self.limit = limit or SharedLimit(REMEMBERED)
        self.bills = Bills(self.limit)
        self.unshortened = Warnings(_context, "context was not shortened")
        if records is not None:
            records.skipped, records.forgotten = metrics.of("records_skipped").inc, self.bills.forget
        self._tracing = tracing

    @classmethod
    def open(
        cls, settings: TelemetrySettings, records: Records | None = None, limit: SharedLimit | None = None
    ) -> "Telemetry":
        """Set up telemetry; OpenTelemetry is loaded only for spans to send. Raises `ConfigError`."""
        tracing, off = None, os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        if not off and (settings.console or settings.endpoint is not None or any(map(os.environ.get, _ENDPOINTS))):
            from proxy.telemetry.tracing import Tracing

            tracing = Tracing(settings)
        return cls(Metrics(__version__), tracing, warn_at=settings.warn_at, records=records, limit=limit)

    def begin(
        self,
        method: str,
        route: str,
        headers: Mapping[str, str],
        *,
        path: str | None = None,
        request_id: str = "",
        config: str = "",
    ) -> "Observation":
        """Begin to observe a request until `end`. `route` is the app's own; `headers` are in lower case."""
        span = self._tracing.begin(method, route, path or route, headers) if self._tracing is not None else None
        if (retries := headers.get("x-stainless-retry-count")) is not None and retries.strip("0").isdigit():
            self.metrics.of("client_retries").inc()
        seen = Observation(self, span, config, {"request_id": request_id or None, "route": route})
        seen.explains = self.records is not None and headers.get("x-penstock-explain", "0").lower() in ("1", "true")
        return seen

    async def aclose(self, seconds: float = 5.0) -> None:
        self.metrics.close()
        if self._tracing is not None:
            await self._tracing.aclose(seconds)


class Observation(Record):
    """A record on its way: what happens to the request goes into its spans and into metrics, too."""

    explains = False
    """True if the client asks for the path of the request's record, and gets it."""
    model = _upstream = NONE
    """Labels of the last model and its upstream; there are not many of them, whatever clients ask for."""
    entry = NONE
    _key: str | None = None
    _broken: str | None = None
    """The error with which an answer ended that had begun well."""
    _profile: ModelProfile | None = None
    _overflow = _answering = _ended = False

    def __init__(
        self, telemetry: Telemetry, span: "RequestSpan | None", config: str, known: dict[str, str | None]
    ) -> None:
        super().__init__(config, known, telemetry.bills)
        self._telemetry, self.metrics, self._span = telemetry, telemetry.metrics, span
        self.trace_id = None if span is None else span.trace_id
        self.keeps_text = telemetry.records is not None and telemetry.records.settings.text
        self._started = perf_counter()
        self._ran: list[Step] = []
        """The steps of all chains that ran: another model, or a smaller window, has them run again."""
        self.metrics.of("active_requests").inc()

    def called_by(self, tenant: str, name: str | None, issuer: str | None = None) -> None:
        """Set the tenant, and the name of the key of Penstock's; users of an identity provider are one in metrics."""
        self.tenant = tenant
        self._key = issuer or name
        if name is not None:
            self.known["key"] = name

    def routed(
        self,
        *,
        model: str,
        upstream: str,
        chain: str | None = None,
        profile: ModelProfile | None = None,
        entry: str | None = None,
        named: bool = True,
    ) -> None:
        """Say where the request goes. `model` is the upstream's name for it, `named` whether the configuration has it.

        One that only a client named may count as `other`. `entry` is the one of the configuration that matched. Where
        the `profile` has prices, the usage that the upstream reports is priced.
        """
        self._profile, self.entry, self.asked = profile, entry or model, model
        self.model, self._upstream = self.metrics.model(model, named=named), upstream
        self.known |= {"model": self.model, "upstream": upstream, "chain": chain}

    def ran(
        self, steps: Sequence[Step], *, before: int, after: int, window: int | None, refused: str | None = None
    ) -> None:
        """Set the steps, and the prompt's tokens before and after them; `refused` is the code where it is too large."""
        self.steps, self.before, self.after, self.window = steps, before, after, window
        self._ran += steps
        self._overflow = window is not None and after > window
        self.metrics.sized(self.model, before, after, window)
        self.metrics.ran(steps)
        if window and (refused or after >= self._telemetry.warn_at * window):
            self._warn(refused, after, window)

    def passed(self, body: Body, headers: Mapping[str, str]) -> None:
        """Set a body that no chain has read; `headers` are the client's."""
        # a large one would hold its memory until its record is written
        self.unread = body if len(body.raw) <= PARSED else None, headers

    def _warn(self, refused: str | None, tokens: int, window: int) -> None:
        """Count a context that is nearly full, or too full to be sent, and log it."""
        if refused not in (None, OVERFLOW):  # it may fit soon: that is load, or the state, and of every request
            self._telemetry.unshortened.warn({"tokens": tokens, "window": window}, model=self.model, cause=refused)
            return
        level = "critical" if refused else "warn"
        self.metrics.of("context_warnings", self.model, level).inc()
        known = {"level": level, "tokens": tokens, "window": window}
        if self._span is not None:
            shown = {f"penstock.context.{name}": value for name, value in known.items()}
            self._span.event("penstock.context.warning", shown)
        ids = {"request_id": self.known["request_id"], "model": self.model}
        fields = {**ids, **known, "share": round(tokens / window, 3)}
        event = "context is too large and was refused" if refused else "context is filling up"
        _context.log(logging.CRITICAL if refused else logging.WARNING, event, extra={"fields": fields})

    async def expect(self, came: ChatRequest, sent: ChatRequest, ctx: Context) -> None:
        if ctx.model.prices.known:
            self.estimate = await self.estimated(came, sent, ctx)

    def turned(self, to: str, reason: str, *, named: bool) -> None:
        """Count a fallback to another model, named as in `routed`; the `reason` is one of a few words."""
        to = self.metrics.model(to, named=named)
        self.metrics.of("fallbacks", self.model, to, reason).inc()
        self.known["fallback"] = reason
        if self._span is not None:
            known = {"penstock.fallback.model": to, "penstock.fallback.reason": reason}
            self._span.event("penstock.fallback", {"penstock.model": self.model, **known})

    def call(
        self,
        *,
        provider: str,
        model: str,
        operation: str | None = "chat",
        address: str | None = None,
        fields: Mapping[str, object] | None = None,
    ) -> "ObservedCall":
        """Begin a call until its `end`. `operation` is None for one that asks no model."""
        span = None
        if self._span is not None:
            span = self._span.call(operation, provider, model, address, fields or {}, self)
        counted = (operation, provider, self.model) if operation and model else None
        return ObservedCall(self, span, counted)

    def end(self, status: int, *, error: "BaseException | str | None" = None, stream: bool = False) -> None:
        """End the observation with the client's status, 499 for one that left. Further calls do nothing."""
        if self._ended:
            return
        self._ended = True
        seconds = perf_counter() - self._started
        kind = kind_of(error) or self._broken
        if "model" in self.known:
            self.metrics.routed(self.model, self._upstream)
        self.metrics.of("active_requests").dec()
        self.metrics.of("requests", self.model, self._upstream, str(status)).inc()
        self.metrics.observe(seconds, "request_duration_seconds", self.model, self._upstream)
        if self._key is not None:
            self.metrics.of("key_requests", self._key, str(status)).inc()
        if isinstance(error, NotInTime):
            self.metrics.of("limited_requests", "not_in_time").inc()
        elif (self._overflow or kind == OVERFLOW) and not isinstance(error, NotKept):
            self.metrics.of("context_overflows", self.model).inc()
        self.when, self.seconds, self.status, self.error, self.stream = time(), seconds, status, kind, stream
        records = self._telemetry.records
        if records is not None and "model" in self.known and records.takes_one(asked=self.explains):
            records.add(self)
        if self._span is not None or _access.isEnabledFor(logging.INFO):
            self._show({**self.known, **self.facts()})

    def _show(self, facts: Mapping[str, object]) -> None:
        if self._span is not None:
            self._span.end(self, facts, self._ran)
        line = {_LOGGED.get(name, name): value for name, value in facts.items() if name not in _NOT_LOGGED}
        verdicts = Counter(f"observed_{step.verdict}" if step.observed else step.verdict for step in self.steps)
        known = {name: value for name, value in line.items() if value is not None}
        fields = {name: round(value, 6) if isinstance(value, float) else value for name, value in known.items()}
        _access.info("request", extra={"fields": {**fields, "verdicts": dict(verdicts)}})

    def _answered(self) -> None:
        if not self._answering:
            self._answering = True
            waited = perf_counter() - self._started
            self.metrics.observe(waited, "time_to_first_chunk_seconds", self.model, self._upstream)

    def _called(self, error: str | None, usage: Usage | None, facts: Mapping[str, Fact]) -> None:
        self.metrics.answered(facts, self._upstream)
        if facts.get("ignored"):
            self.known["ignored"] = str(facts["ignored"])
        rounds = int(facts.get("rounds", 1))
        if usage is not None:
            for kind, tokens in (("input", usage.input), ("output", usage.output), ("cached_input", usage.cached)):
                if tokens:
                    self.metrics.of("tokens", self.model, kind).inc(tokens)
                    if self._key is not None:
                        self.metrics.of("key_tokens", self._key, kind).inc(tokens)
            self._price(usage, rounds)
            self._reported(usage)
        if error is None:
            self.answers.append(usage or Usage())
            self._settle(usage, rounds)
        else:
            self.metrics.of_reason("upstream_errors", self._upstream, error).inc()
            self._overflow = self._overflow or error == OVERFLOW

    def _reported(self, usage: Usage) -> None:
        """Keep the vendor's report with the request, and put the steps on hold that did harm."""
        report, estimate, rewriting = usage.report, self.estimate, self.rewriting
        if not any(report):
            return
        self.known["vendor"] = str(report)
        harm = report.harm(is_unread=estimate is not None and estimate.sent.cached > 0 and usage.cached == 0)
        if harm is None or rewriting is None:
            return
        steps = [name for name, _ in rewriting.stages]
        self.bills.reports.hold(rewriting.ctx.identity, steps, harm)
        for name in steps:
            self.metrics.of_reason("harmful_steps", name, harm).inc()
        fields = {"steps": ", ".join(steps), "report": str(report), "request_id": self.known["request_id"]}
        _log.warning("the vendor reports that edits did harm", extra={"fields": fields})

    def _price(self, usage: Usage, rounds: int) -> None:
        profile = self._profile
        if profile is None or not profile.prices.known or usage.input is None:
            return
        prompt = profile.cache.reported_cost(usage.input, usage.cached or 0, usage.written or 0)
        cost = profile.prices.usd(usage.input // rounds, prompt, usage.output or 0)
        self.usd = cost + (self.usd or 0.0)
        self.metrics.of("cost_usd", self.model).inc(cost)
        if self._key is not None:
            self.metrics.of("key_cost_usd", self._key).inc(cost)

    def _settle(self, usage: Usage | None, rounds: int) -> None:
        estimate = self.estimate
        if estimate is None:
            return
        self.bills.sent(estimate)
        estimate.rounds = rounds
        self.saved = estimate.usd_saved
        if estimate.usd_unchanged is not None:
            self.metrics.of("prompt_cost_usd", self.model, "sent").inc(estimate.usd)
            self.metrics.of("prompt_cost_usd", self.model, "unchanged").inc(estimate.usd_unchanged)
        if usage is not None and usage.cached is not None and rounds == 1:
            # as the upstream counts: the estimate tells which part of the prompt is read
            scale = (usage.input or estimate.sent.tokens) / max(1, estimate.sent.tokens)
            self.metrics.of("cached_tokens", self.model, "expected").inc(round(estimate.sent.cached * scale))
            self.metrics.of("cached_tokens", self.model, "reported").inc(usage.cached)
            if self._profile is not None and (rewriting := self.rewriting) is not None:
                who, upstream = rewriting.ctx.identity, self.known["upstream"] or ""
                self.bills.reports.note(who, upstream, self._profile.name, estimate.sent.cached, usage.cached)


class ObservedCall:
    """One call to an upstream on behalf of a request; a request may make several."""

    def __init__(self, request: Observation, span: "CallSpan | None", counted: tuple[str, str, str] | None) -> None:
        self._request, self._span, self._counted = request, span, counted
        self._started = perf_counter()
        self._first_chunk: float | None = None
        self._ended = False

    def carry(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the headers for the upstream: with the call's own `traceparent`."""
        return headers if self._span is None else self._span.carry(headers)

    def first_chunk(self) -> None:
        if self._first_chunk is None:
            self._first_chunk = perf_counter() - self._started
            self._request._answered()

    def end(
        self,
        *,
        status: int | None = None,
        error: "BaseException | str | None" = None,
        usage: Usage | None = None,
        facts: Mapping[str, Fact] | None = None,
    ) -> None:
        """End the call; a status from 400 on is an error. Further calls do nothing."""
        if self._ended:
            return
        self._ended = True
        if isinstance(error, PenstockError) and error.code is None:
            status, error = error.status, None
        kind = kind_of(error) or (str(status) if status is not None and status >= 400 else None)
        if status is not None and status < 400:
            self._request._broken = kind
        self._request._called(kind, usage, facts or {})
        if self._counted is not None:
            seconds = perf_counter() - self._started
            self._request.metrics.called(self._counted, kind, seconds, usage)
        if self._span is not None:
            if kind is not None and self._first_chunk is not None and (status is None or status < 400):
                used = usage or Usage()  # the answer had begun
                usage = used._replace(finish_reasons=used.finish_reasons or ("error",))
            self._span.end(usage, facts or {}, self._first_chunk, kind)


def kind_of(error: "BaseException | str | None") -> str | None:
    """Return an error as a label: its code, else its class. Never its text, which may quote a prompt."""
    if isinstance(error, PenstockError):
        error = error.code or type(error).__name__
    elif isinstance(error, BaseException):
        error = type(error).__name__
    return error if error is None or _KIND.fullmatch(error) else "other"
