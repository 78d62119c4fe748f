"""`gpugate preview`: the verdict and the patch that admission would give, with no cluster."""

from __future__ import annotations

import sys
from copy import deepcopy
from dataclasses import dataclass
from difflib import unified_diff
from time import time
from typing import Any, Final

import click
import jsonpatch
import msgspec

from rules.decide import decide
from rules.model import Action, AdmissionRequest, Decision
from webhook.cli.judge import Sources, judge_options
from webhook.cli.options import (
    fail_on_option,
    filenames_option,
    object_namespace_option,
    workloads_option,
)
from webhook.cli.table import complain, counted, warn
from webhook.dump import dump_yaml
from webhook.review import encode

_DIFF_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True, slots=True)
class Preview:
    """One object and the decision on it.

    source: file and line. name: may be a generateName with `*`. judged: whether its kind holds pods.
    """

    source: str
    request: AdmissionRequest
    name: str
    judged: bool
    decision: Decision

    @property
    def title(self) -> str:
        """What kubectl would call the object."""
        return f"{self.request.kind} {self.request.namespace}/{self.name}"

    def patched(self) -> dict[str, Any]:
        """Return the object as it would be admitted."""
        document = deepcopy(dict(self.request.object or {}))
        result: dict[str, Any] = jsonpatch.apply_patch(document, list(self.decision.patch), in_place=True)
        return result


@click.command()
@filenames_option
@object_namespace_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["diff", "yaml", "json", "patch"]),
    default="diff",
    show_default=True,
    help="diff: for people; yaml: the objects as admitted; patch: RFC 6902, one line an object.",
)
@fail_on_option
@judge_options
@workloads_option
def command(filenames: tuple[str, ...], namespace: str, output: str, fail_on: str, sources: Sources) -> None:
    """Show what admission would do to each object: the verdict, the reasons, the patch.

    Manifests of any kind and recorded AdmissionReviews are read, YAML or JSON. It is the decision of the
    webhook itself, so what is shown is what will happen under the same rules.

    \b
    Examples:
      gpugate preview -f pod.yaml
      gpugate preview -f manifests/ --rules my-rules/ --namespace ml
      kustomize build . | gpugate preview -f - -o json | jq '.objects[] | select(.allowed | not)'
      gpugate preview -f pod.yaml --nodes nodes.yaml
      gpugate preview -f pod.yaml --context production
      gpugate preview -f pod.yaml -o yaml | kubectl create -f -
    """
    judge = sources.judge()
    previews: list[Preview] = []
    show = {"diff": _show_diff, "yaml": _show_yaml, "patch": _show_patch}.get(output)

    def decided(request: AdmissionRequest) -> Decision:
        return decide(judge.policy, judge.inventory, request, time())

    for (source, request, name), decision in judge.judged(filenames, namespace, decided):
        judged = judge.policy.workloads.holds_pods(request.group, request.kind)
        previews.append(Preview(source, request, name, judged, decision))
        if show:
            show(previews[-1])
    if output == "json":
        click.echo(encode({"objects": [_facts(preview) for preview in previews]}).decode())
    elif output == "diff" and (previews or not judge.failed):
        _show_summary(previews)
    sys.exit(judge.exit_status((preview.decision for preview in previews), fail_on))


def _facts(preview: Preview) -> dict[str, Any]:
    decision = preview.decision
    return {
        "source": preview.source,
        "kind": preview.request.kind,
        "namespace": preview.request.namespace,
        "name": preview.name,
        "allowed": decision.allowed,
        "violations": [
            {"rule": found.rule, "action": found.action, "path": found.path, "message": found.message}
            for found in decision.violations
        ],
        "warnings": decision.warnings,
        "patch": decision.patch,
        "auditAnnotations": decision.audit,
    }


def _show_patch(preview: Preview) -> None:
    click.echo(msgspec.json.encode(preview.decision.patch).decode())
    _explain(preview)


def _show_yaml(preview: Preview) -> None:
    if preview.decision.allowed:
        click.echo(f"---\n{dump_yaml(preview.patched())}", nl=False)
    _explain(preview)


def _explain(preview: Preview) -> None:
    """Say on stderr why an object is refused, and what it is warned of."""
    if not preview.decision.allowed:
        complain(f"{preview.source}: {preview.title}: {preview.decision.message}")
    for warning in preview.decision.warnings:
        warn(f"{preview.source}: {warning}")


def _show_diff(preview: Preview) -> None:
    decision = preview.decision
    if not decision.allowed:
        mark, colour, verdict = "✗", "red", "refused"
    elif decision.patch:
        mark, colour, verdict = "✎", "green", "patched"
    else:
        mark, colour, verdict = "✓", "green", "untouched" if preview.judged else "not judged"
    head = click.style(f"{mark} {verdict:<10}", fg=colour, bold=True)
    click.echo(f"{head} {click.style(preview.title, bold=True)}  {click.style(preview.source, dim=True)}")
    for found in decision.violations:
        if found.action is not Action.WARN:
            tint = "red" if found.action is Action.DENY else "cyan"
            click.echo(f"    {click.style(found.action.value, fg=tint)} {found.message} [{found.rule}]")
    for warning in decision.warnings:
        click.echo(f"    {click.style('warn', fg='yellow')} {warning}")
    if would := decision.audit.get("would-inject"):
        click.echo(f"    {click.style('dryrun', fg='cyan')} {would}")
    if decision.patch:
        before, after = dump_yaml(preview.request.object), dump_yaml(preview.patched())
        for line in unified_diff(
            before.splitlines(), after.splitlines(), "before", "after", lineterm="", n=2
        ):
            click.echo(f"    {click.style(line, fg=_DIFF_COLOURS.get(line[:1]))}")


def _show_summary(previews: list[Preview]) -> None:
    refused = sum(not preview.decision.allowed for preview in previews)
    patched = sum(bool(preview.decision.patch) for preview in previews)
    warned = sum(bool(preview.decision.warnings) for preview in previews)
    untouched = len(previews) - refused - patched
    counts = f"{patched} patched, {refused} refused, {untouched} untouched, {warned} with warnings"
    click.echo(f"\n{counted(len(previews), 'object')}: {counts}")
