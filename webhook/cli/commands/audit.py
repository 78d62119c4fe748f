"""`gpugate audit`: the verdict of the rules on the pods that are there already."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import time
from typing import Any, Final

import click

from rules import Action, AdmissionRequest, Decision, ObjectError, decide
from rules.text.yaml_document import SourceError
from webhook.cli.input.decision_context import DecisionContext, Sources, judge_options
from webhook.cli.input.objects import InputError, objects_in
from webhook.cli.input.options import fail_on_option
from webhook.cli.output.console import counted, show_table
from webhook.yaml_output import dump_yaml

# A pod in one of these phases runs no more: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
_ENDED: Final = ("Succeeded", "Failed")
_COLOURS: Final = {"deny": "red", "warn": "yellow", "dryrun": "cyan"}


@dataclass(frozen=True, slots=True)
class Audited:
    """A pod that runs or is to run, and the decision on it as it stands."""

    pod: Mapping[str, Any]
    decision: Decision

    @property
    def namespace(self) -> str:
        """Where it is."""
        return str(self.pod["metadata"].get("namespace") or "default")

    @property
    def owner(self) -> str:
        """What is to be changed: the pod's controller, or the pod itself where it has none."""
        metadata = self.pod["metadata"]
        owners = metadata.get("ownerReferences")
        for owner in owners if isinstance(owners, list) else ():
            if isinstance(owner, dict) and owner.get("controller"):
                return f"{owner.get('kind', '')}/{owner.get('name', '')}"
        return f"Pod/{metadata.get('name', '')}"

    def findings(self) -> list[tuple[str, str, str]]:
        """Return (action, rule, message) of all that is against it."""
        violations = self.decision.violations
        told = {f"{found.message} [{found.rule}]" for found in violations}  # as the warnings repeat them
        return [(found.action.value, found.rule, found.message) for found in violations] + [
            (Action.WARN.value, "", warning) for warning in self.decision.warnings if warning not in told
        ]


@click.command()
@click.option(
    "-f",
    "--filename",
    "filenames",
    multiple=True,
    metavar="FILE",
    help="Pods, as `kubectl get pods -A -o yaml` has them; - for stdin.  [default: those of the cluster]",
)
@click.option("-n", "--namespace", metavar="NS", help="Only pods of this namespace.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "policyreport"]),
    default="table",
    show_default=True,
    help="policyreport: PolicyReports of wgpolicyk8s.io/v1alpha2, for kubectl apply.",
)
@fail_on_option
@judge_options
def command(
    filenames: tuple[str, ...], namespace: str | None, output: str, fail_on: str, sources: Sources
) -> None:
    """Judge the pods that are in a cluster now, as they stand.

    It finds pods that are older than a rule or than gpugate, and what was let pass while it was off. A pod on
    a node is judged by that node. Nothing is changed; pods that have ended are passed over.

    \b
    Examples:
      gpugate audit --context production
      gpugate audit --context production --rules new-rules/ --namespace ml
      kubectl get pods -A -o yaml | gpugate audit -f - --nodes nodes.yaml
      gpugate audit --context production -o policyreport | kubectl apply -f -
    """
    if not (filenames or sources.rules.of_cluster):
        raise click.UsageError("no pods; name a cluster with --context or a file with --filename")
    judge = sources.judge()
    pods: Iterable[Any] = _in_files(filenames) if filenames else sources.rules.ask(lambda asked: asked.pods())
    audited = list(_audited(judge, pods, namespace))
    _SHOW[output](audited)
    sys.exit(judge.exit_status((each.decision for each in audited), fail_on))


def _audited(judge: DecisionContext, pods: Iterable[Any], namespace: str | None) -> Iterator[Audited]:
    """Yield the pods that have not ended, of one namespace or all, and what is decided of them."""
    for pod in pods:
        if isinstance(pod, ValueError):
            judge.complain(str(pod))
            continue
        metadata, status, spec = (pod.get(key) for key in ("metadata", "status", "spec"))
        if not (isinstance(metadata, dict) and isinstance(spec, dict)):
            judge.complain("a pod without metadata or spec is none")
            continue
        where = str(metadata.get("namespace") or "default")
        ended = isinstance(status, dict) and status.get("phase") in _ENDED
        if ended or namespace not in (None, where):
            continue
        request = AdmissionRequest("CREATE", "", "Pod", where, pod, mutating=False)
        try:
            yield Audited(pod, decide(judge.policy, judge.inventory, request, time()))
        except ObjectError as error:
            judge.complain(f"pod {where}/{metadata.get('name', '')}: {error}")


