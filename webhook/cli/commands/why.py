"""`gpugate why`: why a pod does not start or run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from rules import AdmissionRequest, Decision, Language, ObjectError
from rules.report.failures import MAX_LINES, Cause, causes, shortened
from rules.text.yaml_document import SourceError
from webhook.cli.evaluation.workloads import Workload, WorkloadObject
from webhook.cli.input.cluster_source import ClusterSource
from webhook.cli.input.completers import FILE
from webhook.cli.input.decision_context import DecisionContext, Sources, decision_options
from webhook.cli.input.files import read_path
from webhook.cli.input.objects import objects_in
from webhook.cli.input.options import output_option
from webhook.cli.input.pod_source import PodFacts, events_of
from webhook.cli.input.workload_source import list_workloads
from webhook.cli.output.console import (
    BadInputError,
    counted,
    print_document,
    print_line,
    print_summary,
    styled,
)
from webhook.cli.output.not_checked import all_not_checked_lines
from webhook.cli.output.vocabulary import (
    CAUSE_CERTAIN,
    CAUSE_LIKELY,
    CAUSE_SEEN,
    CAUSE_UNKNOWN,
    EVENTS_EXPIRED,
    LOG_OF,
    LOOKED_AT,
    NOT_CHECKED_MARK,
    POD_RUNS,
)

_FOUND: Final = 1
_DEFAULT_LINES: Final = 200


@click.command()
@click.argument("name", required=False, metavar="[POD|KIND/NAME]")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the pod.")
@click.option("-c", "--container", metavar="NAME", help="Read only the log of this container.")
@click.option("-f", "--filename", type=FILE, metavar="FILE", help="File with the pod, as kubectl prints it.")
@click.option(
    "--log", "logs", multiple=True, type=FILE, metavar="FILE", help="File with its log; - for stdin."
)
@click.option("--events", type=FILE, metavar="FILE", help="File with its events, as kubectl prints them.")
@click.option(
    "--tail",
    type=click.IntRange(0, MAX_LINES),
    default=_DEFAULT_LINES,
    show_default=True,
    help="Lines to read from the end of each log.",
)
@output_option("text", "json", "yaml")
@decision_options
def command(
    name: str | None,
    namespace: str,
    container: str | None,
    filename: str | None,
    logs: tuple[str, ...],
    events: str | None,
    tail: int,
    output: str,
    sources: Sources,
) -> None:
    """Say why a pod does not start or run, with the evidence and a fix.

    Compares the result of the rules and the nodes of today, the state and the events of the pod, and the last
    lines of its logs with known failures of GPU pods. Of a workload (deployment/llm), the newest pod that
    does not run. A cause is certain if the evidence proves it, otherwise likely. Exit status: 0 if the pod
    runs and no cause is found, 1 otherwise.

    \b
    Examples:
      gpugate why llm-7d9f-x2x -n ml
      gpugate why deployment/llm -n ml --context production
      kubectl logs llm-7d9f-x2x --previous | gpugate why -f pod.yaml --log - --nodes nodes.yaml
    """
    if bool(name) == bool(filename):
        raise click.UsageError("name a pod of a cluster, or a file with it (-f FILE)")
    if name and (logs or events):
        raise click.UsageError("--log and --events require -f FILE")
    if name:
        sources = sources.of_current_cluster("-f FILE")
    context = sources.load()
    if name:
        facts = _of_cluster(name, namespace, sources, context)
        _read_cluster(facts, sources.rules.cluster, container, tail, sources.language)
    else:
        facts = _of_files(str(filename), logs, events, sources.language)
    decision = _decision(facts, context)
    found = causes(decision, facts.statements(), sources.language)
    result = Result(facts, decision, found, sources.language)
    if output == "text":
        result.show()
    else:
        print_document(result.document(), output)
    sys.exit(context.exit_status(()) or (0 if facts.runs and not found else _FOUND))


@dataclass(frozen=True, slots=True)
class Result:
    """What is known of a pod, and the causes."""

    facts: PodFacts
    decision: Decision
    causes: Sequence[Cause]
    language: Language

    @property
    def title(self) -> str:
        """The pod with its namespace."""
        metadata = self.facts.pod.get("metadata", {})
        return f"Pod {metadata.get('namespace') or 'default'}/{metadata.get('name', '')}"

    def looked_at(self) -> str:
        """Return what was compared, in one line."""
        logs = ", ".join(
            f"{place.partition(', line')[0]} ({counted(len(text.splitlines()), 'line')})"
            for place, text in self.facts.logs.items()
        )
        facts = {"events": counted(len(self.facts.events), "event"), "logs": logs or "–"}
        return LOOKED_AT.in_language(self.language).format(count=len(self.facts.events), **facts)

    def show(self) -> None:
        """Print state, causes with evidence and fix, and what was not known."""
        print_line(styled(f"{self.title}:", bold=True), self.facts.state())
        for cause in self.causes:
            word = CAUSE_CERTAIN if cause.certain else CAUSE_LIKELY
            mark = f"{word.in_language(self.language)}:"
            click.echo()
            print_line(styled(mark, fg="red" if cause.certain else "yellow"), shortened(cause.text))
            if cause.fix:
                print_line(f"  → {shortened(cause.fix)}")
            for line in cause.evidence:
                seen = CAUSE_SEEN.in_language(self.language)
                print_line(styled(f"  {seen}: {line.place}: {line.text}", dim=True))
        if not self.causes:
            words = POD_RUNS if self.facts.runs else CAUSE_UNKNOWN
            click.echo(f"\n{words.in_language(self.language)}")
        click.echo()
        for note in (*self.facts.notes, *all_not_checked_lines(self.decision, self.language)):
            print_summary(f"{NOT_CHECKED_MARK} {note}", err=False)
        print_summary(styled(self.looked_at(), dim=True), err=False)

    def document(self) -> dict[str, Any]:
        """Return the same as JSON."""
        metadata = self.facts.pod.get("metadata", {})
        return {
            "namespace": metadata.get("namespace") or "default",
            "pod": metadata.get("name", ""),
            "state": self.facts.state(),
            "runs": self.facts.runs,
            "causes": [
                {
                    "name": each.name,
                    "certain": each.certain,
                    "cause": each.text,
                    "fix": each.fix,
                    "evidence": [{"place": line.place, "text": line.text} for line in each.evidence],
                }
                for each in self.causes
            ],
            "notes": [*self.facts.notes, *all_not_checked_lines(self.decision, self.language)],
        }


def _decision(facts: PodFacts, context: DecisionContext) -> Decision:
    """Return the decision on the pod with the rules and nodes of today. Raises BadInputError."""
    subject = WorkloadObject("", "Pod", facts.pod)
    request = AdmissionRequest("CREATE", "", "Pod", subject.key.namespace, facts.pod, mutating=False)
    try:
        return context.decide(request)
    except ObjectError as error:
        raise BadInputError(f"Pod {subject.key.namespace}/{subject.key.name}: {error}") from None


def _of_cluster(name: str, namespace: str, sources: Sources, context: DecisionContext) -> PodFacts:
    """Return a pod of a cluster, or of a workload the newest that does not run. Raises BadInputError."""
    kind, slash, rest = name.partition("/")
    if not slash or kind.lower() in ("pod", "pods", "po"):
        wanted = rest if slash else name
        return PodFacts(sources.rules.cluster.query(lambda cluster: cluster.pod(namespace, wanted)))
    workloads = list_workloads((), sources, context, namespace)
    chosen = [each for each in workloads if each.reference.lower() == name.lower()]
    if not chosen:
        raise BadInputError(f'Error from server (NotFound): {kind} "{rest}" not found')
    return PodFacts(_newest(chosen[0]))


def _newest(workload: Workload) -> dict[str, Any]:
    """Return the newest pod of a workload that does not run, or if all run, the newest."""
    pods = [PodFacts(dict(each.document)) for each in workload.pods]
    if not pods:
        raise BadInputError(
            f"{workload.reference} has no pods; "
            f"`gpugate audit {workload.reference.lower()}` evaluates its template"
        )

    def age(facts: PodFacts) -> tuple[bool, str]:
        return not facts.runs, str(facts.pod.get("metadata", {}).get("creationTimestamp", ""))

    return dict(max(pods, key=age).pod)


def _read_cluster(
    facts: PodFacts, cluster: ClusterSource, container: str | None, lines: int, language: Language
) -> None:
    """Read events and logs of a pod; what may not be read becomes a note."""
    key = WorkloadObject("", "Pod", facts.pod).key
    try:
        facts.events += cluster.query(lambda found: found.events(key.namespace, key.name))
    except BadInputError as error:
        facts.notes.append(str(error))
    else:
        if not (facts.events or facts.runs):
            facts.notes.append(EVENTS_EXPIRED.in_language(language))
    crashed = facts.crashed()
    if container and all(name != container for name, _ in crashed):
        facts.notes.append(f"container {container!r} has no log yet")
    for name, previous in crashed if lines else ():
        if container not in (None, name):
            continue
        try:
            text = cluster.query(
                lambda found, name=name, previous=previous: found.log(  # type: ignore[misc]
                    key.namespace, key.name, name, previous=previous, lines=lines
                )
            )
        except BadInputError as error:
            facts.notes.append(str(error))
        else:
            facts.logs[_log_place(name, language, previous=previous)] = text


def _log_place(name: str, language: Language, *, previous: bool = False) -> str:
    """Return where a line of a log is, with `{line}`."""
    which = " (previous)" if previous else ""
    return LOG_OF.in_language(language).format(name=name, which=which).replace("{", "{{").replace(
        "}", "}}"
    ) + (", line {line}")


def _of_files(filename: str, logs: Sequence[str], events: str | None, language: Language) -> PodFacts:
    """Return the pod in a file, with its logs and events. Raises BadInputError."""
    pods = []
    for source, value in objects_in(filename):
        if isinstance(value, SourceError):
            raise BadInputError(str(value))
        if isinstance(value, dict) and value.get("kind") == "Pod":
            if not isinstance(value.get("metadata"), dict) or not isinstance(value.get("spec"), dict):
                raise BadInputError(f"{source}: invalid pod: metadata or spec is missing")
            pods.append(value)
    if len(pods) != 1:
        raise BadInputError(f"{filename}: expected one pod, found {len(pods)}")
    facts = PodFacts(pods[0])
    for path in logs:
        for name, text in read_path(path, lenient=True):
            facts.logs[_log_place(Path(name).name, language)] = text
    if events:
        documents = [value for _, value in objects_in(events)]
        facts.events += events_of(facts.pod, documents)
    return facts
