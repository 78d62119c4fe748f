"""`gpugate audit`: evaluates the workloads of a cluster with the rules."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import click
from msgspec.structs import replace

from rules import Language
from rules.cuda.versions import CudaVersion
from rules.kube.names import is_label_key
from rules.model.sharing import SharingPolicy
from rules.nodes.driver_lifecycle import DriverSupport, ended_toolkits, support_lines, support_of
from rules.nodes.fleet import classes_of, gpu_classes
from rules.text.i18n import Message
from webhook.cli.audit.findings import (
    EvaluatedObject,
    EvaluatedWorkload,
    evaluate,
    groups_of,
    plan_of,
    request_of,
    severity,
    summary,
)
from webhook.cli.audit.source import list_workloads
from webhook.cli.inputs.month import this_month
from webhook.cli.inputs.not_checked import (
    OF_NODES,
    not_checked_facts,
    without_nodes,
)
from webhook.cli.inputs.options import (
    decision_options,
    existing_objects_option,
    fail_on_decision_option,
    output_option,
    workloads_option,
)
from webhook.cli.inputs.quotas import QuotaFinding
from webhook.cli.inputs.row_filter import filter_option, filtered, named
from webhook.cli.inputs.session import Session, with_session
from webhook.cli.matrix.matrix import Table, class_table
from webhook.cli.report.candidate_nodes import change_lines
from webhook.cli.report.fleet import Fleet, fleet, fleet_cells, known_cuda
from webhook.cli.report.formats import FORMATS
from webhook.cli.report.model import Group, RenderedFinding, Report, Target, edit_facts, not_checked, place_of
from webhook.cli.report.policy_reports import LABELS, open_reports
from webhook.cli.report.sources import sources_of
from webhook.cli.terminal.console import (
    UNKNOWN,
    counted,
    first_of,
    print_json,
    print_note,
    print_summary,
    print_warning,
    progress,
    show_table,
)
from webhook.cli.terminal.usage_errors import UsageError
from webhook.cli.terminal.vocabulary import (
    AUDIT_SUMMARY,
    EVALUATING_WORKLOADS,
    ITS_PODS,
    NOT_CHECKED_LINE,
    OLD_TOOLKITS,
    READING_WORKLOADS,
    REPORTS_WRITTEN,
    USE_FILENAME,
    WORKLOAD_NOUN,
)

_COLOURS: Final = {"deny": "red", "warn": "yellow", "dryrun": "cyan"}


@click.command()
@click.argument("names", nargs=-1, metavar="[KIND/NAME]...")
@existing_objects_option
@click.option("-n", "--namespace", metavar="NS", help="Evaluate only objects of this namespace.")
@output_option(
    *("table", "wide", "json", *FORMATS),
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
@click.option(
    "--group-by",
    metavar="LABEL",
    default="",
    help="Also count workloads by this label of theirs, or else of their namespace, such as team.",
)
@filter_option
@fail_on_decision_option
@decision_options
@workloads_option
@with_session
def command(
    names: tuple[str, ...],
    filenames: tuple[str, ...],
    namespace: str | None,
    output: str,
    write: bool,
    group_by: str,
    filters: tuple[str, ...],
    fail_on: str,
    session: Session,
) -> None:
    """Evaluate what is in a cluster with the rules; without --context, in that of the current context.

    Evaluates pods, and the objects that create pods: Deployments at zero, CronJobs, and all kinds that
    gpugate knows. Finds what was created before a rule, or while the webhook was not running. A pod that is
    bound to a node is checked against that node. Changes nothing; skips what has ended. Prints a summary by
    rule and reason, then one line for each workload with findings, and which ResourceQuotas of GPU pods are
    used up. Rules and nodes are those of the cluster; if it has no rules, the built-in ones. KIND/NAME, also
    as a glob, selects workloads, with all their findings.

    \b
    Examples:
      gpugate audit
      gpugate audit deployment/llm -n ml
      gpugate audit --context production -o wide --filter action=deny
      gpugate audit --context production --rules builtin --rules new-rules/ --namespace ml
      kubectl get pods,deployments -A -o yaml | gpugate audit -f - --nodes nodes.yaml
      gpugate audit --context production -o policyreport | kubectl apply -f -
      gpugate audit --context production --group-by team -o html > audit.html
    """
    if write and (output != "openreports" or filenames or names or filters):
        raise UsageError(
            Message(
                "--write requires -o openreports and all workloads of a cluster "
                "(no --filename, names or --filter)"
            )
        )
    if output == "github" and not filenames:
        raise UsageError(Message("-o github marks lines of files: use -f FILE, or -o markdown"))
    if group_by and not is_label_key(group_by):
        raise UsageError(Message("--group-by: {name!r} is no name of a label such as team", name=group_by))
    if not filenames:
        session.use_current_cluster("-f FILE")
    session.load()
    with progress(READING_WORKLOADS):
        workloads = list_workloads(filenames, session, namespace)
    if names:
        known = list(dict.fromkeys(workload.reference.lower() for workload in workloads))
        chosen = set(named(map(str.lower, names), known, WORKLOAD_NOUN, USE_FILENAME))
        workloads = [workload for workload in workloads if workload.reference.lower() in chosen]
    with progress(EVALUATING_WORKLOADS):
        audited = filtered(filters, list(evaluate(session, workloads, group_by)), _row)
    pods = [pod for workload in audited for pod in workload.workload.pods]
    quotas = session.quotas.used_up((pod.key.namespace, pod.document.get("spec") or {}) for pod in pods)
    supports = sorted({*filter(None, _supports(session))})
    toolkits = _toolkits(session, audited)
    ended = ended_toolkits(session.policy.facts, chain.from_iterable(toolkits), this_month())
    fleet_rows = fleet(session.inventory, session.policy.rules.label_names, toolkits, this_month())
    groups = groups_of(audited) if group_by else []
    if output == "json":
        _show_json(audited, groups, quotas, supports, ended, fleet_rows, session.notes, session.language)
    elif output in FORMATS:
        report = _report(audited, session, _tables(session) if output == "html" else (), fleet_rows, output)
        report = replace(report, group_by=group_by, groups=groups)
        if write:
            _write(report, namespace, session)
        elif text := FORMATS[output](report):
            click.echo(text)
    else:
        _show_tables(audited, session.language, wide=output == "wide" or bool(names))
        rows = [{**group._asdict(), "group": group.group or UNKNOWN} for group in groups]
        _show_rows(rows, session.language, wide=True)
        _show_rows(fleet_cells(fleet_rows, session.language), session.language, wide=True)
        _show_notes(quotas, supports, ended, session.language)
    decisions = (evaluated.decision for workload in audited for evaluated in workload.objects)
    sys.exit(session.exit_status(() if write else decisions, fail_on))


def _supports(session: Session) -> Iterator[DriverSupport | None]:
    """Yield NVIDIA's support of the drivers of all nodes."""
    for node_class in gpu_classes(session.inventory, session.policy.rules.label_names):
        yield support_of(node_class.capabilities, this_month())


