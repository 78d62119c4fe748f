"""The page of metrics and alerts, from the registries and the PrometheusRules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import yaml
from prometheus_client import CollectorRegistry

from tests.support.paths import ROOT
from webhook.agent import metrics as agent
from webhook.images.resolver import metrics as resolver
from webhook.telemetry import metrics as webhook

PAGES: Final = {"en": ROOT / "docs/metrics.md", "zh": ROOT / "docs/zh/metrics.md"}
# The program, its registry, and the file of its alerts.
_PROGRAMS: Final[tuple[tuple[dict[str, str], CollectorRegistry, str], ...]] = (
    ({"en": "Webhook", "zh": "Webhook"}, webhook.REGISTRY, "alerts.yaml"),
    ({"en": "Node agent", "zh": "节点代理"}, agent.REGISTRY, "agent.yaml"),
    ({"en": "Image resolver", "zh": "镜像解析器"}, resolver.REGISTRY, "images.yaml"),
)
_NOTE: Final = "<!-- Written by `pytest tests/project/test_metrics_page.py --update-golden`. -->\n"
# A test routes all alerts through it.
_ALERTMANAGER: Final = """
```yaml
route:
  receiver: default
  routes:
    - matchers: ['alertname =~ "Gpugate.+"', 'severity = "critical"']
      receiver: gpu-on-call
    - matchers: ['alertname =~ "Gpugate.+"']
      receiver: gpu-platform
      repeat_interval: 1d
receivers:
  - name: default
  - name: gpu-on-call
    webhook_configs:
      - url: https://pager.example.com/alerts
  - name: gpu-platform
    webhook_configs:
      - url_file: /etc/alertmanager/chat-url
```
"""
_WORDS: Final[dict[str, dict[str, Any]]] = {
    "en": {
        "about": f"""{_NOTE}# Metrics and alerts

[中文](zh/metrics.md)

All metrics of gpugate and the alerts on them. `kubectl apply -k manifests/monitoring` installs the alerts,
what Prometheus scrapes, and a dashboard for Grafana, with the Prometheus operator; the chart does so with
`monitoring.enabled: true`. Alertmanager sends the alerts to whom you configure. An alert of severity critical
needs action now, a warning during working hours; each has a runbook.

The alerts to have first: `GpugateDown` (GPU pods are rejected), `GpugateNoRules` (pods are admitted
unchecked) and `GpugateFactsOld` (newer images are unknown). Labels have a bounded number of
values: no names of pods, images or namespaces.

## Notifications

With [Events on workloads](install.md#events-on-workloads), `kubectl describe` of a workload shows why its
pods are denied.

All alerts begin with `Gpugate`. In this configuration of Alertmanager, the critical ones go to one receiver,
the warnings to another, repeated once a day. `webhook_configs` is any program that takes a POST of JSON;
Slack, e-mail and others are
[receivers](https://prometheus.io/docs/alerting/latest/configuration/#receiver-integration-settings), too.
`amtool check-config` checks the file.
{_ALERTMANAGER}""",
        "metrics": "metrics",
        "alerts": "alerts",
        "metric_columns": ("metric", "type", "labels", "meaning"),
        "alert_columns": ("alert", "severity", "for", "meaning", "runbook"),
        "read": "read",
    },
    "zh": {
        "about": f"""{_NOTE}# 指标与告警

[English](../metrics.md)

gpugate 的所有指标及其告警。`kubectl apply -k manifests/monitoring` 配合 Prometheus Operator
安装告警、抓取配置和 Grafana 仪表盘；Chart 使用 `monitoring.enabled: true`。
由 Alertmanager 将告警发送给你配置的接收者。级别为 critical 的告警需要立即处理，
warning 在工作时间处理；每条告警都有处理手册。

首先应有的告警：`GpugateDown`（GPU Pod 被拒绝）、`GpugateNoRules`（Pod 未经检查即放行）
和 `GpugateFactsOld`（较新的镜像未知）。标签的取值数量有限：不含 Pod、镜像或命名空间的名称。
表中的含义为代码中的英文原文。

## 通知

使用[工作负载上的 Event](install.md#工作负载上的-event)，工作负载的作者可以通过 `kubectl describe` 看到其 Pod
被拒绝的原因。

所有告警都以 `Gpugate` 开头。在 Alertmanager 的配置中，critical 告警发送给一个接收者，
warning 发送给另一个，每天重复一次。`webhook_configs` 可以是任何接受 JSON POST 请求的程序；
Slack、电子邮件等也有[接收者](https://prometheus.io/docs/alerting/latest/configuration/#receiver-integration-settings)。
`amtool check-config` 检查该文件。
{_ALERTMANAGER}""",
        "metrics": "的指标",
        "alerts": "的告警",
        "metric_columns": ("指标", "类型", "标签", "含义"),
        "alert_columns": ("告警", "级别", "持续", "含义", "处理手册"),
        "read": "查看",
    },
}


def metrics_page(language: str) -> str:
    """Return the page in a language."""
    words = _WORDS[language]
    parts = [words["about"].rstrip("\n")]
    for title, registry, file in _PROGRAMS:
        space = " " if title[language].isascii() else ""  # after a Latin word
        parts += [
            f"## {title[language]}{space}{words['metrics']}",
            _table(words["metric_columns"], _metrics(registry)),
        ]
        alerts = _alerts(file, language, words["read"])
        parts += [f"## {title[language]}{space}{words['alerts']}", _table(words["alert_columns"], alerts)]
    return "\n\n".join(parts) + "\n"


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(columns)
    lines = [heads, ["---"] * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _metrics(registry: CollectorRegistry) -> Iterator[list[str]]:
    """Yield name, type, labels and help of each metric, in the order of the names."""
    collectors = set(registry._collector_to_names)
    families = {
        family.name: (family, collector) for collector in collectors for family in collector.collect()
    }
    for name in sorted(families):
        family, collector = families[name]
        suffix = "_total" if family.type == "counter" else ""
        labels = ", ".join(f"`{label}`" for label in getattr(collector, "_labelnames", ()))
        yield [f"`{name}{suffix}`", family.type, labels or "–", family.documentation]


def _alerts(file: str, language: str, read: str) -> Iterator[list[str]]:
    """Yield name, severity, duration, summary and runbook of each alert."""
    documents = yaml.safe_load_all((ROOT / "manifests/monitoring" / file).read_text("utf-8"))
    rules = [document for document in documents if document["kind"] == "PrometheusRule"]
    for alert in rules[0]["spec"]["groups"][0]["rules"]:
        notes = alert["annotations"]
        summary = re.sub(r"\{\{ \$(?:labels\.)?(\w+)[^}]*\}\}", r"*\1*", notes["summary"])
        page = notes["runbook"].removeprefix("docs/")
        link = _chinese(page) if language == "zh" else page
        yield [
            f"`{alert['alert']}`",
            alert["labels"]["severity"],
            alert.get("for", "–"),
            summary,
            f"[{read}]({link})",
        ]


def _chinese(link: str) -> str:
    """Return the link from a Chinese page, to the same heading of the Chinese page if there is one."""
    page, _, anchor = link.partition("#")
    if not (ROOT / "docs/zh" / page).exists():
        return f"../{link}"
    number = _anchors(f"docs/{page}").index(anchor)
    return f"{page}#{_anchors(f'docs/zh/{page}')[number]}"


def _anchors(page: str) -> list[str]:
    from tests.project.test_docs import anchors

    return anchors((ROOT / page).read_text("utf-8"))
