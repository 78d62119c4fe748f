"""Reports as Kubernetes objects, one for each namespace: PolicyReport and OpenReports.

Sources: https://github.com/kubernetes-sigs/wg-policy-prototypes (wgpolicyk8s.io/v1alpha2) and
https://github.com/openreports/reports-api (openreports.io/v1alpha1).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

from rules.text.i18n import Message
from webhook.cli.report.model import DENY, DRYRUN, NOT_CHECKED, WARN, Report, Target
from webhook.yaml_output import dump_yaml

NAME: Final = "gpugate"
OPEN_REPORTS: Final = "openreports.io/v1alpha1"
_POLICY_REPORTS: Final = "wgpolicyk8s.io/v1alpha2"
# The label of what audit writes to a cluster, and what it therefore may delete there.
LABELS: Final = {"app.kubernetes.io/managed-by": NAME}
# Results of a report: most severe first, so that the others are left out.
_OUTCOMES: Final = ("fail", "warn", "error", "skip", "pass")
_OF_EFFECTS: Final = {DENY: "fail", WARN: "warn", DRYRUN: "skip", NOT_CHECKED: "skip"}
_SEVERITIES: Final = {"fail": "high", "warn": "medium"}
# Bytes of the results of one report in JSON. etcd accepts 1.5 MiB for a request by default
# (https://etcd.io/docs/v3.5/dev-guide/limit/); metadata and managed fields need the rest.
_MOST_BYTES: Final = 1 << 20
_LEFT_OUT: Final = Message(
    "{count} more results are left out, because an object of a cluster has a limited size; the summary "
    "counts them (gpugate audit lists all)"
)


def policy_reports(report: Report) -> list[dict[str, Any]]:
    """Return a PolicyReport for each namespace with objects."""
    return [
        {
            "apiVersion": _POLICY_REPORTS,
            "kind": "PolicyReport",
            "metadata": {"name": NAME, "namespace": namespace},
            "summary": _summary(results),
            "results": results,
        }
        for namespace, targets in report.by_namespace().items()
        for results in [[result for target in targets for result in _results(target, "source")]]
    ]


def open_reports(report: Report) -> list[dict[str, Any]]:
    """Return a Report for each namespace with results.

    It has no times: a Report of the same facts is the same object, and applying it again writes nothing.
    """
    reports = []
    for namespace, targets in report.by_namespace().items():
        results = [result for target in targets for result in _results(target, "severity")]
        results.sort(key=lambda result: _OUTCOMES.index(result["result"]))
        if results:
            reports.append(
                {
                    "apiVersion": OPEN_REPORTS,
                    "kind": "Report",
                    "metadata": {"name": NAME, "namespace": namespace, "labels": dict(LABELS)},
                    "source": NAME,
                    "scope": {"apiVersion": "v1", "kind": "Namespace", "name": namespace},
                    "summary": _summary(results),
                    "results": _bounded(results, report),
                }
            )
    return reports


def _summary(results: Sequence[dict[str, Any]]) -> dict[str, int]:
    return {
        outcome: sum(result["result"] == outcome for result in results)
        for outcome in ("pass", "fail", "warn", "error", "skip")
    }


def _results(target: Target, shape: Literal["source", "severity"]) -> Iterator[dict[str, Any]]:
    """Yield the results of an object: the rules that pass, findings, and what is not checked."""

    def result(policy: str, outcome: str, **details: Any) -> dict[str, Any]:
        made = {"policy": policy, "result": outcome, "resources": [dict(target.reference)], **details}
        if shape == "source":
            return {"source": NAME, **made}
        return made | ({"severity": _SEVERITIES[outcome]} if outcome in _SEVERITIES else {})

    for rule in target.passed:
        yield result(rule, "pass")
    for finding in target.findings:
        details = {"properties": {"basis": finding.basis}} if finding.basis else {}
        yield result(finding.rule or NAME, _OF_EFFECTS[finding.effect], message=finding.message, **details)


def _bounded(results: list[dict[str, Any]], report: Report) -> list[dict[str, Any]]:
    """Return the first results that an object of a cluster has room for, and how many are left out."""
    size = 0
    for at, result in enumerate(results):
        size += len(json.dumps(result, ensure_ascii=False).encode())
        if size > _MOST_BYTES:
            message = _LEFT_OUT.having(count=len(results) - at).in_language(report.language)
            return [*results[:at], {"policy": NAME, "result": "skip", "message": message}]
    return results


def policy_reports_yaml(report: Report) -> str:
    """Return `policy_reports` as YAML documents."""
    return _documents(policy_reports(report))


def open_reports_yaml(report: Report) -> str:
    """Return `open_reports` as YAML documents."""
    return _documents(open_reports(report))


def _documents(documents: Iterable[dict[str, Any]]) -> str:
    return "".join(f"---\n{dump_yaml(document)}" for document in documents).rstrip("\n")
