"""Workloads: owners, and what has ended."""

from __future__ import annotations

from typing import Any

import pytest

from rules.model.workload_kinds import built_in_workloads
from webhook.cli.audit.workloads import Workload, workload_objects, workloads_in


def _object(kind: str, name: str, owner: str = "", **fields: Any) -> dict[str, Any]:
    """Return an object. kind: with its apiVersion, as `apps/v1/Deployment`; owner: the same, and a name."""
    version, _, of = kind.rpartition("/")
    metadata: dict[str, Any] = {"name": name, "namespace": "ml"}
    if owner:
        above, _, whose = owner.rpartition("/")
        group, _, owner_kind = above.rpartition("/")
        metadata["ownerReferences"] = [
            {"apiVersion": group, "kind": owner_kind, "name": whose, "controller": True}
        ]
    return {"apiVersion": version, "kind": of, "metadata": metadata, "spec": {}, **fields}


def _found(*documents: dict[str, Any]) -> list[Workload]:
    return workloads_in(workload_objects(((None, document) for document in documents), built_in_workloads()))


def _shown(*documents: dict[str, Any]) -> list[tuple[str, bool, int]]:
    return [
        (workload.reference, workload.object is not None, len(workload.pods))
        for workload in _found(*documents)
    ]


def test_a_pod_counts_for_the_highest_controller_that_is_known() -> None:
    """Over several steps, in any order."""
    cron = _object("batch/v1/CronJob", "nightly")
    job = _object("batch/v1/Job", "nightly-1", "batch/v1/CronJob/nightly")
    pods = [_object("v1/Pod", f"nightly-1-{letter}", "batch/v1/Job/nightly-1") for letter in "ab"]

    assert [("CronJob/nightly", True, 2)] == _shown(*pods, job, cron) == _shown(cron, job, *pods)
    assert [("Job/nightly-1", True, 2)] == _shown(job, *pods)
    assert [("Job/nightly-1", False, 2)] == _shown(*pods)


def test_objects_of_other_namespaces_and_groups_are_no_owners() -> None:
    """Even if they have the name of one."""
    pod = _object("v1/Pod", "train-0", "batch.volcano.sh/v1alpha1/Job/train")
    elsewhere = _object("batch.volcano.sh/v1alpha1/Job", "train")
    elsewhere["metadata"]["namespace"] = "web"

    assert [("Job/train", False, 1), ("Job/train", True, 0)] == _shown(pod, elsewhere)
    assert [("Job/train", False, 1), ("Job/train", True, 0)] == _shown(pod, _object("batch/v1/Job", "train"))


def test_an_owner_that_does_not_control_an_object_is_none_of_its_workload() -> None:
    """It only keeps the object from being deleted before it."""
    pod = _object("v1/Pod", "train-0", "example.com/v1/Booking/team")
    del pod["metadata"]["ownerReferences"][0]["controller"]

    assert [("Pod/train-0", False, 1)] == _shown(pod)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_what_has_ended_is_left_out(phase: str) -> None:
    """Pods and Jobs, which are not started again; a Deployment that reports a failure goes on."""
    conditions = {"conditions": [{"type": "Failed", "status": "True"}]}

    assert [] == _found(_object("v1/Pod", "done", status={"phase": phase}))
    assert [] == _found(_object("batch/v1/Job", "done", status=conditions))
    assert [("Deployment/web", True, 0)] == _shown(_object("apps/v1/Deployment", "web", status=conditions))


def test_owners_in_a_circle_end() -> None:
    """Nobody can create them, but a file can contain them."""
    one = _object("apps/v1/ReplicaSet", "one", "apps/v1/ReplicaSet/two")
    two = _object("apps/v1/ReplicaSet", "two", "apps/v1/ReplicaSet/one")

    assert len(_found(one, two)) <= 2


def test_objects_without_a_name_are_kept_apart() -> None:
    """As of `generateName` in a file."""
    documents = [_object("v1/Pod", ""), _object("v1/Pod", "")]

    assert [("Pod/", False, 1)] * 2 == _shown(*documents)
