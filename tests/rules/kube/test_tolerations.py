"""Tolerations of pods for taints of nodes."""

from __future__ import annotations

from typing import Any

import pytest

from rules.kube.tolerations import Taint, tolerates

GPU = Taint("nvidia.com/gpu", "present")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"key": "nvidia.com/gpu", "operator": "Exists"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "nvidia.com/gpu", "value": "present"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Equal", "value": "absent"}, False),
        ({"key": "nvidia.com/gpu"}, False),
        ({"operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "nvidia.com/gpu", "operator": "In"}, False),
        ("Exists", False),
    ],
)
def test_a_taint_is_tolerated_as_kubernetes_documents_it(toleration: Any, expected: bool) -> None:
    """By key, operator, value and effect; a malformed toleration tolerates nothing."""
    assert expected is tolerates([toleration], [GPU])


def test_a_pod_without_tolerations_is_kept_out_only_by_taints_that_keep_out() -> None:
    """PreferNoSchedule is a preference."""
    assert not tolerates(None, [GPU])
    assert tolerates(None, [Taint("slow", effect="PreferNoSchedule")])
    assert tolerates(None, [])


def test_every_taint_must_be_tolerated() -> None:
    """One of two is not enough."""
    one = [{"key": "nvidia.com/gpu", "operator": "Exists"}]

    assert not tolerates(one, [GPU, Taint("team", "ml")])
