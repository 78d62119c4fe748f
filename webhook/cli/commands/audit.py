"""`gpugate audit`: evaluates existing pods with the rules."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import time
from typing import Any, Final

import click

from rules import Action, AdmissionRequest, Decision, Language, ObjectError, decide
from rules.decision.messages import warning_line
from rules.model.decision import AdmissionWarning, Basis
from rules.text.yaml_document import SourceError
from webhook.cli.input.decision_context import DecisionContext, Sources, decision_options
from webhook.cli.input.objects import InputError, objects_in
from webhook.cli.input.options import fail_on_option, filenames_option
from webhook.cli.input.quotas import QuotaFinding, Quotas
from webhook.cli.output.console import counted, print_summary, print_warning, progress, show_table
from webhook.cli.output.not_checked import not_checked_facts
from webhook.cli.output.vocabulary import AUDIT_SUMMARY, EVALUATING_PODS, NOT_CHECKED_LINE
from webhook.yaml_output import dump_yaml

# Phases of pods that have ended: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
_ENDED: Final = ("Succeeded", "Failed")
_COLOURS: Final = {"deny": "red", "warn": "yellow", "dryrun": "cyan"}


@dataclass(frozen=True, slots=True)
class Audited:
    """A pod that has not ended, and the decision on its current spec."""

    pod: Mapping[str, Any]
    decision: Decision
    language: Language

    @property
    def namespace(self) -> str:
        """Namespace of the pod."""
        return str(self.pod["metadata"].get("namespace") or "default")

    @property
    def owner(self) -> str:
        """The object to change: the pod's controller, or the pod itself if it has none."""
        metadata = self.pod["metadata"]
        owners = metadata.get("ownerReferences")
        for owner in owners if isinstance(owners, list) else ():
            if isinstance(owner, dict) and owner.get("controller"):
                return f"{owner.get('kind', '')}/{owner.get('name', '')}"
        return f"Pod/{metadata.get('name', '')}"

    @property
    def denied_by_fact(self) -> bool:
        """Whether a violation that denies the pod rests on facts, and so no setting of a rule admits it."""
        return any(
            found.action is Action.DENY and found.basis is Basis.FACT for found in self.decision.violations
        )

    def findings(self) -> list[tuple[str, str, str, str]]:
        """Return (action, basis, rule, message) of each violation and warning; a warning has no basis."""
        violations, warn = self.decision.violations, Action.WARN
        repeated = {
            warning_line(self.language, AdmissionWarning(found.rule, found.reason, found.fix))
            for found in violations
            if found.action is warn
        }
        return [
            (found.action.value, found.basis.value, found.rule, found.message) for found in violations
        ] + [(warn.value, "", "", line) for line in self.decision.warnings if line not in repeated]


@click.command()
@filenames_option(
    "File or URL that contains pods, as `kubectl get pods -A -o yaml` prints them; - for stdin.  "
    "[default: the pods of the cluster]",
    required=False,
)
@click.option("-n", "--namespace", metavar="NS", help="Evaluate only pods of this namespace.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "policyreport"]),
    default="table",
    show_default=True,
    help="policyreport: PolicyReport objects (wgpolicyk8s.io/v1alpha2) for kubectl apply.",
)
@fail_on_option
@decision_options
def command(
    filenames: tuple[str, ...], namespace: str | None, output: str, fail_on: str, sources: Sources
) -> None:
    """Evaluate the existing pods of a cluster with the rules.

    Finds pods that were created before a rule, or while the webhook was not running. A pod that is bound to a
    node is checked against that node. Changes nothing; skips pods that have ended. Also shows which
    ResourceQuotas of GPU pods are used up.

    \b
    Examples:
      gpugate audit --context production
      gpugate audit --context production --rules new-rules/ --namespace ml
      kubectl get pods -A -o yaml | gpugate audit -f - --nodes nodes.yaml
      gpugate audit --context production -o policyreport | kubectl apply -f -
    """
    if not filenames:
        sources = sources.of_current_cluster("--filename FILE")
    context = sources.load()
    pods: Iterable[Any] = (
        _in_files(filenames, context.quotas)
        if filenames
        else sources.rules.cluster.query(lambda cluster: cluster.pods())
    )
    with progress(EVALUATING_PODS):
        audited = list(_audited(context, pods, namespace))
    quotas = context.quotas.used_up((each.namespace, each.pod["spec"]) for each in audited)
    if output == "table":
        _show_table(audited, sources.language)
        for found in quotas:
            print_warning(found.message, sources.language)
    elif output == "json":
        _show_json(audited, quotas)
    else:
        _show_reports(audited)
    sys.exit(context.exit_status((each.decision for each in audited), fail_on))


