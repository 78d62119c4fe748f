"""Fixes of findings, written into the YAML or JSON text that has the object.

Only the value that a fix changes is written anew: comments, order and layout stay. A fix is verified twice:
the text is read again, which must differ in that value alone, and decided again, which must be better.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml

from rules import Decision, Finding, ObjectError
from rules.model.check_result import Edit
from rules.model.finding import cause_of
from rules.text.i18n import Message
from rules.text.paths import Path, field_path
from rules.text.yaml_document import Document, Location, SourceError, read, read_json
from webhook.cli.inputs.files import read_path
from webhook.cli.inputs.objects import InputError, ObjectSource, subject_of
from webhook.cli.inputs.yaml_edit import Edit as TextEdit
from webhook.cli.inputs.yaml_edit import edited, flow, nodes_at, scalar_edit, start_of

if TYPE_CHECKING:
    from webhook.cli.inputs.session import Session

_QUANTITIES: Final = ("limits", "requests")
_NOT_WRITTEN: Final = Message("the value is not written there")
_SHARED: Final = Message("an alias or a merge uses the value at another place, too")
_STILL: Final = Message("the finding would remain")
_WORSE: Final = Message("it leads to: {finding}")


class Attempt(NamedTuple):
    """A fix of a file. place: of the first value. why_not: why it is not written, or nothing."""

    place: Location
    finding: Finding
    why_not: Message


class NotFixable(ValueError):  # noqa: N818 - a result
    """A fix that is not written: `reason` says why."""

    def __init__(self, reason: Message) -> None:
        super().__init__(reason.en)
        self.reason = reason


def fixed(
    text: str,
    document: Document,
    place: Path,
    finding: Finding,
    decision: Decision,
    decide: Callable[[Any], Decision],
) -> str:
    """Return a text after the fix of a finding.

    document: one of the text. place: of the object in it. decision: on the object, with the finding. decide:
    returns the decision on an object. Raises NotFixable, and what `decide` raises.
    """
    changed, value = _edited(text, document, place, finding.edits)
    after = decide(value)
    known = set(map(_key, _findings(decision)))
    remaining = {_key(new): new for new in _findings(after)}
    if _key(finding) in remaining:
        raise NotFixable(_STILL)
    for key, new in remaining.items():
        if key not in known:
            raise NotFixable(_WORSE.having(finding=new.message))
    return changed


def fix_texts(
    session: Session, filenames: Iterable[str], namespace: str
) -> Iterator[tuple[str, str, str, list[Attempt]]]:
    """Yield the name of each file, its text, the text after the fixes of all findings, and the fixes.

    namespace: of objects that do not set one. An invalid object has no fixes. Raises BadInputError if a file
    cannot be read.
    """
    texts = [pair for filename in filenames for pair in read_path(filename)]
    session.add_objects([value for name, text in texts for _, _, value in _objects(name, text)], namespace)
    for name, text in texts:
        yield name, text, *_fix_text(session, name, text, namespace)


def _objects(name: str, text: str) -> Iterator[tuple[Document, Path, Any]]:
    for document in read(text, name):
        if isinstance(document, Document) and document.value is not None:
            yield from ((document, place, value) for place, value in document.objects())


def _fix_text(session: Session, name: str, text: str, namespace: str) -> tuple[str, list[Attempt]]:
    """Return a text after the fixes of all findings, and the fixes. The objects stay in their order."""
    attempts: list[Attempt] = []
    for at in range(len(objects := [*_objects(name, text)])):
        tried = set[tuple[Edit, ...]]()
        while True:
            document, place, value = objects[at]
            source = ObjectSource(document, place)

            def decide(value: Any, source: ObjectSource = source) -> Decision:
                subject = subject_of(source, value, namespace, session.policy.workloads)
                return session.decide(session.quotas.with_defaults(subject.request)[0])

            try:
                decision = decide(value)
            except (InputError, ObjectError):
                break
            finding = next((one for one in _findings(decision) if one.edits and one.edits not in tried), None)
            if finding is None:
                break
            tried.add(finding.edits)
            where, why_not = source.locate(field_path(finding.edits[0].path)), Message()
            try:
                text = fixed(text, document, place, finding, decision, decide)
                objects = [*_objects(name, text)]
            except NotFixable as error:
                why_not = error.reason
            except (InputError, ObjectError) as error:
                why_not = error.text
            attempts.append(Attempt(where, finding, why_not))
    return text, attempts


def _findings(decision: Decision) -> Iterable[Finding]:
    return (*decision.violations, *decision.notices)


def _key(finding: Finding) -> tuple[Any, ...]:
    return finding.rule, finding.action, finding.path, cause_of(finding)


def _edited(text: str, document: Document, place: Path, edits: Iterable[Edit]) -> tuple[str, Any]:
    """Return a text after edits of an object in it, and the object. Raises NotFixable."""
    edits = [edit._replace(path=(*place, *edit.path)) for edit in edits]
    is_json = not document.lines
    changes = [_text_edit(text, document, edit, is_json=is_json) for edit in edits]
    changed = edited(text, changes)
    before, after = [*read(text, document.file)], [*read(changed, document.file)]
    at = next(i for i, entry in enumerate(before) if _start_of(entry) == _start_of(document))
    new = after[at] if at < len(after) else None
    if not isinstance(new, Document) or (is_json and read_json(changed) is None):
        raise NotFixable(_NOT_WRITTEN)
    expected = [entry.value if isinstance(entry, Document) else str(entry) for entry in after]
    expected[at] = deepcopy(new.value)
    for edit in edits:
        _undo(expected[at], document.value, edit)
    if expected != [entry.value if isinstance(entry, Document) else str(entry) for entry in before]:
        raise NotFixable(_SHARED)
    return changed, next(value for path, value in new.objects() if path == place)


def _start_of(entry: Document | SourceError) -> Any:
    return (entry.locate() if isinstance(entry, Document) else entry.location), type(entry)


def _undo(value: Any, before: Any, edit: Edit) -> None:
    """Undo an edit in a value that has it; before: without it. Raises NotFixable if it does not have it."""
    *above, last = edit.path
    parent: Any = None
    step: Any
    for step in above:
        parent, value = value, value[step]
        before = before[step] if isinstance(before, list) else before.get(step)
    if edit.old:
        if str(value[last]) != str(before[last]).replace(edit.old, edit.new):
            raise NotFixable(_NOT_WRITTEN)
        value[last] = before[last]
    else:
        del value[last]
        if before is None:
            del parent[above[-1]]


def _text_edit(text: str, document: Document, edit: Edit, *, is_json: bool) -> TextEdit:
    """Return the change of the text for an edit. Raises NotFixable."""
    if not edit.old:
        return _added(document, edit, is_json=is_json)
    whole = scalar_edit(document, edit.path, "")
    if whole is None:
        raise NotFixable(_NOT_WRITTEN)
    lines = text.splitlines(keepends=True)
    start, end = (sum(map(len, lines[: at.line])) + at.column for at in (whole.start, whole.end))
    # A flag with its value is only replaced as a whole: `--tp 4`, and not in `--no-tp 4` or `--tp 40`.
    matches = [*re.finditer(rf"(?<![\w-]){re.escape(edit.old)}(?![\w.])", text[start:end])]
    if len(matches) != 1:
        raise NotFixable(_NOT_WRITTEN)
    before, after = text[start : start + matches[0].start()], text[start + matches[0].end() : end]
    new = edit.new
    if not (before or after):  # without quotes
        of_quantity = edit.path[-2] in _QUANTITIES
        new = _json(new) if is_json else new if of_quantity or not new.isdecimal() else json.dumps(new)
    return TextEdit(whole.start, whole.end, f"{before}{new}{after}")


def _added(document: Document, edit: Edit, *, is_json: bool) -> TextEdit:
    """Return the change that adds a member to the object above it, or that object, too. Raises NotFixable."""
    *above, name = edit.path
    member = f"{json.dumps(name)}: {_json(edit.new)}" if is_json else f"{flow(name)}: {edit.new}"
    nodes = nodes_at(document, above)
    if not nodes:
        field = json.dumps(above[-1]) if is_json else above[-1]
        nodes, member = nodes_at(document, above[:-1]), f"{field}: {{{member}}}"
    if not nodes or not isinstance(nodes[-1], yaml.MappingNode):
        raise NotFixable(_NOT_WRITTEN)
    node = nodes[-1]
    start = start_of(document, node)
    if not node.value:
        start = start._replace(column=start.column + 1)
        return TextEdit(start, start, member)
    first = start_of(document, node.value[0][0])
    return TextEdit(first, first, f"{member}, " if node.flow_style else f"{member}\n{' ' * first.column}")


def _json(value: str) -> str:
    return value if value.isdecimal() else json.dumps(value)
