"""The Helm chart: rendered, it is what Kubernetes knows, and says what the server reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.server.access.starting import check_exposure
from penstock.server.http.description import description
from penstock.server.settings.options import ServerConfig
from tests.deploy.harness import DEPLOY, config_of, tool

CHART = DEPLOY / "helm" / "penstock"
LEAST = {"bucket": "s3://bucket/place", "options": {"insecure": True}}
MOST: dict[str, Any] = {
    "bucket": "s3://bucket",
    "replicas": 5,
    "image": {"tag": "7", "pullSecrets": [{"name": "pulling"}]},
    "options": {"auth": "tokens", "max_request_bytes": 67_108_864, "balance_after": "2m", "max_connections": 500},
    "tokensSecret": "secrets-of-tokens",
    "store": {"endpoint": "https://store:8333", "region": "eu-central-1", "accessKeyId": "a", "secretAccessKey": "b"},
    "serviceAccount": {"name": "brokers", "annotations": {"role": "arn:of:a:role"}},
    "service": {"type": "LoadBalancer", "annotations": {"internal": "true"}},
    "podAnnotations": {"seen": "yes"},
    "nodeSelector": {"disk": "none"},
    "tolerations": [{"key": "queue", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "topologySpreadConstraints": [
        {"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    ],
}
Found = dict[tuple[str, str], Any]


def render(tmp_path: Path, values: Mapping[str, Any]) -> Found:
    """What the chart comes to, by kind and name; Kubernetes would take it."""
    given, rendered = tmp_path / "values.yaml", tmp_path / "rendered.yaml"
    given.write_text(yaml.safe_dump(dict(values)))
    tool("helm", "lint", "--strict", CHART, "--values", given)
    rendered.write_text(tool("helm", "template", "shop", CHART, "--namespace", "here", "--values", given))
    tool("kubernetes-validate", "--strict", rendered)
    parts = [part for part in yaml.safe_load_all(rendered.read_text()) if part]
    return {(part["kind"], part["metadata"]["name"]): part for part in parts}


def refused(tmp_path: Path, values: Mapping[str, Any]) -> str:
    given = tmp_path / "values.yaml"
    given.write_text(yaml.safe_dump(dict(values)))
    return tool("helm", "template", "shop", CHART, "--values", given, code=1)


def broker(found: Found) -> dict[str, Any]:
    (container,) = found["StatefulSet", "shop-penstock"]["spec"]["template"]["spec"]["containers"]
    return dict(container)


def config(found: Found) -> ServerConfig:
    """What the broker of pod 1 works with."""
    variables = {one["name"]: one.get("value", "shop-penstock-1") for one in broker(found)["env"]}
    resolved = {name: value.replace("$(NAME)", variables["NAME"]) for name, value in variables.items()}
    return config_of(resolved)


@pytest.fixture(scope="module", params=["least", "most"])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    return render(tmp_path_factory.mktemp(request.param), {"least": LEAST, "most": MOST}[request.param])


def test_the_server_takes_what_a_pod_is_told(found: Found) -> None:
    taken = config(found)
    check_exposure(taken)
    assert taken.data_dir.startswith("s3://bucket")
    assert taken.advertise == "shop-penstock-1.shop-penstock-brokers.here.svc:9000"
    assert broker(found)["args"] == ["serve"]


def test_options_go_to_the_server_as_they_are_written(tmp_path: Path) -> None:
    taken = config(render(tmp_path, MOST))
    assert (taken.auth, taken.max_request_bytes, taken.max_connections) == ("tokens", 67_108_864, 500)
    assert taken.balance_after == 120


def test_ports_and_routes_are_those_of_the_server(found: Found) -> None:
    ports = {port["name"]: port["containerPort"] for port in broker(found)["ports"]}
    assert ports == {"native": config(found).native_port, "http": config(found).http_port}
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = broker(found)[name]["httpGet"]
        assert asked["port"] == "http" and f'"{asked["path"]}":' in description().decode()
    for name in ("shop-penstock", "shop-penstock-brokers"):
        targets = [port["targetPort"] for port in found["Service", name]["spec"]["ports"]]
        assert targets == list(ports)


def test_services_and_the_budget_select_the_brokers_and_nothing_else(found: Found) -> None:
    brokers = found["StatefulSet", "shop-penstock"]["spec"]
    labels, chosen = brokers["template"]["metadata"]["labels"], brokers["selector"]["matchLabels"]
    assert brokers["serviceName"] == "shop-penstock-brokers"
    assert chosen.items() <= labels.items()
    assert found["Service", "shop-penstock"]["spec"]["selector"] == chosen
    assert found["Service", "shop-penstock-brokers"]["spec"]["selector"] == chosen
    assert found["PodDisruptionBudget", "shop-penstock"]["spec"]["selector"]["matchLabels"] == chosen


def test_a_pod_may_do_little(found: Found) -> None:
    pod = found["StatefulSet", "shop-penstock"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["automountServiceAccountToken"] is False
    assert broker(found)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["terminationGracePeriodSeconds"] > config(found).shutdown_grace + 30


def test_keys_are_in_a_secret_or_nowhere(tmp_path: Path) -> None:
    found = render(tmp_path, MOST)
    assert found["Secret", "shop-penstock-store"]["stringData"] == {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }
    assert broker(found)["envFrom"] == [{"secretRef": {"name": "shop-penstock-store"}}]
    existing = render(tmp_path, {**LEAST, "store": {"existingSecret": "mine"}})
    assert broker(existing)["envFrom"] == [{"secretRef": {"name": "mine"}}]
    roles = render(tmp_path, LEAST)
    assert "envFrom" not in broker(roles)
    assert all(kind != "Secret" for found in (existing, roles) for kind, _ in found)


def test_tokens_are_read_from_a_secret(tmp_path: Path) -> None:
    found = render(tmp_path, MOST)
    volumes = {one["name"]: one for one in found["StatefulSet", "shop-penstock"]["spec"]["template"]["spec"]["volumes"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in broker(found)["volumeMounts"]}
    directory = config(found).tokens_dir
    assert directory is not None
    assert volumes[mounts[directory]]["secret"]["secretName"] == "secrets-of-tokens"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"bucket": ""}, "say where everything is kept"),
        ({"options": {}}, "say who may use the brokers"),
        ({"bucket": "/data"}, "bucket"),
        ({"replica": 3}, "replica"),
        ({"options": {"insecure": True, "host": "::"}}, "host"),
        ({"options": {"auth": "tokens"}}, "tokensSecret"),
        ({"store": {"accessKeyId": "a"}}, "secretAccessKey"),
    ],
)
def test_values_that_cannot_work_are_refused(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    assert said in refused(tmp_path, {**LEAST, **changed})


def test_every_value_has_its_place_in_the_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}
    for name, value in values.items():
        properties = schema["properties"][name].get("properties")
        assert properties is None or set(value) == set(properties), name
