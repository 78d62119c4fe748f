"""`gpugate audit`: evaluates existing pods with the rules."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

import click

from rules import Action, AdmissionRequest, Decision, Language, ObjectError, Violation
from rules.decision.messages import rule_and_reason, warning_line
from rules.model.decision import AdmissionWarning, Basis
from rules.model.sharing import SharingPolicy
from rules.nodes.label_families import LabelNames
from rules.report.matrix import Table, class_table
from rules.text.yaml_document import SourceError
from webhook.cli.input.decision_context import DecisionContext, Sources, decision_options
from webhook.cli.input.files import BUILT_IN
from webhook.cli.input.objects import InputError, objects_in
from webhook.cli.input.options import fail_on_option, filenames_option
from webhook.cli.input.quotas import QuotaFinding
from webhook.cli.output.console import counted, print_summary, print_warning, progress, show_table
from webhook.cli.output.html_report import html
from webhook.cli.output.not_checked import (
    OF_NODES,
    all_not_checked_lines,
    not_checked_facts,
    without_nodes,
)
from webhook.cli.output.policy_reports import LABELS, open_reports
from webhook.cli.output.report_formats import FORMATS
from webhook.cli.output.report_model import Evaluated, Finding, Report
from webhook.cli.output.vocabulary import (
    AUDIT_SUMMARY,
    CLUSTER_CONTEXT,
    CURRENT_CONTEXT,
    EVALUATING_PODS,
    NODES_HEADING,
    NOT_CHECKED_LINE,
    OTHER_KINDS,
    REPORT_TITLE,
    REPORTS_WRITTEN,
    RULES_HEADING,
    TIME_HEADING,
    VERSION_HEADING,
)

# Phases of pods that have ended: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
_ENDED: Final = ("Succeeded", "Failed")
# What reasons begin with that have no path.
_CONTAINER: Final = re.compile(r"^(?:container|容器) '[^']*'[:：] ?")
_COLOURS: Final = {"deny": "red", "warn": "yellow", "dryrun": "cyan"}


@dataclass(frozen=True, slots=True)
class Audited:
    """A pod that has not ended, and the decision on its current spec. source: file and line, or nothing."""

    source: str
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
            Finding(
                each.action.value, each.basis.value, each.rule, _without_place(each), each.message, each.fix
            )
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
    type=click.Choice(["table", "wide", "json", "html", *FORMATS]),
    default="table",
    show_default=True,
    help="wide: also each finding as the user would see it; html: a page to read and print; sarif, junit, "
    "github and markdown: for CI; policyreport (wgpolicyk8s.io/v1alpha2) and openreports "
    "(openreports.io/v1alpha1): objects for kubectl apply.",
)
@click.option(
    "--write",
    is_flag=True,
    help="Write the Reports of -o openreports to the cluster, and delete those of namespaces without "
    "results. Findings are then no failure.",
)
@fail_on_option
@decision_options
def command(
    filenames: tuple[str, ...],
    namespace: str | None,
    output: str,
    write: bool,
    fail_on: str,
    sources: Sources,
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
      gpugate audit --context production -o html > audit.html
    """
    if write and (output != "openreports" or filenames):
        raise click.UsageError("--write requires -o openreports and the pods of a cluster (no --filename)")
    if output == "github" and not filenames:
        raise click.UsageError("-o github marks lines of files: use --filename FILE, or -o markdown")
    if not filenames:
        sources = sources.of_current_cluster("--filename FILE")
    context = sources.load()
    others: Counter[str] = Counter()
    pods: Iterable[tuple[str, Any]] = (
        _in_files(filenames, context, others)
        if filenames
        else (("", pod) for pod in sources.rules.cluster.query(lambda cluster: cluster.pods()))
    )
    with progress(EVALUATING_PODS):
        audited = list(_audited(context, pods, namespace))
    quotas = context.quotas.used_up((each.namespace, each.pod["spec"]) for each in audited)
    if output == "json":
        _show_json(audited, quotas)
    elif output == "html":
        click.echo(html(_report(audited, context, sources), _tables(context)), nl=False)
    elif output in FORMATS:
        report = _report(audited, context, sources)
        if write:
            _write(report, namespace, sources)
        elif text := FORMATS[output](report):
            click.echo(text)
    else:
        _show_tables(audited, sources.language, wide=output == "wide")
        for found in quotas:
            print_warning(found.message, sources.language)
    if others:
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(others.items()))
        click.echo(OTHER_KINDS.in_language(sources.language).format(kinds=kinds), err=True)
    sys.exit(context.exit_status(() if write else (each.decision for each in audited), fail_on))


def _audited(
    context: DecisionContext, pods: Iterable[tuple[str, Any]], namespace: str | None
) -> Iterator[Audited]:
    """Yield the pods that have not ended, of one namespace or all, with the decisions on them."""
    for source, pod in pods:
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
            yield Audited(source, pod, context.decide(request), context.policy.language)
        except ObjectError as error:
            context.add_error(f"pod {where}/{metadata.get('name', '')}: {error}")


