"""`gpugate explain`: the evaluation of each rule for each container."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from shutil import get_terminal_size
from time import time
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from msgspec.structs import replace

from rules import Action, AdmissionRequest, Decision, Finding, Language, explain
from rules.decision.trace import ContainerTrace, Edit, Explanation, PodTrace, RuleEvaluation, RuleOutcome
from rules.decision.unrequested import requests_devices
from rules.kube.json_patch import pointer
from rules.text.i18n import Joined, Message
from rules.text.paths import Path, field_path
from rules.text.printable import printable
from webhook.admission.review import encode
from webhook.cli.inputs.not_checked import not_checked_facts, not_checked_lines, remarks, without_nodes
from webhook.cli.inputs.options import (
    decision_options,
    object_namespace_option,
    objects_option,
    output_option,
    workloads_option,
)
from webhook.cli.inputs.session import Session, with_session
from webhook.cli.report.candidate_nodes import candidate_lines, candidate_nodes
from webhook.cli.report.model import violation_facts
from webhook.cli.report.rule_pages import page_of
from webhook.cli.terminal.console import Styled, counted, lines, print_json, print_summary, show
from webhook.cli.terminal.vocabulary import (
    ACTION_COLOURS,
    ACTIONS,
    ASSUMES,
    CONTAINER_KINDS,
    DENIED,
    EXAMPLES,
    EXEMPT,
    NO_RESOURCES,
    NODES,
    NOT_APPLICABLE_RULES,
    NOT_CHECKED,
    NOT_CHECKED_MARK,
    NOTE,
    NOTHING_MARK,
    PATCHED,
    REQUIRES,
    SKIPPED,
    UNCHANGED,
    WOULD_INJECT,
)
from webhook.yaml_output import dump_yaml

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree


# Outcomes of most rules; hidden by default.
HIDDEN: Final = (RuleOutcome.NOT_APPLICABLE, RuleOutcome.DISABLED)
MARKS: Final = {
    RuleOutcome.MATCHED: ("✓", "green"),
    RuleOutcome.NOT_MATCHED: ("·", "dim"),
    RuleOutcome.EVALUATION_ERROR: ("!", "yellow"),
    RuleOutcome.EXEMPTED: ("~", "cyan"),
    RuleOutcome.NOT_APPLICABLE: ("·", "dim"),
    RuleOutcome.DISABLED: ("·", "dim"),
}


def explanation_facts(explanation: Explanation, language: Language, *, everything: bool) -> dict[str, Any]:
    """Return an explanation as JSON. everything: with rules that are not applicable or disabled."""
    decision = explanation.decision
    return {
        "allowed": decision.allowed,
        "outOfScope": explanation.out_of_scope.in_language(language),
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
                            _rule(evaluation, language)
                            for evaluation in container.evaluations
                            if everything or evaluation.outcome not in HIDDEN
                        ],
                    }
                    for container in pod.containers
                ],
                "edits": [_edit(edit, language) for edit in pod.own],
            }
            for pod in explanation.pods
        ],
        # All of the object, as `preview` has them; those of a rule are beside it, too.
        "violations": [violation_facts(violation, language) for violation in decision.violations],
        "warnings": [line.in_language(language) for line in decision.warning_lines],
        "notes": [note.in_language(language) for note in decision.notes],
        "notChecked": not_checked_facts(decision, language),
    }


def _rule(evaluation: RuleEvaluation, language: Language) -> dict[str, Any]:
    return {
        "name": evaluation.rule.name,
        "source": source_of(evaluation),
        "docs": page_of(evaluation.rule.name),
        "outcome": evaluation.outcome,
        "why": evaluation.why.in_language(language),
        "requirements": [line.in_language(language) for line in evaluation.requirements],
        "runtimes": [line.in_language(language) for line in evaluation.runtimes],
        "edits": [_edit(edit, language) for edit in evaluation.edits],
        "would": evaluation.would,
        "unused": [line.in_language(language) for line in evaluation.unused],
        "violations": [violation_facts(violation, language) for violation in evaluation.violations],
        "warnings": [notice.message.in_language(language) for notice in evaluation.notices],
    }


def _edit(edit: Edit, language: Language) -> dict[str, Any]:
    reason = edit.reason.in_language(language)
    return {"path": pointer(edit.path), "value": edit.value, "rule": edit.rule, "reason": reason}


def result_of(explanation: Explanation, *, has_devices: bool) -> tuple[str, Message, str]:
    """Return the mark, the word and the colour of the result. has_devices: as of `remarks`."""
    if explanation.out_of_scope:
        return NOT_CHECKED_MARK, SKIPPED, "dim"
    if not explanation.decision.allowed:
        return "✗", DENIED, "red"
    if explanation.decision.patch:
        return "✎", PATCHED, "green"
    if not (has_devices or explanation.decision.not_checked):
        return NOTHING_MARK, UNCHANGED, "dim"
    looked_at = explanation.decision.rules or not explanation.decision.not_checked
    return ("✓", UNCHANGED, "green") if looked_at else (NOT_CHECKED_MARK, UNCHANGED, "dim")


def source_of(evaluation: RuleEvaluation) -> str:
    """Return file and line of a rule."""
    return str(replace(evaluation.rule.location, column=0))


# Columns for the branches of the tree, the mark and the spaces around a rule's name.
_BEFORE_RULES: Final = 13
_LONGEST_CHANGE: Final = 120  # characters of a value in one line


@click.command()
@objects_option
@object_namespace_option
@output_option("text", "json")
@click.option(
    "--all", "everything", is_flag=True, help="List also rules that are not applicable or disabled."
)
@decision_options
@workloads_option
@with_session
def command(
    filenames: tuple[str, ...], namespace: str, output: str, everything: bool, session: Session
) -> None:
    """For each object, show which rules matched, why others did not, and the changes and violations.

    The rules are listed below each container. ✓: matched, with GPU requirements, changes (+) and warnings;
    ✗: violated; ·: not matched, with the part that does not match; !: a condition cannot be evaluated; ~: the
    pod is exempt. Rules that are not applicable are counted; --all lists them.

    \b
    Examples:
      gpugate explain pod.yaml
      gpugate explain -f pod.yaml --rules my-rules/ --all
      gpugate explain -f pod.yaml --nodes nodes.yaml --lang zh
      gpugate explain https://example.com/pod.yaml --context production
      gpugate explain -f pod.yaml -o json | jq '.objects[].pods[].containers[].rules[] | select(.edits != [])'
    """
    session.load()
    facts: list[dict[str, Any]] = []
    decisions: list[Decision] = []
    writer = _TreeWriter(session.language, everything=everything)

    def explained(request: AdmissionRequest) -> Explanation:
        explanation = explain(session.snapshot, request, time())
        return replace(explanation, decision=session.complete(explanation.decision, request))

    for (source, request, name), explanation in session.results(filenames, namespace, explained):
        decisions.append(explanation.decision)
        heading = {"source": str(source), "kind": request.kind, "namespace": request.namespace, "name": name}
        scoped = not explanation.out_of_scope
        nodes = candidate_nodes(session.snapshot, request, explanation.decision) if scoped else []
        if output == "json":
            facts.append(heading | explanation_facts(explanation, session.language, everything=everything))
            facts[-1]["nodes"] = nodes
        else:
            has_devices = requests_devices(session.policy, request)
            show(writer.tree(heading, explanation, candidate_lines(nodes), has_devices=has_devices))
    if output == "json":
        print_json(encode({"objects": facts}).decode())
    else:
        for line in without_nodes(decisions, session.language):
            print_summary(line, err=False)
    sys.exit(session.exit_status(decisions))


class _TreeWriter:
    """Builds trees of text lines from explanations."""

    def __init__(self, language: Language, *, everything: bool) -> None:
        self._language = language
        self._everything = everything

    def tree(
        self,
        heading: dict[str, str],
        explanation: Explanation,
        nodes: Iterable[Message],
        *,
        has_devices: bool,
    ) -> Tree:
        """Return the explanation of an object as a tree. nodes: lines on where its pods may run."""
        from rich.tree import Tree

        mark, result, colour = result_of(explanation, has_devices=has_devices)
        title = f"{heading['kind']} {heading['namespace']}/{heading['name']}"
        if not explanation.out_of_scope:
            parts = remarks(explanation.decision, has_devices=has_devices)
            title = self._say(Joined("; ", [title, *parts]))
        root = _line(
            (f"{mark} {self._say(result)}", f"bold {colour}"),
            (title, "bold"),
            (heading["source"], "dim"),
            (explanation.out_of_scope.in_language(self._language), ""),
        )
        tree = Tree(root)
        for pod in explanation.pods:
            node = tree.add(printable(field_path(pod.path))) if len(explanation.pods) > 1 else tree
            for container in pod.containers:
                self._add_container(node, container)
            self._add_pod(node, pod)
        for violation in explanation.violations:
            tree.add(self._finding(violation))
        for warning in explanation.warnings:
            tree.add(_line((self._say(ACTIONS[Action.WARN]), "yellow"), (self._say(warning), "")))
        for note in explanation.decision.notes:
            tree.add(_line((self._say(NOTE), "green"), (self._say(note), "")))
        for line in nodes:
            tree.add(_line((self._say(NODES), "cyan"), (self._say(line), "")))
        for text in not_checked_lines(explanation.decision, self._language):
            tree.add(_line((f"{NOT_CHECKED_MARK} {self._say(NOT_CHECKED)}", "dim"), (text, "")))
        return tree

    def _add_container(self, tree: Tree, container: ContainerTrace) -> None:
        resources = ", ".join(f"{name}: {quantity}" for name, quantity in container.requests.items())
        title = f"{self._say(CONTAINER_KINDS[container.kind])} {container.name}"
        requested = resources or self._say(NO_RESOURCES)
        node = tree.add(_line((title, "bold"), (container.image, ""), (requested, "dim")))
        shown = [
            evaluation
            for evaluation in container.evaluations
            if self._everything or evaluation.outcome not in HIDDEN
        ]
        names = max((len(evaluation.rule.name) for evaluation in shown), default=0)
        sources = max((len(source_of(evaluation)) for evaluation in shown), default=0)
        if sys.stdout.isatty() and _BEFORE_RULES + names + sources > get_terminal_size().columns:
            names = sources = 0  # lines that the terminal breaks are not aligned
        for evaluation in shown:
            denied = any(finding.action is Action.DENY for finding in evaluation.findings)
            mark, colour = ("✗", "red") if denied else MARKS[evaluation.outcome]
            name, source = evaluation.rule.name.ljust(names), source_of(evaluation).ljust(sources)
            exempt = evaluation.outcome is RuleOutcome.EXEMPTED
            why = self._say(EXEMPT, why=evaluation.why) if exempt else self._say(evaluation.why)
            leaf = node.add(_line((mark, colour), (name, colour), (source, "dim"), (why, "")))
            for line in self._details(evaluation, container.path):
                leaf.add(line)
        others = sum(evaluation.outcome is RuleOutcome.NOT_APPLICABLE for evaluation in container.evaluations)
        if others and not self._everything:
            text = self._say(NOT_APPLICABLE_RULES, rules=counted(others, "rule"))
            node.add(_line((f"· {text}", "dim")))

    def _details(self, evaluation: RuleEvaluation, root: Path) -> Iterator[Text]:
        """Yield the requirements, changes and findings of a rule."""
        for requirement in evaluation.requirements:
            yield _line((self._say(REQUIRES), "dim"), (self._say(requirement), ""))
        for runtime in evaluation.runtimes:
            yield _line((self._say(ASSUMES), "dim"), (self._say(runtime), ""))
        yield from (self._change(edit, root) for edit in evaluation.edits)
        for what in evaluation.would:
            dryrun = self._say(ACTIONS[Action.DRYRUN])
            yield _line((dryrun, "cyan"), (self._say(WOULD_INJECT, what=what), ""))
        for line in evaluation.unused:
            yield _line((self._say(NOTE), "green"), (self._say(line), ""))
        yield from map(self._finding, (*evaluation.violations, *evaluation.notices))
        if evaluation.findings and (page := page_of(evaluation.rule.name)):
            yield _line((self._say(EXAMPLES), "dim"), (page, "dim"))

    def _finding(self, finding: Finding) -> Text:
        message = self._say(finding.message)
        return _line(
            (self._say(ACTIONS[finding.action]), ACTION_COLOURS[finding.action]),
            (lines(message) if finding.basis else message, ""),
        )

    def _add_pod(self, tree: Tree, pod: PodTrace) -> None:
        """Add the changes of the pod itself."""
        if pod.own:
            node = tree.add(_line(("pod", "bold")))
            for edit in pod.own:
                node.add(self._change(edit, pod.path, edit.rule))

    def _change(self, edit: Edit, root: Path, rule: str = "") -> Text:
        path, value = edit.path[len(root) :], edit.value
        name = field_path(path)
        if path[-2:-1] == ("env",) and isinstance(value, dict):
            name, value = f"env {value.get('name')}", value.get("value", value.get("valueFrom"))
        reason = ", ".join(filter(None, (self._say(edit.reason), rule)))
        change = f"{name}: {msgspec.json.encode(value).decode()}"
        if len(change) <= _LONGEST_CHANGE:
            return _line(("+", "green"), (change, "green"), (f"({reason})", "dim"))
        head = _line(("+", "green"), (f"{name}:", "green"), (f"({reason})", "dim"))
        return head.append("\n" + printable(dump_yaml(value).rstrip(), "\n"), "green")

    def _say(self, words: Message, **facts: object) -> str:
        return words.having(**facts).in_language(self._language)


def _line(*parts: tuple[str, str]) -> Text:
    """Return a line of (text, style) parts; empty parts are skipped."""
    from rich.text import Text

    line = Text()
    for text, style in parts:
        shown = text if isinstance(text, Styled) else printable(text)
        line.append("  " if line and shown.strip() else "").append(shown, style)
    line.rstrip()
    return line
