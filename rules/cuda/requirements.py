"""What a container needs of a GPU node: CUDA, compute capability, and how sure that is.

What is unknown stays unknown and is no need. Where several places tell the CUDA version, the first of these
counts: annotation, NVIDIA_REQUIRE_CUDA, CUDA_VERSION, the cluster's image catalogue, the one that ships.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from rules.cuda.framework_flags import flag_requirements
from rules.cuda.image_catalog import BuiltFor, ImageCatalog, ImageFacts
from rules.cuda.nvidia_require import DISABLE_REQUIRE, REQUIRE_PREFIX, Constraint, constraints
from rules.cuda.tables import compiles_for
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.kube.container_env import Environment
from rules.text.i18n import Text

# Annotations of a pod; with `.CONTAINER` after it, one is for that container and goes before.
CUDA_VERSION_ANNOTATION: Final = "gpugate.dev/cuda-version"
MIN_COMPUTE_ANNOTATION: Final = "gpugate.dev/min-compute-capability"
CUDA_COMPAT_ANNOTATION: Final = "gpugate.dev/cuda-compat"
ANNOTATIONS: Final = (CUDA_VERSION_ANNOTATION, MIN_COMPUTE_ANNOTATION, CUDA_COMPAT_ANNOTATION)
# The variable of NVIDIA's images, which users repeat in pods.
CUDA_VERSION_VARIABLE: Final = "CUDA_VERSION"

ANNOTATION: Final = "annotation"  # CudaNeed.found

T = TypeVar("T")

_BOOLEAN: Final = {"true": True, "false": False}
_MAX_SHOWN: Final = 80  # characters of a user's text in a message
_NO_WAY_OUT: Final = Text()


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """A container as plain facts. words: command and args, as written."""

    name: str
    image: str
    env: Environment
    words: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CudaRequirement:
    """The CUDA version that the driver has to have at least.

    exact: it is the toolkit inside; otherwise that may also be newer. certain: a pod may be refused for it.
    found: where it was found, for counting: `annotation`, a variable's name, or the catalogue's row.
    """

    version: CudaVersion
    exact: bool
    certain: bool
    found: str
    origin: Text


@dataclass(frozen=True, slots=True)
class ComputeRequirement:
    """The lowest compute capability that will do.

    asked: the pod itself asks for it, by annotation or flag; otherwise it is a floor of its image.
    way_out: what to do but take a newer GPU, or empty.
    """

    minimum: ComputeCapability
    certain: bool
    origin: Text
    asked: bool = False
    way_out: Text = _NO_WAY_OUT


@dataclass(frozen=True, slots=True)
class GpuRequirements:
    """All that a container needs of a node; the node has to satisfy every one.

    constraints: its NVIDIA_REQUIRE_* variables. One that holds for certain goes before the comparison with
    `cuda`: NVIDIA's images list in them the older drivers on which their cuda-compat makes do.
    cuda_compat: forward compatibility is declared. problems: what was written and cannot be understood.
    """

    container: str
    cuda: CudaRequirement | None = None
    constraints: tuple[Constraint, ...] = ()
    compute: tuple[ComputeRequirement, ...] = ()
    built_for: BuiltFor | None = None
    cuda_compat: bool = False
    problems: tuple[Text, ...] = ()
    # Needs are looked up more often than they are found, and all of this is long to hash.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        told = self.container, self.cuda, self.constraints, self.compute, self.built_for, self.cuda_compat
        object.__setattr__(self, "_hash", hash(told))

    def __hash__(self) -> int:
        return self._hash

    @property
    def length(self) -> int:
        """The number of characters in it that a pod's author wrote."""
        written = [self.container, self.cuda.origin.en if self.cuda else ""]
        written += [text for each in self.constraints for text in (each.variable, each.text)]
        return sum(map(len, written))


def requirements_of(
    container: ContainerFacts, annotations: Mapping[str, Any], catalog: ImageCatalog
) -> GpuRequirements:
    """Return what a container needs. annotations: the pod's. Never raises; what is odd is a problem."""
    said = _Annotations(annotations, container.name)
    image = catalog.find(container.image)
    annotated = _cuda_of_annotation(said)
    asked = () if annotated else _constraints(container.env)
    toolkit = annotated or _cuda_of_variable(container.env) or _cuda_of_image(image)
    compute = (
        *_compute_of_annotation(said),
        *_compute_of_image(image),
        *_compute_of_toolkit(toolkit),
        *_compute_of_flags(container),
    )
    compat = said.read(CUDA_COMPAT_ANNOTATION, _BOOLEAN.get, "true")
    return GpuRequirements(
        container=container.name,
        cuda=_cuda_of_constraints(asked) or toolkit,
        constraints=asked,
        compute=compute,
        built_for=_built_for(image, toolkit),
        cuda_compat=image.cuda_compat if compat is None else compat,
        problems=(*said.problems, *(constraint.problem for constraint in asked if constraint.problem)),
    )


class _Annotations:
    """The annotations that speak of one container, and what in them cannot be understood."""

    __slots__ = ("_annotations", "_container", "problems")

    def __init__(self, annotations: Mapping[str, Any], container: str) -> None:
        self._annotations = annotations
        self._container = container
        self.problems: list[Text] = []

    def read(self, name: str, parse: Callable[[str], T | None], example: str) -> T | None:
        """Return what the container's own annotation of a name says, else the pod's; None where none does."""
        if not self._annotations:
            return None
        written = self._annotations.get(f"{name}.{self._container}", self._annotations.get(name))
        if written is None:
            return None
        text = str(written).strip()
        value = parse(text)
        if value is None:
            shown = text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
            self.problems.append(
                Text(
                    f"annotation {name}: `{shown}` cannot be understood; write it as `{example}`",
                    f"注解 {name}：无法识别 `{shown}`，请写成 `{example}`",
                )
            )
        return value


