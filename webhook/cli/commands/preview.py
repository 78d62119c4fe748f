"""`gpugate preview`: the admission result and the patch, without a cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from difflib import unified_diff
from functools import partial
from typing import Any, Final

import click
from msgspec import Struct
from msgspec.structs import replace

from rules import Action, AdmissionRequest, Decision, Finding, Language
from rules.decision.unrequested import requests_devices
from rules.text.i18n import Joined, Message
from rules.text.paths import field_path
from rules.text.printable import printable
from rules.text.yaml_document import SourceError, read
from webhook.cli.inputs.files import BAD_INPUT, STDIN, without_empty_folders, write_text
from webhook.cli.inputs.fixes import fix_texts
from webhook.cli.inputs.installation import cluster_cap
from webhook.cli.inputs.not_checked import (
    WITHOUT_NODES,
    exemption_lines,
    not_checked_facts,
    not_checked_lines,
    remarks,
    without_nodes,
)
from webhook.cli.inputs.objects import ObjectSource
from webhook.cli.inputs.options import (
    decision_options,
    fail_on_decision_option,
    files_option,
    object_namespace_option,
    objects_option,
    output_option,
    workloads_option,
)
from webhook.cli.inputs.quotas import QuotaFinding
from webhook.cli.inputs.session import Session, with_session
from webhook.cli.report.candidate_nodes import admitted, candidate_lines, candidate_nodes, change_lines
from webhook.cli.report.changes import (
    Verdict,
    VerdictChange,
    added,
    changes_line,
    verdict_changes,
)
from webhook.cli.report.formats import CI_FORMATS, FORMATS
from webhook.cli.report.model import NOT_CHECKED as UNCHECKED
from webhook.cli.report.model import (
    WARN,
    RenderedFinding,
    Report,
    Target,
    not_checked,
    place_of,
    rendered_findings,
    violation_facts,
    warnings_alone,
)
from webhook.cli.terminal.console import (
    Styled,
    counted,
    lines,
    padded,
    print_error,
    print_json,
    print_line,
    print_note,
    print_summary,
    print_warning,
    show,
    show_table,
    styled,
)
from webhook.cli.terminal.vocabulary import (
    ACTION_COLOURS,
    ACTIONS,
    BETWEEN,
    CAPPED_PREVIEW,
    DENIED,
    FIXED,
    FIXED_BY_ADDING,
    ITS_PODS,
    NODES,
    NOT_CHECKED,
    NOT_CHECKED_MARK,
    NOT_FIXED,
    NOTE,
    NOTHING_MARK,
    PATCHED,
    PODS_PATCHED_COUNT,
    PREVIEW_SUMMARY,
    QUOTA,
    SKIPPED,
    SKIPPED_COUNT,
    UNCHANGED,
)
from webhook.yaml_output import dump_yaml

_DIFF_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}
_RESULT_WIDTH: Final = 10  # columns; the longest result, `unchanged`, has 9


class Preview(Struct, frozen=True):
    """One object and the decision on it.

    Attributes:
        name: name, or generateName with `*` at its end.
        nodes: of `candidate_nodes`.
        has_pods: whether the kind of the object contains pods, or a rule is for it; others are skipped.
        has_devices: whether a pod requests an extended resource or a claim.
        quotas: quotas for which the API server will reject pods.
    """

    source: ObjectSource
    request: AdmissionRequest
    name: str
    has_pods: bool
    has_devices: bool
    decision: Decision
    quotas: tuple[QuotaFinding, ...] = ()
    nodes: tuple[dict[str, Any], ...] = ()

    @property
    def remarks(self) -> list[Message]:
        """What its heading says besides the result."""
        return remarks(self.decision, has_devices=self.has_devices) if self.has_pods else []

    @property
    def title(self) -> str:
        """Kind, namespace and name of the object."""
        return f"{self.request.kind} {self.request.namespace}/{self.name}"

    def patched(self, *, pods: bool = True) -> dict[str, Any]:
        """Return the object as it would be admitted; with `pods`, its templates as their pods will be."""
        decision = self.decision if pods else self.decision._replace(pods_patch=())
        return admitted(self.request, decision)


@click.command()
@objects_option
@object_namespace_option
@output_option(
    *("diff", "yaml", "json", "patch", *CI_FORMATS),
    help="diff: for people; yaml: the admitted objects; patch: a JSON Patch (RFC 6902) per object; sarif, "
    "junit, github and markdown: denials, warnings and what is not checked, for CI.",
)
@fail_on_decision_option
@click.option(
    "--fix",
    "fixes",
    flag_value="write",
    help="Write the fix of each finding that has only one into the files, and preview the result; of stdin, "
    "print the fixed text.",
)
@click.option(
    "--diff",
    "fixes",
    flag_value="diff",
    help="Print these fixes as a diff, and write nothing; exit status 1.",
)
@files_option(
    "--before",
    help="The objects as they were: also show whose verdict or patch changes; may be repeated. An empty "
    "folder has no objects.",
)
@decision_options
@workloads_option
@with_session
def command(
    filenames: tuple[str, ...],
    namespace: str,
    output: str,
    fail_on: str,
    fixes: str | None,
    before: tuple[str, ...],
    session: Session,
) -> None:
    """Show the admission result, the reasons and the patch for each object.

    Reads YAML or JSON manifests of any kind and recorded AdmissionReviews. The decision is that of the
    webhook: the same rules and nodes give the same result.

    \b
    Examples:
      gpugate preview pod.yaml
      gpugate preview -f manifests/ --rules my-rules/ --namespace ml
      kustomize build . | gpugate preview -f - -o json | jq '.objects[] | select(.allowed | not)'
      gpugate preview -f pod.yaml --nodes nodes.yaml
      gpugate preview https://example.com/pod.yaml --context production
      gpugate preview -f pod.yaml -o yaml | kubectl create -f -
      gpugate preview -f manifests/ --before manifests-of-main/
      gpugate preview -f manifests/ --diff
      gpugate preview -f manifests/ --fix
    """
    session.load()
    if fixes:
        has_fixes = _fix(session, filenames, namespace, write=fixes == "write")
        if fixes == "diff" or "-" in filenames:
            sys.exit(BAD_INPUT if session.failed else int(has_fixes and fixes == "diff"))
    if session.cluster.selected and (action := cluster_cap(session.cluster)):
        session.add_note(CAPPED_PREVIEW.having(action=action).in_language(session.language))
    previews: list[Preview] = []
    printers: dict[str, Callable[[Preview], None]] = {
        "diff": partial(_show_diff, session.language),
        "yaml": partial(_show_yaml, session.language),
        "patch": partial(_show_patch, session.language),
    }
    print_one = printers.get(output)
    earlier = session.earlier()
    verdicts = [
        _verdict(session.language, preview)
        for preview in _previews(earlier, without_empty_folders(before), namespace)
    ]
    if before:
        filenames = without_empty_folders(filenames)
    for preview in _previews(session, filenames, namespace):
        previews.append(preview)
        if print_one:
            print_one(preview)
    changes = None
    if before:
        new = (_verdict(session.language, preview) for preview in previews)
        changes = verdict_changes(verdicts, new)
    if output not in ("yaml", "patch") and (output != "diff" or previews or not session.failed):
        _print_together(output, session.language, previews, changes, earlier.notes)
    if output in ("diff", "yaml", "patch"):
        for line in without_nodes((preview.decision for preview in previews), session.language):
            print_summary(line, err=output != "diff")
    sys.exit(session.exit_status((preview.decision for preview in previews), fail_on))


def _print_together(
    output: str,
    language: Language,
    previews: list[Preview],
    changes: list[VerdictChange] | None,
    notes: list[str],
) -> None:
    """Print what is not printed object by object. notes: on what was not compared."""
    if output == "json":
        from webhook.admission.review import encode

        facts: dict[str, Any] = {"objects": [_facts(language, preview) for preview in previews]}
        if changes is not None:
            facts["changes"] = [change.document() for change in changes]
        print_json(encode(facts).decode())
    elif output in CI_FORMATS:
        report = _report(language, previews, with_changes=output == "markdown")
        if text := FORMATS[output](replace(report, changes=changes, notes=(*report.notes, *notes))):
            click.echo(text)
    else:
        _show_summary(language, previews)
        if changes is not None:
            print_summary(changes_line(changes, language), err=False)
            show_table([change.row(language) for change in changes], language)


def _previews(session: Session, filenames: tuple[str, ...], namespace: str) -> Iterator[Preview]:
    for (source, request, name), decision in session.results(filenames, namespace, session.decide_with_needs):
        has_pods = session.policy.workloads.holds_pods(request.group, request.kind)
        is_for = has_pods or bool(decision.rules)
        has_devices = bool(decision.rules) or requests_devices(session.policy, request)
        preview = Preview(source, request, name, is_for, has_devices, decision)
        if has_pods:
            nodes = candidate_nodes(session.snapshot, request, decision)
            preview = replace(preview, nodes=tuple(nodes))
        if decision.allowed and request.operation == "CREATE" and has_pods:
            of, workloads = (request.group, request.kind, request.namespace), session.policy.workloads
            preview = replace(preview, quotas=session.quotas.findings(workloads, *of, preview.patched()))
        yield preview


def _fix(session: Session, filenames: tuple[str, ...], namespace: str, *, write: bool) -> bool:
    """Fix files, or print the fixed text of stdin, or print a diff; return whether there was a fix."""
    count = 0
    for name, before, after, attempts in fix_texts(session, filenames, namespace):
        for place, finding, why_not in attempts:
            first = finding.edits[0]
            facts = {"place": f"{place.file}:{place.line}", "old": first.old, "new": first.new}
            facts["path"] = field_path(first.path)
            words = NOT_FIXED if why_not else FIXED if first.old else FIXED_BY_ADDING
            print_note(words.having(**facts, why=why_not))
            count += not why_not
        if not write or name == STDIN:  # else the preview of the result has these errors
            for error in read(after, name):
                if isinstance(error, SourceError):
                    session.add_error(error.text)
        if not write:
            _show_file_diff(name, before, after)
        elif name == STDIN:
            click.echo(after, nl=False)
        elif after != before:
            write_text(name, after)
    return count > 0


def _show_file_diff(name: str, before: str, after: str) -> None:
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    for line in unified_diff(old, new, name, name):
        end = "" if line.endswith("\n") else "\n\\ No newline at end of file\n"
        click.echo(f"{line}{end}", nl=False)


def _facts(language: Language, preview: Preview) -> dict[str, Any]:
    decision = preview.decision
    return {
        "source": str(preview.source),
        "kind": preview.request.kind,
        "namespace": preview.request.namespace,
        "name": preview.name,
        "allowed": decision.allowed,
        "violations": [violation_facts(violation, language) for violation in decision.violations],
        "warnings": [line.in_language(language) for line in decision.warning_lines],
        "notes": [note.in_language(language) for note in decision.notes],
        "notChecked": not_checked_facts(decision, language),
        "exemptions": [
            {"rule": rule, "name": exemption.name, "until": exemption.until}
            for rule, exemption in decision.exempted
        ],
        "quotas": [quota._asdict() for quota in preview.quotas],
        "patch": decision.patch,
        "podsPatch": decision.pods_patch,
        "nodes": preview.nodes,
        "auditAnnotations": dict(decision.audit),
    }


def _show_patch(language: Language, preview: Preview) -> None:
    from webhook.admission.review import encode

    print_json(encode(preview.decision.patch).decode())
    _print_messages(language, preview)


def _show_yaml(language: Language, preview: Preview) -> None:
    if preview.decision.allowed:
        click.echo(f"---\n{dump_yaml(preview.patched(pods=False))}", nl=False)
    _print_messages(language, preview)


def _print_messages(language: Language, preview: Preview) -> None:
    """Print the denial message, the warnings and the checks that were not made on stderr."""
    if not preview.decision.allowed:
        message = preview.decision.denial.in_language(language)
        print_error(lines(f"{printable(f'{preview.source}: {preview.title}')}: {message}"), language)
    for warning in _warnings(language, preview):
        print_warning(f"{preview.source}: {warning}", language)
    word = NOT_CHECKED.in_language(language)
    for line in not_checked_lines(preview.decision, language):
        print_line(f"{NOT_CHECKED_MARK} {preview.source}: {word}: {line}", err=True)


def _show_diff(language: Language, preview: Preview) -> None:
    decision = preview.decision
    mark, colour, result = _result(preview)
    head = styled(f"{mark} {padded(result.in_language(language), _RESULT_WIDTH)}", fg=colour, bold=True)
    title = styled(preview.title, bold=True)
    for remark in preview.remarks:
        style: dict[str, Any] = {"fg": "green"} if remark is ITS_PODS else {"dim": True}
        shown = styled(remark.in_language(language), **style)
        title = Styled(f"{title}{BETWEEN.in_language(language)}{shown}")
    print_line(head, title, styled(f" {preview.source}", dim=True))
    for finding in (*decision.violations, *decision.notices):
        word = ACTIONS[finding.action].in_language(language)
        _print_message(word, ACTION_COLOURS[finding.action], _with_rule(finding, language))
    for alone in warnings_alone(decision):
        _print_message(ACTIONS[Action.WARN].in_language(language), "yellow", alone.in_language(language))
    for note in decision.notes:
        _print_message(NOTE.in_language(language), "green", note.in_language(language))
    for exemption in exemption_lines(decision):
        _print_message("~", "cyan", exemption.in_language(language))
    if would := decision.audit.get("would-inject"):
        _print_message(ACTIONS[Action.DRYRUN].in_language(language), "cyan", would)
    for line in not_checked_lines(decision, language):
        word = f"{NOT_CHECKED_MARK} {NOT_CHECKED.in_language(language)}"
        _print_message(word, "bright_black", line)
    for quota in preview.quotas:
        _print_message(QUOTA.in_language(language), "yellow", quota.message)
    for line_of_nodes in candidate_lines(preview.nodes):
        _print_message(NODES.in_language(language), "cyan", line_of_nodes.in_language(language))
    for line in change_lines(preview.request, preview.decision):
        print_line(" " * 3, styled(line, fg=_DIFF_COLOURS.get(line[:1])))


def _warnings(language: Language, preview: Preview) -> Iterator[str]:
    """Yield the warnings about an object, also those about quotas."""
    decision = preview.decision
    for finding in (*decision.violations, *decision.notices):
        if finding.action is Action.WARN:
            yield _with_rule(finding, language)
    yield from _other_warnings(language, preview)


def _other_warnings(language: Language, preview: Preview) -> Iterator[str]:
    """Yield the warnings about an object that are no findings of a decision."""
    yield from (line.in_language(language) for line in warnings_alone(preview.decision))
    yield from (quota.message for quota in preview.quotas)


def _result(preview: Preview) -> tuple[str, str, Message]:
    """Return the mark, its colour and the word of the result."""
    if not preview.decision.allowed:
        return "✗", "red", DENIED
    if preview.decision.patch:
        return "✎", "green", PATCHED
    if preview.has_pods and not (preview.has_devices or preview.decision.not_checked):
        return NOTHING_MARK, "bright_black", UNCHANGED
    if preview.has_pods and (preview.decision.rules or not preview.decision.not_checked):
        return "✓", "green", UNCHANGED
    return NOT_CHECKED_MARK, "bright_black", UNCHANGED if preview.has_pods else SKIPPED


def _with_rule(finding: Finding, language: Language) -> str:
    """Return the message of a finding with its rule, if it has one, at the end of the first line."""
    first, newline, rest = finding.message.in_language(language).partition("\n")
    return f"{first} [{finding.rule}]{newline}{rest}" if finding.rule else f"{first}{newline}{rest}"


def _print_message(word: str, colour: str, message: str) -> None:
    """Print a message about an object; a terminal breaks it between words and indents the other lines."""
    if not sys.stdout.isatty():
        print_line(" " * 3, styled(word, fg=colour), lines(message))
        return
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(f"    {word}", colour), Text(lines(message).replace("\n    ", "\n")))
    show(grid)


def _report(language: Language, previews: list[Preview], *, with_changes: bool) -> Report:
    """Return the report that all formats for CI render; only Markdown has the changes."""
    return Report(
        "gpugate preview",
        _summary(language, previews),
        language,
        tuple(_target(language, preview, with_change=with_changes) for preview in previews),
        tuple(without_nodes((preview.decision for preview in previews), language)),
    )


def _target(language: Language, preview: Preview, *, with_change: bool) -> Target:
    """Return an object with its findings: violations, warnings, and checks that were not made."""
    decision, result = preview.decision, _result(preview)[2].in_language(language)
    unchecked = not_checked(decision, language, preview.source, WITHOUT_NODES)
    if not (preview.has_pods or unchecked):
        unchecked = (RenderedFinding(UNCHECKED, "", SKIPPED.in_language(language), in_summary=True),)
    return Target(
        preview.title,
        place_of(preview.source),
        (
            *rendered_findings(decision, language, preview.source),
            *(RenderedFinding(WARN, "", warning) for warning in _other_warnings(language, preview)),
            *unchecked,
        ),
        result=Joined("; ", [result, *preview.remarks]).in_language(language),
        change="\n".join(change_lines(preview.request, preview.decision)) if with_change else "",
    )


def _verdict(language: Language, preview: Preview) -> Verdict:
    """Return the verdict on an object, for a comparison."""
    target, request = _target(language, preview, with_change=False), preview.request
    word = NODES.in_language(language)
    nodes = (f"{word}: {line.in_language(language)}" for line in candidate_lines(preview.nodes))
    return Verdict(
        request.kind,
        request.namespace,
        preview.name,
        "; ".join([target.verdict, *nodes]),
        preview.decision.allowed,
        target.severity,
        preview.has_pods and (preview.has_devices or bool(target.findings)),
        added(request.object or {}, (*preview.decision.patch, *preview.decision.pods_patch)),
    )


def _show_summary(language: Language, previews: list[Preview]) -> None:
    print_summary(Styled(f"\n{_summary(language, previews)}"), err=False)


def _summary(language: Language, previews: list[Preview]) -> str:
    """Return the numbers of objects by result."""
    results = {
        "denied": sum(not preview.decision.allowed for preview in previews),
        "patched": sum(bool(preview.decision.patch) for preview in previews),
        "skipped": sum(not preview.has_pods for preview in previews),
    }
    facts = results | {
        "objects": counted(len(previews), "object"),
        "unchanged": len(previews) - sum(results.values()),
        "warned": sum(bool(preview.decision.warning_lines) for preview in previews),
    }
    facts["pods_patched"] = counted(sum(bool(preview.decision.pods_patch) for preview in previews), "object")
    parts = [PREVIEW_SUMMARY]
    if results["skipped"]:
        parts.append(SKIPPED_COUNT)
    if any(preview.decision.pods_patch for preview in previews):
        parts.append(PODS_PATCHED_COUNT)
    return "".join(part.having(**facts).in_language(language) for part in parts)
