"""Image facts: what an image is known to hold, each with its source and certainty.

Everything that decides about an image reads them from here, wherever they come from: a row of a cluster's
ImageCatalog, or the built-in catalogue. What is unknown stays unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from rules.cuda.nvidia_require import Constraint, Factor, Group, Host
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.text.i18n import Text

_NO_TEXT: Final = Text()


class CompatLibraries(Enum):
    """The forward compatibility libraries (cuda-compat) of an image, and whether its programs load them."""

    UNKNOWN = "unknown"
    NONE = "none"
    INSIDE = "inside"  # in the image, but not where the loader looks
    LOADER_PATH = "loader-path"


@dataclass(frozen=True, slots=True)
class BuiltFor:
    """The compute capabilities that an image has code for.

    ptx: whether it has PTX, which a GPU newer than all of them can compile (None: unknown).
    """

    capabilities: tuple[ComputeCapability, ...]
    ptx: bool | None
    certain: bool

    def runs_on(self, gpu: ComputeCapability) -> bool | None:
        """Return whether a GPU runs it; None if that depends on PTX and PTX is unknown."""
        if any(gpu.runs(capability) for capability in self.capabilities):
            return True
        if gpu < min(self.capabilities):
            return False
        return None if self.ptx is None else self.ptx and gpu > max(self.capabilities)


@dataclass(frozen=True, slots=True)
class StartConstraint:
    """An NVIDIA_REQUIRE_* variable: NVIDIA's container runtime checks it before it starts a container.

    builds: its known values, at least one; an image tag has had several, the newest comes first.
    architecture: of the nodes for which it is the value, or empty for all. complete: all of the newest value
    is known. certain: it may cause a denial; otherwise it is never known to be unsatisfied. declared: the
    pod has it, so it does not say what the image supports. origin: where the value comes from.
    """

    builds: tuple[Constraint, ...]
    architecture: str = ""
    complete: bool = True
    certain: bool = True
    declared: bool = False
    origin: Text = _NO_TEXT

    @property
    def variable(self) -> str:
        """The name of the variable."""
        return self.builds[0].variable

    @property
    def text(self) -> str:
        """The newest value."""
        return self.builds[0].text

    @property
    def groups(self) -> tuple[Group, ...]:
        """The alternatives of the newest value; without any it requires nothing."""
        return self.builds[0].groups

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The conditions of the newest value, each once."""
        return self.builds[0].factors

    @property
    def alternatives(self) -> tuple[Group, ...]:
        """The groups of the newest value for drivers below the CUDA version of the image."""
        return self.builds[0].alternatives

    @property
    def native(self) -> CudaVersion | None:
        """The CUDA version from which on any driver satisfies it, as far as the value shows."""
        return self.builds[0].native

    @property
    def concerns_driver(self) -> bool:
        """Whether it says which drivers are admitted."""
        return self.builds[0].concerns_driver

    @property
    def conditions(self) -> int:
        """The number of conditions of the newest value that are compared with nodes."""
        return self.builds[0].conditions

    def applies_to(self, architecture: str) -> bool:
        """Return whether it is the value on nodes of an architecture; empty: one that is unknown."""
        return not self.architecture or not architecture or architecture == self.architecture

    def holds(self, host: Host) -> bool | None:
        """Return whether a node satisfies it; None if that is unknown, or depends on the image's build."""
        if not self.applies_to(host.architecture):
            return True
        newest = self.builds[0].holds(host)
        if newest is not False:
            return newest
        older = any(each.holds(host) is not False for each in self.builds[1:])
        return None if older or not (self.complete and self.certain) else False


class ImageFacts(NamedTuple):
    """The facts about an image. row: the catalogue row that they come from; certain: it may cause a denial.

    no_cuda: it is known to hold no CUDA program. accelerator: what it is built for instead, as its tag says,
    or empty. cuda: what its programs need; exact: that is the toolkit in
    the image, otherwise it may also be newer. constraints: its NVIDIA_REQUIRE_* variables, as far as known.
    base: the version of nvidia/cuda that it is built on, which is its variable CUDA_VERSION; None: unknown.
    branches: the driver branches below its own that its release notes list for data centre GPUs. compute: the
    lowest compute capability that it supports. of_command: it has no GPU code but that of its command. ptx:
    whether it has PTX for newer GPUs, if that is all that is known of its code. platforms: all that it has,
    as in `linux/amd64`, or empty if they are unknown; certain_platforms: they may cause a denial. memory_mib:
    MiB that its programs need on one GPU. The origins say where a value comes from.
    """

    row: str = ""
    no_cuda: bool = False
    accelerator: str = ""
    cuda: CudaVersion | None = None
    exact: bool = False
    constraints: tuple[StartConstraint, ...] = ()
    base: CudaVersion | None = None
    branches: frozenset[int] = frozenset()
    cuda_compat: CompatLibraries = CompatLibraries.UNKNOWN
    compute: ComputeCapability | None = None
    built_for: BuiltFor | None = None
    of_command: bool = False
    ptx: bool | None = None
    platforms: tuple[str, ...] = ()
    certain_platforms: bool = False
    memory_mib: int | None = None
    certain: bool = False
    cuda_origin: Text = _NO_TEXT
    compute_origin: Text = _NO_TEXT


NOTHING_KNOWN: Final = ImageFacts()