# The CUDA version


def _cuda_of_annotation(said: _Annotations) -> CudaRequirement | None:
    where = Text(f"annotation {CUDA_VERSION_ANNOTATION}", f"注解 {CUDA_VERSION_ANNOTATION}")
    return said.read(CUDA_VERSION_ANNOTATION, lambda text: _declared_cuda(text, ANNOTATION, where), "12.4")


def _cuda_of_variable(env: Environment) -> CudaRequirement | None:
    text = env.known.get(CUDA_VERSION_VARIABLE)
    where = Text(f"variable {CUDA_VERSION_VARIABLE}", f"环境变量 {CUDA_VERSION_VARIABLE}")
    return _declared_cuda(text, CUDA_VERSION_VARIABLE, where) if text else None


def _declared_cuda(text: str, found: str, where: Text) -> CudaRequirement | None:
    """Return what a version as a user writes it needs; `12` leaves open which 12."""
    cuda = CudaVersion.parse(text)
    if cuda is None:
        return None
    origin = Text(f"{where.en} says CUDA {text}", f"{where.zh} 声明 CUDA {text}")
    return CudaRequirement(cuda, exact="." in text, certain=True, found=found, origin=origin)


def _constraints(env: Environment) -> tuple[Constraint, ...]:
    """Return the constraints in force; none where nobody knows whether they are switched off."""
    return () if DISABLE_REQUIRE in env.unknown else constraints(env.known)


def _cuda_of_constraints(asked: Iterable[Constraint]) -> CudaRequirement | None:
    found = [(cuda, constraint) for constraint in asked if (cuda := constraint.native)]
    if not found:
        return None
    cuda, constraint = max(found, key=lambda pair: pair[0])
    name = constraint.variable
    origin = Text(
        f"variable {name} asks for CUDA {cuda} or newer", f"环境变量 {name} 要求 CUDA {cuda} 或更新版本"
    )
    # Counted under one name: a user may call a variable NVIDIA_REQUIRE_ and anything.
    return CudaRequirement(cuda, exact=False, certain=True, found=f"{REQUIRE_PREFIX}CUDA", origin=origin)


def _cuda_of_image(image: ImageFacts) -> CudaRequirement | None:
    if image.cuda is None:
        return None
    return CudaRequirement(
        image.cuda, exact=image.exact, certain=image.certain, found=image.row, origin=image.cuda_origin
    )


# The compute capability


def _compute_of_annotation(said: _Annotations) -> Iterator[ComputeRequirement]:
    if minimum := said.read(MIN_COMPUTE_ANNOTATION, ComputeCapability.parse, "8.0"):
        yield ComputeRequirement(
            minimum,
            certain=True,
            origin=Text(
                f"annotation {MIN_COMPUTE_ANNOTATION} asks for compute capability {minimum}",
                f"注解 {MIN_COMPUTE_ANNOTATION} 要求计算能力 {minimum}",
            ),
            asked=True,
        )


def _compute_of_image(image: ImageFacts) -> Iterator[ComputeRequirement]:
    if image.compute:
        yield ComputeRequirement(image.compute, certain=image.certain, origin=image.compute_origin)


def _compute_of_toolkit(toolkit: CudaRequirement | None) -> Iterator[ComputeRequirement]:
    """Yield what the toolkit still compiles for. A newer one compiles for no older GPU."""
    if toolkit and (floor := _floor(toolkit)):
        yield floor


def _floor(toolkit: CudaRequirement) -> ComputeRequirement | None:
    built_for = compiles_for(toolkit.version)
    if built_for is None:
        return None
    lowest = built_for.value[0]
    origin = Text(
        f"{toolkit.origin.en}, which compiles for compute capability {lowest} and higher",
        f"{toolkit.origin.zh}，其只支持计算能力 {lowest} 及以上",
    )
    way_out = Text("use an image with an older CUDA", "改用较旧 CUDA 的镜像")
    certain = built_for.certain and toolkit.certain
    return ComputeRequirement(lowest, certain=certain, origin=origin, way_out=way_out)


def _compute_of_flags(container: ContainerFacts) -> Iterator[ComputeRequirement]:
    for need in flag_requirements(container.image, container.words, container.env.known):
        yield ComputeRequirement(
            need.compute,
            certain=need.certain,
            origin=Text(
                f"`{need.written}` of {need.framework} needs compute capability {need.compute} or higher",
                f"{need.framework} 的 `{need.written}` 要求计算能力 {need.compute} 及以上",
            ),
            asked=True,
            way_out=need.way_out,
        )


def _built_for(image: ImageFacts, toolkit: CudaRequirement | None) -> BuiltFor | None:
    """Return what the image has code for: as its catalogue row says, else what its toolkit compiles for."""
    if image.built_for or toolkit is None or not toolkit.exact:
        return image.built_for
    code = _code(toolkit.version)
    return code if code is None or toolkit.certain else replace(code, certain=False)


def _code(cuda: CudaVersion) -> BuiltFor | None:
    fact = compiles_for(cuda)
    return BuiltFor(fact.value, ptx=None, certain=fact.certain) if fact else None
