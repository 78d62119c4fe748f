"""Builder of a container of a pod for checks that need no node."""

from __future__ import annotations

from typing import Any

from rules.compatibility.checks.base import Check
from rules.cuda.image_catalog import built_in_catalog
from rules.cuda.requirements import container_facts, requirements_of
from rules.kube.pod import Pod
from rules.model.check_result import CheckResult
from rules.model.sharing import SharingPolicy


def checked(
    check: Check,
    policy: SharingPolicy,
    image: str = "team/app:v1",
    *args: str,
    limits: dict[str, Any],
    kind: str = "containers",
    **fields: Any,
) -> list[CheckResult]:
    """Return what a check finds in the only container of a pod.

    kind: the list that has it. fields: of the container; or `labels`, `annotations`, `spec` and `document`,
    further fields of the pod.
    """
    metadata = {name: fields.pop(name) for name in ("labels", "annotations") if name in fields}
    spec, rest = fields.pop("spec", {}), fields.pop("document", {})
    raw = {"name": "main", "image": image, "args": [*args], "resources": {"limits": limits}} | fields
    document = {"metadata": metadata, "spec": {"containers": [], kind: [raw]} | spec} | rest
    pod = Pod(document, document)
    container = pod.containers[0]
    requirements = requirements_of(container_facts(container, pod.annotations), built_in_catalog())
    return [*check.on_container(policy, requirements, container, pod)]
