"""The numbers behind `/metrics`; `data/metrics.txt` has their names and labels."""

import os
import re
from bisect import bisect_left
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, multiprocess
from prometheus_client.exposition import choose_encoder

from proxy.chat.errors import ConfigError
from proxy.models.usage import Usage
from proxy.policy import NOTES_READ, NOTES_WRITTEN, ORIGINALS_READ, ORIGINALS_WRITTEN, BringsTools, Count, Fact, Policy
from proxy.step import Step
from proxy.text.tables import sections

MOST_MODELS = 200
"""Names of models that are labels. Where the configuration has globs, clients choose names."""

_MOST_REASONS = 50
"""Upstreams choose their error codes: beyond so many that differ in the last label alone, it is `other`."""

_CALLS = "calls_"
"""Facts of an answer that begin so say how often an internal tool was called: `calls_note`."""

_CALL, _TOKENS = "gen_ai_client_operation_duration_seconds", "gen_ai_client_token_usage"
_SCORES = ("0.05", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1")
_NAME = re.compile(r"[A-Za-z0-9._:/@+-]{1,128}")
_BREAKER = {"closed": 0.0, "half_open": 0.5, "open": 1.0}

_TOGETHER = 1 if "PROMETHEUS_MULTIPROC_DIR" in os.environ else 400
"""Values or steps that are counted together: at once where other processes answer the scraper, too."""


class _Counter(Counter):
    """A counter whose series all have their labels: a request counts some twenty times."""

    def inc(self, amount: float = 1, exemplar: dict[str, str] | None = None) -> None:
        self._value.inc(amount)


class _Histogram(Histogram):
    """A histogram whose series all have their labels."""

    def observe_all(self, amounts: Sequence[float]) -> None:
        self._sum.inc(sum(amounts))
        for bucket, count in Counts(bisect_left(self._upper_bounds, amount) for amount in amounts).items():
            self._buckets[bucket].inc(count)


class Metrics:
    """All series of one app, in a registry of its own, or in the directory that `PROMETHEUS_MULTIPROC_DIR` names."""

    def __init__(self, version: str) -> None:
        """Raise `ConfigError` if `PROMETHEUS_MULTIPROC_DIR` is set and is no directory."""
        self._directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        if self._directory is not None and not os.path.isdir(self._directory):
            raise ConfigError(f"PROMETHEUS_MULTIPROC_DIR is {self._directory!r}, which is no directory: create it")
        self._registry = CollectorRegistry()
        self._metrics: dict[str, Any] = {}
        self._series: dict[tuple[str, ...], Any] = {}
        self._declared: dict[str, tuple[str, bool]] = {}
        """The label of each count of policies, and True for a score."""
        self._models: set[str] = set()
        self._routed: set[tuple[str, str]] = set()
        self._upstreams: set[str] = set()
        self._steps: list[Step] = []
        """Steps that are not counted yet."""
        self._amounts: list[tuple[tuple[str, ...], float | None]] = []
        """Values of histograms that are not counted yet; None for a series that begins empty."""
        self._counted: dict[str, Mapping[str, Count]] = {}
        self._tools: dict[str, Count] = {}
        self._config: str | None = None
        for section, lines in sections("metrics").items():
            for line in lines:
                head, _, text = line.partition(": ")
                self._make(*head.split(), text=text, kind=section.split())
        for count in (NOTES_READ, NOTES_WRITTEN, ORIGINALS_READ, ORIGINALS_WRITTEN):
            self._declare(count)
        for count in (ORIGINALS_READ, ORIGINALS_WRITTEN):  # they begin at zero
            self.of_count(count)
        self.of("build_info", version).set(1)
        if self._directory is None:
            ProcessCollector(registry=self._registry)

    def of(self, *name: str) -> Any:
        """Return the series with this name and these labels; looked up once, which costs more than the count itself."""
        series = self._series.get(name)
        if series is None:
            metric = self._metrics[name[0]]
            series = self._series[name] = metric.labels(*name[1:]) if name[1:] else metric
        return series

    def of_reason(self, *name: str) -> Any:
        """Return a series whose last label an upstream chose; there are not many of them."""
        if name not in self._series and sum(each[:-1] == name[:-1] for each in self._series) >= _MOST_REASONS:
            return self.of(*name[:-1], "other")
        return self.of(*name)

    def of_count(self, count: Count, policy: str = "") -> Any:
        return self.of(count.series, policy if count.label is None else count.label[1])

    def _make(self, name: str, *labels: str, text: str, kind: Sequence[str]) -> None:
        full, about = name if name.startswith("gen_ai") else f"penstock_{name}", dict[str, Any]()
        makers: dict[str, Any] = {"counter": _Counter, "gauge": Gauge, "histogram": _Histogram}
        if kind[0] == "gauge":
            about["multiprocess_mode"] = kind[1]
        elif kind[0] == "histogram":
            about["buckets"] = [*map(float, kind[1:])]
        self._metrics[name] = makers[kind[0]](full, text, labels, registry=self._registry, **about)

    def declare(self, name: str, policy: type[Policy]) -> None:
        """Make the series of a policy and of what it counts, which begin at zero.

        Raise `ConfigError` where one is another series already.
        """
        for series in ("policy_duration_seconds", "compression_ratio", "context_compressions"):
            self.of(series, name)
        self._counted[name] = policy.counted
        tools = policy.internal_tools if issubclass(policy, BringsTools) else ()
        self._tools |= {tool.definition.name: tool.counted for tool in tools if tool.counted is not None}
        for count in (*policy.counted.values(), *self._tools.values()):
            self._declare(count)

    def _declare(self, count: Count) -> None:
        declared = "policy" if count.label is None else count.label[0], count.kind == "score"
        if self._declared.get(count.series) == declared:
            return
        try:
            kind = ("histogram", *_SCORES) if count.kind == "score" else ("counter",)
            self._make(count.series, declared[0], text=count.text, kind=kind)
        except ValueError as error:
            told = f"penstock_{count.series}, which a policy counts, cannot be made: {error}"
            raise ConfigError(told) from None
        self._declared[count.series] = declared

    def model(self, name: str, *, named: bool) -> str:
        """Return the label of a model: its name, or `other` for a client's name once there are many of these."""
        if name not in self._models:
            if not named and (len(self._models) >= MOST_MODELS or not _NAME.fullmatch(name)):
                return "other"
            self._models.add(name)
        return name

    def observe(self, amount: float | None, *name: str) -> None:
        """Count a value in the histogram with this name and these labels, together with others."""
        self._amounts.append((name, amount))
        if len(self._amounts) >= _TOGETHER:
            self._count_amounts()

    def routed(self, model: str, upstream: str) -> None:
        """Have series of a model, which begin at zero."""
        if _TOGETHER == 1 and (model, upstream) not in self._routed:  # another process may answer the scraper
            self._begin(model, upstream)
        self._routed.add((model, upstream))

    def _begin(self, model: str, upstream: str) -> None:
        self.of("request_duration_seconds", model, upstream)
        self.of("time_to_first_chunk_seconds", model, upstream)
        for phase in ("before", "after"):
            self.of("context_size_tokens", model, phase)
            self.of("context_utilization", model, phase)
        self.of("context_overflows", model)
        for kind in ("input", "output", "cached_input"):
            self.of("tokens", model, kind)

    def degraded(self, service: str, degraded: bool) -> None:
        self.of("service_degraded", service).set(int(degraded))

    def count_memories(self, metric: str, label: str, number: int) -> None:
        if number:
            self.of(*filter(None, (metric, label))).inc(number)

    def ran(self, steps: Iterable[Step]) -> None:
        """Count the steps of a request, together with those of others."""
        self._steps += steps
        if len(self._steps) >= _TOGETHER:
            self._count_steps()

    def sized(self, model: str, before: int, after: int, window: int | None) -> None:
        """Count the tokens of a prompt before and after its chain."""
        for phase, tokens in (("before", before), ("after", after)):
            self.observe(tokens, "context_size_tokens", model, phase)
            if window:
                self.observe(tokens / window, "context_utilization", model, phase)

    def flush(self) -> None:
        """Count what waits. Call it in the thread of requests, before `render`."""
        self._count_steps()
        self._count_amounts()
        for model, upstream in self._routed:
            self._begin(model, upstream)

    def _count_amounts(self) -> None:
        waiting, self._amounts = self._amounts, []
        amounts = defaultdict[tuple[str, ...], list[float]](list)
        for name, amount in waiting:
            amounts[name] += () if amount is None else (amount,)
        for name, same in amounts.items():
            (self.of_reason if name[0] == _CALL else self.of)(*name).observe_all(same)

    def _count_steps(self) -> None:
        steps, self._steps = self._steps, []
        runs = defaultdict[tuple[str, str, bool], list[Step]](list)
        for step in steps:
            runs[step.policy, step.verdict, step.observed].append(step)
        for (policy, verdict, observed), same in runs.items():
            self.of("policy_verdicts", policy, verdict, "observe" if observed else "enforce").inc(len(same))
            if verdict != "skip":
                self.of("policy_duration_seconds", policy).observe_all([step.seconds for step in same])
            for step in () if observed else same:
                if verdict == "rewrite" and step.compressed and step.tokens_before and step.tokens_after is not None:
                    self.of("context_compressions", policy).inc()
                    self.of("compression_ratio", policy).observe_all([step.tokens_after / step.tokens_before])
                if step.facts:
                    self._count(step)

    def _count(self, step: Step) -> None:
        counted, once = self._counted.get(step.policy, {}), dict[str, Count]()
        for fact, value in step.facts.items():
            count = counted.get(fact)
            if count is None or isinstance(value, str):
                continue
            if count.kind == "score":
                self.of_count(count, step.policy).observe_all([value])
            elif count.kind == "amount":
                new = step.facts.get(f"{fact}_new", value)
                self.of_count(count, step.policy).inc(value if isinstance(new, str) else new)
            elif value > 0 and step.verdict == "rewrite":
                once[count.series] = count
        for count in once.values():
            self.of_count(count, step.policy).inc()

    def breaker(self, upstream: str) -> Callable[[str], None]:
        gauge = self._metrics["upstream_breaker"].labels(upstream)
        gauge.set(0)
        self._upstreams.add(upstream)
        return lambda state: gauge.set(_BREAKER[state])

    def has_upstreams(self, names: Collection[str]) -> None:
        """Say which upstreams there are from now on: what became of the breakers of others is not told any more."""
        for name in self._upstreams.difference(names):
            self._leave("upstream_breaker", name)
        self._upstreams.intersection_update(names)

    def has_config(self, version: str) -> None:
        """Say which version of the configuration is in force from now on."""
        if self._config is not None and self._config != version:
            self._leave("config_info", self._config)
        self._config = version
        self.of("config_info", version).set(1)
        self.of("config_last_reload_successful").set(1)
        self.of("config_last_reload_success_timestamp_seconds").set_to_current_time()

    def reloaded(self, outcome: str) -> None:
        """Count a reload of the configuration: `applied`, `unchanged` or `refused`."""
        self.of("config_reloads", outcome).inc()
        self.of("config_last_reload_successful").set(0 if outcome == "refused" else 1)

    def _leave(self, name: str, label: str) -> None:
        """Show a gauge no longer, or zero: the library removes none that processes share."""
        if self._directory is not None:
            self._metrics[name].labels(label).set(0)
        else:
            self._metrics[name].remove(label)
            self._series.pop((name, label), None)

    def called(self, call: tuple[str, str, str], error: str | None, seconds: float, usage: Usage | None) -> None:
        """Count a call by the GenAI conventions; `call` has the operation, the provider and the model."""
        read, written = (None, None) if usage is None else (usage.input, usage.output)
        self._amounts += (((_CALL, *call, error or ""), seconds), ((_TOKENS, *call, "input"), read))
        self.observe(written, _TOKENS, *call, "output")

    def answered(self, facts: Mapping[str, Fact], upstream: str) -> None:
        """Count the calls of internal tools that an answer took, and the CPU time of a process beside this one."""
        if seconds := facts.get("cpu_seconds"):
            self.of("upstream_cpu_seconds", upstream).inc(float(seconds))
        for name, calls in facts.items():
            if name.startswith(_CALLS) and isinstance(calls, int):
                tool = name.removeprefix(_CALLS)
                self.of("internal_calls", tool).inc(calls)
                if tool in self._tools:
                    self.of_count(self._tools[tool]).inc(calls)

    def render(self, accept: str) -> tuple[str, bytes]:
        """Content type and body: OpenMetrics if the scraper accepts it, else Prometheus text. May read files."""
        registry = self._registry
        if self._directory is not None:
            registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(registry, self._directory)  # type: ignore[no-untyped-call]
        encode, content_type = choose_encoder(accept)
        return content_type, encode(registry)

    def close(self) -> None:
        if self._directory is not None:
            take_out(os.getpid(), self._directory)


def take_out(process: int | None, directory: str) -> None:
    """Take what a process has under way out of the gauges that those share which write into a directory."""
    multiprocess.mark_process_dead(process, directory)  # type: ignore[no-untyped-call]