def _audited(context: DecisionContext, pods: Iterable[Any], namespace: str | None) -> Iterator[Audited]:
    """Yield the pods that have not ended, of one namespace or all, with the decisions on them."""
    for pod in pods:
        if isinstance(pod, ValueError):
            context.add_error(str(pod))
            continue
        metadata, status, spec = (pod.get(key) for key in ("metadata", "status", "spec"))
        if not (isinstance(metadata, dict) and isinstance(spec, dict)):
            context.add_error("invalid pod: metadata or spec is missing")
            continue
        where = str(metadata.get("namespace") or "default")
        ended = isinstance(status, dict) and status.get("phase") in _ENDED
        if ended or namespace not in (None, where):
            continue
        request = AdmissionRequest("CREATE", "", "Pod", where, pod, mutating=False)
        try:
            decision = decide(context.policy, context.inventory, request, time())
            yield Audited(pod, decision, context.policy.language)
        except ObjectError as error:
            context.add_error(f"pod {where}/{metadata.get('name', '')}: {error}")


def _in_files(filenames: Iterable[str], quotas: Quotas) -> Iterator[dict[str, Any] | ValueError]:
    """Yield the pods and the errors in files, and add the quotas; other objects are skipped."""
    for filename in filenames:
        for place, value in objects_in(filename):
            if isinstance(value, SourceError):
                yield value
            elif not isinstance(value, dict):
                yield InputError(f"{place}: expected a Kubernetes object with apiVersion and kind")
            elif value.get("kind") == "Pod":
                yield value
            else:
                quotas.add([value], "default")


def _show_table(audited: Sequence[Audited], language: Language) -> None:
    """Print each finding once for all pods of an owner, most severe first."""
    pods: defaultdict[tuple[str, str, str, str, str], int] = defaultdict(int)
    for each in audited:
        for action, _, rule, message in each.findings():
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
    show_table(rows, language, action=_COLOURS)
    facts = {"pods": counted(len(audited), "pod"), "count": len(audited)}
    denied, by_facts = (
        sum(not each.decision.allowed for each in audited),
        sum(each.denied_by_fact for each in audited),
    )
    bases = {"denied": denied, "facts": by_facts, "policy": denied - by_facts}
    print_summary(AUDIT_SUMMARY.in_language(language).format(**bases, **facts))
    _show_not_checked(audited, language)


def _show_not_checked(audited: Sequence[Audited], language: Language) -> None:
    """Print each reason once for all pods that have it, the most frequent first."""
    reasons = Counter(
        reason.in_language(language)
        for each in audited
        for reason in {reason for _, reason in each.decision.not_checked}
    )
    for reason, number in reasons.most_common():
        text = NOT_CHECKED_LINE.in_language(language)
        print_summary(text.format(what=reason, pods=counted(number, "pod"), count=number))


def _rank(finding: tuple[str, ...]) -> tuple[object, ...]:
    return (list(_COLOURS).index(finding[0]), *finding)


def _show_json(audited: Sequence[Audited], quotas: Sequence[QuotaFinding]) -> None:
    facts = [
        {
            "namespace": each.namespace,
            "name": each.pod["metadata"].get("name", ""),
            "owner": each.owner,
            "node": each.pod.get("spec", {}).get("nodeName"),
            "allowed": each.decision.allowed,
            "findings": [
                {"action": action, "basis": basis, "rule": rule, "message": message}
                for action, basis, rule, message in each.findings()
            ],
            "notChecked": not_checked_facts(each.decision, each.language),
        }
        for each in audited
    ]
    used_up = [found._asdict() for found in quotas]
    click.echo(json.dumps({"pods": facts, "quotas": used_up}, ensure_ascii=False))


def _show_reports(audited: Sequence[Audited]) -> None:
    """Print a PolicyReport for each namespace.

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
    for action, basis, rule, message in findings:
        details = {"message": message} | ({"properties": {"basis": basis}} if basis else {})
        yield _result(rule or "gpugate", outcomes[action], subject, **details)
    if not findings:
        for rule in audited.decision.rules:
            yield _result(rule, "pass", subject)


def _result(rule: str, outcome: str, subject: dict[str, Any], **details: Any) -> dict[str, Any]:
    return {"source": "gpugate", "policy": rule, "result": outcome, "resources": [subject], **details}