def _toolkits(session: Session, audited: Iterable[EvaluatedWorkload]) -> list[set[CudaVersion]]:
    """Return, for each workload with accelerators, the CUDA toolkits known to be in its images."""
    needed = (
        known_cuda(
            session.policy,
            [
                (evaluated.object.group, evaluated.object.kind, evaluated.object.document)
                for evaluated in workload.objects
            ],
        )
        for workload in audited
    )
    return [toolkits for toolkits in needed if toolkits is not None]


def _heading(audited: Sequence[EvaluatedWorkload], language: Language) -> str:
    """Return the numbers of workloads and pods, and of workloads that would be denied."""
    denied, by_facts = (
        sum(not workload.allowed for workload in audited),
        sum(workload.denied_by_fact for workload in audited),
    )
    pods = sum(workload.pods for workload in audited)
    summary = AUDIT_SUMMARY.having(
        workloads=counted(len(audited), "workload"),
        pods=counted(pods, "pod"),
        denied=denied,
        facts=by_facts,
        policy=denied - by_facts,
    )
    return summary.in_language(language)


def _show_tables(audited: Sequence[EvaluatedWorkload], language: Language, *, wide: bool) -> None:
    """Print what would be denied, the findings by rule and reason, and the workloads to change."""
    print_summary(_heading(audited, language), err=False)
    for line in plan_of(audited).lines(language):
        click.echo(line)
    _show_rows([{**row._asdict()} for row in summary(audited)], language, wide=wide)
    _show_not_checked(audited, language)
    rows = _messages(audited) if wide else [_row(workload) for workload in audited if workload.findings()]
    _show_rows(sorted(rows, key=_order), language, wide=wide)


