"""`gpugate audit`: evaluates existing pods with the rules."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import click

from rules import Action, AdmissionRequest, Decision, Language, ObjectError, Violation
from rules.decision.messages import rule_and_reason, warning_line
from rules.model.decision import AdmissionWarning, Basis
from rules.text.yaml_document import SourceError
from webhook.cli.input.decision_context import DecisionContext, Sources, decision_options
from webhook.cli.input.objects import InputError, objects_in
from webhook.cli.input.options import fail_on_option, filenames_option
from webhook.cli.input.quotas import QuotaFinding
from webhook.cli.output.console import counted, print_summary, print_warning, progress, show_table
from webhook.cli.output.not_checked import OF_NODES, not_checked_facts
from webhook.cli.output.vocabulary import AUDIT_SUMMARY, EVALUATING_PODS, NOT_CHECKED_LINE, OTHER_KINDS
from webhook.yaml_output import dump_yaml

# Phases of pods that have ended: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
_ENDED: Final = ("Succeeded", "Failed")
# What reasons begin with that have no path.
_CONTAINER: Final = re.compile(r"^(?:container|容器) '[^']*'[:：] ?")
_COLOURS: Final = {"deny": "red", "warn": "yellow", "dryrun": "cyan"}


class Finding(NamedTuple):
    """A violation, or a warning, which has no basis. reason: without container and path."""

    action: str
    basis: str
    rule: str
    reason: str
    message: str


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

    def findings(self) -> list[Finding]:
        """Return each violation and each other warning."""
        violations, warn = self.decision.violations, Action.WARN
        repeated = {
            warning_line(self.language, AdmissionWarning(found.rule, found.reason, found.fix))
            for found in violations
            if found.action is warn
        }
        return [
            Finding(each.action.value, each.basis.value, each.rule, _without_place(each), each.message)
            for each in violations
        ] + [
            Finding(warn.value, "", rule, _CONTAINER.sub("", reason), line)
            for line in self.decision.warnings
            if line not in repeated
            for rule, reason in (rule_and_reason(line),)
        ]


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
    type=click.Choice(["table", "wide", "json", "policyreport"]),
    default="table",
    show_default=True,
    help="wide: also each finding as the user would see it; policyreport: PolicyReport objects "
    "(wgpolicyk8s.io/v1alpha2) for kubectl apply.",
)
@fail_on_option
@decision_options
def command(
    filenames: tuple[str, ...], namespace: str | None, output: str, fail_on: str, sources: Sources
) -> None:
    """Evaluate the existing pods of a cluster with the rules; without --context, of the current context.

    Finds pods that were created before a rule, or while the webhook was not running. A pod that is bound to a
    node is checked against that node. Changes nothing; skips pods that have ended. Prints a summary by rule
    and reason, then the owners to change, and which ResourceQuotas of GPU pods are used up. Rules and nodes
    are those of the cluster; if it has no rules, the built-in ones.

    \b
    Examples:
      gpugate audit
      gpugate audit --context production -o wide
      gpugate audit --context production --rules builtin --rules new-rules/ --namespace ml
      kubectl get pods -A -o yaml | gpugate audit -f - --nodes nodes.yaml
      gpugate audit --context production -o policyreport | kubectl apply -f -
    """
    if not filenames:
        sources = sources.of_current_cluster("--filename FILE")
    context = sources.load()
    others: Counter[str] = Counter()
    pods: Iterable[Any] = (
        _in_files(filenames, context, others)
        if filenames
        else sources.rules.cluster.query(lambda cluster: cluster.pods())
    )
    with progress(EVALUATING_PODS):
        audited = list(_audited(context, pods, namespace))
    quotas = context.quotas.used_up((each.namespace, each.pod["spec"]) for each in audited)
    if output == "json":
        _show_json(audited, quotas)
    elif output == "policyreport":
        _show_reports(audited, {rule.name for rule in context.rules.compatibility})
    else:
        _show_tables(audited, sources.language, wide=output == "wide")
        for found in quotas:
            print_warning(found.message, sources.language)
    if others:
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(others.items()))
        click.echo(OTHER_KINDS.in_language(sources.language).format(kinds=kinds), err=True)
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
            yield Audited(pod, context.decide(request), context.policy.language)
        except ObjectError as error:
            context.add_error(f"pod {where}/{metadata.get('name', '')}: {error}")


def _without_place(found: Violation) -> str:
    """Return the first line of a reason without container and path."""
    first, *_ = found.reason.partition("\n")
    return _CONTAINER.sub("", (first.partition(found.path or first)[2] or first).lstrip(":： "))


def _in_files(
    filenames: Iterable[str], context: DecisionContext, others: Counter[str]
) -> Iterator[dict[str, Any] | ValueError]:
    """Yield the pods and the errors in files, add the quotas, and count the other kinds that contain pods."""
    for filename in filenames:
        for place, value in objects_in(filename):
            if isinstance(value, SourceError):
                yield value
            elif not isinstance(value, dict):
                yield InputError(f"{place}: expected a Kubernetes object with apiVersion and kind")
            elif value.get("kind") == "Pod":
                yield value
            else:
                context.quotas.add([value], "default")
                group, kind = str(value.get("apiVersion")).rpartition("/")[0], str(value.get("kind"))
                if context.policy.workloads.holds_pods(group, kind):
                    others[kind] += 1


def _show_tables(audited: Sequence[Audited], language: Language, *, wide: bool) -> None:
    """Print the pods that would be denied, the findings by rule and reason, and what to change."""
    facts = {"pods": counted(len(audited), "pod"), "count": len(audited)}
    denied, by_facts = (
        sum(not each.decision.allowed for each in audited),
        sum(each.denied_by_fact for each in audited),
    )
    bases = {"denied": denied, "facts": by_facts, "policy": denied - by_facts}
    print_summary(AUDIT_SUMMARY.in_language(language).format(**bases, **facts), err=False)
    findings = [(each, found) for each in audited for found in each.findings()]
    _show_findings(_summary(findings), language, wide=wide)
    _show_not_checked(audited, language)
    _show_findings(_details(findings, wide=wide), language, wide=wide)


def _show_findings(rows: Sequence[dict[str, str]], language: Language, *, wide: bool) -> None:
    if rows:
        click.echo()
        show_table(rows, language, wide=wide, action=_COLOURS)


def _summary(findings: Sequence[tuple[Audited, Finding]]) -> list[dict[str, str]]:
    """Return the number of pods by rule and reason, most severe and most frequent first."""
    pods: defaultdict[tuple[str, str, str], set[int]] = defaultdict(set)
    for each, found in findings:
        pods[found.action, found.rule, found.reason].add(id(each))
    return [
        {"action": action, "pods": str(len(those)), "rule": rule, "reason": reason}
        for (action, rule, reason), those in sorted(
            pods.items(), key=lambda item: (_rank(item[0][0]), -len(item[1]), item[0])
        )
    ]


def _details(findings: Sequence[tuple[Audited, Finding]], *, wide: bool) -> list[dict[str, str]]:
    """Return each finding once for all pods of an owner, most severe first. wide: with its message."""
    pods: defaultdict[tuple[str, ...], set[int]] = defaultdict(set)
    for each, found in findings:
        message = (found.message,) if wide else ()
        pods[found.action, each.namespace, each.owner, found.rule, *message].add(id(each))
    return [
        {"action": action, "namespace": where, "owner": owner, "pods": str(len(those)), "rule": rule}
        | ({"finding": message[0]} if message else {})
        for (action, where, owner, rule, *message), those in sorted(
            pods.items(), key=lambda item: (_rank(item[0][0]), item[0])
        )
    ]


def _show_not_checked(audited: Sequence[Audited], language: Language) -> None:
    """Print each reason once for all pods that have it, the most frequent first."""
    reasons = Counter(
        reason.in_language(language)
        for each in audited
        for reason in {reason for _, reason in each.decision.not_checked}
    )
    for reason, number in reasons.most_common():
        text = NOT_CHECKED_LINE.in_language(language)
        print_summary(text.format(what=reason, pods=counted(number, "pod"), count=number), err=False)


def _rank(action: str) -> int:
    return list(_COLOURS).index(action)


def _show_json(audited: Sequence[Audited], quotas: Sequence[QuotaFinding]) -> None:
    facts = [
        {
            "namespace": each.namespace,
            "name": each.pod["metadata"].get("name", ""),
            "owner": each.owner,
            "node": each.pod.get("spec", {}).get("nodeName"),
            "allowed": each.decision.allowed,
            "findings": [
                {"action": found.action, "basis": found.basis, "rule": found.rule, "message": found.message}
                for found in each.findings()
            ],
            "notChecked": not_checked_facts(each.decision, each.language),
        }
        for each in audited
    ]
    summary = [
        row | {"pods": int(row["pods"])}
        for row in _summary([(each, found) for each in audited for found in each.findings()])
    ]
    used_up = [found._asdict() for found in quotas]
    document = {"summary": summary, "pods": facts, "quotas": used_up}
    click.echo(json.dumps(document, ensure_ascii=False))


def _show_reports(audited: Sequence[Audited], compatibility: Collection[str]) -> None:
    """Print a PolicyReport for each namespace. compatibility: names of the rules about nodes.

    Source: https://github.com/kubernetes-sigs/wg-policy-prototypes, wgpolicyk8s.io/v1alpha2.
    """
    by_namespace: defaultdict[str, list[Audited]] = defaultdict(list)
    for each in audited:
        by_namespace[each.namespace].append(each)
    for namespace, pods in sorted(by_namespace.items()):
        results = [result for each in pods for result in _results(each, compatibility)]
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


def _results(audited: Audited, compatibility: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the results of a pod: findings, or rules that pass, and what is not checked."""
    metadata = audited.pod["metadata"]
    subject = {"apiVersion": "v1", "kind": "Pod", "namespace": audited.namespace}
    subject |= {key: metadata[key] for key in ("name", "uid") if key in metadata}
    outcomes = {"deny": "fail", "warn": "warn", "dryrun": "skip"}
    findings = audited.findings()
    for found in findings:
        details: dict[str, Any] = {"message": found.message}
        details |= {"properties": {"basis": found.basis}} if found.basis else {}
        yield _result(found.rule or "gpugate", outcomes[found.action], subject, **details)
    unchecked = audited.decision.not_checked
    skipped = compatibility if {reason for _, reason in unchecked} & {*OF_NODES} else ()
    for rule in () if findings else audited.decision.rules:
        if rule not in skipped:
            yield _result(rule, "pass", subject)
    for path, reason in unchecked:
        message = reason.in_language(audited.language)
        yield _result("gpugate", "skip", subject, message=f"{path}: {message}" if path else message)


def _result(rule: str, outcome: str, subject: dict[str, Any], **details: Any) -> dict[str, Any]:
    return {"source": "gpugate", "policy": rule, "result": outcome, "resources": [subject], **details}
