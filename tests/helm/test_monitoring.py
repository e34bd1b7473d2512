"""Alerts and the dashboard ask for series that exist, by labels that they have."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import promql_parser
import pytest
import yaml

from proxy.config.load import policy_class, policy_names
from proxy.telemetry.metrics import Metrics
from tests.e2e.servers import proxy
from tests.helm.cases import MATRIX
from tests.helm.helm import CHART, NAMESPACE, RELEASE, Helm
from tests.helm.values_schema import COPIES

SCRAPED = {"namespace", "job", "pod", "le"}
DEPLOY = CHART.parent.parent / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana/penstock.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def series() -> dict[str, set[str]]:
    """The names of all series, with the labels of each."""
    metrics = Metrics("test")
    for name in policy_names():
        metrics.declare(name, policy_class(name))
    registry = metrics._registry
    found = {name: set(getattr(by, "_labelnames", ())) for name, by in registry._names_to_collectors.items()}
    # those of the process are known only when they are read
    process = {sample.name: set(sample.labels) for family in registry.collect() for sample in family.samples}
    return {**process, **found}


RUNNING = """
upstreams: {echo: {kind: echo}}
models: [{match: "*", upstream: echo, window: 8192, prices: {input: 1, output: 2}}]
chains: {default: [compact_tool_results: {}, window_history: {}, inject_facts: {}, reject_oversize: {}]}
state: {kind: memory}
vectors: none
"""
REQUEST = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}

KUBERNETES = {
    "container_memory_working_set_bytes": {"container", "id", "image", "name"},
    "kube_pod_container_resource_limits": {"container", "node", "resource", "uid", "unit"},
    "kube_pod_container_status_restarts_total": {"container", "uid"},
}
"""Series of cAdvisor and kube-state-metrics, with their labels beside namespace and pod."""

SERIES = {**series(), **KUBERNETES}


def selectors(node: Any) -> Iterator[tuple[str, set[str]]]:
    """The series that an expression reads, with the labels by which it chooses."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node.name or "", {matcher.name for matcher in node.matchers.matchers}
    for child in ("lhs", "rhs", "expr", "vector_selector"):
        if isinstance(getattr(node, child, None), promql_parser.Expr):
            yield from selectors(getattr(node, child))
    for argument in getattr(node, "args", ()):
        yield from selectors(argument)


def check(expression: str) -> None:
    """Raises `ValueError` for what is no PromQL."""
    found = list(selectors(promql_parser.parse(expression)))
    assert found or "vector(" in expression, expression
    for name, labels in found:
        assert name in SERIES, f"there is no {name}"
        assert labels <= SERIES[name] | SCRAPED, f"{name} has no {labels - SERIES[name] - SCRAPED}"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panels_ask_for_what_there_is(panel: dict[str, Any]) -> None:
    assert panel["description"]
    assert panel["targets"]
    for target in panel["targets"]:
        check(target["expr"].replace("$__rate_interval", "5m"))


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in DASHBOARD["panels"]):
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


async def test_every_series_of_a_running_proxy_is_on_a_panel_and_documented(tmp_path: Path) -> None:
    expressions = [target["expr"].replace("$__rate_interval", "5m") for panel in PANELS for target in panel["targets"]]
    read = {family(name) for text in expressions for name, _ in selectors(promql_parser.parse(text))}
    async with proxy(RUNNING, tmp_path) as base, aiohttp.ClientSession() as http:
        async with http.post(f"{base}/v1/chat/completions", json=REQUEST) as answer:
            assert answer.status == 200
        async with http.get(f"{base}/metrics") as answer:
            lines = (await answer.text()).splitlines()
    served = {family(line.split()[2]) for line in lines if line.startswith("# HELP penstock_")}
    declared = {family(name) for name in SERIES if name.startswith("penstock_")}
    assert len(served) > 20
    assert (served | declared) - read == set(), "no panel shows it"
    page = (CHART.parent.parent / "docs/telemetry.md").read_text()
    assert [name for name in served | declared if f"\n- `{name}" not in page] == []


def family(name: str) -> str:
    """The series that a sample is of."""
    return re.sub(r"_(bucket|sum|count|created|total)$", "", name)


