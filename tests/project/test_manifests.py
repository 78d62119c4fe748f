"""What the manifests say of the program is so: its options, ports and paths, its metrics, its pages."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram

from tests.support.paths import ROOT
from tests.support.webhooks import builtin_handler
from webhook.admission.app import create_app
from webhook.cli.commands.serve import command
from webhook.server.server import ServerConfig
from webhook.telemetry import metrics

MANIFESTS = ROOT / "manifests"
DEPLOYMENT, *_ = yaml.safe_load_all((MANIFESTS / "base/deployment.yaml").read_text("utf-8"))
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def _options() -> dict[str, Any]:
    """Return what the Deployment's arguments mean to `gpugate serve`, which refuses others."""
    name, *arguments = CONTAINER["args"]
    assert "serve" == name
    return command.make_context(name, arguments).params


def test_the_arguments_are_options_of_serve() -> None:
    """And the port that it listens on by default is the container's."""
    assert "gpugate-certs" == _options()["certs_secret"]
    assert [_options()["port"]] == [each["containerPort"] for each in CONTAINER["ports"]]
    assert ServerConfig().port == _options()["port"]


def test_probes_ask_for_pages_that_there_are() -> None:
    """Over TLS."""
    pages = {rule.rule for rule in create_app(builtin_handler()).url_map.iter_rules()}
    asked = [CONTAINER[f"{probe}Probe"]["httpGet"] for probe in ("startup", "readiness", "liveness")]

    assert {"/healthz", "/readyz"} == {each["path"] for each in asked} & pages
    assert {("https", "HTTPS")} == {(each["port"], each["scheme"]) for each in asked}


def test_the_drain_and_the_slowest_client_fit_into_the_grace_period() -> None:
    """The kubelet kills what is left then."""
    slowest = _options()["drain_seconds"] + ServerConfig().client_timeout

    assert slowest < POD["terminationGracePeriodSeconds"]


def test_the_image_is_of_this_version() -> None:
    """In the Deployment and in the page's overlay."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]

    assert f"gpugate:{version}" == CONTAINER["image"]
    assert f"newTag: {version}" in (ROOT / "docs/install.md").read_text("utf-8")


def test_no_file_lies_beside_a_kustomization_unused() -> None:
    """Kustomize says nothing of a file that nobody names."""
    for path in MANIFESTS.rglob("kustomization.yaml"):
        text = path.read_text("utf-8")
        others = {each.name for each in path.parent.iterdir() if each.is_file()} - {path.name}

        assert set() == {name for name in others if name not in text}


def test_gate_and_agent_reach_no_more_than_the_api_server_and_dns() -> None:
    """By their NetworkPolicies, which name the same ports."""
    gate = yaml.safe_load((MANIFESTS / "base/network.yaml").read_text("utf-8"))["spec"]
    _, policy = yaml.safe_load_all((MANIFESTS / "agent/daemonset.yaml").read_text("utf-8"))

    assert {443, 6443, 53} == {port["port"] for rule in gate["egress"] for port in rule["ports"]}
    assert gate["egress"] == policy["spec"]["egress"]
    assert [["Ingress", "Egress"]] * 2 == [gate["policyTypes"], policy["spec"]["policyTypes"]]


def _alerts() -> list[dict[str, Any]]:
    document = yaml.safe_load((MANIFESTS / "monitoring/alerts.yaml").read_text("utf-8"))
    return [rule for group in document["spec"]["groups"] for rule in group["rules"]]


def _expressions() -> Iterator[str]:
    dashboard = json.loads((MANIFESTS / "monitoring/dashboard.json").read_text("utf-8"))
    yield from (target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    yield from (alert["expr"] for alert in _alerts())


def _series() -> dict[str, set[str]]:
    """Return the labels of each time series that the program exposes, and of those that Prometheus adds."""
    found = {"up": set[str]()}
    for metric in vars(metrics).values():
        if isinstance(metric, Counter | Gauge | Histogram):
            (family,) = metric.describe()
            suffixes = {Counter: ["_total"], Gauge: [""], Histogram: ["_bucket", "_sum", "_count"]}[
                type(metric)
            ]
            found |= {f"{family.name}{suffix}": set(metric._labelnames) for suffix in suffixes}
            if isinstance(metric, Histogram):
                found[f"{family.name}_bucket"] |= {"le"}
    return {name: labels | {"job", "instance"} for name, labels in found.items()}


# Of PromQL, what the expressions use.
_FUNCTIONS = {"absent", "histogram_quantile", "increase", "max", "rate", "sum", "time"}
_OPERATORS = {"by", "offset", "on", "unless"}


@pytest.mark.parametrize("expression", list(_expressions()))
def test_an_expression_asks_for_metrics_and_labels_that_there_are(expression: str) -> None:
    """Whatever else stands in it is a number, a duration, or a word of PromQL."""
    series = _series()
    rest = re.sub(r'"[^"]*"', '""', expression)
    assert rest.count("(") == rest.count(")")
    asked = set()
    for name, matchers in re.findall(r"\b((?:gpugate_\w+|up)\b)(?:\{(.*?)\})?", rest):
        assert name in series
        asked |= series[name]
        assert set(re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*""', matchers)) <= series[name]
    for grouped in re.findall(r"\b(?:by|on) \((.*?)\)", rest):
        assert set(grouped.split(", ")) <= asked
    rest = re.sub(r"\{.*?\}|\[.*?\]|\b(?:by|on) \(.*?\)|\b(?:gpugate_\w+|up)\b", " ", rest)

    assert set(re.findall(r"\b[a-z_]+\b(?=\s*\()", rest)) <= _FUNCTIONS
    assert set(re.findall(r"\b[a-z_]+\b(?!\s*\()", rest)) <= _OPERATORS


def test_an_alert_says_how_bad_it_is_and_where_to_read_on() -> None:
    """At a heading that there is, as GitHub makes anchors of them."""
    page = (ROOT / "docs/emergency.md").read_text("utf-8")
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}

    assert {"critical", "warning"} == {alert["labels"]["severity"] for alert in _alerts()}
    for alert in _alerts():
        file, _, anchor = alert["annotations"]["runbook"].partition("#")
        assert ("docs/emergency.md", True) == (file, anchor in anchors)
        assert alert["annotations"]["summary"]
    for anchor in re.findall(r"\]\(#(.*?)\)", page):
        assert anchor in anchors
