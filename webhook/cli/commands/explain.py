"""`gpugate explain`: why admission decides as it does, rule by rule."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from shutil import get_terminal_size
from time import time
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from rules import Action, AdmissionRequest, Decision, Violation, explain
from rules.kube.json_patch import pointer
from rules.model.decision import AdmissionWarning
from rules.report.explain import Explanation
from rules.report.trace import ContainerTrace, Edit, PodTrace, RuleEvaluation, RuleOutcome
from rules.text.paths import Path, field_path
from webhook.admission.review import encode
from webhook.cli.input.decision_context import Sources, decision_options
from webhook.cli.input.hints import Hints
from webhook.cli.input.options import filenames_option, object_namespace_option, workloads_option
from webhook.cli.output.console import show

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

# What there is to say of most rules is only that they are about something else.
_ASIDE: Final = (RuleOutcome.NOT_APPLICABLE, RuleOutcome.DISABLED)
_MARKS: Final = {
    RuleOutcome.MATCHED: ("✓", "green"),
    RuleOutcome.NOT_MATCHED: ("·", "dim"),
    RuleOutcome.EVALUATION_ERROR: ("!", "yellow"),
    RuleOutcome.EXEMPTED: ("~", "cyan"),
    RuleOutcome.NOT_APPLICABLE: ("·", "dim"),
    RuleOutcome.DISABLED: ("·", "dim"),
}
# Columns for the branches of the tree, the mark and the blanks about a rule's name.
_BEFORE_RULES: Final = 13
_ACTIONS: Final = {Action.DENY: "red", Action.WARN: "yellow", Action.DRYRUN: "cyan"}


@click.command()
@filenames_option
@object_namespace_option
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--all", "everything", is_flag=True, help="Name rules about other resources and disabled rules too."
)
@decision_options
@workloads_option
def command(
    filenames: tuple[str, ...], namespace: str, output: str, everything: bool, sources: Sources
) -> None:
    """Tell of each object which rules hold, why the others do not, and what each does or finds.

    Under each container stand the rules that were looked at: ✓ those that hold, with what they put in (+),
    read of the container, and found; ✗ those that refuse it; · those of which a part does not match, and
    which; ! those with a condition that cannot be evaluated; ~ those that the pod is exempted from. Of the
    rules for other resources only the number is told, unless --all is given.

    \b
    Examples:
      gpugate explain -f pod.yaml
      gpugate explain -f pod.yaml --rules my-rules/ --all
      gpugate explain -f pod.yaml --nodes nodes.yaml --lang zh
      gpugate explain -f pod.yaml --context production
      gpugate explain -f pod.yaml -o json | jq '.objects[].pods[].containers[].rules[] | select(.edits != [])'
    """
    context = sources.load()
    hints = Hints(context.rules, context.policy)
    facts: list[dict[str, Any]] = []
    decisions: list[Decision] = []
    requests: list[AdmissionRequest] = []

    def explained(request: AdmissionRequest) -> Explanation:
        return explain(context.rules, context.policy, context.inventory, request, time())

    for (source, request, name), told in context.results(filenames, namespace, explained):
        decisions.append(told.decision)
        requests.append(request)
        heading = {"source": source, "kind": request.kind, "namespace": request.namespace, "name": name}
        if output == "json":
            facts.append(heading | _facts(told, everything=everything) | {"hints": hints.of(request)})
        else:
            show(_tree(heading, told, hints.of(request), everything=everything))
    if output == "json":
        click.echo(encode({"objects": facts}).decode())
    elif not len(context.inventory) and (unjudged := hints.without_nodes(requests)):
        click.echo(unjudged)
    sys.exit(context.exit_status(decisions))


def _facts(told: Explanation, *, everything: bool) -> dict[str, Any]:
    return {
        "allowed": told.decision.allowed,
        "unjudged": told.unjudged,
        "pods": [
            {
                "path": pointer(pod.path),
                "containers": [
                    {
                        "name": container.name,
                        "kind": container.kind,
                        "image": container.image,
                        "resources": container.requests,
                        "rules": [
                            _rule(look)
                            for look in container.evaluations
                            if everything or look.outcome not in _ASIDE
                        ],
                    }
                    for container in pod.containers
                ],
                "edits": [_edit(edit) for edit in pod.own],
            }
            for pod in told.pods
        ],
        "violations": [_violation(found) for found in told.violations],
        "warnings": told.warnings,
    }


def _rule(look: RuleEvaluation) -> dict[str, Any]:
    return {
        "name": look.rule.name,
        "source": _place(look),
        "outcome": look.outcome,
        "why": look.why,
        "needs": look.requirements,
        "edits": [_edit(edit) for edit in look.edits],
        "would": look.would,
        "violations": [_violation(found) for found in look.violations],
        "warnings": [_joined(warning) for warning in look.warnings],
    }


def _joined(warning: AdmissionWarning) -> str:
    return f"{warning.reason}; {warning.fix}" if warning.fix else warning.reason


def _edit(edit: Edit) -> dict[str, Any]:
    return {"path": pointer(edit.path), "value": edit.value, "rule": edit.rule, "reason": edit.reason}


def _violation(found: Violation) -> dict[str, Any]:
    return {"rule": found.rule, "action": found.action, "path": found.path, "message": found.message}


def _tree(heading: dict[str, str], told: Explanation, hints: Iterable[str], *, everything: bool) -> Tree:
    """Return the explanation of an object as a tree of lines."""
    from rich.tree import Tree

    verdict, colour = _verdict(told)
    title = f"{heading['kind']} {heading['namespace']}/{heading['name']}"
    tree = Tree(_line((verdict, f"bold {colour}"), (title, "bold"), (heading["source"], "dim")))
    for pod in told.pods:
        node = tree.add(field_path(pod.path)) if len(told.pods) > 1 else tree
        for container in pod.containers:
            _add_container(node, container, everything=everything)
        _add_pod(node, pod)
    for violation in told.violations:
        tree.add(_line((violation.action, _ACTIONS[violation.action]), (violation.message, "")))
    for warning in told.warnings:
        tree.add(_line(("warn", "yellow"), (warning, "")))
    for hint in hints:
        tree.add(_line(("hint", "yellow"), (hint, "")))
    return tree


def _verdict(told: Explanation) -> tuple[str, str]:
    if told.unjudged:
        return f"not judged, {told.unjudged}:", "green"
    if not told.decision.allowed:
        return "✗ refused", "red"
    return ("✎ patched", "green") if told.decision.patch else ("✓ untouched", "green")


def _add_container(tree: Tree, container: ContainerTrace, *, everything: bool) -> None:
    asks = ", ".join(f"{name}: {quantity}" for name, quantity in container.requests.items())
    title = f"{container.kind} {container.name}"
    node = tree.add(_line((title, "bold"), (container.image, ""), (asks or "asks for no resources", "dim")))
    shown = [look for look in container.evaluations if everything or look.outcome not in _ASIDE]
    names = max((len(look.rule.name) for look in shown), default=0)
    places = max((len(_place(look)) for look in shown), default=0)
    if sys.stdout.isatty() and _BEFORE_RULES + names + places > get_terminal_size().columns:
        names = places = 0  # lines that are broken anyway align nothing
    for look in shown:
        refuses = any(found.action is Action.DENY for found in look.violations)
        mark, colour = ("✗", "red") if refuses else _MARKS[look.outcome]
        name, place = look.rule.name.ljust(names), _place(look).ljust(places)
        why = f"{look.outcome}: {look.why}" if look.outcome is RuleOutcome.EXEMPTED else look.why
        leaf = node.add(_line((mark, colour), (name, colour), (place, "dim"), (why, "")))
        for line in _details(look, container.path):
            leaf.add(line)
    elsewhere = sum(look.outcome is RuleOutcome.NOT_APPLICABLE for look in container.evaluations)
    if elsewhere and not everything:
        rules = f"{elsewhere} rule{'s' * (elsewhere != 1)}"
        node.add(_line((f"· {rules} for what it does not ask for; --all names them", "dim")))


def _place(look: RuleEvaluation) -> str:
    location = look.rule.location
    return f"{location.file}:{location.line}"


def _details(look: RuleEvaluation, root: Path) -> Iterator[Text]:
    """Yield what a rule read, did and found."""
    yield from (_line(("needs", "dim"), (need, "")) for need in look.requirements)
    yield from (_put_in(edit, root) for edit in look.edits)
    yield from (_line(("dryrun", "cyan"), (f"would put in {what}", "")) for what in look.would)
    for found in look.violations:
        yield _line((found.action, _ACTIONS[found.action]), (found.message, ""))
    yield from (_line(("warn", "yellow"), (_joined(warning), "")) for warning in look.warnings)


def _add_pod(tree: Tree, pod: PodTrace) -> None:
    """Add the edits of the pod itself."""
    if pod.own:
        node = tree.add(_line(("pod", "bold")))
        for edit in pod.own:
            node.add(_put_in(edit, pod.path, edit.rule))


def _put_in(edit: Edit, root: Path, rule: str = "") -> Text:
    path, value = edit.path[len(root) :], edit.value
    name = field_path(path)
    if path[-2:-1] == ("env",) and isinstance(value, dict):
        name, value = f"env {value.get('name')}", value.get("value", value.get("valueFrom"))
    what = f"{name}: {msgspec.json.encode(value).decode()}"
    reason = f"({edit.reason}, {rule})" if rule else f"({edit.reason})"
    return _line(("+", "green"), (what, "green"), (reason, "dim"))


def _line(*parts: tuple[str, str]) -> Text:
    """Return parts of a line with their styles, empty ones left out."""
    from rich.text import Text

    line = Text()
    for text, style in parts:
        line.append("  " if line and text.strip() else "").append(text, style)
    line.rstrip()
    return line