def test_the_chart_has_the_same_files_and_the_dashboard_arrives_as_it_is(chart: Helm) -> None:
    for copy, plain in COPIES.items():
        assert copy.read_text() == plain.read_text(), "`make docs` copies it"
    made = chart.render(MATRIX["monitoring"]).one("ConfigMap", "-dashboard")
    assert json.loads(made["data"]["penstock.json"]) == DASHBOARD
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_variables_ask_for_what_there_is() -> None:
    asked = [each["definition"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    assert asked
    for definition in asked:
        check(definition.removeprefix("label_values(").rpartition(",")[0])


def test_alerts_ask_for_what_there_is(chart: Helm) -> None:
    (group,) = chart.render(MATRIX["monitoring"]).one("PrometheusRule")["spec"]["groups"]
    assert len(group["rules"]) >= 6
    for rule in group["rules"]:
        check(rule["expr"])
        # only what this release tells, or what is told of its pods
        for name, labels in selectors(promql_parser.parse(rule["expr"])):
            assert ({"namespace", "container", "pod"} if name in KUBERNETES else {"namespace", "job"}) <= labels
        of_pods = f'namespace="{NAMESPACE}",container="penstock",pod=~"{RELEASE}-penstock-[0-9a-z]+-[0-9a-z]{{5}}"'
        assert f'namespace="{NAMESPACE}",job="{RELEASE}"' in rule["expr"] or of_pods in rule["expr"]
        assert set(rule["annotations"]) == {"summary", "description"}


def test_the_plain_rules_are_those_of_the_chart(chart: Helm) -> None:
    (plain,) = yaml.safe_load((DEPLOY / "prometheus/penstock.rules.yaml").read_text())["groups"]
    (group,) = chart.render(MATRIX["monitoring"]).one("PrometheusRule")["spec"]["groups"]
    rendered = {rule["alert"]: rule for rule in group["rules"]}
    for rule in plain["rules"]:
        check(rule["expr"])
        theirs = rendered[rule["alert"]]
        assert theirs["expr"] == rule["expr"].replace('job="penstock"', f'namespace="{NAMESPACE}",job="{RELEASE}"')
        assert theirs["annotations"] == rule["annotations"]
        assert "for" not in rule or theirs["for"] == rule["for"]
    assert rendered.keys() - {rule["alert"] for rule in plain["rules"]} >= {"PenstockMemory", "PenstockRestarts"}


def test_what_may_go_wrong_has_an_alert_and_the_autoscaler_a_series_that_exists(chart: Helm) -> None:
    (group,) = chart.render(MATRIX["monitoring"]).one("PrometheusRule")["spec"]["groups"]
    read = {name for rule in group["rules"] for name, _ in selectors(promql_parser.parse(rule["expr"]))}
    for name in ("limits_unchecked", "requests_without_state", "limited_requests"):
        assert f"penstock_{name}_total" in read
    assert "penstock_service_degraded" in read
    assert KUBERNETES.keys() <= read
    made = chart.render(MATRIX["everything"]).one("HorizontalPodAutoscaler")
    names = [metric["pods"]["metric"]["name"] for metric in made["spec"]["metrics"] if "pods" in metric]
    assert names == ["penstock_active_requests"]
    assert set(names) <= set(SERIES)


def test_keda_counts_the_requests_of_these_pods(chart: Helm) -> None:
    made = chart.render(MATRIX["three-replicas"])
    assert made.all("HorizontalPodAutoscaler") == []
    assert "replicas" not in made.one("Deployment")["spec"]
    scaled = made.one("ScaledObject")["spec"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (3, 10)
    (query,) = (each["metadata"]["query"] for each in scaled["triggers"] if each["type"] == "prometheus")
    check(query)
    namespace, pod = re.findall(r'(?:namespace|pod)=~?"(.*?)"', query)
    assert namespace == NAMESPACE
    assert re.fullmatch(pod, made.one("Deployment")["metadata"]["name"] + "-7d9f8c6b5d-x2x4z")


def test_the_rule_of_the_adapter_serves_what_the_autoscaler_asks_for() -> None:
    (rule,) = yaml.safe_load((DEPLOY / "kubernetes/prometheus-adapter.yaml").read_text())["rules"]["custom"]
    check(rule["seriesQuery"])
    check(
        rule["metricsQuery"]
        .replace("<<.Series>>", rule["seriesQuery"].partition("{")[0])
        .replace("<<.LabelMatchers>>", 'namespace="a",pod=~"b|c"')
        .replace("<<.GroupBy>>", "pod")
    )
