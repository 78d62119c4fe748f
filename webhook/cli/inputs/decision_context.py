"""Rules, nodes and workload kinds of the commands that evaluate objects, and their exit status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import wraps
from time import time
from typing import Any, Final, NamedTuple, TypeVar

from rules import (
    AdmissionRequest,
    Decision,
    Inventory,
    Language,
    Loaded,
    ObjectError,
    Policy,
    Snapshot,
    compile_policy,
    decide,
)
from rules.text.paths import Path, field_path
from webhook.cli.inputs.cluster_source import ClusterSource
from webhook.cli.inputs.files import (
    BAD_INPUT,
    BUILT_IN,
    RuleSource,
    is_built_in,
    load_workloads,
    read_inventory,
)
from webhook.cli.inputs.not_checked import with_inventory
from webhook.cli.inputs.objects import InputError, objects_in, request_of
from webhook.cli.inputs.options import (
    cluster_options,
    language_option,
    namespace_option,
    nodes_option,
    quiet_option,
    rules_option,
)
from webhook.cli.inputs.quotas import Quotas
from webhook.cli.terminal.console import ForbiddenError, print_error, print_note, print_warning
from webhook.cli.terminal.vocabulary import (
    OTHER_RULES,
    WITHOUT_BUILT_IN,
    WITHOUT_CLUSTER_NODES,
    WITHOUT_CLUSTER_RULES,
)

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_DENIED: Final = 1
# Fields of a container's resources in which people misspell others.
_RESOURCE_FIELDS: Final = ("limits", "requests")
_MIN_SIMILARITY: Final = 0.8
_WARNED: Final = 3


class Subject(NamedTuple):
    """An object to evaluate. source: file and line. name: may be a generateName with `*`."""

    source: str
    request: AdmissionRequest
    name: str


@dataclass(slots=True)
class DecisionContext:
    """Rules and nodes that decisions depend on, and the quotas that do not.

    failed: whether a rule or an object has an error. notes: what is not read. nodes_given: whether a cluster
    or files with nodes are.
    """

    policy: Policy
    inventory: Inventory
    quotas: Quotas
    nodes_given: bool
    failed: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def snapshot(self) -> Snapshot:
        """The rules and nodes of now; `add_objects` adds claims."""
        return Snapshot(self.policy, self.inventory)

    def decide(self, request: AdmissionRequest) -> Decision:
        """Return the decision of admission, now."""
        return self.complete(decide(self.snapshot, request, time()))

    def complete(self, decision: Decision) -> Decision:
        """Return a decision that says of a cluster or file without nodes that it has none."""
        return with_inventory(decision, nodes_given=self.nodes_given)

    def add_note(self, message: str, language: Language) -> None:
        """Print a note on stderr, and keep it for reports: what is not read, and so not checked."""
        print_note(message, language)
        self.notes.append(message)

    def add_error(self, message: str) -> None:
        """Print an error on stderr; the exit status is 2 then."""
        print_error(message)
        self.failed = True

    def add_objects(self, documents: Sequence[Any], namespace: str) -> None:
        """Use the claims and quotas among objects as existing. namespace: of objects that do not set one."""
        self.quotas.add(documents, namespace)
        self.inventory = self.inventory.with_dra(self.inventory.dra.with_claims_in(documents, namespace))

    def results(
        self, filenames: Iterable[str], namespace: str, decide: Callable[[AdmissionRequest], T]
    ) -> Iterator[tuple[Subject, T]]:
        """Yield each object in files with the result of `decide`; print an error for each invalid object.

        Claims and quotas in the files count as created. namespace: of objects that do not set one. Raises
        BadInputError if a file cannot be read.
        """
        read = [(path, [*objects_in(path)]) for path in filenames]
        documents = [value for _, objects in read for _, value in objects]
        self.add_objects(documents, namespace)
        for path, objects in read:
            for source, value in objects:
                try:
                    subject = self._with_defaults(self.subject(source, value, namespace))
                    result = decide(subject.request)
                except InputError as error:
                    self.add_error(str(error))
                except ObjectError as error:
                    self.add_error(f"{source}: {error}")
                else:
                    yield subject, result
            if not objects:
                self.add_error(f"{path}: contains no objects")

    def subject(self, source: str, value: Any, namespace: str) -> Subject:
        """Return an object to evaluate; namespace: if it does not set one. Raises InputError."""
        request, name = request_of(source, value, namespace)
        self._check_kind(source, request)
        _check_resources(source, value)
        return Subject(source, request, name)

    def _with_defaults(self, subject: Subject) -> Subject:
        """Return a subject as webhooks see it, with a note on what a LimitRange adds."""
        request, note = self.quotas.with_defaults(subject.request)
        if note:
            self.add_note(f"{subject.source}: {note}", self.policy.language)
        return subject._replace(request=request)

    def _check_kind(self, source: str, request: AdmissionRequest) -> None:
        """Raise InputError for a kind that differs from a workload kind only in upper and lower case."""
        known = {kind.lower(): kind for group, kind in self.policy.workloads.paths if group == request.group}
        meant = known.get(request.kind.lower(), request.kind)
        if meant != request.kind:
            raise InputError(f"{source}: unknown kind {request.kind!r} – did you mean {meant!r}?")

    def exit_status(self, decisions: Iterable[Decision], fail_on: str = "deny") -> int:
        """Return the exit status of a command with these decisions; see webhook.cli."""
        made = list(decisions)
        if self.failed:
            return BAD_INPUT
        if any(not decision.allowed for decision in made):
            return _DENIED
        return _WARNED if fail_on == "warn" and any(decision.warnings for decision in made) else 0


def _check_resources(source: str, document: Any) -> None:
    """Raise InputError for a misspelt field of a container's resources, as the API server and kubectl do.

    Every object of a document is read once.
    """
    todo: list[tuple[Path, Any]] = [((), document)]
    while todo:
        path, value = todo.pop()
        items = value.items() if isinstance(value, dict) else enumerate(value)
        if isinstance(value, dict) and path[-1:] == ("resources",):
            for key in value.keys() - set(_RESOURCE_FIELDS):
                if near := get_close_matches(str(key), _RESOURCE_FIELDS, n=1, cutoff=_MIN_SIMILARITY):
                    place = field_path((*path, key))
                    raise InputError(f"{source}: {place}: unknown field {key!r} – did you mean {near[0]!r}?")
        todo += [((*path, step), inner) for step, inner in items if isinstance(inner, dict | list)]


@dataclass(frozen=True, slots=True)
class Sources:
    """The values of `decision_options`; see their help."""

    rules: RuleSource
    rule_paths: tuple[str, ...]
    node_paths: tuple[str, ...]
    workload_paths: tuple[str, ...]
    language: Language

    def of_current_cluster(self, otherwise: str) -> Sources:
        """Return these sources with a cluster, by default the current one; otherwise: see ClusterSource."""
        return replace(self, rules=replace(self.rules, cluster=self.rules.cluster.or_current(otherwise)))

    def load(self) -> DecisionContext:
        """Load rules, nodes and workload kinds; print each error in a rule.

        Without the right to read the rules of the cluster, the built-in rules are used; without that to read
        its nodes, none is known; a warning says so. Raises BadInputError.
        """
        context = self.load_readable()
        for note in context.notes:
            print_warning(note, self.language)
        return context

    def load_readable(self) -> DecisionContext:
        """Return what `load` does; what could not be read is only in its notes. Raises BadInputError."""
        notes: list[str] = []
        try:
            loaded = self._load_rules()
        except ForbiddenError as error:
            notes.append(WITHOUT_CLUSTER_RULES.in_language(self.language).format(why=error))
            loaded = self.rules.load([BUILT_IN])
        nodes_given, inventory = bool(self.node_paths) or self.rules.cluster.selected, Inventory()
        try:
            inventory, _ = read_inventory(self.node_paths, self.rules.cluster)
        except ForbiddenError as error:
            notes.append(WITHOUT_CLUSTER_NODES.in_language(self.language).format(why=error))
            nodes_given = False
        return self._context(loaded, inventory, nodes_given=nodes_given, notes=notes)

    def load_with_objects(self) -> tuple[DecisionContext, list[Any]]:
        """Return rules and nodes, all of which must be readable, and the objects of the inventory.

        Raises BadInputError.
        """
        loaded = self._load_rules()
        inventory, objects = read_inventory(self.node_paths, self.rules.cluster)
        nodes_given = bool(self.node_paths) or self.rules.cluster.selected
        return self._context(loaded, inventory, nodes_given=nodes_given, notes=[]), objects

    def _load_rules(self) -> Loaded:
        loaded = self.rules.load_in_force(self.rule_paths, self.language)
        for error in loaded.errors:
            print_error(error.line(self.language), self.language)
        self._note_other_rules()
        return loaded

    def _context(
        self, loaded: Loaded, inventory: Inventory, *, nodes_given: bool, notes: list[str]
    ) -> DecisionContext:
        policy = compile_policy(loaded.rules, self.language, load_workloads(self.workload_paths))
        quotas, failed = Quotas(self.rules.cluster, self.language), bool(loaded.errors)
        return DecisionContext(policy, inventory, quotas, nodes_given, failed, notes)

    def _note_other_rules(self) -> None:
        """Print which rules replace those in force: of the cluster, or without one the built-in rules."""
        if not self.rule_paths:
            return
        if self.rules.cluster.selected:
            text = OTHER_RULES
        elif any(map(is_built_in, self.rule_paths)):
            return
        else:
            text = WITHOUT_BUILT_IN
        paths = ", ".join("stdin" if path == "-" else path for path in self.rule_paths)
        print_note(text.in_language(self.language).format(paths=paths), self.language)


def decision_options(command: F, rules: Callable[[Any], Any] = rules_option) -> F:
    """Add the options for rules, nodes and language; the command gets them and --workloads as `sources`.

    rules: the option --rules.
    """

    @wraps(command)
    def wrapper(
        rule_paths: tuple[str, ...],
        node_paths: tuple[str, ...],
        cluster: ClusterSource,
        rules_namespace: str,
        lang: str,
        workload_paths: tuple[str, ...] = (),
        **others: Any,
    ) -> Any:
        rules = RuleSource(rules_namespace, cluster)
        sources = Sources(rules, rule_paths, node_paths, workload_paths, Language(lang))
        return command(sources=sources, **others)

    for option in (
        quiet_option,
        language_option,
        namespace_option,
        cluster_options,
        nodes_option,
        rules,
    ):
        wrapper = option(wrapper)
    return wrapper  # type: ignore[return-value]  # the command, with other arguments
