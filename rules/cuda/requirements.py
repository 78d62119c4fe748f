"""GPU requirements of a container: CUDA version, NVIDIA_REQUIRE_*, compute capability, and their certainty.

An unknown fact requires nothing. Sources of a fact, in order of precedence: annotations of the pod, variables
of the container, the image catalogues of the cluster, the built-in catalogue. What an image requires to be
started (NVIDIA_REQUIRE_*) and what its programs need can differ: both are kept. Requirements do not contain
the name of the container, so that equal containers share them; messages add it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from rules.cuda import framework_flags
from rules.cuda.framework_flags import (
    FlagRequirement,
    Parallelism,
    parallelism,
    parallelism_variables,
)
from rules.cuda.gpu_memory import parse_memory
from rules.cuda.idle_command import is_idle
from rules.cuda.image_catalog import (
    BuiltFor,
    CompatLibraries,
    ImageCatalog,
    ImageFacts,
    StartConstraint,
    rebuilt,
)
from rules.cuda.nvidia_require import (
    DISABLE_REQUIRE,
    REQUIRE_CUDA,
    REQUIRE_PREFIX,
    Constraint,
    Host,
    constraints,
    disabled,
    parse_constraint,
    requirement_cost,
)
from rules.cuda.served_model import (
    ModelRequirement,
    Serving,
    may_be_name,
    model_subject,
    model_variables,
    served_models,
    serving,
    stored_model,
)
from rules.cuda.shell_script import CommandLine, FlagSearch
from rules.cuda.tables import BUILT_IN, Facts, derived, read_table, toolkits
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.kube.pod import Container, Environment, environment, references
from rules.kube.quantity import QuantityError, parse_quantity
from rules.text.bounded_cache import Budget, bounded_cache
from rules.text.i18n import Message
from rules.text.printable import shortened

# Annotations of a pod. An annotation with the suffix `.CONTAINER` takes precedence for that container.
CUDA_VERSION_ANNOTATION: Final = "gpugate.dev/cuda-version"
MIN_COMPUTE_ANNOTATION: Final = "gpugate.dev/min-compute-capability"
CUDA_COMPAT_ANNOTATION: Final = "gpugate.dev/cuda-compat"
MIN_MEMORY_ANNOTATION: Final = "gpugate.dev/min-gpu-memory"
ANNOTATIONS: Final = (
    CUDA_VERSION_ANNOTATION,
    MIN_COMPUTE_ANNOTATION,
    CUDA_COMPAT_ANNOTATION,
    MIN_MEMORY_ANNOTATION,
)
# The variable of NVIDIA's images, which users repeat in pods.
CUDA_VERSION_VARIABLE: Final = "CUDA_VERSION"

ANNOTATION: Final = "annotation"  # CudaRequirement.source

T = TypeVar("T")

_COMPAT: Final = {"true": CompatLibraries.LOADER_PATH, "false": CompatLibraries.NONE}
_MAX_SHOWN: Final = 80  # characters of a user's text in a message
_NO_REMEDY: Final = Message()
_NO_ORIGIN: Final = Message()
_OLDER_CUDA: Final = Message("use an image with an older CUDA")
_IN_ANNOTATION: Final = Message("annotation {name}", name=CUDA_VERSION_ANNOTATION)
_IN_VARIABLE: Final = Message("variable {name}", name=CUDA_VERSION_VARIABLE)
_CUDA: Final = "cuda"
_LINUX: Final = "linux"
# Architectures of 32-bit programs, and the 64-bit architectures whose nodes also run them.
# Source: platformVector of https://github.com/containerd/platforms/blob/main/compare.go
_RUN_BY: Final = {"386": "amd64", "arm": "arm64"}
_Pairs = tuple[tuple[str, str], ...]
# Cached requirements, and the maximum characters of the facts of one; 8 KB each at most.
_REMEMBERED: Final = 1024
_LONGEST: Final = 4096
# Steps to read the facts of a container, to compare its requirements with some dozen kinds of nodes, and for
# a condition of an image's own NVIDIA_REQUIRE_*, whose comparisons are cached.
_STEPS_OF_FACTS: Final = 100
_STEPS_OF_REQUIREMENTS: Final = 1000
_STEPS_OF_IMAGE_CONDITION: Final = 20


class ContainerFacts(NamedTuple):
    """Everything in a container that its GPU requirements depend on; equal facts have equal requirements."""

    image: str
    words: tuple[str, ...] = ()  # command and args; empty if they name no flag and no variable is known
    # Relevant variables: with a known value, and without.
    known: _Pairs = ()
    unknown: tuple[str, ...] = ()
    annotations: _Pairs = ()  # for this container, by their names without its suffix
    several: str = ""  # as in GpuRequirements
    runtime_class: str = ""  # as in GpuRequirements
    idle: bool = False  # its command runs no GPU code
    serving: Serving | None = None  # if it may serve a model


class CudaRequirement(NamedTuple):
    """The lowest CUDA version that the driver must support."""

    version: CudaVersion
    exact: bool  # the image contains this toolkit; otherwise it may contain a newer one
    certain: bool  # it may cause a denial
    source: str  # for counting: `annotation`, a variable, or a catalogue row
    origin: Message


class ComputeRequirement(NamedTuple):
    """The lowest compute capability that the container runs on."""

    minimum: ComputeCapability
    certain: bool
    origin: Message
    by_pod: bool = False  # the pod requires it, by annotation or flag; otherwise its image does
    remedy: Message = _NO_REMEDY  # an alternative to a newer GPU, or empty
    instead: tuple[str, str] = ("", "")  # the flag as written, and the value that is the first alternative


class FlagRefusal(NamedTuple):
    """A flag value with which the program for CUDA starts on no GPU."""

    reason: Message
    remedy: Message
    certain: bool


class MemoryRequirement(NamedTuple):
    """The least memory of one GPU, in MiB."""

    mib: int
    origin: Message


class PlatformRequirement(NamedTuple):
    """The CPU architectures that an image is for, as in kubernetes.io/arch."""

    architectures: frozenset[str]
    certain: bool
    origin: Message


class GpuRequirements(Struct, frozen=True, eq=False):
    """Everything that a container requires of a node; the node must satisfy all of it."""

    cuda: CudaRequirement | None = None  # of its programs
    no_cuda: bool = False  # its programs are known to need no CUDA
    accelerator: str = ""  # that the image is certainly built for: a key of `images` in gpu_resources.yaml
    # NVIDIA_REQUIRE_* variables. They take precedence over a comparison with `cuda`: in them, NVIDIA's images
    # list older drivers that are supported through cuda-compat.
    constraints: tuple[StartConstraint, ...] = ()
    branches: frozenset[int] = frozenset()  # as in ImageFacts
    compute: tuple[ComputeRequirement, ...] = ()
    refused: tuple[FlagRefusal, ...] = ()
    built_for: BuiltFor | None = None
    cuda_compat: CompatLibraries = CompatLibraries.UNKNOWN
    platforms: PlatformRequirement | None = None  # None: unknown
    memory: MemoryRequirement | None = None
    models: tuple[ModelRequirement, ...] = ()  # that it serves
    several: str = ""  # a resource of which it requests several, if these may be replicas of one GPU
    runtime_class: str = ""  # the pod's RuntimeClass, if it sets the mode of the container runtime
    declared: tuple[str, ...] = ()  # annotations and variables of the pod that replace facts of the image
    problems: tuple[Message, ...] = ()  # annotations and variables that cannot be parsed
    tf32: str = ""  # the name of a variable that asks for TF32
    # From here on, fields are not compared.
    parallelism: tuple[Parallelism, ...] = ()  # GPUs of its programs, on all nodes
    # Steps of a Budget: to read the requirements, and to evaluate them on nodes.
    steps: int = 0
    evaluation_steps: int = 0
    # They follow from the fields above: requirements are looked up more often than they are made.
    driver_constraints: tuple[StartConstraint, ...] = ()
    stored_hash: int = 0

    @property
    def cuda_unknown(self) -> bool:
        """Whether the CUDA version that the container needs is unknown."""
        return not (self.cuda or self.no_cuda or self.constraints)

    def __post_init__(self) -> None:
        of_driver = tuple([constraint for constraint in self.constraints if constraint.concerns_driver])
        force_setattr(self, "driver_constraints", of_driver)
        # Of what the author of a pod writes, who could else make many requirements with one hash: images and
        # annotations are in the first origin.
        compute = tuple([(requirement.minimum, requirement.instead) for requirement in self.compute])
        declared = tuple([constraint for constraint in self.constraints if constraint.declared])
        members = self.cuda or self.compute, compute, declared, self.memory, self.models
        force_setattr(self, "stored_hash", hash((*members, self.refused, self.problems)))

    def __hash__(self) -> int:
        return self.stored_hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, GpuRequirements) and _compared(self) == _compared(other))

    @property
    def length(self) -> int:
        """The number of characters in it that the author of a pod wrote."""
        written = [self.cuda.origin.en if self.cuda else ""]
        written += [
            text for constraint in self.constraints for text in (constraint.variable, constraint.text)
        ]
        return sum(map(len, written))

    def without_origins(self) -> GpuRequirements:
        """Return the requirements without their origins: equal for images that need the same."""
        return replace(
            self,
            cuda=self.cuda and self.cuda._replace(origin=_NO_ORIGIN),
            compute=tuple([requirement._replace(origin=_NO_ORIGIN) for requirement in self.compute]),
            platforms=self.platforms and self.platforms._replace(origin=_NO_ORIGIN),
            memory=self.memory and self.memory._replace(origin=_NO_ORIGIN),
            models=tuple([model.without_texts() for model in self.models]),
        )

    def admits(self, host: Host) -> bool | None:
        """Return whether the image's own NVIDIA_REQUIRE_* admit a driver; None if that is unknown.

        False if no variable concerns drivers: then the image states nothing about older ones.
        """
        admitted = {
            constraint.holds(host) for constraint in self.driver_constraints if not constraint.declared
        }
        return False if False in admitted or not admitted else None if None in admitted else True


_FIELDS: Final = GpuRequirements.__struct_fields__
_compared: Callable[[GpuRequirements], tuple[Any, ...]] = attrgetter(*_FIELDS[: _FIELDS.index("parallelism")])


class ObjectRequirements:
    """The GPU requirements of the containers of one object, read within one budget.

    Equal containers are read once.

    find: `requirements_of` for the catalogue.
    """

    __slots__ = ("_budget", "_catalog", "_find", "_frameworks", "_known", "_relevance")

    def __init__(self, find: Callable[[ContainerFacts], GpuRequirements], catalog: ImageCatalog) -> None:
        self._find = find
        self._catalog = catalog
        self._relevance = relevance_of(catalog.facts)
        self._budget = Budget()
        self._known: dict[ContainerFacts, GpuRequirements] = {}
        self._frameworks: dict[str, str] = {}  # by image

    def of(
        self, container: Container, annotations: Mapping[str, str], runtime_class: object = None
    ) -> GpuRequirements:
        """Return the requirements of a container in a pod with these annotations and this RuntimeClass.

        Raises OverBudgetError. That depends on the object only, not on what `find` has cached.
        """
        facts = container_facts(container, annotations, self._budget, runtime_class, self._relevance)
        requirements = self._known.get(facts)
        if requirements is None:
            requirements = self._known[facts] = self._find(facts)
            self._budget.spend(requirements.steps)
        return requirements

    def framework_of(self, image: str) -> str:
        """Return the framework that the catalogue declares of an image, or "". Raises OverBudgetError."""
        if not self._catalog.has_frameworks:
            return ""
        if image not in self._frameworks:
            self._budget.spend(self._catalog.steps)
            self._frameworks[image] = self._catalog.find(image).framework
        return self._frameworks[image]


def container_facts(
    container: Container,
    annotations: Mapping[str, str],
    budget: Budget | None = None,
    runtime_class: object = None,
    relevance: Relevance | None = None,
) -> ContainerFacts:
    """Return the facts of a container of a pod with these annotations. Raises OverBudgetError.

    runtime_class: the pod's, as JSON. relevance: by the facts that are used, or else by the built-in ones.
    """
    command = container.strings("command")
    words = (*command, *container.strings("args"))
    relevance = relevance or relevance_of(BUILT_IN)
    known, unknown = _variables(container, words, budget or Budget(), relevance.variables)
    stated = tuple(_annotations_for(container.name, annotations)) if annotations else ()
    # Variables may add flags to any command, which names the framework.
    stored = stored_model(container, annotations)
    kept: tuple[str, ...] = ()
    serves = bool(stored)
    if words or known:
        line = " ".join(words)
        is_name = not command and bool(words) and may_be_name(words[0])
        serves = serves or is_name or relevance.serves(line, known)
        kept = words if known or serves or relevance.has(line) else ()
    sets_mode = runtime_class if runtime_class and runtime_class in _runtime_classes() else ""
    several = _several(container)
    return ContainerFacts(
        container.image,
        kept,
        known,
        unknown,
        stated,
        several,
        str(sets_mode),
        not words or is_idle(words),  # an image without a program of its own runs a shell, which ends
        serving(container, stored) if serves else None,
    )


def _several(container: Container) -> str:
    """Return a resource of which a container requests several, if these may be replicas of one GPU."""
    for name in shared_resources():
        if name in container.names:
            try:
                if parse_quantity(container.request(name)) > 1:
                    return name
            except QuantityError:  # the resource's own rule reports it
                continue
    return ""


@cache
def shared_resources() -> tuple[str, ...]:
    """Return the resources whose devices may be replicas of a node's GPUs."""
    return tuple(read_table("labels")["sharedResources"])


