"""What a container runs, as a pod, an image catalogue or a kind says: `container.framework` in CEL."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rules.decision.pipeline import Snapshot
from rules.decision.trace import explain
from rules.text.bounded_cache import MOST_STEPS
from tests.support.builders import (
    DEVICE,
    NO_NODES,
    config_map,
    container,
    decision,
    injection_rule,
    patched,
    pod,
    policy,
    request,
)

SET = [{"name": "OF_PADDLE", "value": "1"}]
RULE = injection_rule({"env": SET}, match={"conditions": ["container.framework == 'paddle'"]})
IMAGES = config_map(
    "team-images",
    {"gpugate.dev/type": "ImageCatalog", "gpugate.dev/enabled": "true"},
    {"rule.yaml": yaml.safe_dump({"images": [{"image": "team/train*", "framework": "paddle"}]})},
)
MAIN = container({DEVICE: "1"}, image="team/train:1")


def _env(document: dict[str, Any], *rules: str) -> Any:
    stored = patched(document, decision(policy(RULE, *rules), document))
    return stored["spec"]["containers"][0].get("env")


def test_an_image_catalogue_declares_the_framework_of_an_image() -> None:
    """Whose name does not show it."""
    assert (SET, None) == (_env(pod(MAIN), IMAGES), _env(pod(MAIN)))
    assert _env(pod(MAIN | {"image": "team/other:1"}), IMAGES) is None


@pytest.mark.parametrize(("stated", "env"), [("paddle", SET), ("pytorch", None)])
def test_the_annotation_of_a_pod_takes_precedence(stated: str, env: Any) -> None:
    """Over the catalogue."""
    document = pod(MAIN, metadata={"annotations": {"gpugate.dev/framework": stated}})

    assert env == _env(document, IMAGES)


@pytest.mark.parametrize(
    ("kind", "injects"),
    [
        ("kubeflow.org/v1 PaddleJob paddleReplicaSpecs", True),
        ("batch.paddlepaddle.org/v1 PaddleJob", True),
        ("kubeflow.org/v1 PyTorchJob pytorchReplicaSpecs", False),
    ],
)
def test_the_containers_of_a_kind_may_run_one_framework(kind: str, injects: bool) -> None:
    """Before a controller gives the pods its labels or variables."""
    version, name, *replicas = kind.split()
    spec: dict[str, Any] = {"worker": {"template": {"spec": pod(MAIN)["spec"]}}}
    document = {
        "apiVersion": version,
        "kind": name,
        "metadata": {"name": "train"},
        "spec": {replicas[0]: spec} if replicas else spec,
    }
    explanation = explain(Snapshot(policy(RULE), NO_NODES), request(document), now=0)

    assert injects == any(edit.rule == "injection" for edit in explanation.pods[0].edits)


def test_the_frameworks_of_many_images_count_as_steps_of_the_object() -> None:
    """With as many rows as one look-up may compare."""
    rows = [{"regex": f"r{at}/.*(a|b)?", "framework": "paddle"} for at in range(128)]
    images = config_map(
        "team-images",
        {"gpugate.dev/type": "ImageCatalog", "gpugate.dev/enabled": "true"},
        {"rule.yaml": yaml.safe_dump({"images": rows})},
    )
    steps = policy(images).catalog.steps
    count = MOST_STEPS // steps + 1
    many = pod(*(MAIN | {"name": f"c{at}", "image": f"team/app{at}"} for at in range(count)))

    assert decision(policy(RULE, images), pod(MAIN)).allowed
    assert not decision(policy(RULE, images), many).allowed
