"""`gpugate preview`: the verdict and the patch that admission would give, with no cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from difflib import unified_diff
from functools import partial
from time import time
from typing import Any, Final

import click
import jsonpatch
import msgspec

from rules import Action, AdmissionRequest, Decision, Language, decide
from rules.text.i18n import Text
from webhook.admission.review import encode
from webhook.cli.input.decision_context import Sources, judge_options
from webhook.cli.input.hints import Hints
from webhook.cli.input.options import (
    fail_on_option,
    filenames_option,
    object_namespace_option,
    workloads_option,
)
from webhook.cli.output.console import complain, counted, padded, show, warn
from webhook.yaml_output import dump_yaml

_DIFF_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}
_REFUSED: Final = Text("refused", "拒绝")
_PATCHED: Final = Text("patched", "已补全")
_UNTOUCHED: Final = Text("untouched", "原样通过")
_NOT_JUDGED: Final = Text("not judged", "未判定")
_VERDICT: Final = 10  # places; as many as the longest of these takes
_ACTIONS: Final = {
    Action.DENY: Text("deny", "拒绝"),
    Action.WARN: Text("warn", "警告"),
    Action.DRYRUN: Text("dryrun", "试运行"),
}
_HINT: Final = Text("hint", "提示")
_SUMMARY: Final = Text(
    "{objects}: {patched} patched, {refused} refused, {untouched} untouched, {warned} with warnings",
    "{count} 个对象：{patched} 个已补全，{refused} 个被拒绝，{untouched} 个原样通过，{warned} 个有警告",
)
_PASSED_OVER: Final = Text(", {passed_over} not judged", "，{passed_over} 个未判定")


@dataclass(frozen=True, slots=True)
class Preview:
    """One object and the decision on it.

    source: file and line. name: may be a generateName with `*`. judged: whether its kind holds pods.
    hints: what may be misspelt in it, which admission does not tell.
    """

    source: str
    request: AdmissionRequest
    name: str
    judged: bool
    decision: Decision
    hints: tuple[str, ...]

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
    hints = Hints(judge.rules, judge.policy)
    previews: list[Preview] = []
    forms: dict[str, Callable[[Preview], None]] = {
        "diff": partial(_show_diff, sources.language),
        "yaml": _show_yaml,
        "patch": _show_patch,
    }
    print_one = forms.get(output)

    def decided(request: AdmissionRequest) -> Decision:
        return decide(judge.policy, judge.inventory, request, time())

    for (source, request, name), decision in judge.judged(filenames, namespace, decided):
        judged = judge.policy.workloads.holds_pods(request.group, request.kind)
        previews.append(Preview(source, request, name, judged, decision, hints.of(request)))
        if print_one:
            print_one(previews[-1])
    if output == "json":
        click.echo(encode({"objects": [_facts(preview) for preview in previews]}).decode())
    elif output == "diff" and (previews or not judge.failed):
        _show_summary(sources.language, previews)
        if not len(judge.inventory) and (told := hints.without_nodes(each.request for each in previews)):
            click.echo(told)
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
        "hints": preview.hints,
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
    for warning in (*preview.decision.warnings, *preview.hints):
        warn(f"{preview.source}: {warning}")


def _show_diff(language: Language, preview: Preview) -> None:
    decision = preview.decision
    if not decision.allowed:
        mark, colour, verdict = "✗", "red", _REFUSED
    elif decision.patch:
        mark, colour, verdict = "✎", "green", _PATCHED
    else:
        mark, colour, verdict = "✓", "green", _UNTOUCHED if preview.judged else _NOT_JUDGED
    head = click.style(f"{mark} {padded(verdict.in_language(language), _VERDICT)}", fg=colour, bold=True)
    click.echo(f"{head} {click.style(preview.title, bold=True)}  {click.style(preview.source, dim=True)}")
    for found in decision.violations:
        if found.action is not Action.WARN:
            tint = "red" if found.action is Action.DENY else "cyan"
            _say(_ACTIONS[found.action].in_language(language), tint, f"{found.message} [{found.rule}]")
    for warning in decision.warnings:
        _say(_ACTIONS[Action.WARN].in_language(language), "yellow", warning)
    if would := decision.audit.get("would-inject"):
        _say(_ACTIONS[Action.DRYRUN].in_language(language), "cyan", would)
    for hint in preview.hints:
        _say(_HINT.in_language(language), "yellow", hint)
    if decision.patch:
        before, after = dump_yaml(preview.request.object), dump_yaml(preview.patched())
        for line in unified_diff(
            before.splitlines(), after.splitlines(), "before", "after", lineterm="", n=2
        ):
            click.echo(f"    {click.style(line, fg=_DIFF_COLOURS.get(line[:1]))}")


def _say(word: str, colour: str, message: str) -> None:
    """Print what there is to say of an object; on a terminal it is broken between words, under itself."""
    if not sys.stdout.isatty():
        click.echo(f"    {click.style(word, fg=colour)} {message}")
        return
    from rich.table import Table  # noqa: PLC0415 - 50 ms that only a terminal is worth
    from rich.text import Text  # noqa: PLC0415

    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(f"    {word}", colour), Text(message.replace("\n    ", "\n")))
    show(grid)


def _show_summary(language: Language, previews: list[Preview]) -> None:
    verdicts = {
        "refused": sum(not preview.decision.allowed for preview in previews),
        "patched": sum(bool(preview.decision.patch) for preview in previews),
        "passed_over": sum(not preview.judged for preview in previews),
    }
    facts = verdicts | {
        "count": len(previews),
        "untouched": len(previews) - sum(verdicts.values()),
        "warned": sum(bool(preview.decision.warnings) for preview in previews),
    }
    summary = _SUMMARY.in_language(language)
    summary += _PASSED_OVER.in_language(language) if verdicts["passed_over"] else ""
    click.echo(f"\n{summary.format(objects=counted(len(previews), 'object'), **facts)}")
