"""What watches a server names what there is: the reference, the alerts and the dashboard agree with `/metrics`."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from penstock.server.metrics.catalogue import METRICS
from tests.server.metrics_harness import ROOT, promtool

NAME = re.compile(r"\bpenstock_[a-z0-9_]+")
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "penstock.json"
REFERENCE = ROOT / "docs" / "reference" / "metrics.md"
SAMPLES = {
    sample
    for name, metric in METRICS.items()
    for sample in ([f"{name}_{end}" for end in ("bucket", "sum", "count")] if metric.kind == "histogram" else [name])
}
"""Every name that a query can use."""


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def queries() -> list[str]:
    """Every query of the dashboard."""
    board = json.loads(DASHBOARD.read_text())
    found = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    found += [variable["query"]["query"] for variable in board["templating"]["list"] if variable["type"] == "query"]
    return found + [note["expr"] for note in board["annotations"]["list"] if "expr" in note]


# The reference.


def test_the_reference_has_every_metric_and_no_other() -> None:
    rows = re.findall(r"^\| `(penstock_\w+)` \| (\w+) \| (.*?) \| (.+) \|$", REFERENCE.read_text(), re.MULTILINE)
    assert [name for name, *_ in rows] == list(METRICS)
    for name, kind, labels, text in rows:
        assert (kind, tuple(re.findall(r"`(\w+)`", labels))) == (METRICS[name].kind, METRICS[name].labels)
        assert text.startswith(METRICS[name].help), name


def test_the_reference_names_nothing_that_is_not_there() -> None:
    assert set(NAME.findall(REFERENCE.read_text())) - {"penstock_"} <= set(METRICS)


def test_names_follow_the_conventions() -> None:
    for name, metric in METRICS.items():
        assert (metric.kind == "counter") == name.endswith("_total"), name
        assert metric.help.endswith("."), name
        if metric.kind == "histogram":
            assert name.endswith(("_seconds", "_bytes", "_messages")), name


# The alerts.


def test_promtool_finds_nothing_wrong_with_the_rules_and_the_example() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(ALERTS))
    assert "SUCCESS" in promtool("check", "config", str(ALERTS.with_name("prometheus.yml")))


def test_the_alerts_name_only_what_there_is() -> None:
    assert len(alerts()) >= 10
    for rule in alerts():
        assert set(NAME.findall(rule["expr"])) <= SAMPLES, rule["alert"]
        for text in rule["annotations"].values():
            assert set(NAME.findall(text)) <= SAMPLES | set(METRICS), rule["alert"]


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names)
    for rule in alerts():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}
        assert all(len(text) > 20 and "\n" not in text for text in rule["annotations"].values())


# The dashboard.


def test_every_query_of_the_dashboard_names_only_what_there_is() -> None:
    for query in queries():
        named = set(NAME.findall(query))
        assert named, query
        assert named <= SAMPLES, query


def test_the_dashboard_shows_every_metric() -> None:
    shown = {name for query in queries() for name in NAME.findall(query)}
    missing = [name for name in METRICS if not {name, f"{name}_bucket", f"{name}_count"} & shown]
    assert missing == []


def test_queries_group_and_select_by_labels_that_the_metrics_have() -> None:
    known = {label for metric in METRICS.values() for label in metric.labels} | {"le", "instance"}
    for query in queries():
        for labels in re.findall(r"\bby \(([^)]*)\)", query):
            assert set(re.findall(r"\w+", labels)) <= known, query
        for name, selector in re.findall(r"(penstock_\w+)\{([^}]*)\}", query):
            own = METRICS.get(name) or METRICS[re.sub("_(bucket|sum|count)$", "", name)]
            used = set(re.findall(r"(\w+)=~", selector))
            assert used <= {*own.labels, "instance"}, query


def test_promql_understands_every_query(tmp_path: Any) -> None:
    rules = [
        {"record": f"query:{place}", "expr": query.replace("$__rate_interval", "5m")}
        for place, query in enumerate(queries())
        if not query.startswith("label_values")
    ]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", "--lint=none", str(file))


def test_the_dashboard_is_laid_out_in_rows_without_overlaps() -> None:
    assert [panel["title"] for panel in panels() if panel["type"] == "row"] == [
        "Overview", "Latency", "Topics", "Groups", "Pipelines", "Storage", "Bucket", "Process",
    ]  # fmt: skip
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


def test_panels_have_what_grafana_needs() -> None:
    board = json.loads(DASHBOARD.read_text())
    assert (board["uid"], board["title"], board["id"]) == ("penstock", "Penstock", None)
    assert board["schemaVersion"] >= 39
    identities = [panel["id"] for panel in panels()]
    assert len(set(identities)) == len(identities)
    for panel in panels():
        if panel["type"] == "row":
            continue
        assert panel["type"] in ("stat", "timeseries", "table", "heatmap")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["description"]
        assert panel["targets"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])


@pytest.mark.parametrize("file", [ALERTS, ALERTS.with_name("prometheus.yml"), DASHBOARD])
def test_variables_that_are_used_are_there(file: Any) -> None:
    text = file.read_text()
    known = {"datasource", "instance", "topic", "group", "__rate_interval", "__all", "labels", "value"}
    assert set(re.findall(r"\$\{?(\w+)", text)) <= known