def _without_place(found: Violation) -> str:
    """Return the first line of a reason without container and path."""
    first, *_ = found.reason.partition("\n")
    return _CONTAINER.sub("", (first.partition(found.path or first)[2] or first).lstrip(":： "))


def _in_files(
    filenames: Iterable[str], context: DecisionContext, others: Counter[str]
) -> Iterator[tuple[str, dict[str, Any] | ValueError]]:
    """Yield the pods and the errors in files with their places.

    Adds the quotas, and counts the other kinds that contain pods.
    """
    for filename in filenames:
        for place, value in objects_in(filename):
            if isinstance(value, SourceError):
                yield place, value
            elif not isinstance(value, dict):
                yield place, InputError(f"{place}: expected a Kubernetes object with apiVersion and kind")
            elif value.get("kind") == "Pod":
                yield place, value
            else:
                context.quotas.add([value], "default")
                group, kind = str(value.get("apiVersion")).rpartition("/")[0], str(value.get("kind"))
                if context.policy.workloads.holds_pods(group, kind):
                    others[kind] += 1


def _heading(audited: Sequence[Audited], language: Language) -> str:
    """Return the number of pods that would be denied, by facts and by policy."""
    facts = {"pods": counted(len(audited), "pod"), "count": len(audited)}
    denied, by_facts = (
        sum(not each.decision.allowed for each in audited),
        sum(each.denied_by_fact for each in audited),
    )
    bases = {"denied": denied, "facts": by_facts, "policy": denied - by_facts}
    return AUDIT_SUMMARY.in_language(language).format(**bases, **facts)


def _show_tables(audited: Sequence[Audited], language: Language, *, wide: bool) -> None:
    """Print the pods that would be denied, the findings by rule and reason, and what to change."""
    print_summary(_heading(audited, language), err=False)
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


def _report(audited: Sequence[Audited], context: DecisionContext, sources: Sources) -> Report:
    """Return the report in which all formats but tables and JSON agree."""
    compatibility = {rule.name for rule in context.rules.compatibility}
    language = sources.language
    return Report(
        title=REPORT_TITLE.in_language(language),
        summary=_heading(audited, language),
        language=language,
        objects=tuple(_evaluated(each, compatibility) for each in audited),
        facts=_facts(context, sources),
        notes=tuple(without_nodes((each.decision for each in audited), language)),
    )


def _evaluated(each: Audited, compatibility: Collection[str]) -> Evaluated:
    """Return a pod for reports. compatibility: names of the rules about nodes, which may not be known."""
    metadata, findings = each.pod["metadata"], tuple(each.findings())
    skipped = compatibility if {reason for _, reason in each.decision.not_checked} & {*OF_NODES} else ()
    return Evaluated(
        api_version="v1",
        kind="Pod",
        namespace=each.namespace,
        name=str(metadata.get("name", "")),
        owner=each.owner,
        allowed=each.decision.allowed,
        findings=findings,
        not_checked=tuple(all_not_checked_lines(each.decision, each.language)),
        passed=() if findings else tuple(rule for rule in each.decision.rules if rule not in skipped),
        uid=str(metadata.get("uid", "")),
        source=each.source,
    )


def _facts(context: DecisionContext, sources: Sources) -> dict[str, str]:
    """Return the rules, the nodes and where these are from, and the time, by their headings."""
    language, cluster = sources.language, sources.rules.cluster
    of_cluster = CLUSTER_CONTEXT.in_language(language).format(
        context=cluster.context or CURRENT_CONTEXT.in_language(language)
    )
    rules = ", ".join(sources.rule_paths) or (of_cluster if cluster.selected else BUILT_IN)
    nodes = ", ".join(sources.node_paths) or (of_cluster if cluster.selected else "–")
    decisive = sum(map(len, (context.rules.resources, context.rules.injections, context.rules.compatibility)))
    values = (f"{decisive} ({rules})", f"{len(context.inventory)} ({nodes})")
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    headings = (RULES_HEADING, NODES_HEADING, TIME_HEADING, VERSION_HEADING)
    return dict(
        zip(
            (each.in_language(language) for each in headings), (*values, now, version("gpugate")), strict=True
        )
    )


def _tables(context: DecisionContext) -> list[Table]:
    """Return the compatibility of the nodes with CUDA runtimes, by each set of labels that rules define."""
    labels = dict.fromkeys(rule.sharing.labels for rule in context.rules.compatibility if rule.enabled)
    inventory = context.inventory
    found = (
        class_table(SharingPolicy(labels=each), inventory.classes(inventory.everything, each))
        for each in labels or (LabelNames(),)
    )
    return [table for table in found if table]


def _write(report: Report, namespace: str | None, sources: Sources) -> None:
    """Write Reports to the cluster, and print what was written."""
    documents = open_reports(report)
    written, deleted = sources.rules.cluster.query(
        lambda cluster: cluster.write_reports(documents, LABELS, namespace)
    )
    print_summary(
        REPORTS_WRITTEN.in_language(sources.language).format(written=written, deleted=deleted), err=False
    )