@cache
def _runtime_classes() -> tuple[str, ...]:
    """Return the RuntimeClasses that set the mode of the container runtime."""
    return tuple(row["name"] for row in read_table("runtime_modes")["runtimeClasses"])


@cache
def _tf32_variables() -> Mapping[str, list[str]]:
    """Return the values that ask for TF32, by variable."""
    variables: Mapping[str, list[str]] = read_table("gpu_settings")["tf32"]["variables"]
    return variables


class Relevance(NamedTuple):
    """What of a container may require something of GPUs."""

    variables: frozenset[str]  # and those that begin with REQUIRE_PREFIX
    flags: tuple[FlagSearch, FlagSearch]
    models: FlagSearch
    model_names: frozenset[str]  # variables

    def has(self, line: str) -> bool:
        """Return whether a command line may require something, alone or with its variables."""
        return "$(" in line or self.flags[0].found_in(line) or self.flags[1].found_in(line)

    def serves(self, line: str, known: _Pairs) -> bool:
        """Return whether a command line, or one of its variables, may name a model."""
        if self.models.found_in(line):
            return True
        return any(name in self.model_names or self.models.found_in(text) for name, text in known)


@derived
def relevance_of(facts: Facts) -> Relevance:
    """Return what may require something of GPUs, by the flags of frameworks."""
    flags = framework_flags.variables(facts) | parallelism_variables(facts) | model_variables(facts)
    variables = frozenset({CUDA_VERSION_VARIABLE, DISABLE_REQUIRE, *flags, *_tf32_variables()})
    models = model_subject(facts)
    return Relevance(variables, framework_flags.flag_searches(facts), models.flags, models.env)


