"""The decision of gpugate: rule files, compiled policies, node inventories and the decision on a request.

Code outside this package imports from here. Pure: no Flask, no Kubernetes client, no sockets, no clock.
"""

from rules.decision.pipeline import decide
from rules.decision.policy import Policy, compile_policy
from rules.dra.state import Claims
from rules.kube.json_patch import ObjectError
from rules.lint.rule_set_checks import lint
from rules.model.decision import Decision, Violation
from rules.model.request import AdmissionRequest
from rules.model.rule import Action, RuleSet
from rules.model.workload_kinds import Workloads
from rules.nodes.inventory import Inventory
from rules.nodes.inventory_document import InventoryError
from rules.report.explain import explain
from rules.schema.errors import RuleError
from rules.schema.loader import DEFAULT_NAMESPACE, Loaded, load_rules
from rules.text.i18n import Language

__all__ = [
    "DEFAULT_NAMESPACE",
    "Action",
    "AdmissionRequest",
    "Claims",
    "Decision",
    "Inventory",
    "InventoryError",
    "Language",
    "Loaded",
    "ObjectError",
    "Policy",
    "RuleError",
    "RuleSet",
    "Violation",
    "Workloads",
    "compile_policy",
    "decide",
    "explain",
    "lint",
    "load_rules",
]
