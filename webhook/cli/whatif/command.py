"""`gpugate whatif`: the effect of changes of drivers, pools, images or rules on workloads."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from time import time
from typing import Any, Final

import click
from msgspec.structs import replace

from rules import Language, ObjectError, Snapshot, compile_policy
from rules.cuda.versions import CudaVersion
from rules.nodes.driver_lifecycle import support_lines
from rules.schema.errors import suggested
from rules.text.i18n import Message, located
from webhook.cli.audit.source import list_workloads
from webhook.cli.audit.workloads import Workload
from webhook.cli.inputs.completers import RULE_PATH
from webhook.cli.inputs.files import BAD_INPUT
from webhook.cli.inputs.node_change_options import NodeChanges, node_change_options
from webhook.cli.inputs.node_changes import Affected, Change, ChangeError, EditableInventory
from webhook.cli.inputs.options import (
    cuda_option,
    existing_objects_option,
    files_option,
    node_and_cluster_options,
    output_option,
    rules_option,
    workloads_option,
)
from webhook.cli.inputs.session import Session, with_session
from webhook.cli.report.fleet import fleet_cells
from webhook.cli.report.html import page
from webhook.cli.report.sources import sources_of
from webhook.cli.terminal.console import (
    UNKNOWN,
    BadInputError,
    counted,
    current_language,
    print_document,
    print_note,
    print_summary,
    progress,
    show_table,
)
from webhook.cli.terminal.usage_errors import UsageError
from webhook.cli.terminal.vocabulary import (
    EVALUATING_WORKLOADS,
    READING_WORKLOADS,
    WHAT_IF_CHANGE,
    WHAT_IF_SUMMARY,
)
from webhook.cli.whatif.compare import (
    ClusterState,
    Impact,
    RunState,
    WhatIf,
    WorkloadChange,
    WorkloadRequest,
    compare,
    document,
    rows,
    subjects_of,
)
from webhook.cli.whatif.image_changes import ImageChange, parse_image_change, with_images

_BREAKS: Final = 1
_COLOURS: Final = {
    Impact.BREAKS.value: "red",
    Impact.FREED.value: "green",
    Impact.UNKNOWN.value: "cyan",
    Impact.FEWER_NODES.value: "yellow",
    Impact.WARNS.value: "yellow",
}
_NO_CHANGES: Final = Message(
    "no change given (use --driver, --remove-pool, --add-nodes, --add-profile, --image-cuda, --image or "
    "--rules)"
)
_NO_IMAGE: Final = Message("no workload uses image {name}{hint}")
_NO_NODES: Final = Affected(frozenset(), frozenset())  # the objects of workloads change instead
_RULES: Final = Message("rules in {paths}")
_IMAGE_CUDA: Final = Message("all images whose CUDA version is known, with CUDA {cuda}")
_IMAGE: Final = Message("image {new} instead of {old}")


def _images(
    context: click.Context, parameter: click.Parameter, values: Iterable[str]
) -> tuple[ImageChange, ...]:
    del context, parameter
    try:
        return tuple(parse_image_change(value) for value in values)
    except ChangeError as error:
        raise click.BadParameter(error.text.in_language(current_language())) from None


@click.command()
@existing_objects_option
@node_change_options
@cuda_option("--image-cuda", "13 or 13.0", help="Another CUDA version in all images with a known one.")
@click.option(
    "--image",
    "images",
    multiple=True,
    callback=_images,
    metavar="OLD=NEW",
    help="Another image or repository, by reference or prefix; may be repeated.",
)
@click.option("-n", "--namespace", metavar="NS", help="Evaluate only workloads of this namespace.")
@output_option(
    "table",
    "wide",
    "json",
    "yaml",
    "html",
    help="wide: also pods to move, workloads that get more nodes, all reasons; html: a report in one file.",
)
@workloads_option
@rules_option("Rules after the change: file, folder or URL, or builtin; may be repeated.  [default: as now]")
@files_option(
    "--current-rules",
    "current_rules",
    type=RULE_PATH,
    help="Rules in force now: file, folder or URL, or builtin; may be repeated.  [default: the rules of the "
    "cluster, or builtin]",
)
@node_and_cluster_options
@with_session
def command(
    filenames: tuple[str, ...],
    changes: NodeChanges,
    image_cuda: CudaVersion | None,
    images: tuple[ImageChange, ...],
    namespace: str | None,
    output: str,
    current_rules: tuple[str, ...],
    session: Session,
) -> None:
    """Show which workloads break, are freed or have fewer nodes after a change of nodes, images or rules.

    Each workload is evaluated before and after all changes, as admission does; without --filename, those of
    the cluster, by default of the current context. Changes nothing. A workload that was denied before does
    not break. Exit status: 0 nothing breaks; 1 something breaks; 2 bad input.

    \b
    Examples:
      gpugate whatif --driver 595
      gpugate whatif --driver gpu-v100=580 --driver T4=595.71.05
      gpugate whatif --context production --remove-pool gpu-v100 --add-profile h100.yaml
      gpugate whatif -f workloads.yaml --nodes nodes.yaml --image-cuda 13
      gpugate whatif -f workloads.yaml --nodes nodes.yaml --rules new-rules/ -o json
    """
    if not (changes or image_cuda or images or session.rule_paths):
        raise UsageError(_NO_CHANGES)
    if not filenames:
        session.use_current_cluster("-f FILE")
    before = dataclasses.replace(session, rule_paths=current_rules)
    before.load_all()
    with progress(READING_WORKLOADS):
        workloads = list_workloads(filenames, before, namespace)
    with progress(EVALUATING_WORKLOADS):
        result = _result(workloads, before, session.rule_paths, changes, image_cuda, images)
    if output in ("json", "yaml"):
        print_document(document(result, session.language), output)
    elif output == "html":
        facts = {"result": result, "effects": _SHOWN, "workloads": list(rows(result, wide=True))}
        facts |= {"facts": sources_of(before, new_rules=session.rule_paths), "notes": before.notes}
        click.echo(page("whatif.html", session.language, summary=_summary(result, session.language), **facts))
    else:
        show(result, session.language, wide=output == "wide")
    sys.exit(BAD_INPUT if before.failed else _BREAKS if result.count(Impact.BREAKS) else 0)


def _result(
    workloads: list[Workload],
    before: Session,
    new_rules: tuple[str, ...],
    changes: NodeChanges,
    image_cuda: CudaVersion | None,
    images: tuple[ImageChange, ...],
) -> WhatIf:
    """Return the result of all changes. Raises BadInputError."""
    language, now, done = before.language, time(), list[Change]()
    rules = before.policy.rules
    if new_rules:
        loaded = before.read_rules(new_rules)
        for error in loaded.errors:
            before.add_error(error.located)
        rules = before.with_facts(loaded.rules)
        paths = ", ".join(new_rules)
        done.append(Change(_RULES.having(paths=paths)))
    state, of_nodes = changes.apply(EditableInventory.of(before.node_objects, rules), before)
    done += of_nodes
    policy = before.policy
    if state.rules != before.policy.rules:
        policy = compile_policy(state.rules, language, before.workloads)
    if image_cuda:
        policy = policy.with_image_cuda(image_cuda)
        done.append(Change(_IMAGE_CUDA.having(cuda=image_cuda), _NO_NODES))
    done += (Change(_IMAGE.having(old=change.old, new=change.new), _NO_NODES) for change in images)
    inventory = state.inventory()
    snapshot = before.snapshot
    state_before = ClusterState(snapshot, now)
    claims = before.inventory.dra.claims
    state_after = ClusterState(Snapshot(policy, inventory, claims, snapshot.namespaces), now)
    subjects = list(subjects_of(workloads))
    _check_images(images, subjects)

    def changed(subject: WorkloadRequest) -> WorkloadRequest:
        return subject._replace(
            request=replace(subject.request, object=with_images(subject.request.object, images)),
            pods=tuple(with_images(pod, images) for pod in subject.pods),
        )

    def on_error(subject: WorkloadRequest, error: ObjectError) -> None:
        before.add_error(located(f"{subject.namespace}/{subject.owner}", error.text))

    return compare(subjects, state_before, state_after, done, changed if images else None, on_error)


def _check_images(images: Iterable[ImageChange], subjects: Iterable[WorkloadRequest]) -> None:
    """Raise BadInputError for a change of an image that no workload uses."""
    used = (
        {image for subject in subjects for image in _images_in(subject.request.object)} if images else set()
    )
    for change in images:
        if not any(map(change.of, used)):
            known = used | {image.rpartition(":")[0] for image in used if ":" in image}
            raise BadInputError(_NO_IMAGE.having(name=change.old, hint=suggested(change.old, sorted(known))))


def _images_in(document: Any) -> list[str]:
    if isinstance(document, dict):
        images = [value for key, value in document.items() if key == "image" and isinstance(value, str)]
        return images + [image for value in document.values() for image in _images_in(value)]
    return [image for item in document for image in _images_in(item)] if isinstance(document, list) else []


def _summary(result: WhatIf, language: Language) -> str:
    numbers = {effect.name.lower(): result.count(effect) for effect in Impact}
    workloads = counted(len(result.workloads), "workload")
    return WHAT_IF_SUMMARY.having(workloads=workloads, **numbers).in_language(language)


def show(result: WhatIf, language: Language, *, wide: bool) -> None:
    """Print the summary, the changes, and a row for each workload that changes."""
    print_summary(_summary(result, language), err=False)
    for change in result.changes:
        print_summary(WHAT_IF_CHANGE.having(change=change.text), err=False)
    for text in result.plan().lines(language):
        click.echo(text)
    for line in support_lines(change.support for change in result.changes):
        print_note(line)
    fleet_before, fleet_after = result.fleets
    if fleet_after != fleet_before or (wide and fleet_after):
        click.echo()
        show_table(fleet_cells(fleet_after, language, fleet_before), language, wide=True)
    if result.by_namespace and (wide or len(result.by_namespace) > 1):
        click.echo()
        show_table(
            [
                {"namespace": name, **{impact.value: str(counts[impact]) for impact in _SHOWN}}
                for name, counts in result.by_namespace
            ],
            language,
            wide=wide,
        )
    if len(reasons := result.by_reason) > 1 or wide:
        click.echo()
        facts = (
            {"effect": effect.value, "reason": reason, "workloads": str(n)} for effect, reason, n in reasons
        )
        columns = ("effect", "workloads", "reason")
        show_table(
            [{key: row[key] for key in columns} for row in facts], language, wide=wide, effect=_COLOURS
        )
    table = [_row(change, wide=wide) for change in rows(result, wide=wide)]
    if table:
        click.echo()
        show_table(table, language, wide=wide, effect=_COLOURS)


_SHOWN: Final = (Impact.BREAKS, Impact.FREED, Impact.UNKNOWN, Impact.FEWER_NODES, Impact.WARNS)


def _row(change: WorkloadChange, *, wide: bool) -> dict[str, str]:
    nodes = f"{_number(change.before)} -> {_number(change.after)}"
    row = {
        "effect": change.effect.value,
        "namespace": change.subject.namespace,
        "workload": change.subject.owner,
        "compatible nodes": nodes,
    }
    if wide:
        row |= {"pods": str(len(change.subject.pods)), "to move": str(change.after.moving)}
        row |= {"new pools": ", ".join(sorted(change.after.pools)) or UNKNOWN}
    return row | {"reason": "; ".join(reason.line for reason in change.reasons) if wide else change.headline}


def _number(runs: RunState) -> str:
    return UNKNOWN if runs.nodes is None else str(len(runs.nodes))
