"""A model that its server cannot split into as many parts, as a finding on the container."""

from __future__ import annotations

from typing import Any

import pytest

from rules.compatibility.checks.model_split import ModelSplitCheck
from rules.model.check_result import CheckResult, Level
from rules.model.sharing import Checks, SharingPolicy
from rules.text.paths import field_path
from tests.support.check_builders import checked
from tests.support.node_builders import A100, GPU, gfd, gpu_pod, inventory, judged, node, shipped

VLLM = "vllm/vllm-openai:v0.9.2"
PHI = ["--model=microsoft/phi-4", "--tensor-parallel-size=4"]


def check(*args: str, level: Level = Level.INCOMPATIBLE, **fields: Any) -> list[CheckResult]:
    """Return the findings on a container with four GPUs."""
    policy = SharingPolicy(checks=Checks(model=level))
    return checked(ModelSplitCheck(), policy, VLLM, *args, limits={"nvidia.com/gpu": 4}, **fields)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "args[1]"),
        ({"args": ["--tensor-parallel-size", "4", "--model", "microsoft/phi-4"]}, "args[0]"),
        ({"args": [], "command": ["vllm", "serve", "microsoft/phi-4", "-tp=4"]}, "command[3]"),
        ({"args": ["vllm serve microsoft/phi-4 -tp 4"], "command": ["sh", "-c"]}, "args"),
    ],
)
def test_a_model_that_cannot_be_split_is_an_error_at_the_flag(fields: dict[str, Any], path: str) -> None:
    """In a script, at the script."""
    (finding,) = check(*PHI, **fields)

    assert (Level.INCOMPATIBLE, f"spec.containers[0].{path}") == (finding.level, field_path(finding.path))
    assert "10 key-value heads of microsoft/phi-4 into 4 parts" in finding.reason.en


@pytest.mark.parametrize(
    ("args", "level", "levels"),
    [
        (PHI, Level.UNSTABLE, [Level.UNSTABLE]),
        (PHI, Level.COMPATIBLE, []),
        (["--model=team/phi-4", "-tp=4"], Level.INCOMPATIBLE, [Level.UNSTABLE]),
        (["--model=microsoft/phi-4", "-tp=2"], Level.INCOMPATIBLE, []),
    ],
)
def test_the_rule_and_the_certainty_decide_the_effect(
    args: list[str], level: Level, levels: list[Level]
) -> None:
    """A copy by another organisation may be another model."""
    assert levels == [finding.level for finding in check(*args, level=level)]


@pytest.mark.parametrize(
    ("args", "gpus", "allowed"),
    [
        (["--model=microsoft/phi-4", "-tp=4"], 4, False),
        (["--model=microsoft/phi-4", "-tp=2"], 2, True),
        (["--model=microsoft/phi-4", "-tp=2", "--pipeline-parallel-size=2"], 4, True),
        (["--model=Qwen/Qwen3-30B-A3B-FP8", "-tp=4"], 4, False),
        (["--model=Qwen/Qwen3-30B-A3B-FP8", "-tp=4", "--enable-expert-parallel"], 4, True),
        (["--model=Qwen/Qwen3-30B-A3B-FP8", "-tp=2"], 2, True),
    ],
)
def test_mission_13_the_fixes_of_a_model_that_cannot_be_split_are_admitted(
    args: list[str], gpus: int, allowed: bool
) -> None:
    """Each way that the message names."""
    nodes = [node("a100", gfd("12.8", A100, **{"nvidia.com/gpu.memory": "81920"}))]
    decision = judged(shipped(), inventory(nodes), gpu_pod(VLLM, *args, limits={GPU: gpus}))

    assert allowed is decision.allowed
