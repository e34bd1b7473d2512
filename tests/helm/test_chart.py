"""The chart, rendered by Helm itself and checked against the schemas of Kubernetes."""

import json
import re
from functools import cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate.utils
import pytest
import yaml

import proxy
from proxy.__main__ import main
from proxy.config.load import load
from proxy.config.settings import Settings
from proxy.server.health import LONGEST_START
from proxy.server.reload import FIXED
from tests.helm import custom_resources, values_schema
from tests.helm.cases import MATRIX, REFUSED
from tests.helm.helm import CHART, NAMESPACE, RELEASE, Helm, Rendered
from tests.helm.values_schema import OWN, PATH

OLDEST, NEWEST = "1.27", "1.36"
HOOKED = "1.30"
"""From this version on a pod may sleep before it is stopped."""

ENVIRONMENT = {
    "ADMIN": "a",
    "OPENAI_API_KEY": "d",
    "PENSTOCK_ADMIN_KEY": "b",
    "REDIS_PASSWORD": "c",
    "STATE_URL": "rediss://valkey:6380/0",
}
WRITABLE = {"/var/lib/penstock", "/tmp"}


def rendered(chart: Helm, case: str, minor: str = "36") -> Rendered:
    return chart.render(MATRIX[case], minor=minor)


def pod(made: Rendered) -> dict[str, Any]:
    return dict(made.one("Deployment")["spec"]["template"]["spec"])


def container(made: Rendered) -> dict[str, Any]:
    return dict(pod(made)["containers"][0])


# it would read the schemas of all Kubernetes anew for each manifest
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)


def validate(made: Rendered, version: str) -> None:
    for manifest in made.manifests:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            custom_resources.validate(manifest)


@pytest.mark.parametrize("case", MATRIX)
def test_manifests_are_what_kubernetes_takes(chart: Helm, case: str) -> None:
    made = rendered(chart, case)
    assert made.error == ""
    assert {"Deployment", "Service", "Pod"} <= {manifest["kind"] for manifest in made.manifests}
    validate(made, NEWEST)
    names = [(manifest["kind"], manifest["metadata"]["name"]) for manifest in made.manifests]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 63 for kind, name in names if kind in ("Service", "Pod"))


