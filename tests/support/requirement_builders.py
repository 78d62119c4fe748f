"""Builders of GPU requirements and node capabilities, for tests of single checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rules.cuda.image_catalog import BuiltFor, ImageCatalog, built_in_catalog
from rules.cuda.requirements import ComputeRequirement, GpuRequirements, container_facts, requirements_of
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.kube.json_patch import Recorder
from rules.kube.pod import Container, ContainerKind
from rules.model.check_result import CheckResult, Level
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Text
from tests.support.node_builders import COMPAT, COMPUTE, CUDA

_ANNOTATIONS = {"cuda": CUDA, "compute": COMPUTE, "compat": COMPAT}


def requirements(
    image: str = "team/app:v1",
    *words: str,
    env: Iterable[dict[str, Any]] = (),
    annotations: dict[str, str] | None = None,
    limits: dict[str, Any] | None = None,
    catalog: ImageCatalog | None = None,
) -> GpuRequirements:
    """Return the requirements of a container `main`; words: its args."""
    resources = {"limits": limits or {}}
    raw = {"name": "main", "image": image, "args": [*words], "env": [*env], "resources": resources}
    container = Container(raw, (), ContainerKind.REGULAR, Recorder(raw))
    return requirements_of(container_facts(container, annotations or {}), catalog or built_in_catalog())


def needing(**annotations: str) -> GpuRequirements:
    """Return the requirements that annotations declare: `cuda`, `compute`, `compat`."""
    return requirements(annotations={_ANNOTATIONS[name]: text for name, text in annotations.items()})


def requiring(expression: str, **annotations: str) -> GpuRequirements:
    """Return the requirements of NVIDIA_REQUIRE_CUDA, and of annotations as for `needing`."""
    env = [{"name": "NVIDIA_REQUIRE_CUDA", "value": expression}]
    declared = {_ANNOTATIONS[name]: text for name, text in annotations.items()}
    return requirements(env=env, annotations=declared)


def minimum(version: str, *, certain: bool = True, by_pod: bool = True) -> ComputeRequirement:
    """Return the requirement of a compute capability."""
    return ComputeRequirement(capability(version), certain=certain, origin=Text("a test"), by_pod=by_pod)


def code_for(versions: str, *, ptx: bool | None = False, certain: bool = True) -> BuiltFor:
    """Return the code of an image for these compute capabilities."""
    return BuiltFor(tuple(map(capability, versions.split())), ptx=ptx, certain=certain)


def capability(version: str) -> ComputeCapability:
    """Return a compute capability."""
    parsed = ComputeCapability.parse(version)
    assert parsed is not None
    return parsed


def driver(cuda: str, version: str | None = None, **capabilities: Any) -> NodeCapabilities:
    """Return a node whose driver has a CUDA version."""
    return NodeCapabilities(cuda=CudaVersion.parse(cuda), driver=version, **capabilities)


def gpu(compute: str) -> NodeCapabilities:
    """Return a node with the newest driver and a GPU of a compute capability."""
    return NodeCapabilities(cuda=(13, 4), compute_capability=capability(compute))


def shown(results: Iterable[CheckResult]) -> list[tuple[Level, str, str]]:
    """Return level, reason and error of each result."""
    return [(result.level, result.reason.en, result.error) for result in results]
