"""The numbers behind `/metrics`."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, multiprocess
from prometheus_client.exposition import choose_encoder

from proxy.chat.errors import ConfigError
from proxy.policy import BringsTools, Count, Fact, Policy
from proxy.step import Step
from proxy.telemetry.series import Labelled, Maker, Series

MOST_MODELS = 200
"""Names of models that are labels. Where the configuration has globs, clients choose names."""

_CALLS = "calls_"
"""Facts of an answer that begin so say how often an internal tool was called: `calls_note`."""

_NAME = re.compile(r"[A-Za-z0-9._:/@+-]{1,128}")
_BREAKER = {"closed": 0.0, "half_open": 0.5, "open": 1.0}


class Metrics:
    """All series of one app, in a registry of its own.

    Where `PROMETHEUS_MULTIPROC_DIR` names a directory, all processes that share it are shown as one. Label values must
    come from the configuration.
    """

    def __init__(self, version: str) -> None:
        """Raise `ConfigError` if `PROMETHEUS_MULTIPROC_DIR` is set and is no directory."""
        self._directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        if self._directory is not None and not os.path.isdir(self._directory):
            raise ConfigError(f"PROMETHEUS_MULTIPROC_DIR is {self._directory!r}, which is no directory: create it")
        self._registry = registry = CollectorRegistry()
        make = Maker(registry)
        self._models: set[str] = set()
        self._routed: set[tuple[str, str]] = set()
        self._upstreams: set[str] = set()
        self._ran: set[str] = set()
        self._counted: dict[str, Mapping[str, Count]] = {}
        self._tools: dict[str, Count] = {}
        self.series = Series(make)
        self.config = ConfigMetrics(make, shared=self._directory is not None)
        self.active = make.gauge("active_requests", "Requests under way.", "livesum")
        self.retries = make.total("client_retries", "Requests that an SDK sent again by itself.")
        self.records_skipped = make.total("records_skipped", "Requests that were not recorded.")
        states = "0 closed, 1 open, 0.5 while a request is let through to see."
        self._breakers = make.gauge("upstream_breaker", states, "livemax", "upstream")
        make.gauge("build_info", "Always 1.", "mostrecent", "version").labels(version).set(1)
        if self._directory is None:
            ProcessCollector(registry=registry)

    def model(self, name: str, *, named: bool) -> str:
        """Return the label of a model: its name, or `other` for a client's name once there are many of these."""
        if name not in self._models:
            if not named and (len(self._models) >= MOST_MODELS or not _NAME.fullmatch(name)):
                return "other"
            self._models.add(name)
        return name

    def routed(self, model: str, upstream: str) -> None:
        """Have the series of a model at an upstream begin at zero."""
        if (model, upstream) in self._routed:
            return
        self._routed.add((model, upstream))
        series = self.series
        series.duration.of(model, upstream)
        series.first_chunk.of(model, upstream)
        for phase in ("before", "after"):
            series.size.of(model, phase)
            series.utilization.of(model, phase)
        series.overflows.of(model)
        for kind in ("input", "output", "cached_input"):
            series.tokens.of(model, kind)

    def degraded(self, service: str, degraded: bool) -> None:
        """Set the gauge of a service that this process does without."""
        self.series.service_degraded.labels(service).set(int(degraded))

    def count_memories(self, metric: str, label: str, number: int) -> None:
        """Add to one of the series of memories, by its name; all labels are words of the code."""
        series = self.series
        if metric == "memory_bytes":
            series.memory_bytes.inc(number)
        elif number:
            counters = {
                "memories": series.memories,
                "memory_searches": series.memory_searches,
                "memory_losses": series.memory_losses,
            }
            counters[metric].of(label).inc(number)

    def declare(self, name: str, policy: type[Policy]) -> None:
        """Make the series of what a policy counts. Raise `ConfigError` where one is another series already."""
        self._counted[name] = policy.counted
        tools = policy.internal_tools if issubclass(policy, BringsTools) else ()
        self._tools |= {tool.definition.name: tool.counted for tool in tools if tool.counted is not None}
        for count in (*policy.counted.values(), *self._tools.values()):
            self.series.declare(count)

    def ran(self, steps: Iterable[Step]) -> None:
        """Count the steps of one request."""
        series = self.series
        for step in steps:
            policy = step.policy
            series.verdicts.of(policy, step.verdict, "observe" if step.observed else "enforce").inc()
            if policy not in self._ran:  # all of its series begin at zero
                self._ran.add(policy)
                each: Labelled[Any]
                for each in (series.policy_duration, series.ratio, series.compressions):
                    each.of(policy)
            if step.verdict != "skip":
                series.policy_duration.of(policy).observe(step.seconds)
            if step.compressed and step.tokens_before and step.tokens_after is not None:
                series.compressions.of(policy).inc()
                series.ratio.of(policy).observe(step.tokens_after / step.tokens_before)
            if step.facts and not step.observed:
                self._count(step)

    def _count(self, step: Step) -> None:
        """Count the facts of a step that its policy has declared."""
        counted, once = self._counted.get(step.policy, {}), dict[str, Count]()
        for fact, value in step.facts.items():
            count = counted.get(fact)
            if count is None or isinstance(value, str):
                continue
            if count.kind == "score":
                self.series.of(count, step.policy).observe(value)
            elif count.kind == "amount":
                new = step.facts.get(f"{fact}_new", value)
                self.series.of(count, step.policy).inc(value if isinstance(new, str) else new)
            elif value > 0 and step.verdict == "rewrite":
                once[count.series] = count
        for count in once.values():
            self.series.of(count, step.policy).inc()

    def breaker(self, upstream: str) -> Callable[[str], None]:
        """Return the function that is called with the states of an upstream's breaker."""
        gauge = self._breakers.labels(upstream)
        gauge.set(0)
        self._upstreams.add(upstream)
        return lambda state: gauge.set(_BREAKER[state])

    def has_upstreams(self, names: Collection[str]) -> None:
        """Say which upstreams there are from now on: what became of the breakers of others is not told any more."""
        for name in self._upstreams.difference(names):
            _leave(self._breakers, name, shared=self._directory is not None)
        self._upstreams.intersection_update(names)

    def answered(self, facts: Mapping[str, Fact], upstream: str) -> None:
        """Count the calls of internal tools that an answer took, and the CPU time of a process beside this one."""
        if seconds := facts.get("cpu_seconds"):
            self.series.upstream_cpu.of(upstream).inc(float(seconds))
        for name, calls in facts.items():
            if name.startswith(_CALLS) and isinstance(calls, int):
                tool = name.removeprefix(_CALLS)
                self.series.internal_calls.of(tool).inc(calls)
                if tool in self._tools:
                    self.series.of(self._tools[tool]).inc(calls)

    def render(self, accept: str) -> tuple[str, bytes]:
        """Content type and body for a scraper that accepts this: OpenMetrics if it asks for it, else Prometheus text.

        Reads files where several processes share a directory.
        """
        registry = self._registry
        if self._directory is not None:
            registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(registry, self._directory)  # type: ignore[no-untyped-call]
        encode, content_type = choose_encoder(accept)
        return content_type, encode(registry)

    def close(self) -> None:
        """Take this process's requests out of the shared gauge; counters stay."""
        if self._directory is not None:
            take_out(os.getpid(), self._directory)