def _show_rows(rows: Sequence[dict[str, Any]], language: Language, *, wide: bool) -> None:
    if rows:
        click.echo()
        texts = [{key: str(cell) for key, cell in row.items()} for row in rows]
        show_table(texts, language, wide=wide, action=_COLOURS)


def _row(workload: EvaluatedWorkload) -> dict[str, str]:
    """Return the row of a workload: its most severe action (`-` if none) and its pods with findings."""
    pods = sum(evaluated.object.is_pod and bool(evaluated.findings()) for evaluated in workload.objects)
    findings = sorted(
        (finding for finding, _ in workload.findings()), key=lambda finding: severity(finding.effect)
    )
    return {
        "action": findings[0].effect if findings else "-",
        "namespace": workload.workload.namespace,
        "workload": workload.workload.reference,
        "pods": str(pods),
        "rule": first_of([*dict.fromkeys(finding.rule or "gpugate" for finding in findings)]),
    }


def _messages(audited: Iterable[EvaluatedWorkload]) -> list[dict[str, str]]:
    """Return a row for each distinct finding of a workload, with the number of its pods that have it."""
    rows = []
    for workload in audited:
        pods: Counter[RenderedFinding] = Counter()
        for finding, evaluated in workload.findings():
            pods[finding] += evaluated.object.is_pod
        rows += [
            {
                "action": finding.effect,
                "namespace": workload.workload.namespace,
                "workload": workload.workload.reference,
                "pods": str(number),
                "rule": finding.rule,
                "finding": finding.message,
            }
            for finding, number in pods.items()
        ]
    return rows


def _order(row: dict[str, str]) -> tuple[int, str, str, str]:
    return severity(row["action"]), row["namespace"], row["workload"], row["rule"]


def _show_notes(
    quotas: Iterable[QuotaFinding],
    supports: Iterable[DriverSupport],
    ended: Mapping[CudaVersion, str],
    language: Language,
) -> None:
    """Print which quotas are used up, and what is out of support."""
    for used_up in quotas:
        print_warning(used_up.message, language)
    for line in support_lines(supports):
        print_note(line, language)
    if ended:
        shown = ", ".join(f"{cuda} ({end})" for cuda, end in ended.items())
        print_note(OLD_TOOLKITS.having(versions=shown), language)


def _show_not_checked(audited: Sequence[EvaluatedWorkload], language: Language) -> None:
    """Print each reason once for all workloads that have it, the most frequent first."""
    reasons = Counter(
        reason
        for workload in audited
        for reason in {
            why.in_language(language)
            for evaluated in workload.objects
            for _, why in evaluated.decision.not_checked
        }
    )
    for reason, number in reasons.most_common():
        line = NOT_CHECKED_LINE.having(what=reason, workloads=counted(number, "workload"))
        print_summary(line, err=False)


def _show_json(
    audited: Sequence[EvaluatedWorkload],
    groups: Sequence[Group],
    quotas: Sequence[QuotaFinding],
    supports: Sequence[DriverSupport],
    ended: Mapping[CudaVersion, str],
    fleet_rows: Fleet,
    notes: Sequence[str],
    language: Language,
) -> None:
    facts = []
    for workload in audited:
        templates = [
            _facts(evaluated, language) for evaluated in workload.objects if not evaluated.object.is_pod
        ]
        facts.append(
            {
                "namespace": workload.workload.namespace,
                "kind": workload.workload.key.kind,
                "name": workload.workload.key.name,
                "group": workload.group,
                "allowed": workload.allowed,
                "object": templates[0] if templates else None,
                "pods": [
                    _facts(evaluated, language) for evaluated in workload.objects if evaluated.object.is_pod
                ],
            }
        )
    document = {
        "plan": plan_of(audited).document(),
        "fleet": [row.document() for row in fleet_rows],
        "summary": [row._asdict() for row in summary(audited)],
        "groups": [group._asdict() for group in groups],
        "workloads": facts,
        "quotas": [quota._asdict() for quota in quotas],
        "drivers": [support.document() for support in supports],
        "endedToolkits": [{"cuda": str(cuda), "end": end} for cuda, end in ended.items()],
        "notes": list(notes),
    }
    print_json(document)


