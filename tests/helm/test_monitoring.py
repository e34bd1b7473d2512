"""Alerts and the dashboard ask for series that exist, by labels that they have."""

import json
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest

from proxy.config.load import policy_class, policy_names
from proxy.telemetry.metrics import Metrics
from tests.helm.cases import MATRIX
from tests.helm.helm import CHART, NAMESPACE, RELEASE, Helm

SCRAPED = {"namespace", "job", "pod", "le"}
DASHBOARD = json.loads((CHART / "dashboards/penstock.json").read_text())
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


def test_variables_ask_for_what_there_is() -> None:
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            inner = variable["definition"].removeprefix("label_values(").rpartition(",")[0]
            check(inner)


def test_the_dashboard_arrives_as_it_is(chart: Helm) -> None:
    made = chart.render(MATRIX["monitoring"]).one("ConfigMap", "-dashboard")
    assert json.loads(made["data"]["penstock.json"]) == DASHBOARD
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"


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


def test_what_may_go_wrong_has_an_alert(chart: Helm) -> None:
    (group,) = chart.render(MATRIX["monitoring"]).one("PrometheusRule")["spec"]["groups"]
    read = {name for rule in group["rules"] for name, _ in selectors(promql_parser.parse(rule["expr"]))}
    for name in ("limits_unchecked", "requests_without_state", "limited_requests"):
        assert f"penstock_{name}_total" in read
    assert "penstock_service_degraded" in read
    assert KUBERNETES.keys() <= read


def test_the_autoscaler_goes_by_a_series_that_exists(chart: Helm) -> None:
    made = chart.render(MATRIX["everything"]).one("HorizontalPodAutoscaler")
    names = [metric["pods"]["metric"]["name"] for metric in made["spec"]["metrics"] if "pods" in metric]
    assert names == ["penstock_active_requests"]
    assert set(names) <= set(SERIES)
