"""The rules and nodes that the page offers, and the question that it sends."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

import msgspec
from msgspec import Struct, field

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
from rules.text.i18n import Message
from rules.text.yaml_document import Document, Location, SourceError, read
from webhook.cli.inputs.cluster_source import NO_CLUSTER, ClusterSource
from webhook.cli.inputs.quotas import Quotas

BUILT_IN: Final = "builtin"
GIVEN: Final = "given"
# Names of the texts in errors.
POD_TEXT: Final = "pod"
NODE_TEXT: Final = "nodes"
# Texts whose inventory is kept: the one that is shown, and a few to return to.
_KEPT_INVENTORIES: Final = 4


class Question(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A request of the page: to evaluate a text with rules and nodes.

    Attributes:
        pod: the objects to evaluate, as YAML.
        rules: a choice of Page.rules.
        nodes: `given`: those of Page.nodes; `text`: those in node_text.
    """

    pod: str = ""
    rules: Literal["builtin", "given"] = "builtin"
    nodes: Literal["text", "given", "none"] = "none"
    node_text: str = msgspec.field(default="", name="nodeText")
    namespace: str = "default"
    language: Language = Language.EN
    sharing: Literal["physical", "virtual"] = "physical"


class Rules(Struct, frozen=True):
    """A choice of rules."""

    names: str  # of the files or the cluster
    rules: RuleSet
    paths: tuple[str, ...] = ()  # for a rule test; empty for rules of a cluster


class Nodes(Struct, frozen=True):
    """The nodes that options select."""

    names: str  # of the files or the cluster
    inventory: Inventory
    text: str | None = None  # of the files; None for a cluster, or if the text is too long to share


class Page(Struct):
    """The inputs of the page, from the options of the command."""

    rules: dict[str, Rules]  # by choice
    workloads: Workloads  # the kinds that contain pods
    nodes: Nodes | None = None  # of the options, if any
    pod: str = ""  # the text to begin with
    node_text: str = ""  # the text to begin with
    namespace: str = "default"
    language: Language = Language.EN
    cluster: ClusterSource = NO_CLUSTER  # for quotas
    _policies: dict[tuple[str, Language], Policy] = field(default_factory=dict)
    _quotas: dict[Language, Quotas] = field(default_factory=dict)

    def rules_of(self, question: Question) -> Rules:
        """Return the chosen rules; the only ones if there is no such choice."""
        return self.rules.get(question.rules) or next(iter(self.rules.values()))

    def policy(self, question: Question) -> Policy:
        """Return the policy of the chosen rules in the language of the question."""
        key = (question.rules, question.language)
        if key not in self._policies:
            rules = self.rules_of(question).rules
            self._policies[key] = compile_policy(rules, question.language, self.workloads)
        return self._policies[key]

    def inventory(self, question: Question) -> Inventory:
        """Return the chosen nodes. Raises SourceError for a text without nodes."""
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
        raise SourceError(Location(NODE_TEXT, 1, 1), Message("contains no nodes"))
    for document in documents:
        try:
            inventory_of(document.value)
        except InventoryError as error:
            raise SourceError(document.locate(), error.text) from None
    return inventory_of([document.value for document in documents])


def documents_in(text: str, name: str) -> list[Document]:
    """Return the documents of a text that are not empty. Raises SourceError."""
    documents = []
    for document in read(text, name):
        if isinstance(document, SourceError):
            raise document
        if document.value is not None:
            documents.append(document)
    return documents