def _facts(evaluated: EvaluatedObject, language: Language) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": evaluated.object.key.name}
    if evaluated.object.is_pod:
        facts["node"] = evaluated.object.document.get("spec", {}).get("nodeName")
    return facts | {
        "allowed": evaluated.decision.allowed,
        "findings": [
            {
                "action": finding.effect,
                "basis": finding.basis,
                "certainty": finding.certainty,
                "rule": finding.rule,
                "message": finding.message,
            }
            | edit_facts(finding.edits)
            for finding in evaluated.findings()
        ],
        "notChecked": not_checked_facts(evaluated.decision, language),
    }


def _report(
    audited: Sequence[EvaluatedWorkload],
    session: Session,
    tables: Sequence[Table],
    fleet_rows: Fleet,
    output: str,
) -> Report:
    """Return the report that all formats except tables and JSON render; only Markdown has the changes."""
    compatibility = {rule.name for rule in session.policy.rules.compatibility}
    language = session.language
    return Report(
        tool="gpugate audit",
        summary=_heading(audited, language),
        language=language,
        targets=tuple(
            _target(
                evaluated,
                workload.workload.reference,
                compatibility,
                change=_change(evaluated, session) if output == "markdown" else "",
            )
            for workload in audited
            for evaluated in workload.objects
        ),
        facts=sources_of(session),
        tables=tables,
        fleet=fleet_rows,
        notes=(
            *session.notes,
            *without_nodes(
                (evaluated.decision for workload in audited for evaluated in workload.objects), language
            ),
        ),
    )


def _change(evaluated: EvaluatedObject, session: Session) -> str:
    """Return what the pods of a workload get when they are created; existing pods get nothing."""
    if evaluated.object.is_pod:
        return ""
    request = request_of(evaluated.object, evaluated.object.document, mutating=True)
    return "\n".join(change_lines(request, session.decide(request)))


def _target(evaluated: EvaluatedObject, owner: str, compatibility: Collection[str], *, change: str) -> Target:
    """Return an object for reports. compatibility: rules that it does not pass if its nodes are unknown."""
    findings, key = evaluated.findings(), evaluated.object.key
    skipped = compatibility if {reason for _, reason in evaluated.decision.not_checked} & {*OF_NODES} else ()
    reference = {"apiVersion": str(evaluated.object.document.get("apiVersion", "")), "kind": key.kind}
    reference |= {"namespace": key.namespace, "name": key.name}
    uid = evaluated.object.metadata.get("uid")
    return Target(
        title=f"{key.kind} {key.namespace}/{key.name}",
        place=place_of(evaluated.object.source),
        findings=(*findings, *not_checked(evaluated.decision, evaluated.language, evaluated.object.source)),
        passed=() if findings else tuple(rule for rule in evaluated.decision.rules if rule not in skipped),
        owner=owner,
        reference=reference | ({"uid": str(uid)} if uid else {}),
        result=ITS_PODS.in_language(evaluated.language),
        change=change,
    )


def _tables(session: Session) -> list[Table]:
    """Return the table of the nodes' compatibility with CUDA runtimes, if a node has GPU labels."""
    inventory = session.inventory
    classes = classes_of(inventory, inventory.everything, session.policy.rules.label_names)
    table = class_table(SharingPolicy(), classes, inventory.facts)
    return [table] if table else []


def _write(report: Report, namespace: str | None, session: Session) -> None:
    """Write Reports to the cluster, and print how many were written and deleted."""
    documents = open_reports(report)
    written, deleted = session.cluster.query(
        lambda cluster: cluster.write_reports(documents, LABELS, namespace)
    )
    print_summary(REPORTS_WRITTEN.having(written=written, deleted=deleted), err=False)
