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
from rules.model import Action, AdmissionRequest, Decision, Language
from rules.patch import ObjectError
from rules.policy import compile_policy
from webhook.cli.inputs import (
    BAD_INPUT,
    RuleSource,
    cluster_options,
    language_option,
    load_inventory,
    load_workloads,
    namespace_option,
    nodes_option,
    workloads_option,
)
from webhook.cli.objects import InputError, complain, objects_in, request_of, warn
from webhook.cli.table import counted
from webhook.dump import dump_yaml
from webhook.review import encode

DENIED: Final = 1
WARNED: Final = 3
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
@click.option(
    "-f",
    "--filename",
    "filenames",
    multiple=True,
    required=True,
    metavar="FILE",
    help="File, folder, or - for stdin; may be repeated.",
)
@click.option(
    "--rules",
    "rule_paths",
    multiple=True,
    metavar="PATH",
    help="Rule file or folder; may be repeated.  [default: the shipped rules]",
)
@click.option("-n", "--namespace", default="default", show_default=True, help="For objects that name none.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["diff", "yaml", "json", "patch"]),
    default="diff",
    show_default=True,
    help="diff: for people; yaml: the objects as admitted; patch: RFC 6902, one line an object.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["deny", "warn"]),
    default="deny",
    show_default=True,
    help="warn: exit 3 where there are only warnings.",
)
@nodes_option
@workloads_option
@cluster_options
@namespace_option
@language_option
def command(
    filenames: tuple[str, ...],
    rule_paths: tuple[str, ...],
    namespace: str,
    output: str,
    fail_on: str,
    node_paths: tuple[str, ...],
    workload_paths: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    rules_namespace: str,
    lang: str,
) -> None:
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
    loaded = RuleSource(rules_namespace, kubeconfig, context).load(rule_paths)
    failed = bool(loaded.errors)
    for error in loaded.errors:
        complain(str(error))
    inventory = load_inventory(node_paths, kubeconfig, context)
    policy = compile_policy(loaded.rules, Language(lang), load_workloads(workload_paths))
    previews: list[Preview] = []
    show = {"diff": _show_diff, "yaml": _show_yaml, "patch": _show_patch}.get(output)
    for path in filenames:
        found = list(objects_in(path))
        if not found:
            complain(f"{path}: no objects in it")
            failed = True
        for source, value in found:
            try:
                request, name = request_of(source, value, namespace)
                judged = policy.workloads.holds_pods(request.group, request.kind)
                previews.append(
                    Preview(source, request, name, judged, decide(policy, inventory, request, time()))
                )
            except InputError as error:
                complain(str(error))
                failed = True
            except ObjectError as error:
                complain(f"{source}: {error}")
                failed = True
            else:
                if show:
                    show(previews[-1])
    if output == "json":
        click.echo(encode({"objects": [_facts(preview) for preview in previews]}).decode())
    elif output == "diff" and (previews or not failed):
        _show_summary(previews)
    sys.exit(BAD_INPUT if failed else _status(previews, fail_on))


def _status(previews: list[Preview], fail_on: str) -> int:
    if any(not preview.decision.allowed for preview in previews):
        return DENIED
    return WARNED if fail_on == "warn" and any(preview.decision.warnings for preview in previews) else 0


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