def take_out(process: int | None, directory: str) -> None:
    """Take what a process has under way out of the gauges that those share which write into a directory."""
    multiprocess.mark_process_dead(process, directory)  # type: ignore[no-untyped-call]


def _leave(gauge: Gauge, label: str, *, shared: bool) -> None:
    """Show a series no longer, or zero: the library removes none that processes share."""
    if shared:
        gauge.labels(label).set(0)
    else:
        gauge.remove(label)


class ConfigMetrics:
    """The series of the configuration that is in force."""

    def __init__(self, make: Maker, *, shared: bool) -> None:
        """With `shared`, several processes are shown as one."""
        self._shared = shared
        self._version: str | None = None
        self._info = make.gauge(
            "config_info", "Processes that run a version of the configuration.", "livesum", "version"
        )
        self._reloads = make.total("config_reloads", "Reloads of it.", "outcome")
        in_force = "1 if what the file says is in force, 0 if it was refused."
        self._successful = make.gauge("config_last_reload_successful", in_force, "livemin")
        loaded = "config_last_reload_success_timestamp_seconds"
        self._when = make.gauge(loaded, "When it was last loaded.", "livemin")

    def runs(self, version: str) -> None:
        """Say which version is in force from now on."""
        if self._version is not None and self._version != version:
            _leave(self._info, self._version, shared=self._shared)
        self._version = version
        self._info.labels(version).set(1)
        self._successful.set(1)
        self._when.set_to_current_time()

    def reloaded(self, outcome: str) -> None:
        """Count a reload: `applied`, `unchanged` or `refused`."""
        self._reloads.labels(outcome).inc()
        self._successful.set(0 if outcome == "refused" else 1)
