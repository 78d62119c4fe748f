"""The rules and nodes that the page can choose from, and the question that it asks about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

import msgspec

from rules import (
    Inventory,
    InventoryError,
    Language,
    Policy,
    RuleSet,
    Workloads,
    compile_policy,
    inventory_of,
)
from rules.nodes.label_families import LabelNames
from rules.text.yaml_document import Document, Location, SourceError, read
from webhook.cli.inputs.cluster_source import NO_CLUSTER, ClusterSource
from webhook.cli.inputs.quotas import Quotas

BUILT_IN: Final = "builtin"
GIVEN: Final = "given"
# Names of the texts in errors.
POD_TEXT: Final = "pod"
NODE_TEXT: Final = "nodes"
# Texts with nodes of which the inventory is kept: the one that is shown, and a few to return to.
_KEPT_INVENTORIES: Final = 4


class Question(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What the page asks: about which text, with which rules and nodes.

    rules, nodes: the choices of a Page; the nodes `text` are those in node_text.
    """

    pod: str = ""
    rules: Literal["builtin", "given"] = "builtin"
    nodes: Literal["text", "given", "none"] = "none"
    node_text: str = msgspec.field(default="", name="nodeText")
    namespace: str = "default"
    language: Literal["en", "zh"] = "en"
    sharing: Literal["physical", "virtual"] = "physical"

    @property
    def lang(self) -> Language:
        """The language of messages."""
        return Language(self.language)


@dataclass(frozen=True, slots=True)
class Rules:
    """A choice of rules. names: of the files or the cluster. paths: for a rule test; none of a cluster."""

    names: str
    rules: RuleSet
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes that the command gives. names: of the files or the cluster.

    text: the files; None if they are of a cluster, or too long to share.
    """

    names: str
    inventory: Inventory
    text: str | None = None


@dataclass(slots=True)
class Page:
    """What the command gives to the page.

    rules: by choice. workloads: the kinds that contain pods. nodes: of the options, if any. pod, node_text:
    the texts to begin with. cluster: for quotas.
    """

    rules: dict[str, Rules]
    workloads: Workloads
    nodes: Nodes | None = None
    pod: str = ""
    node_text: str = ""
    namespace: str = "default"
    language: Language = Language.EN
    cluster: ClusterSource = NO_CLUSTER
    _policies: dict[tuple[str, Language], Policy] = field(default_factory=dict)
    _quotas: dict[Language, Quotas] = field(default_factory=dict)

    def rules_of(self, question: Question) -> Rules:
        """Return the chosen rules; the only ones if there is no such choice."""
        return self.rules.get(question.rules) or next(iter(self.rules.values()))

    def policy(self, question: Question) -> Policy:
        """Return the policy of the chosen rules in the language of the question."""
        key = (question.rules, question.lang)
        if key not in self._policies:
            rules = self.rules_of(question).rules
            self._policies[key] = compile_policy(rules, question.lang, self.workloads)
        return self._policies[key]

    def inventory(self, question: Question) -> Inventory:
        """Return the chosen nodes. Raises SourceError if they are a text that has none."""
        if question.nodes == GIVEN and self.nodes:
            return self.nodes.inventory
        return inventory_in(question.node_text) if question.nodes == "text" else Inventory()

    def has_nodes(self, question: Question) -> bool:
        """Return whether nodes are chosen, even if there are none."""
        return question.nodes != "none" and bool(question.nodes != GIVEN or self.nodes)

    def cluster_quotas(self, language: Language) -> Quotas:
        """Return the quotas of the cluster; each namespace is read once."""
        if language not in self._quotas:
            self._quotas[language] = Quotas(self.cluster, language)
        return self._quotas[language]


@lru_cache(maxsize=_KEPT_INVENTORIES)
def inventory_in(text: str) -> Inventory:
    """Return the nodes and declared pools in a text. Raises SourceError, also for a text without them."""
    documents = documents_in(text, NODE_TEXT)
    if not documents:
        raise SourceError(Location(NODE_TEXT, 1, 1), "contains no nodes")
    for document in documents:
        try:
            inventory_of(document.value)
        except InventoryError as error:
            raise SourceError(document.locate(), str(error)) from None
    return inventory_of([document.value for document in documents])


def documents_in(text: str, name: str) -> list[Document]:
    """Return the documents of a text that are not empty. Raises SourceError."""
    found = []
    for document in read(text, name):
        if isinstance(document, SourceError):
            raise document
        if document.value is not None:
            found.append(document)
    return found


def label_names(rules: Iterable[object]) -> LabelNames:
    """Return the label names of the first enabled compatibility rule, or the default ones."""
    compatibility = rules.compatibility if isinstance(rules, RuleSet) else ()
    return next((rule.sharing.labels for rule in compatibility if rule.enabled), LabelNames())