def requirements_reader(
    catalog: ImageCatalog, image_cuda: CudaVersion | None = None
) -> Callable[[ContainerFacts], GpuRequirements]:
    """Return `requirements_of` for a catalogue of images, with a bounded cache.

    image_cuda: the CUDA version with which all images of a known version are rebuilt.
    """

    def read(facts: ContainerFacts) -> GpuRequirements:
        requirements = requirements_of(facts, catalog)
        return _rebuilt(facts, catalog, image_cuda) if image_cuda and requirements.cuda else requirements

    return bounded_cache(read, _REMEMBERED, _is_short)


def _rebuilt(facts: ContainerFacts, catalog: ImageCatalog, cuda: CudaVersion) -> GpuRequirements:
    """Return the requirements of a container whose image is rebuilt with another CUDA version."""
    changed = facts._replace(
        known=tuple(pair for pair in facts.known if pair[0] != CUDA_VERSION_VARIABLE),
        annotations=tuple(pair for pair in facts.annotations if pair[0] != CUDA_VERSION_ANNOTATION),
    )
    return _of_image(changed, rebuilt(catalog.facts, catalog.find(facts.image), cuda), catalog)


def _is_short(facts: ContainerFacts) -> bool:
    pairs = (text for pair in (*facts.known, *facts.annotations) for text in pair)
    return sum(map(len, (facts.image, *facts.words, *facts.unknown, *pairs))) <= _LONGEST


