"""What the commands that judge objects have in common: what they judge by, and how they end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, NamedTuple, TypeVar

from rules import (
    AdmissionRequest,
    Decision,
    Inventory,
    Language,
    ObjectError,
    Policy,
    RuleSet,
    compile_policy,
)
from webhook.cli.input.files import BAD_INPUT, RuleSource, load_inventory, load_workloads
from webhook.cli.input.objects import InputError, objects_in, request_of
from webhook.cli.input.options import (
    cluster_options,
    language_option,
    namespace_option,
    nodes_option,
    rules_option,
)
from webhook.cli.output.console import complain

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_DENIED: Final = 1
_WARNED: Final = 3


class Subject(NamedTuple):
    """An object to judge. source: file and line. name: may be a generateName with `*`."""

    source: str
    request: AdmissionRequest
    name: str


@dataclass(slots=True)
class DecisionContext:
    """Rules, kinds and nodes to judge by. failed: whether something is wrong with a rule or an object."""

    rules: RuleSet
    policy: Policy
    inventory: Inventory
    failed: bool = False

    def complain(self, message: str) -> None:
        """Print an error on stderr, which makes the exit status 2."""
        complain(message)
        self.failed = True

    def judged(
        self, filenames: Iterable[str], namespace: str, decide: Callable[[AdmissionRequest], T]
    ) -> Iterator[tuple[Subject, T]]:
        """Yield each object in files and what is decided of it; complain of what cannot be judged.

        namespace: of objects that name none. Raises BadInputError for what cannot be read.
        """
        for path in filenames:
            empty = True
            for source, value in objects_in(path):
                empty = False
                try:
                    request, name = request_of(source, value, namespace)
                    self._check_kind(source, request)
                    decided = decide(request)
                except InputError as error:
                    self.complain(str(error))
                except ObjectError as error:
                    self.complain(f"{source}: {error}")
                else:
                    yield Subject(source, request, name), decided
            if empty:
                self.complain(f"{path}: no objects in it")

    def _check_kind(self, source: str, request: AdmissionRequest) -> None:
        """Raise InputError for a kind that is one that holds pods but for its capitals."""
        known = {kind.lower(): kind for group, kind in self.policy.workloads.paths if group == request.group}
        meant = known.get(request.kind.lower(), request.kind)
        if meant != request.kind:
            raise InputError(f"{source}: kind: there is no kind {request.kind!r} – did you mean {meant!r}?")

    def exit_status(self, decisions: Iterable[Decision], fail_on: str = "deny") -> int:
        """Return the exit status of a command that came to these decisions; see webhook.cli."""
        found = list(decisions)
        if self.failed:
            return BAD_INPUT
        if any(not decision.allowed for decision in found):
            return _DENIED
        return _WARNED if fail_on == "warn" and any(decision.warnings for decision in found) else 0


@dataclass(frozen=True, slots=True)
class Sources:
    """What the options say a command judges by; see their help."""

    rules: RuleSource
    rule_paths: tuple[str, ...]
    node_paths: tuple[str, ...]
    workload_paths: tuple[str, ...]
    language: Language

    def judge(self) -> DecisionContext:
        """Return the judge by what they name, and complain of rules with mistakes. Raises BadInputError."""
        loaded = self.rules.load(self.rule_paths)
        for error in loaded.errors:
            complain(str(error))
        inventory = load_inventory(self.node_paths, self.rules.kubeconfig, self.rules.context)
        policy = compile_policy(loaded.rules, self.language, load_workloads(self.workload_paths))
        return DecisionContext(loaded.rules, policy, inventory, failed=bool(loaded.errors))


def judge_options(command: F) -> F:
    """Give a command the options for what it judges by; it gets them, and --workloads, as `sources`."""

    @wraps(command)
    def chosen(
        rule_paths: tuple[str, ...],
        node_paths: tuple[str, ...],
        kubeconfig: str | None,
        context: str | None,
        rules_namespace: str,
        lang: str,
        workload_paths: tuple[str, ...] = (),
        **others: Any,
    ) -> Any:
        rules = RuleSource(rules_namespace, kubeconfig, context)
        sources = Sources(rules, rule_paths, node_paths, workload_paths, Language(lang))
        return command(sources=sources, **others)

    for option in (language_option, namespace_option, cluster_options, nodes_option, rules_option):
        chosen = option(chosen)
    return chosen  # type: ignore[return-value]  # the command, with other arguments
