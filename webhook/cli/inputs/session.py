"""The session of a command: what its options select, from files to a snapshot.

--rules, --rules-namespace, --context, --kubeconfig  ->  rules      with --workloads and --lang  ->  policy
--nodes, --context, --kubeconfig                     ->  inventory  with the policy              ->  snapshot
-f, --namespace                                      ->  results: each object with its decision
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, wraps
from time import time
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from rules import (
    DEFAULT_NAMESPACE,
    AdmissionRequest,
    Decision,
    Facts,
    Inventory,
    Language,
    Loaded,
    ObjectError,
    Policy,
    RuleSet,
    Snapshot,
    Workloads,
    compile_policy,
    decide,
)
from rules.decision.needs import Needs
from rules.kube.names import namespace_labels
from rules.model.rule import FactRelease, reads_namespaces
from rules.model.workload_kinds import built_in_workloads
from rules.schema.config_map import Source
from rules.schema.workload_kinds import read_workloads
from rules.text.i18n import Line, Lines, Message, located
from rules.text.yaml_document import SourceError
from webhook.cli.inputs.cluster_source import NO_CLUSTER, ClusterSource
from webhook.cli.inputs.files import BAD_INPUT, BUILT_IN, catalog_path, is_built_in, read_path, rule_folder
from webhook.cli.inputs.nodes import read_nodes
from webhook.cli.inputs.not_checked import completed
from webhook.cli.inputs.objects import NO_OBJECTS, InputError, Subject, objects_in, subject_of
from webhook.cli.inputs.options import option_group
from webhook.cli.inputs.quotas import Quotas
from webhook.cli.terminal.console import (
    BadInputError,
    ForbiddenError,
    print_error,
    print_note,
    print_warning,
)
from webhook.cli.terminal.vocabulary import (
    BUILT_IN_INSTEAD,
    EARLIER_NOT_COMPARED,
    LAST_VALID_KEPT,
    LAST_VALID_USED,
    NO_CLUSTER_RULES,
    OTHER_RULES,
    RULES_ELSEWHERE,
    WITHOUT_BUILT_IN,
    WITHOUT_CLUSTER_NODES,
    WITHOUT_CLUSTER_RULES,
)

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

NO_RULES: Final = Message("no rules found; a rule is a ConfigMap named cf-crl-* or labelled gpugate.dev/type")
_DENIED: Final = 1
_WARNED: Final = 3


@dataclass(eq=False)
class Session:
    """The inputs that the options of a command select. Each input is read when it is first used, and once.

    An option that the command does not declare has its default. Reading raises BadInputError; ForbiddenError
    if the user has no right to read.

    Attributes:
        facts_path: value of `--facts`: the bundle or folder that replaces all other facts.
        rules_readable: whether the user has the right to read the rules in force.
        nodes_readable: whether the user has the right to read the nodes.
        namespaces_forbidden: why `namespaces` has none of the cluster, after it was read.
        failed: whether a rule or an object has an error; the exit status is 2 then.
        is_earlier: whether its objects are those before a change; see `earlier`.
        notes: what could not be read, and so is not checked.
    """

    rule_paths: tuple[str, ...] = ()
    node_paths: tuple[str, ...] = ()
    workload_paths: tuple[str, ...] = ()
    rules_namespace: str = DEFAULT_NAMESPACE
    cluster: ClusterSource = NO_CLUSTER
    lang: str = Language.EN.value
    facts_path: str | None = None
    rules_readable: bool = field(default=True, init=False)
    nodes_readable: bool = field(default=True, init=False)
    namespaces_forbidden: ForbiddenError | None = field(default=None, init=False)
    failed: bool = field(default=False, init=False)
    notes: list[str] = field(default_factory=list, init=False)
    is_earlier: bool = field(default=False, init=False)
    _namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict, init=False)

    def use_current_cluster(self, otherwise: str) -> None:
        """Read from the cluster of the current context if none is selected; otherwise: see ClusterSource."""
        self.cluster = self.cluster.or_current(otherwise)

    @cached_property
    def language(self) -> Language:
        """Language of messages."""
        return Language(self.lang)

    @cached_property
    def rules(self) -> RuleSet:
        """The rules that objects are evaluated with: of options, cluster or built-in; prints their errors."""
        loaded = self._rules_in_force()
        for error in loaded.errors:
            self.add_error(error.located)
        return self.with_facts(loaded.rules)

    @cached_property
    def workloads(self) -> Workloads:
        """The built-in workload kinds and those in files. Raises BadInputError with all errors in them."""
        kinds, errors = read_workloads(pair for path in self.workload_paths for pair in read_path(path))
        if errors:
            raise BadInputError(Lines("\n", [Line("{error}", error=error.located) for error in errors]))
        return built_in_workloads() | kinds

    @cached_property
    def policy(self) -> Policy:
        """The rules, compiled with the workload kinds."""
        return compile_policy(self.rules, self.language, self.workloads)

    @cached_property
    def node_objects(self) -> list[Any]:
        """The objects of the inventory: from files, else from the cluster, else none."""
        return self._nodes[1]

    @cached_property
    def inventory(self) -> Inventory:
        """The nodes and declared pools in `node_objects`; `add_objects` adds claims."""
        return self._nodes[0]

    @property
    def nodes_given(self) -> bool:
        """Whether the nodes are known, from files or from a cluster whose nodes are readable."""
        return self.nodes_readable and (bool(self.node_paths) or self.cluster.selected)

    @cached_property
    def quotas(self) -> Quotas:
        """The quotas of the cluster; `add_objects` adds others."""
        return Quotas(self.cluster, self.language)

    @property
    def snapshot(self) -> Snapshot:
        """The rules and nodes that decisions depend on."""
        namespaces = self.namespaces if reads_namespaces(self.policy.rules) else self._namespaces
        return Snapshot(self.policy, self.inventory.with_facts(self.policy.facts), namespaces=namespaces)

    @property
    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of namespaces, by name: of the cluster, if the user may list them, and of files."""
        return {**self._cluster_namespaces, **self._namespaces}

    @cached_property
    def _cluster_namespaces(self) -> Mapping[str, Mapping[str, str]]:
        if not self.cluster.selected:
            return {}
        try:
            return namespace_labels(self.cluster.query(lambda api: api.namespaces()))
        except ForbiddenError as error:
            self.namespaces_forbidden = error
            return {}

    # Each of these reads all, so that errors in rules come before those in nodes, and these before others.

    def load(self) -> None:
        """Read rules, nodes and workload kinds, and warn of those that the user has no right to read."""
        self.load_readable()
        for note in self.notes:
            print_warning(note, self.language)

    def load_readable(self) -> None:
        """Read rules, nodes and workload kinds; add a note for those that the user has no right to read.

        The built-in rules replace rules that are not readable; the inventory is empty if nodes are not
        readable.
        """
        try:
            self._load_rules()
        except ForbiddenError as error:
            self.notes.append(WITHOUT_CLUSTER_RULES.having(why=error).in_language(self.language))
            self.rules, self.rules_readable = self.with_facts(self.read_rules([BUILT_IN]).rules), False
        try:
            _ = self.inventory
        except ForbiddenError as error:
            self.notes.append(WITHOUT_CLUSTER_NODES.having(why=error).in_language(self.language))
            self.inventory, self.nodes_readable = Inventory().with_facts(self.facts), False
        _ = self.policy

    def load_all(self) -> None:
        """Read rules, nodes and workload kinds, all of which must be readable."""
        self._load_rules()
        _ = self.snapshot

    def _load_rules(self) -> None:
        """Read the rules, and print which rules they replace: of the cluster, or the built-in ones."""
        _ = self.rules
        if not self.rule_paths or (not self.cluster.selected and any(map(is_built_in, self.rule_paths))):
            return
        text = OTHER_RULES if self.cluster.selected else WITHOUT_BUILT_IN
        paths = ", ".join("stdin" if path == "-" else path for path in self.rule_paths)
        print_note(text.having(paths=paths))

    # Rules

    def read_rules(self, paths: Iterable[str]) -> Loaded:
        """Return the rules in files and folders; without paths, those of the cluster or the built-in ones.

        Raises BadInputError if a path cannot be read or the paths contain no rule.
        """
        chosen = list(paths)
        if (built_in := self._built_in(chosen)) is not None:
            return Loaded(built_in)
        loaded = self._load(self.sources(chosen))
        if chosen and not loaded.errors and not any(loaded.rules):
            raise BadInputError(located(", ".join(chosen), NO_RULES))
        return loaded

    def _built_in(self, chosen: Sequence[str]) -> RuleSet | None:
        """Return the built-in rules from their stored form, if they alone are chosen and it is up to date."""
        if not (chosen or not self.cluster.selected) or not all(map(is_built_in, chosen)):
            return None
        from rules.schema.built_in import built_in_rules

        folder = str(catalog_path())
        return built_in_rules(read_path(folder), folder)

    def _load(self, sources: Iterable[Source]) -> Loaded:
        from rules import load_rules  # imported here: the built-in rules alone do not need it

        return load_rules(sources, self.rules_namespace)

    def sources(self, paths: Iterable[str]) -> Iterable[Source]:
        """Return the files or objects that `read_rules` reads. Iteration raises BadInputError."""
        chosen = list(paths)
        if not chosen and self.cluster.selected:
            return self.cluster.query(lambda cluster: cluster.rules(self.rules_namespace))
        folders, built_in = dict.fromkeys(map(rule_folder, chosen or [BUILT_IN])), str(catalog_path())
        # Built-in rules are in the namespace of the others, as a kustomization sets it.
        old, new = (f"  namespace: {name}\n" for name in (DEFAULT_NAMESPACE, self.rules_namespace))
        return (
            (name, text.replace(old, new) if path == built_in else text)
            for path in folders
            for name, text in read_path(path, lenient=True)
        )

    @cached_property
    def _selected(self) -> Loaded:
        """The rules that options select, or those of the cluster."""
        return self.read_rules(self.rule_paths)

    def _rules_in_force(self) -> Loaded:
        """Return the selected rules; for a cluster without rules that decide, also the built-in rules."""
        loaded = self._selected
        if self.rule_paths or not self.cluster.selected:
            return loaded
        if loaded.errors:
            return self._with_last_valid(loaded)
        if loaded.rules.resources or loaded.rules.injections or loaded.rules.compatibility:
            return loaded
        print_warning(BUILT_IN_INSTEAD.having(why=self.no_rules()))
        return self._load([*self.sources([]), *self.sources([BUILT_IN])])

    def _with_last_valid(self, loaded: Loaded) -> Loaded:
        """Return the rules; a rule with an error is in its last valid version, which the webhook keeps."""
        sources = dict(self.sources([]))
        invalid = {error.location.file for error in loaded.errors} & sources.keys()
        try:
            saved = self.cluster.query(lambda cluster: cluster.rules_in_force())
        except BadInputError:  # the rules were read, so this is no reason to fail
            saved = {}
        last_valid = {name: saved[rule] for name in invalid if (rule := name.rpartition("/")[2]) in saved}
        for words, names in (
            (LAST_VALID_USED, last_valid.keys()),
            (LAST_VALID_KEPT, invalid - last_valid.keys()),
        ):
            if names:
                rules = ", ".join(sorted(name.rpartition("/")[2] for name in names))
                print_warning(words.having(rules=rules))
        return replace(loaded, rules=self._load((sources | last_valid).items()).rules)

    def no_rules(self) -> Message:
        """Return the message that the namespace has no rules, with the namespaces that have rules."""
        try:
            namespaces = self.cluster.query(lambda cluster: cluster.rule_namespaces())
        except BadInputError:  # the rules were read, so this is no reason to fail
            namespaces = []
        others = ", ".join(name for name in namespaces if name != self.rules_namespace)
        elsewhere = RULES_ELSEWHERE.having(namespaces=others) if others else ""
        none = NO_CLUSTER_RULES.having(namespace=self.rules_namespace)
        return Message("{none}{elsewhere}", none=none, elsewhere=elsewhere)

    # Facts

    @cached_property
    def facts(self) -> Facts:
        """The facts of `--facts`, else of valid rules that are selected, else the built-in ones."""
        from rules.cuda.tables import BUILT_IN as BUILT_IN_FACTS

        if self.release:
            return self.release.facts
        selected = None
        if self.rule_paths or self.cluster.selected:
            with suppress(ForbiddenError):
                selected = self._selected.rules.facts
        return selected or BUILT_IN_FACTS

    def with_facts(self, rules: RuleSet) -> RuleSet:
        """Return rules with the facts of `--facts` instead of others. Raises BadInputError."""
        return replace(rules, releases=(self.release,)) if self.release else rules

    @cached_property
    def release(self) -> FactRelease | None:
        """The release of facts in `--facts`."""
        if self.facts_path is None:
            return None
        from webhook.cli.inputs.facts import read_facts, release_of

        return release_of(read_facts(self.facts_path), self.facts_path)

    # Nodes

    @cached_property
    def _nodes(self) -> tuple[Inventory, list[Any]]:
        """The inventory, and the objects that it is made of."""
        return read_nodes(self.node_paths, self.cluster, self.facts)

    def present_nodes(self) -> Inventory:
        """Return the nodes and declared pools, by default of the current context.

        Raises BadInputError if there are none.
        """
        if not self.nodes_given:
            self.use_current_cluster("--nodes FILE")
        if not (len(self.inventory) or self.inventory.node_pools.pools):
            where = ", ".join(self.node_paths) or Message("this cluster")
            raise BadInputError(Message("{where}: no nodes", where=where))
        return self.inventory

    @cached_property
    def label_rules(self) -> RuleSet:
        """The rules that may define labels of nodes; empty without options, as built-in rules define none."""
        is_selected = self.rule_paths or self.cluster.selected
        return self.rules if is_selected else self.with_facts(RuleSet())

    # Decisions

    def decide(self, request: AdmissionRequest) -> Decision:
        """Return the decision of admission, now."""
        return self.complete(decide(self.snapshot, request, time()), request)

    def decide_with_needs(self, request: AdmissionRequest) -> Decision:
        """Return the decision of admission, now; without nodes it notes what containers need of them."""
        if not self.inventory.is_empty:
            return self.decide(request)
        needs = Needs(self.policy.facts)
        decision = decide(self.snapshot, request, time(), needs)
        return self.complete(decision._replace(notes=(*decision.notes, *needs.notes)), request)

    def complete(self, decision: Decision, request: AdmissionRequest) -> Decision:
        """Return a decision whose `not_checked` has what admission does not look for. Raises ObjectError."""
        return completed(decision, request, self.policy, nodes_given=self.nodes_given)

    def earlier(self) -> Session:
        """Return a session with the same rules and nodes, for objects as they were before a change.

        Neither knows the claims, quotas and namespaces of the other. What is wrong with the earlier objects
        is no error, because the present ones may be right: it is kept in the notes.
        """
        earlier = dataclasses.replace(self)
        earlier.policy, earlier.inventory = self.policy, self.inventory
        earlier.nodes_readable, earlier.is_earlier = self.nodes_readable, True
        return earlier

    def add_note(self, message: str | Message) -> None:
        """Print a note on stderr, and keep it for reports: an input that is not read, and so not checked."""
        print_note(message, self.language)
        self.notes.append(message if isinstance(message, str) else message.in_language(self.language))

    def add_error(self, message: Message) -> None:
        """Print an error on stderr; the exit status is 2 then."""
        if self.is_earlier:
            self.add_note(EARLIER_NOT_COMPARED.having(why=message))
            return
        print_error(message)
        self.failed = True

    def add_objects(self, documents: Sequence[Any], namespace: str) -> None:
        """Use claims, quotas and namespaces among objects as existing. namespace: of objects without one."""
        self._namespaces |= namespace_labels(documents)
        self.quotas.add(documents, namespace)
        self.inventory = self.inventory.with_dra(self.inventory.dra.with_claims_in(documents, namespace))

    def results(
        self, filenames: Iterable[str], namespace: str, decide: Callable[[AdmissionRequest], T]
    ) -> Iterator[tuple[Subject, T]]:
        """Yield each object in files with the result of `decide`; print an error for each invalid object.

        Claims and quotas in the files count as created. namespace: of objects that do not set one. Raises
        BadInputError if a file cannot be read.
        """
        files = [(path, [*objects_in(path)]) for path in filenames]
        entries = [entry for _, objects in files for entry in objects if not isinstance(entry, SourceError)]
        self.add_objects([value for _, value in entries], namespace)
        for path, objects in files:
            for entry in objects:
                if isinstance(entry, SourceError):
                    self.add_error(entry.text)
                    continue
                source, value = entry
                try:
                    subject = self._with_defaults(subject_of(source, value, namespace, self.policy.workloads))
                    result = decide(subject.request)
                except InputError as error:
                    self.add_error(error.text)
                except ObjectError as error:
                    self.add_error(located(source, error.text))
                else:
                    yield subject, result
            if not objects:
                self.add_error(located(path, NO_OBJECTS))

    def _with_defaults(self, subject: Subject) -> Subject:
        """Return a subject as webhooks see it; add a note on the defaults of a LimitRange."""
        request, note = self.quotas.with_defaults(subject.request)
        if note and not self.is_earlier:
            self.add_note(f"{subject.source}: {note}")
        return subject._replace(request=request)

    def exit_status(self, decisions: Iterable[Decision], fail_on: str = "deny") -> int:
        """Return the exit status of a command with these decisions; see webhook.cli."""
        all_decisions = list(decisions)
        if self.failed:
            return BAD_INPUT
        if any(not decision.allowed for decision in all_decisions):
            return _DENIED
        fails = fail_on != "deny" and any(
            decision.warning_lines or (fail_on == "unchecked" and decision.not_checked)
            for decision in all_decisions
        )
        return _WARNED if fails else 0


def with_session(command: F) -> F:
    """Give a command the values of the options above as `session`.

    The exit status is 2 if the command sets none and the session has failed.
    """

    @wraps(command)
    def wrapper(session: Session, **others: Any) -> None:
        command(session=session, **others)
        if session.failed:
            sys.exit(BAD_INPUT)

    return option_group("session", Session)(wrapper)  # type: ignore[return-value]  # with other arguments