def _annotations_for(container: str, annotations: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in ANNOTATIONS:
        value = annotations.get(f"{name}.{container}", annotations.get(name))
        if value is not None:
            yield name, value


def _variables(
    container: Container, words: tuple[str, ...], budget: Budget, relevant: frozenset[str]
) -> tuple[_Pairs, tuple[str, ...]]:
    """Return the relevant variables, and those that the words or a relevant variable refer to."""
    if "$" not in "".join(words) and not container.may_set(relevant, REQUIRE_PREFIX):
        return (), ()
    budget.spend(sum(word.count("$") for word in words))
    env = environment(container.env, budget)
    used = {name for name in env.known if name in relevant or name.startswith(REQUIRE_PREFIX)}
    used |= references([*words, *(env.known[name] for name in used)])
    known = tuple(pair for pair in env.known.items() if pair[0] in used)
    unknown = (name for name in env.unknown if name in relevant | used or name.startswith(REQUIRE_PREFIX))
    return known, tuple(sorted(unknown))


def requirements_of(facts: ContainerFacts, catalog: ImageCatalog) -> GpuRequirements:
    """Return the GPU requirements that follow from facts. Raises OverBudgetError; see also `problems`."""
    return _of_image(facts, catalog.find(facts.image), catalog)


def _of_image(facts: ContainerFacts, image: ImageFacts, catalog: ImageCatalog) -> GpuRequirements:
    """Return the GPU requirements of a container and its image, which the catalogue has found."""
    env = Environment(dict(facts.known), frozenset(facts.unknown))
    budget, conditions = Budget(), requirement_cost(env.known)
    budget.spend(_STEPS_OF_FACTS + catalog.steps + conditions)
    annotations = _Annotations(facts.annotations)
    annotated = _cuda_of_annotation(annotations)
    declared = annotated or _cuda_of_variable(env)
    compat = annotations.read(CUDA_COMPAT_ANNOTATION, _COMPAT.get, "true")
    if declared and declared.version != image.cuda:
        image = image._replace(no_cuda=False, accelerator="", branches=frozenset())
        if annotated:  # then it is another image; a variable of the pod does not change what the image has
            image = image._replace(constraints=(), base=None)
            image = image._replace(platforms=()) if image.cuda else image
    own, problems = _constraints(env, image)
    of_image = _STEPS_OF_IMAGE_CONDITION * sum(constraint.conditions for constraint in own)
    toolkit = declared or _cuda_of_image(image)
    cuda = toolkit or _cuda_of_constraints(own)
    compiles = None if image.of_command and facts.idle else toolkit
    line = _command_line(catalog.facts, facts, env, budget)
    flags = framework_flags.flag_requirements(catalog.facts, facts.image, line) if line else ()
    compute = (
        *_compute_of_annotation(annotations),
        *_compute_of_image(image),
        *_compute_of_toolkit(catalog.facts, compiles),
        *_compute_of_flags(flags),
    )
    replacing = [CUDA_VERSION_ANNOTATION if annotated else CUDA_VERSION_VARIABLE] if declared else []
    if compat:
        replacing.append(CUDA_COMPAT_ANNOTATION)
    if facts.known or facts.unknown:
        written = env.known.keys() | env.unknown
        replacing += [
            constraint.variable for constraint in image.constraints if constraint.variable in written
        ]
    platforms = _platforms_of_image(image)
    memory = _memory_of_annotation(annotations) or _memory_of_image(image)
    needed = parallelism(catalog.facts, facts.image, line) if line else ()
    models: tuple[ModelRequirement, ...] = ()
    if facts.serving:
        line = line or framework_flags.command_line(catalog.facts, (), {}, budget=budget)
        models = served_models(catalog.facts, facts.image, line, env.unknown, facts.serving)
    of_nodes = _STEPS_OF_REQUIREMENTS if cuda or own or compute or platforms or memory or models else 0
    budget.spend(of_image + of_nodes)
    return GpuRequirements(
        cuda=cuda,
        no_cuda=image.no_cuda,
        accelerator=image.accelerator or (_CUDA if image.cuda and image.certain else ""),
        constraints=own,
        branches=image.branches,
        compute=compute,
        refused=_refused_flags(flags),
        built_for=_built_for(catalog.facts, image, compiles),
        cuda_compat=compat or image.cuda_compat,
        platforms=platforms,
        memory=memory,
        models=models,
        several=facts.several,
        runtime_class=facts.runtime_class,
        declared=tuple(replacing),
        problems=(*annotations.problems, *problems),
        tf32=next((name for name, value in facts.known if value in _tf32_variables().get(name, ())), ""),
        parallelism=needed,
        steps=budget.spent,
        evaluation_steps=_STEPS_OF_FACTS + conditions + of_image + of_nodes,
    )


class _Annotations:
    """The annotations for one container, and their problems."""

    __slots__ = ("_annotations", "problems")

    def __init__(self, annotations: _Pairs) -> None:
        self._annotations = dict(annotations)
        self.problems: list[Message] = []

    def read(self, name: str, parse: Callable[[str], T | None], example: str) -> T | None:
        """Return the value of an annotation; None if it is absent or cannot be parsed."""
        written = self._annotations.get(name)
        if written is None:
            return None
        text = written.strip()
        value = parse(text)
        if value is None:
            shown = shortened(text, _MAX_SHOWN)
            self.problems.append(
                Message(
                    "annotation {name}: `{shown}` cannot be understood; write it as `{example}`",
                    name=name,
                    shown=shown,
                    example=example,
                )
            )
        return value


# The CUDA version


def _cuda_of_annotation(annotations: _Annotations) -> CudaRequirement | None:
    return annotations.read(
        CUDA_VERSION_ANNOTATION, lambda text: _declared_cuda(text, ANNOTATION, _IN_ANNOTATION), "12.4"
    )


def _cuda_of_variable(env: Environment) -> CudaRequirement | None:
    text = env.known.get(CUDA_VERSION_VARIABLE)
    return _declared_cuda(text, CUDA_VERSION_VARIABLE, _IN_VARIABLE) if text else None


def _declared_cuda(text: str, source: str, where: Message) -> CudaRequirement | None:
    """Return the requirement of a version as a user writes it; `12` does not state the minor version."""
    cuda = CudaVersion.parse(text)
    if cuda is None:
        return None
    origin = Message("{where} says CUDA {text}", where=where, text=text)
    return CudaRequirement(cuda, exact="." in text, certain=True, source=source, origin=origin)


def _constraints(
    env: Environment, image: ImageFacts
) -> tuple[tuple[StartConstraint, ...], tuple[Message, ...]]:
    """Return the constraints in force, and the problems of variables that cannot be parsed.

    A variable of the pod replaces the same variable of the image. The result is empty if the constraints are,
    or may be, disabled.
    """
    if not env.known and not env.unknown:
        return image.constraints, ()
    if DISABLE_REQUIRE in env.unknown or disabled(env.known):
        return (), ()
    written = constraints(env.known)
    known = {constraint.variable for constraint in written} | env.unknown
    return (
        *_of_version(env, image),
        *(
            StartConstraint((constraint,), declared=True, origin=_origin_of(constraint))
            for constraint in written
            if constraint.groups
        ),
        *(constraint for constraint in image.constraints if constraint.variable not in known),
    ), tuple(constraint.problem for constraint in written if constraint.problem)


def _of_version(env: Environment, image: ImageFacts) -> Iterator[StartConstraint]:
    """Yield the constraint of NVIDIA's container runtime for a container whose NVIDIA_REQUIRE_CUDA is empty.

    It requires the version in CUDA_VERSION, without alternatives.
    Source: internal/config/image/cuda_image.go of https://github.com/NVIDIA/nvidia-container-toolkit.
    """
    if env.known.get(REQUIRE_CUDA) != "":
        return
    declared = env.known.get(CUDA_VERSION_VARIABLE)
    if cuda := CudaVersion.parse(declared) if declared else image.base:
        constraint = parse_constraint(REQUIRE_CUDA, f"cuda>={cuda}")
        origin = Message(
            "variable {name} is empty, so {name2} {cuda} counts",
            name=REQUIRE_CUDA,
            name2=CUDA_VERSION_VARIABLE,
            cuda=cuda,
        )
        yield StartConstraint((constraint,), declared=True, origin=origin)


def _origin_of(constraint: Constraint) -> Message:
    name, text = constraint.variable, constraint.text
    shown = shortened(text, _MAX_SHOWN)
    return Message("variable {name} is `{shown}`", name=name, shown=shown)


def _cuda_of_constraints(start_constraints: Iterable[StartConstraint]) -> CudaRequirement | None:
    natives = [(cuda, constraint) for constraint in start_constraints if (cuda := constraint.native)]
    if not natives:
        return None
    cuda, constraint = max(natives, key=lambda pair: pair[0])
    name = constraint.variable
    origin = Message("{name} asks for CUDA {cuda} or newer", name=name, cuda=cuda)
    # Counted under one name: a user may call a variable NVIDIA_REQUIRE_ and anything.
    return CudaRequirement(cuda, exact=False, certain=constraint.certain, source=REQUIRE_CUDA, origin=origin)


def _cuda_of_image(image: ImageFacts) -> CudaRequirement | None:
    if image.cuda is None:
        return None
    return CudaRequirement(
        image.cuda, exact=image.exact, certain=image.certain, source=image.row, origin=image.cuda_origin
    )


def _platforms_of_image(image: ImageFacts) -> PlatformRequirement | None:
    """Return the architectures of nodes that run the image; None if its platforms are unknown."""
    if not image.platforms:
        return None
    parts = [platform.split("/") for platform in image.platforms]
    architectures = {architecture for system, architecture, *_ in parts if system == _LINUX}
    if not architectures:
        return None
    architectures.update(_RUN_BY[architecture] for architecture in architectures & _RUN_BY.keys())
    origin = Message("row {row} of the image catalogue names the platforms of the image", row=image.row)
    return PlatformRequirement(frozenset(architectures), image.certain_platforms, origin)


def _memory_of_annotation(annotations: _Annotations) -> MemoryRequirement | None:
    mib = annotations.read(MIN_MEMORY_ANNOTATION, parse_memory, "40Gi")
    if mib is None:
        return None
    return MemoryRequirement(mib, Message("annotation {name}", name=MIN_MEMORY_ANNOTATION))


def _memory_of_image(image: ImageFacts) -> MemoryRequirement | None:
    if image.memory_mib is None:
        return None
    origin = Message("row {row} of the image catalogue", row=image.row)
    return MemoryRequirement(image.memory_mib, origin)


# The compute capability


def _compute_of_annotation(annotations: _Annotations) -> tuple[ComputeRequirement, ...]:
    minimum = annotations.read(MIN_COMPUTE_ANNOTATION, ComputeCapability.parse, "8.0")
    if minimum is None:
        return ()
    origin = Message(
        "annotation {name} asks for compute capability {minimum}",
        name=MIN_COMPUTE_ANNOTATION,
        minimum=minimum,
    )
    return (ComputeRequirement(minimum, certain=True, origin=origin, by_pod=True),)


def _compute_of_image(image: ImageFacts) -> tuple[ComputeRequirement, ...]:
    if image.compute is None:
        return ()
    return (ComputeRequirement(image.compute, certain=image.certain, origin=image.compute_origin),)


def _compute_of_toolkit(facts: Facts, toolkit: CudaRequirement | None) -> tuple[ComputeRequirement, ...]:
    """Return the lowest compute capability of the toolkit's compiler; newer toolkits have no lower one."""
    code = _codes(facts).get(toolkit.version) if toolkit else None
    if toolkit is None or code is None:
        return ()
    lowest = code.built_for.capabilities[0]
    origin = Message("{origin}{words}", origin=toolkit.origin, words=code.words)
    certain = code.built_for.certain and toolkit.certain
    return (ComputeRequirement(lowest, certain=certain, origin=origin, remedy=_OLDER_CUDA),)


def _command_line(
    facts: Facts, container: ContainerFacts, env: Environment, budget: Budget
) -> CommandLine | None:
    """Return the command line; None if neither it nor a variable is relevant."""
    if not container.words and not env.known:
        return None
    exported = parallelism_variables(facts) | model_variables(facts)
    return framework_flags.command_line(facts, container.words, env.known, env.unknown, exported, budget)


def _refused_flags(needs: Iterable[FlagRequirement]) -> tuple[FlagRefusal, ...]:
    return tuple(
        FlagRefusal(
            Message(
                "{framework} for CUDA refuses `{written}`", framework=need.framework, written=need.written
            ),
            need.remedy,
            need.certain,
        )
        for need in needs
        if need.compute is None
    )


def _compute_of_flags(needs: Iterable[FlagRequirement]) -> list[ComputeRequirement]:
    return [
        ComputeRequirement(
            need.compute,
            certain=need.certain,
            origin=_origin_of_flag(need, need.compute),
            by_pod=True,
            remedy=need.remedy,
            instead=(need.written, need.instead),
        )
        for need in needs
        if need.compute is not None
    ]


def _origin_of_flag(need: FlagRequirement, compute: ComputeCapability) -> Message:
    values = {"written": need.written, "framework": need.framework, "compute": compute}
    if need.certain:
        return Message("`{written}` of {framework} needs compute capability {compute} or higher", **values)
    return Message("`{written}` of {framework} may need compute capability {compute} or higher", **values)


def _built_for(facts: Facts, image: ImageFacts, toolkit: CudaRequirement | None) -> BuiltFor | None:
    """Return the capabilities that the image has code for, by its catalogue row, else by its toolkit."""
    if image.built_for or toolkit is None or not toolkit.exact:
        return image.built_for
    code = _codes(facts).get(toolkit.version)
    if code is None:
        return None
    certain = code.built_for.certain and toolkit.certain and image.ptx is None  # PTX of an unknown capability
    return BuiltFor(code.built_for.capabilities, image.ptx, certain)


class _Code(NamedTuple):
    """The capabilities that a toolkit generates code for."""

    built_for: BuiltFor
    words: Message  # continues the origin of the toolkit


@derived
def _codes(facts: Facts) -> dict[CudaVersion, _Code]:
    words = Message(", which compiles for compute capability {lowest} and higher")
    return {
        cuda: _Code(BuiltFor(fact.value, ptx=None, certain=fact.certain), words.having(lowest=fact.value[0]))
        for cuda, fact in toolkits(facts).items()
    }
