"""Metrics of the image resolver: alerts and page name those that there are."""

from __future__ import annotations

import re
from typing import Any

import yaml
from prometheus_client import Counter, Gauge, generate_latest

from tests.support.paths import ROOT
from webhook.images.resolver import metrics

PAGE = (ROOT / "docs/images.md").read_text("utf-8")


def documents(path: str) -> list[Any]:
    """Return the documents of a manifest."""
    return list(yaml.safe_load_all((ROOT / "manifests" / path).read_text("utf-8")))


def own() -> set[str]:
    """Return the time series of the resolver."""
    collectors = (var for var in vars(metrics).values() if isinstance(var, Counter | Gauge))
    names = {
        family.name + ("_total" if family.type == "counter" else "")
        for collector in collectors
        for family in collector.describe()
    }
    return {name for name in names if "_watch_" not in name}


def test_the_page_names_every_metric() -> None:
    """In its table; those of watches are the webhook's, too."""
    assert own() == set(re.findall(r"^\| `(gpugate_image\w+)", PAGE, re.MULTILINE))
    assert b"gpugate_watch_heard_timestamp_seconds" in generate_latest(metrics.REGISTRY)


def test_alerts_and_monitor_name_what_there_is() -> None:
    """Metrics, the port of the container, its labels, a heading of the page."""
    monitor, rules = documents("monitoring/images.yaml")
    deployment, policy = documents("components/image-resolver/deployment.yaml")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    probes = [container[f"{probe}Probe"]["httpGet"] for probe in ("readiness", "liveness")]
    (group,) = rules["spec"]["groups"]

    assert {endpoint["port"]} == {port["name"] for port in container["ports"]} == {p["port"] for p in probes}
    assert ["/readyz", "/healthz"] == [probe["path"] for probe in probes]
    assert deployment["spec"]["selector"] == monitor["spec"]["selector"] == policy["spec"]["podSelector"]
    assert [{"targetLabel": "job", "replacement": "gpugate-images"}] == endpoint["relabelings"]
    for alert in group["rules"]:
        ((name, matchers),) = re.findall(r"\b(gpugate_\w+)\{(.*?)\}", alert["expr"])
        assert name in own()
        assert matchers.startswith('job="gpugate-images"')
        file, _, anchor = alert["annotations"]["runbook"].partition("#")
        assert "docs/images.md" == file
        assert anchor in re.sub(r"[^\w\n-]", "-", PAGE.lower())
