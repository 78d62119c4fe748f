"""`gpugate why`: why a pod does not start or run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
from msgspec import Struct

from rules import AdmissionRequest, Decision, Language, ObjectError
from rules.model.decision import ALLOWED
from rules.model.finding import Certainty
from rules.text.i18n import Joined, Message, Text, located
from rules.text.yaml_document import SourceError
from webhook.cli.audit.source import list_workloads
from webhook.cli.audit.workloads import WorkloadObject
from webhook.cli.inputs.completers import FILE
from webhook.cli.inputs.files import read_path
from webhook.cli.inputs.not_checked import all_not_checked_lines
from webhook.cli.inputs.objects import objects_in
from webhook.cli.inputs.options import decision_options, files_option, output_option
from webhook.cli.inputs.session import Session, with_session
from webhook.cli.terminal.console import (
    BadInputError,
    counted,
    led,
    print_document,
    print_line,
    print_summary,
    styled,
)
from webhook.cli.terminal.usage_errors import UsageError
from webhook.cli.terminal.vocabulary import (
    CAUSE_SEEN,
    CAUSE_UNKNOWN,
    EVENTS_EXPIRED,
    INVALID_POD,
    LOG_BEFORE,
    LOG_OF,
    LOOKED_AT,
    LOOKED_AT_LOGS,
    NO_PODS,
    NO_PODS_WANTED,
    NOT_CHECKED_MARK,
    POD_RUNS,
)
from webhook.cli.why.denied_workload import WorkloadFacts
from webhook.cli.why.failures import MAX_LINES, Cause, causes, shortened
from webhook.cli.why.gang import with_gang
from webhook.cli.why.pod_source import PodFacts, events_of
from webhook.cli.why.unscheduled import Unscheduled
from webhook.cluster.connection_errors import not_found_text

_FOUND: Final = 1
_DEFAULT_LINES: Final = 200
_SEEN: Final = Message("{label}: {place}: {text}")
_NO_LOG: Final = Message("container {name!r} has no log yet")
_NOT_ONE_POD: Final = Message("{file}: expected one pod as kubectl prints it, found {contents}{hint}")
_NOT_AN_OBJECT: Final = Message("no object")
_EXPLAIN: Final = Message("; gpugate explain reads manifests of workloads")
_LOG_LINES: Final = Message("{log} ({lines})")


@click.command()
@click.argument("name", required=False, metavar="[POD|KIND/NAME]")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the pod.")
@click.option("-c", "--container", metavar="NAME", help="Read only the log of this container.")
@click.option("-f", "--filename", type=FILE, metavar="FILE", help="File with the pod, as kubectl prints it.")
@files_option("--log", "logs", help="File with its log; - for stdin.")
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
@with_session
def command(
    name: str | None,
    namespace: str,
    container: str | None,
    filename: str | None,
    logs: tuple[str, ...],
    events: str | None,
    tail: int,
    output: str,
    session: Session,
) -> None:
    """Say why a pod does not start or run, with the evidence and a fix.

    Compares the result of the rules and the nodes of today, the state and the events of the pod, and the last
    lines of its logs with known failures of GPU pods. Of a workload (deployment/llm), the newest pod that
    does not run; if it has none, what denies its pods. A cause is certain if the evidence proves it,
    otherwise likely. What your rights do not suffice to read is named and left out. Exit status: 0 if the
    pod runs and no cause is found, 1 otherwise.

    \b
    Examples:
      gpugate why llm-7d9f-x2x -n ml
      gpugate why deployment/llm -n ml --context production
      gpugate why --log llm.log
      kubectl logs llm-7d9f-x2x --previous | gpugate why -f pod.yaml --log - --nodes nodes.yaml
    """
    if (name and filename) or not (name or filename or logs):
        raise UsageError(Message("name a pod of a cluster, a file with it (-f FILE), or a log (--log FILE)"))
    if name and (logs or events):
        raise UsageError(Message("--log and --events are for a pod in a file, or for a log alone"))
    if name:
        session.use_current_cluster("-f FILE")
    session.load_readable()
    facts: PodFacts | WorkloadFacts
    if name:
        facts = _of_cluster(name, namespace, session)
        if isinstance(facts, PodFacts):
            _read_cluster(facts, session, container, tail)
    else:
        facts = _of_files(filename, logs, events)
    decision = _decision(facts.object, session) if facts.document else ALLOWED
    nodes = Unscheduled(session.inventory, facts.spec)
    pod_causes = causes(
        decision, facts.statements(), nodes, runs=facts.runs, rules_known=session.rules_readable
    )
    if name and isinstance(facts, PodFacts) and not (facts.scheduled or facts.runs):
        pod_causes = with_gang(facts, session, pod_causes)
    facts.notes[:0] = session.notes
    result = Result(facts, decision, pod_causes, session.language)
    if output == "text":
        result.show()
    else:
        print_document(result.document(), output)
    sys.exit(session.exit_status(()) or (0 if facts.runs and not pod_causes else _FOUND))


class Result(Struct, frozen=True):
    """A pod, or a workload without pods, and the causes."""

    facts: PodFacts | WorkloadFacts
    decision: Decision
    causes: Sequence[Cause]
    language: Language

    @property
    def title(self) -> str:
        """Kind, namespace and name."""
        if not self.facts.document:
            return ", ".join(log.in_language(self.language) for log in self.facts.logs)
        key = self.facts.object.key
        return f"{key.kind} {key.namespace}/{key.name}"

    def looked_at(self) -> str:
        """Return the line with the inputs that were compared."""
        logs = ", ".join(
            _LOG_LINES.having(log=log, lines=lines).in_language(self.language)
            for log, text in self.facts.logs.items()
            for lines in [counted(len(text.splitlines()), "line")]
        )
        if not self.facts.document:
            return LOOKED_AT_LOGS.having(logs=logs).in_language(self.language)
        events = counted(len(self.facts.events), "event")
        return LOOKED_AT.having(events=events, logs=logs or "–").in_language(self.language)

    def show(self) -> None:
        """Print the state, the causes with evidence and fix, and what was not checked.

        The first line has the state of a pod, or else the first cause.
        """
        blocks: list[list[str]] = [*map(self._cause_lines, self.causes)] or [[self._no_cause()]]
        if isinstance(self.facts, PodFacts) and self.facts.document:
            blocks.insert(0, [self.facts.state()])
        blocks[0][0] = led(self.title, blocks[0][0], self.language, bold=True)
        for block in blocks:
            for line in block:
                print_line(line)
            click.echo()
        for note in (*self.facts.notes, *all_not_checked_lines(self.decision, self.language)):
            print_summary(f"{NOT_CHECKED_MARK} {note}", err=False)
        print_summary(styled(self.looked_at(), dim=True), err=False)

    def _cause_lines(self, cause: Cause) -> list[str]:
        """Return the lines of a cause: certainty and text, the fix, the evidence."""
        text, fix = cause.text.in_language(self.language), cause.fix.in_language(self.language)
        lines: list[str] = [self._marked(cause.certainty, shortened(text))]
        lines += [f"  → {shortened(fix)}"] if fix else []
        for line in cause.evidence:
            seen = _SEEN.having(label=CAUSE_SEEN, place=line.place, text=line.text)
            lines.append(styled(f"  {seen.in_language(self.language)}", dim=True))
        return lines

    def _no_cause(self) -> str:
        is_pod = isinstance(self.facts, PodFacts)
        if self.facts.runs:
            return (POD_RUNS if is_pod else NO_PODS_WANTED).in_language(self.language)
        words = CAUSE_UNKNOWN if is_pod else NO_PODS
        return self._marked(Certainty.UNKNOWN, words.in_language(self.language))

    def _marked(self, certainty: Certainty, text: str) -> str:
        color = "red" if certainty is Certainty.CERTAIN else "yellow"
        return led(certainty.in_language(self.language), text, self.language, fg=color)

    def document(self) -> dict[str, Any]:
        """Return the same as JSON."""
        key = self.facts.object.key
        return {
            "namespace": key.namespace,
            "kind": key.kind,
            "name": key.name,
            "pod": (key.name or None) if isinstance(self.facts, PodFacts) else None,
            "state": self.facts.state(),
            "runs": self.facts.runs,
            "causes": [
                {
                    "name": cause.name,
                    "certain": cause.certainty is Certainty.CERTAIN,
                    "certainty": cause.certainty.value,
                    "cause": cause.text.in_language(self.language),
                    "fix": cause.fix.in_language(self.language),
                    "evidence": [
                        {"place": line.place.in_language(self.language), "text": line.text}
                        for line in cause.evidence
                    ],
                }
                for cause in self.causes
            ],
            "notes": [*self.facts.notes, *all_not_checked_lines(self.decision, self.language)],
        }


def _decision(subject: WorkloadObject, session: Session) -> Decision:
    """Return the decision on an object with the rules and nodes of today. Raises BadInputError."""
    key = subject.key
    request = AdmissionRequest("CREATE", key.group, key.kind, key.namespace, subject.document, mutating=False)
    try:
        return session.decide(request)
    except ObjectError as error:
        raise BadInputError(located(f"{key.kind} {key.namespace}/{key.name}", error.text)) from None


def _of_cluster(name: str, namespace: str, session: Session) -> PodFacts | WorkloadFacts:
    """Return the pod of a name; of a workload, its newest pod that does not run, else the workload itself.

    Raises BadInputError.
    """
    kind, slash, rest = name.partition("/")
    if not slash or kind.lower() in ("pod", "pods", "po"):
        pod_name = rest if slash else name
        return PodFacts(session.cluster.query(lambda cluster: cluster.pod(namespace, pod_name)))
    workloads = list_workloads((), session, namespace)
    chosen = [workload for workload in workloads if workload.reference.lower() == name.lower()]
    if not chosen:
        raise BadInputError(Text(not_found_text(kind, rest)))
    workload = chosen[0]
    pods = [PodFacts(dict(pod.document)) for pod in workload.pods]
    newest = max(pods, key=_age, default=None)
    facts = WorkloadFacts.of(workload.object, workload.children) if workload.object else None
    if newest is not None and (facts is None or not newest.runs or not facts.fails):
        return newest
    if facts is None:
        raise BadInputError(Message("{workload} has no pods", workload=workload.reference))
    try:
        facts.add_events(session.cluster.query(lambda api: api.failed_creations(namespace)))
    except BadInputError as error:
        facts.notes.append(error.text.in_language(session.language))
    return facts


def _age(facts: PodFacts) -> tuple[bool, str]:
    """Return a key by which a pod that does not run comes last, the newest at the end."""
    return not facts.runs, facts.created


def _read_cluster(facts: PodFacts, session: Session, container: str | None, lines: int) -> None:
    """Read events and logs of a pod; add a note for those that the user has no right to read."""
    cluster, language = session.cluster, session.language
    key = WorkloadObject("", "Pod", facts.pod).key
    try:
        facts.events += cluster.query(lambda api: api.events(key.namespace, key.name))
    except BadInputError as error:
        facts.notes.append(error.text.in_language(session.language))
    else:
        if not (facts.events or facts.runs):
            facts.notes.append(EVENTS_EXPIRED.in_language(language))
    crashed = facts.crashed()
    if container and all(name != container for name, _ in crashed):
        facts.notes.append(_NO_LOG.having(name=container).in_language(language))
    for name, previous in crashed if lines else ():
        if container not in (None, name):
            continue
        try:
            text = cluster.query(
                lambda api, name=name, previous=previous: api.log(  # type: ignore[misc]
                    key.namespace, key.name, name, previous=previous, lines=lines
                )
            )
        except BadInputError as error:
            facts.notes.append(error.text.in_language(session.language))
        else:
            facts.logs[(LOG_BEFORE if previous else LOG_OF).having(name=name)] = text


def _of_files(filename: str | None, logs: Sequence[str], events: str | None) -> PodFacts:
    """Return the pod in a file, with its logs and events; or logs alone. Raises BadInputError."""
    facts = PodFacts(_pod_in(filename) if filename else {})
    for path in logs:
        for name, text in read_path(path, lenient=True):
            facts.logs[LOG_OF.having(name=Path(name).name)] = text
    if events:
        documents = [entry[1] for entry in objects_in(events) if not isinstance(entry, SourceError)]
        facts.events += events_of(facts.pod, documents)
    return facts


def _pod_in(filename: str) -> dict[str, Any]:
    """Return the pod in a file. Raises BadInputError."""
    pods: list[dict[str, Any]] = []
    kinds: dict[str | Message, None] = {}
    for entry in objects_in(filename):
        if isinstance(entry, SourceError):
            raise BadInputError(entry.text)
        source, value = entry
        kinds[str(value.get("kind")) if isinstance(value, dict) else _NOT_AN_OBJECT] = None
        if isinstance(value, dict) and value.get("kind") == "Pod":
            if not isinstance(value.get("metadata"), dict) or not isinstance(value.get("spec"), dict):
                raise BadInputError(located(source, INVALID_POD))
            pods.append(value)
    if len(pods) != 1:
        contents = counted(len(pods), "pod") if pods else Joined(", ", kinds)
        hint = Message() if pods else _EXPLAIN
        raise BadInputError(_NOT_ONE_POD.having(file=filename, contents=contents, hint=hint))
    return pods[0]
