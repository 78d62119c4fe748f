"""Builders for tests of decisions: rule files as text, pods, requests, and the API server's defaults."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from typing import Any

import jsonpatch
import yaml

from rules.decision.pipeline import Snapshot, decide
from rules.decision.policy import Policy, compile_policy
from rules.model.decision import AdmissionRequest, Decision
from rules.nodes.inventory import Inventory
from rules.schema.config_map import Loaded
from rules.schema.loader import load_rules
from rules.text.i18n import Language
from rules.text.paths import Path

DEVICE = "vendor.com/device"
LEGACY = "features.alauda.io/"
NEWER = "features.cpaas.io/"
NO_NODES = Inventory()


def config_map(name: str, labels: dict[str, str], data: dict[str, str]) -> str:
    """Return the YAML text of a ConfigMap in the rules' namespace."""
    metadata = {"name": name, "namespace": "kube-public", "labels": labels}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def resource_rule(
    key: str = DEVICE,
    *,
    name: str = "",
    group: str = "group",
    enabled: bool = True,
    prefix: str = NEWER,
    validations: list[dict[str, str]] | None = None,
    **data: str,
) -> str:
    """Return a `cf-crl-*` ConfigMap; defaults: integer, limits optional, requests disabled."""
    labels = {"type": "CustomResourceLimitation", "group": group, "enabled": json.dumps(enabled)}
    data = {"key": key, "dataType": "integer", "limits": "optional", "requests": "disabled"} | data
    if validations is not None:
        data["validations"] = yaml.safe_dump(validations, allow_unicode=True)
    suffix = key.partition("/")[2].strip("*-") or "all"
    prefixed_labels = {prefix + label: value for label, value in labels.items()}
    return config_map(name or f"cf-crl-{group}-{suffix}", prefixed_labels, data)


def injection_rule(
    inject: dict[str, Any],
    *,
    name: str = "injection",
    match: dict[str, Any] | None = None,
    enabled: bool = True,
    **rule: Any,
) -> str:
    """Return an InjectionRule's ConfigMap, for containers that request DEVICE; match, rule: further keys."""
    document = {"match": {"resources": [DEVICE]} | (match or {}), "inject": inject} | rule
    labels = {"gpugate.dev/type": "InjectionRule", "gpugate.dev/enabled": json.dumps(enabled)}
    return config_map(name, labels, {"rule.yaml": yaml.safe_dump(document, allow_unicode=True)})


def exemption(
    *rules: str, name: str = "exemption", expires: str = "2026-12-31", enabled: bool = True, **rest: Any
) -> str:
    """Return an Exemption's ConfigMap, from rules by name or glob; rest: further keys."""
    document = {"reason": "a trial", "expires": expires, "rules": list(rules)} | rest
    labels = {"gpugate.dev/type": "Exemption", "gpugate.dev/enabled": json.dumps(enabled)}
    return config_map(name, labels, {"rule.yaml": yaml.safe_dump(document, allow_unicode=True)})


def loaded(*texts: str) -> Loaded:
    """Return the result of loading rule texts, each as a separate file."""
    return load_rules((f"{number}.yaml", text) for number, text in enumerate(texts))


def policy(*texts: str, language: Language = Language.EN) -> Policy:
    """Return the policy of rule texts, which must be valid."""
    read = loaded(*texts)
    assert [] == [str(error) for error in read.errors]
    return compile_policy(read.rules, language)


def container(
    limits: dict[str, Any] | None = None, requests: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    """Return a container `main`; fields: additional or replaced fields."""
    resources = {"limits": limits, "requests": requests}
    present = {name: quantities for name, quantities in resources.items() if quantities is not None}
    base: dict[str, Any] = {"name": "main", "image": "registry.example.com/team/train:1"}
    return base | ({"resources": present} if present else {}) | fields


def pod(*containers: dict[str, Any], metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a Pod of these containers, or of one that requests one DEVICE."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "namespace": "team"} | (metadata or {}),
        "spec": {"containers": list(containers) or [container({DEVICE: "1"})]} | spec,
    }


def nested(path: Path, value: Any) -> Any:
    """Return the smallest document with a value at a path; a number in the path is a list index."""
    for step in reversed(path):
        value = [{}] * step + [value] if isinstance(step, int) else {step: value}
    return value


def request(document: Any, **fields: Any) -> AdmissionRequest:
    """Return the request to create an object; fields: further fields."""
    group, _, _ = document["apiVersion"].rpartition("/")
    base: dict[str, Any] = {
        "operation": "CREATE",
        "group": group,
        "kind": document["kind"],
        "namespace": "team",
        "object": document,
    }
    return AdmissionRequest(**base | fields)


def decision(policy: Policy, document: Any, now: float = math.inf, **fields: Any) -> Decision:
    """Return the decision on the creation of an object, in a cluster without nodes."""
    return decide(Snapshot(policy, NO_NODES), request(document, **fields), now)


def patched(document: Any, decision: Decision) -> Any:
    """Return the object after a decision's patch."""
    return jsonpatch.apply_patch(document, list(decision.patch))


def admitted(policy: Policy, document: Any, **fields: Any) -> Any:
    """Return an object as it is stored; the policy must allow it."""
    answer = decision(policy, document, **fields)
    assert answer.denial.en == ""
    return patched(document, answer)


def warning_texts(decision: Decision) -> tuple[str, ...]:
    """Return the warnings of a decision in English."""
    return tuple([line.en for line in decision.warning_lines])


def refused_at(decision: Decision) -> list[str]:
    """Return the paths of a decision's violations."""
    return [violation.path for violation in decision.violations]


def defaulted(document: Any) -> Any:
    """Return a pod with the API server's defaults: absent requests are copied from limits.

    Source: SetDefaults_Pod in pkg/apis/core/v1/defaults.go of https://github.com/kubernetes/kubernetes
    """
    result = deepcopy(document)
    for field in ("containers", "initContainers"):
        for one_container in result["spec"].get(field, []):
            resources = one_container.get("resources", {})
            if resources.get("limits"):
                requests = resources.get("requests") or {}
                resources["requests"] = {**resources["limits"], **requests}
    return result