def test_a_pod_has_started_once_it_is_ready_and_may_take_as_long_as_that_may(chart: Helm) -> None:
    made = rendered(chart, "defaults")
    probes = {name: container(made)[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}
    paths = {name: probe["httpGet"]["path"] for name, probe in probes.items()}
    assert paths == {"startup": "/readyz", "liveness": "/healthz", "readiness": "/readyz"}
    # a stuck thread would keep the pod for as long as streams may take
    assert probes["liveness"]["terminationGracePeriodSeconds"] < pod(made)["terminationGracePeriodSeconds"]
    assert probes["startup"]["periodSeconds"] * probes["startup"]["failureThreshold"] > 2 * LONGEST_START


@pytest.mark.parametrize("case", [case for case in MATRIX if "existingConfigMap" not in MATRIX[case]])
def test_the_configuration_loads(chart: Helm, case: str, tmp_path: Path) -> None:
    text = rendered(chart, case).config
    (tmp_path / "config.yaml").write_text(text.replace("/etc/penstock-keys", str(tmp_path)))
    (tmp_path / "keys.yaml").write_text(yaml.safe_dump({"keys": [{"name": "ann", "hash": "0" * 64}]}))
    settings = load(tmp_path / "config.yaml", ENVIRONMENT).settings
    assert settings.server.host == "0.0.0.0"
    assert settings.server.port == container(rendered(chart, case))["ports"][0]["containerPort"]
    assert any("echo" in entry.match for entry in settings.models)


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_values_are_refused_in_clear_words(chart: Helm, case: str) -> None:
    values, expected = REFUSED[case]
    made = chart.render(values)
    assert made.manifests == []
    assert expected in made.error


def test_lint_finds_nothing_and_what_is_written_has_a_volume(chart: Helm) -> None:
    found = chart.lint()
    assert not found["Errors"]
    # 1 is for information: that the chart has no icon
    assert [message for message in found["Messages"] if message["Severity"] > 1] == []
    mounts = container(rendered(chart, "defaults"))["volumeMounts"]
    assert {mount["mountPath"] for mount in mounts if not mount.get("readOnly")} == WRITABLE
    config = next(mount for mount in mounts if mount["name"] == "config")
    assert config["mountPath"] == "/etc/penstock"
    assert "subPath" not in config


@pytest.mark.parametrize("case", MATRIX)
def test_pods_have_no_rights(chart: Helm, case: str) -> None:
    made = rendered(chart, case)
    runs_as = {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    may = {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    for spec in (pod(made), made.one("Pod")["spec"]):
        assert spec["automountServiceAccountToken"] is spec["enableServiceLinks"] is False
        assert spec["securityContext"] == spec["securityContext"] | runs_as
        for each in [*spec["containers"], *spec.get("initContainers", ())]:
            assert each["securityContext"] == each["securityContext"] | may
            assert each["resources"]["requests"]
            assert each["resources"]["limits"]["memory"]


def test_streams_may_end(chart: Helm) -> None:
    for case in MATRIX:
        made = rendered(chart, case)
        if case == "an existing configuration":
            continue
        hook = container(made).get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        drain = yaml.safe_load(made.config)["server"]["drain"]
        assert pod(made)["terminationGracePeriodSeconds"] > hook + drain


def test_older_kubernetes_takes_all_of_it_and_has_another_hook(chart: Helm) -> None:
    validate(rendered(chart, "everything"), HOOKED)
    made = rendered(chart, "everything", OLDEST.partition(".")[2])
    validate(made, OLDEST)
    assert container(made)["lifecycle"]["preStop"]["exec"]["command"][-1] == "import time; time.sleep(10)"


class TestRestarts:
    """Pods are replaced where a running one cannot take a change over, and only there."""

    def annotations(self, chart: Helm, values: dict[str, Any]) -> dict[str, str]:
        made = chart.render(values)
        assert made.error == ""
        return dict(made.one("Deployment")["spec"]["template"]["metadata"]["annotations"])

    @pytest.mark.parametrize(
        ("change", "restarts"),
        [
            ({"config": {"chains": {"default": []}}}, False),
            ({"extraFiles": {"a.txt": "b"}}, False),
            ({"drainSeconds": 60}, True),
            ({"config": {"embedding": {"kind": "none"}}}, True),
            ({"config": {"telemetry": {"endpoint": "http://otel:4318"}}}, True),
            ({"state": {"settings": {"ttl": 60}}}, True),
            ({"vectors": {"url": "http://qdrant:6333"}}, True),
            ({"config": {"memories": {"ttl": 60}}}, True),
            ({"config": {"limits": {"header_timeout": 5}}}, True),
            ({"config": {"limits": {"requests_per_minute": 5}}}, False),
            ({"secrets": {"A": "b"}}, True),
        ],
    )
    def test_after_a_change(self, chart: Helm, change: dict[str, Any], restarts: bool) -> None:
        assert (self.annotations(chart, change) != self.annotations(chart, {})) is restarts

    def test_every_setting_that_needs_a_restart_is_known(self) -> None:
        text = (CHART / "templates/_helpers.tpl").read_text().partition('define "penstock.fixedConfig"')[2]
        fixed = text.partition("{{- end }}")[0]
        for section, _, name in (setting.partition(".") for setting in FIXED):
            assert f'"{name if section == "limits" else section}"' in fixed

    def test_without_hot_reload_every_change_counts_and_a_volume_has_one_writer(self, chart: Helm) -> None:
        values = {"hotReload": False, "config": {"chains": {"default": []}}}
        assert self.annotations(chart, values) != self.annotations(chart, {"hotReload": False})
        assert rendered(chart, "a volume of its own").one("Deployment")["spec"]["strategy"] == {"type": "Recreate"}
        assert rendered(chart, "redis").one("Deployment")["spec"]["strategy"]["type"] == "RollingUpdate"


def test_secrets_arrive_as_they_are(chart: Helm) -> None:
    made = rendered(chart, "everything")
    assert made.one("Secret")["stringData"] == MATRIX["everything"]["secrets"]
    name = made.one("Secret")["metadata"]["name"]
    assert {"secretRef": {"name": name}} in container(made)["envFrom"]
    assert "sk-one" not in json.dumps([each for each in made.manifests if each["kind"] != "Secret"])
    assert container(rendered(chart, "an existing secret"))["envFrom"] == [{"secretRef": {"name": "keys"}}]
    assert rendered(chart, "an existing secret").all("Secret") == []


def test_services_reach_pods_and_nothing_else(chart: Helm) -> None:
    made = rendered(chart, "everything")
    labels = made.one("Deployment")["spec"]["template"]["metadata"]["labels"].items()
    ports = {port["name"] for port in container(made)["ports"]}
    for service in made.all("Service"):
        assert service["spec"]["selector"].items() <= labels
        assert not service["spec"]["selector"].items() <= made.one("Pod")["metadata"]["labels"].items()
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    # what is open to the outside has no admin port
    assert [port["name"] for port in made.one("Service", "penstock")["spec"]["ports"]] == ["http"]
    assert made.one("Service", "-admin")["spec"]["type"] == "ClusterIP"
    assert made.one("ServiceMonitor")["spec"]["endpoints"][0]["port"] == "admin"
    (endpoint,) = rendered(chart, "no admin port").one("ServiceMonitor")["spec"]["endpoints"]
    assert (endpoint["port"], "authorization" in endpoint) == ("http", False)
    # where clients are, metrics need the key
    (endpoint,) = rendered(chart, "no admin port, but a key").one("ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["authorization"] == {"credentials": {"name": "keys", "key": "ADMIN"}}


def test_the_autoscaler_owns_the_number_of_replicas(chart: Helm) -> None:
    made = rendered(chart, "everything")
    assert "replicas" not in made.one("Deployment")["spec"]
    metrics = made.one("HorizontalPodAutoscaler")["spec"]["metrics"]
    assert [metric["type"] for metric in metrics] == ["Resource", "Pods"]
    assert made.one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert rendered(chart, "defaults").all("PodDisruptionBudget") == []
    assert rendered(chart, "a budget by share").one("PodDisruptionBudget")["spec"]["minAvailable"] == "50%"


def test_a_conversation_may_stay_with_one_pod(chart: Helm) -> None:
    (rule,) = rendered(chart, "a session by cookie").one("HTTPRoute")["spec"]["rules"]
    assert rule["sessionPersistence"] == MATRIX["a session by cookie"]["httpRoute"]["sessionPersistence"]
    assert "sessionPersistence" not in rendered(chart, "everything").one("HTTPRoute")["spec"]["rules"][0]
    policy = yaml.safe_load((CHART.parent.parent / "deploy/kubernetes/affinity.yaml").read_text())
    custom_resources.validate(policy)
    route = chart.render({"fullnameOverride": "llm-penstock", **MATRIX["a session by cookie"]}).one("HTTPRoute")
    (target,) = policy["spec"]["targetRefs"]
    assert (target["group"], target["kind"]) == (route["apiVersion"].partition("/")[0], route["kind"])
    assert target["name"] == route["metadata"]["name"]


def test_the_variant_of_the_image_decides_on_tag_and_memory(chart: Helm) -> None:
    light, full, own = (container(rendered(chart, case)) for case in ("defaults", "the full image", "little memory"))
    assert light["image"] == f"penstock:{proxy.__version__}"
    assert full["image"] == f"penstock:{proxy.__version__}-full"
    assert [each["resources"]["limits"]["memory"] for each in (light, full, own)] == ["1Gi", "2Gi", "512Mi"]
    assert [each["resources"]["requests"]["memory"] for each in (light, full, own)] == ["256Mi", "1Gi", "192Mi"]


@pytest.mark.parametrize("case", MATRIX)
def test_the_configuration_is_checked_before_a_pod_serves(chart: Helm, case: str) -> None:
    made = rendered(chart, case)
    (check,) = pod(made)["initContainers"]
    served = container(made)
    assert check["args"] == ["check", *served["args"][1:3]]
    for same in ("image", "env", "volumeMounts", "securityContext", "resources"):
        assert check[same] == served[same]
    assert check.get("envFrom") == served.get("envFrom")


def test_the_check_ends_by_itself_and_says_no(chart: Helm, tmp_path: Path) -> None:
    arguments = pod(rendered(chart, "defaults"))["initContainers"][0]["args"]
    good = rendered(chart, "defaults").config
    for text, code in ((good, 0), (good.replace("kind: openai", "kind: open"), 1)):
        (tmp_path / "config.yaml").write_text(text)
        place = [str(tmp_path / "config.yaml") if each == "/etc/penstock/config.yaml" else each for each in arguments]
        assert main(place) == code


@pytest.mark.parametrize("case", [case for case in MATRIX if MATRIX[case].get("networkPolicy")])
def test_calls_have_a_port_and_a_place(chart: Helm, case: str) -> None:
    extra = len(MATRIX[case]["networkPolicy"].get("extraEgress", ()))
    rules = rendered(chart, case).one("NetworkPolicy")["spec"]["egress"]
    for rule in rules[: len(rules) - extra]:
        assert rule["ports"]
        assert rule["to"]
    assert {port["port"] for port in rules[0]["ports"]} == {53}


def test_metadata_of_clouds_cannot_be_called(chart: Helm) -> None:
    address = ip_address("169.254.169.254")
    rules = rendered(chart, "a closed network").one("NetworkPolicy")["spec"]["egress"]
    blocks = [peer["ipBlock"] for rule in rules for peer in rule["to"] if "ipBlock" in peer]
    assert any(address in ip_network(block["cidr"]) for block in blocks)
    for block in blocks:
        among = [ip_network(each) for each in block.get("except", ())]
        assert address not in ip_network(block["cidr"]) or any(address in each for each in among)


def test_the_test_is_a_hook_that_asks_the_service(chart: Helm) -> None:
    test = rendered(chart, "other ports").one("Pod")
    assert test["metadata"]["annotations"]["helm.sh/hook"] == "test"
    clients = rendered(chart, "everything").one("NetworkPolicy")["spec"]["ingress"][0]["from"]
    label = {"penstock-test": RELEASE}
    assert {"podSelector": {"matchLabels": label}} in clients
    assert label.items() <= test["metadata"]["labels"].items(), "the network policy lets it pass"
    environment = {each["name"]: each.get("value") for each in test["spec"]["containers"][0]["env"]}
    assert environment == {"URL": f"http://{RELEASE}-penstock:8080", "MODEL": "echo"}
    compile(test["spec"]["containers"][0]["args"][0], "test", "exec")


def test_the_notes_say_what_is_lost(chart: Helm) -> None:
    notes, keyed = rendered(chart, "defaults").notes, "no admin port, but a key"
    assert f"http://{RELEASE}-penstock.{NAMESPACE}:4000/v1" in notes
    without = {"gone when it ends": "redis", "takes anybody in the cluster": "everything", "clients need no key": keyed}
    for told, case in without.items():
        assert told in notes
        assert told not in rendered(chart, case).notes


class TestFiles:
    """What needs no Helm."""

    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    def test_the_schema_has_the_keys_of_the_values_and_all_files_agree(self) -> None:
        def compare(values: dict[str, Any], schema: dict[str, Any], place: str) -> None:
            assert schema["additionalProperties"] is False, place
            optional = {"global", "claims", "initialDelaySeconds", "successThreshold"}
            assert set(values) == set(schema["properties"]) - optional, place
            for key, value in values.items():
                if "properties" in schema["properties"][key] and key not in ("config", "settings", "resources"):
                    compare(value, schema["properties"][key], f"{place}.{key}")

        compare(self.values, self.schema, "values")
        assert PATH.read_text() == values_schema.text(), "run `make docs`"
        jsonschema.Draft7Validator.check_schema(self.schema)
        assert self.schema["properties"]["config"]["properties"].keys() == Settings.model_fields.keys()
        templates = (CHART / "templates/_helpers.tpl").read_text().partition('define "penstock.validate"')[2]
        assert [key for keys in OWN.values() for key in keys if f'"{key}"' not in templates] == []
        text = (CHART / "README.md").read_text()
        assert [key for key in self.values if not re.search(rf"`{key}[`.]", text)] == []
        shipped = yaml.safe_load((CHART.parent.parent / "config.yaml").read_text())
        assert self.values["config"]["chains"]["default"] == shipped["chains"]["default"]