def _in_files(filenames: Iterable[str]) -> Iterator[dict[str, Any] | ValueError]:
    """Yield the pods in files, and what is wrong there; other objects are passed over."""
    for filename in filenames:
        for place, value in objects_in(filename):
            if isinstance(value, SourceError):
                yield value
            elif not isinstance(value, dict):
                yield InputError(f"{place}: expected a Kubernetes object with apiVersion and kind")
            elif value.get("kind") == "Pod":
                yield value


def _show_table(audited: Sequence[Audited]) -> None:
    """Show each finding once for all pods of an owner, most severe first."""
    pods: defaultdict[tuple[str, str, str, str, str], int] = defaultdict(int)
    for each in audited:
        for action, rule, message in each.findings():
            pods[action, each.namespace, each.owner, rule, message] += 1
    rows = [
        {
            "action": action,
            "namespace": where,
            "owner": owner,
            "pods": str(number),
            "rule": rule,
            "finding": message,
        }
        for (action, where, owner, rule, message), number in sorted(
            pods.items(), key=lambda item: _rank(item[0])
        )
    ]
    show_table(rows, action=_COLOURS)
    refused = sum(not each.decision.allowed for each in audited)
    click.echo(f"{counted(len(audited), 'pod')}: {refused} would be refused today", err=True)


def _rank(finding: tuple[str, ...]) -> tuple[object, ...]:
    return (list(_COLOURS).index(finding[0]), *finding)


def _show_json(audited: Sequence[Audited]) -> None:
    facts = [
        {
            "namespace": each.namespace,
            "name": each.pod["metadata"].get("name", ""),
            "owner": each.owner,
            "node": each.pod.get("spec", {}).get("nodeName"),
            "allowed": each.decision.allowed,
            "findings": [
                {"action": action, "rule": rule, "message": message}
                for action, rule, message in each.findings()
            ],
        }
        for each in audited
    ]
    click.echo(json.dumps({"pods": facts}, ensure_ascii=False))


def _show_reports(audited: Sequence[Audited]) -> None:
    """Show a PolicyReport for each namespace.

    Source: https://github.com/kubernetes-sigs/wg-policy-prototypes, wgpolicyk8s.io/v1alpha2.
    """
    by_namespace: defaultdict[str, list[Audited]] = defaultdict(list)
    for each in audited:
        by_namespace[each.namespace].append(each)
    for namespace, pods in sorted(by_namespace.items()):
        results = [result for each in pods for result in _results(each)]
        summary = {
            outcome: sum(result["result"] == outcome for result in results)
            for outcome in ("pass", "fail", "warn", "error", "skip")
        }
        report = {
            "apiVersion": "wgpolicyk8s.io/v1alpha2",
            "kind": "PolicyReport",
            "metadata": {"name": "gpugate", "namespace": namespace},
            "summary": summary,
            "results": results,
        }
        click.echo(f"---\n{dump_yaml(report)}", nl=False)


def _results(audited: Audited) -> Iterator[dict[str, Any]]:
    metadata = audited.pod["metadata"]
    subject = {"apiVersion": "v1", "kind": "Pod", "namespace": audited.namespace}
    subject |= {key: metadata[key] for key in ("name", "uid") if key in metadata}
    outcomes = {"deny": "fail", "warn": "warn", "dryrun": "skip"}
    findings = audited.findings()
    for action, rule, message in findings:
        yield _result(rule or "gpugate", outcomes[action], subject, message)
    if not findings:
        for rule in audited.decision.rules:
            yield _result(rule, "pass", subject, "")


def _result(rule: str, outcome: str, subject: dict[str, Any], message: str) -> dict[str, Any]:
    told = {"message": message} if message else {}
    return {"source": "gpugate", "policy": rule, "result": outcome, "resources": [subject], **told}


_SHOW: Final = {"table": _show_table, "json": _show_json, "policyreport": _show_reports}
