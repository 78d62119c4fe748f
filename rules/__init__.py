"""The decision of gpugate: rule files, compiled policies, node inventories and the decision on a request.

Code outside this package imports from here. Pure: no Flask, no Kubernetes client, no sockets, no clock.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rules.cuda.tables import Facts as Facts
    from rules.decision.exemptions import capped as capped
    from rules.decision.pipeline import NamespaceLabels as NamespaceLabels
    from rules.decision.pipeline import Snapshot as Snapshot
    from rules.decision.pipeline import decide as decide
    from rules.decision.policy import Policy as Policy
    from rules.decision.policy import compile_policy as compile_policy
    from rules.decision.trace import explain as explain
    from rules.kube.json_patch import ObjectError as ObjectError
    from rules.model.decision import AdmissionRequest as AdmissionRequest
    from rules.model.decision import Decision as Decision
    from rules.model.finding import Finding as Finding
    from rules.model.rule import Action as Action
    from rules.model.rule import RuleSet as RuleSet
    from rules.model.workload_kinds import Workloads as Workloads
    from rules.nodes.devices.state import Claims as Claims
    from rules.nodes.inventory import Inventory as Inventory
    from rules.nodes.inventory_document import inventory_of as inventory_of
    from rules.nodes.node_row import InventoryError as InventoryError
    from rules.schema.config_map import DEFAULT_NAMESPACE as DEFAULT_NAMESPACE
    from rules.schema.config_map import Loaded as Loaded
    from rules.schema.errors import RuleError as RuleError
    from rules.schema.loader import load_rules as load_rules
    from rules.text.i18n import Language as Language

# The module of each name, which is imported when the name is used: a part of `rules` does not load all of it.
_MODULES: Final = {
    "Action": "model.rule",
    "AdmissionRequest": "model.decision",
    "Claims": "nodes.devices.state",
    "DEFAULT_NAMESPACE": "schema.config_map",
    "Decision": "model.decision",
    "Facts": "cuda.tables",
    "Finding": "model.finding",
    "Inventory": "nodes.inventory",
    "InventoryError": "nodes.node_row",
    "inventory_of": "nodes.inventory_document",
    "Language": "text.i18n",
    "Loaded": "schema.config_map",
    "NamespaceLabels": "decision.pipeline",
    "ObjectError": "kube.json_patch",
    "Policy": "decision.policy",
    "RuleError": "schema.errors",
    "RuleSet": "model.rule",
    "Snapshot": "decision.pipeline",
    "Workloads": "model.workload_kinds",
    "capped": "decision.exemptions",
    "compile_policy": "decision.policy",
    "decide": "decision.pipeline",
    "explain": "decision.trace",
    "load_rules": "schema.loader",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"rules.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
