"""The image catalogue: facts about images by reference, from facts/images.yaml and a cluster's own rows.

Vendors' tags are data; this module only matches rows. Each fact has its source and certainty. The facts of an
unmatched image are unknown.

Patterns match in linear time: with backtracking, one image could block the process. So the linear-time
engine of CEL decides whether a text matches, and Python's engine only returns the groups of a match, if the
number of its steps is bounded.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

from msgspec import Struct
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from rules.cel.library import cel
from rules.cuda.nvidia_require import REQUIRE_CUDA, Constraint, Factor, Group, Host, constraint_of_image
from rules.cuda.tables import (
    BUILT_IN,
    Facts,
    RequireText,
    Status,
    capabilities,
    capability,
    cuda_version,
    derived,
    pattern,
    require_of_nvidia_cuda,
)
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.kube.image_reference import DEFAULT_REGISTRY, Image, parse_image
from rules.text.bounded_cache import bounded_cache
from rules.text.i18n import Message
from rules.text.printable import shortened
from rules.text.regex import most_steps

_NO_TEXT: Final = Message()


class CompatLibraries(Enum):
    """The forward compatibility libraries (cuda-compat) of an image, and whether its programs load them."""

    UNKNOWN = "unknown"
    NONE = "none"
    INSIDE = "inside"  # in the image, but not where the loader looks
    LOADER_PATH = "loader-path"


class BuiltFor(NamedTuple):
    """The compute capabilities that an image has code for."""

    capabilities: tuple[ComputeCapability, ...]
    ptx: bool | None  # it has PTX, which newer GPUs can compile; None: unknown
    certain: bool

    def runs_on(self, gpu: ComputeCapability) -> bool | None:
        """Return whether a GPU runs it; None if that depends on PTX and PTX is unknown."""
        if any(gpu.runs(capability) for capability in self.capabilities):
            return True
        if gpu < min(self.capabilities):
            return False
        return None if self.ptx is None else self.ptx and gpu > max(self.capabilities)


class StartConstraint(NamedTuple):
    """An NVIDIA_REQUIRE_* variable: NVIDIA's container runtime checks it before it starts a container."""

    builds: tuple[Constraint, ...]  # its values in builds of the image tag, at least one, the newest first
    architecture: str = ""  # of the nodes for which it has these values; empty: all
    complete: bool = True  # the whole newest value is known
    certain: bool = True  # it may cause a denial; otherwise it is never known to be unsatisfied
    declared: bool = False  # by the pod, so it does not show what the image supports
    origin: Message = _NO_TEXT

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
        """The CUDA version from which on any driver satisfies it, if the value shows one."""
        return self.builds[0].native

    @property
    def concerns_driver(self) -> bool:
        """Whether it states the admitted drivers."""
        return self.builds[0].concerns_driver

    @property
    def conditions(self) -> int:
        """The number of conditions of the newest value that are compared with nodes."""
        return self.builds[0].conditions

    def applies_to(self, architecture: str) -> bool:
        """Return whether nodes of an architecture have these values; empty: unknown."""
        return not self.architecture or not architecture or architecture == self.architecture

    def holds(self, host: Host) -> bool | None:
        """Return whether a node satisfies it; None if that is unknown, or depends on the image's build."""
        if not self.applies_to(host.architecture):
            return True
        newest = self.builds[0].holds(host)
        if newest is not False:
            return newest
        older = any(build.holds(host) is not False for build in self.builds[1:])
        return None if older or not (self.complete and self.certain) else False


class ImageFacts(NamedTuple):
    """The facts about an image. None and empty values are unknown."""

    row: str = ""  # the catalogue row that they come from
    no_cuda: bool = False  # it is known to contain no CUDA program
    accelerator: str = ""  # that it is built for instead of CUDA, by its tag
    cuda: CudaVersion | None = None  # that its programs need
    exact: bool = False  # `cuda` is the toolkit in the image; otherwise the toolkit may be newer
    constraints: tuple[StartConstraint, ...] = ()  # its known NVIDIA_REQUIRE_* variables
    base: CudaVersion | None = None  # the nvidia/cuda version that it is built on; its variable CUDA_VERSION
    branches: frozenset[int] = frozenset()  # older driver branches that its release notes list
    cuda_compat: CompatLibraries = CompatLibraries.UNKNOWN
    compute: ComputeCapability | None = None  # the lowest compute capability that it supports
    built_for: BuiltFor | None = None
    of_command: bool = False  # only its command has GPU code
    ptx: bool | None = None  # whether it has PTX for newer GPUs, if nothing else is known of its code
    platforms: tuple[str, ...] = ()  # all of them, such as `linux/amd64`
    certain_platforms: bool = False  # they may cause a denial
    memory_mib: int | None = None  # MiB that its programs need on one GPU
    framework: str = ""  # of its programs, such as paddle
    certain: bool = False  # it may cause a denial
    cuda_origin: Message = _NO_TEXT  # the source of `cuda`
    compute_origin: Message = _NO_TEXT  # the source of `compute`


NOTHING_KNOWN: Final = ImageFacts()


# In a row of facts/images.yaml: any one component of a path; a fact that is known to be absent; the CUDA
# version of the row itself.
_ANY: Final = "*"
_NONE: Final = "none"
_MAX_SHOWN: Final = 40  # characters of an expression in a message
_VERSION_OF: Final = Message("{what} says CUDA {cuda}")
_VERSION_OF_UNKNOWN_BASE: Final = Message("{what}, base unknown, says CUDA {cuda}")
_OWN_CUDA: Final = "cuda"
_COMMAND: Final = "command"
_COMPAT: Final = {
    "loader": CompatLibraries.LOADER_PATH,
    "inside": CompatLibraries.INSIDE,
    _NONE: CompatLibraries.NONE,
}


class ImageCase(Struct, frozen=True):
    """The facts about the images of a row, or about some versions. Other fields are as in ImageFacts."""

    versions: str | None = None  # None: all
    cuda: CudaVersion | None = None  # None: unknown, or the match contains it
    no_cuda: bool = False
    at_least: bool = False  # the toolkit may be newer than `cuda`
    base: str = ""  # the version of nvidia/cuda that the image is built on; `cuda`: its own
    require: tuple[tuple[str, str], ...] | None = None  # its NVIDIA_REQUIRE_* variables; None: unknown
    branches: frozenset[int] = frozenset()
    cuda_compat: CompatLibraries = CompatLibraries.UNKNOWN
    compute: ComputeCapability | None = None
    built_for: tuple[ComputeCapability, ...] = ()
    ptx: bool | None = None
    of_command: bool = False
    accelerator: str = ""
    optional: bool = False  # its programs also run without a GPU, so these facts deny nothing
    platforms: tuple[str, ...] = ()
    memory_mib: int | None = None
    framework: str = ""
    source: str = ""
    status: Status = Status.VERIFIED


class ImageRow(Struct, frozen=True):
    """A row of a cluster's catalogue."""

    name: str
    pattern: re.Pattern[str] | ImageRegex | None  # matches one of Image.spellings
    cases: tuple[ImageCase, ...]
    digest: str = ""  # of the image; a reference with a digest is compared with this only
    exact: str = ""  # the reference, if the pattern is a plain text


class FamilyRow(Struct, frozen=True, eq=False):
    """A built-in row; without repositories and references it is for any image. Compares by identity."""

    __hash__ = object.__hash__

    name: str
    pattern: re.Pattern[str]  # of the tag
    cases: tuple[ImageCase, ...]  # the first case with the version is used
    repositories: tuple[str, ...] = ()  # the ends of repository paths; the last component may be `*`
    references: tuple[str, ...] = ()  # canonical references
    of_name: bool = False  # the pattern is of registry and repository instead of the tag


# Cached images: those of a cluster, with some that change. A reference is at most 800 characters.
_CACHE_ENTRIES: Final = 4096
_MAX_LENGTH: Final = 800
# Steps to look up an image: for the built-in rows, and for each row of the cluster with a glob or a regex.
_STEPS_OF_LOOK_UP: Final = 30
_STEPS_OF_GLOB: Final = 3
_STEPS_OF_REGEX: Final = 50
_REMEMBERED_BASES: Final = 256  # versions in image tags, and the characters of one
_LONGEST_BASE: Final = 32


class ImageCatalog:
    """The image rows of a cluster, then the built-in rows. Immutable.

    A cluster's rows are searched by digest, then by exact reference, then in order.

    find: `look_up` with a cache.
    has_frameworks: whether a row declares a framework.
    steps: the steps of a look-up, see Budget.
    """

    __slots__ = (
        "_any",
        "_digests",
        "_names",
        "_patterns",
        "_references",
        "_texts",
        "facts",
        "families",
        "find",
        "has_frameworks",
        "rows",
        "steps",
    )

    def __init__(
        self, rows: Iterable[ImageRow], families: Iterable[FamilyRow] = (), facts: Facts = BUILT_IN
    ) -> None:
        self.facts = facts
        self.rows = tuple(rows)
        self.families = tuple(families)
        self.has_frameworks = any(case.framework for row in self.rows for case in row.cases)
        self._digests: defaultdict[str, list[ImageRow]] = defaultdict(list)
        self._texts: dict[str, list[ImageRow]] = {}
        self._patterns = tuple(row for row in self.rows if row.pattern and not row.exact)
        regexes = sum(isinstance(row.pattern, ImageRegex) for row in self._patterns)
        globs = len(self._patterns) - regexes
        self.steps = _STEPS_OF_LOOK_UP + _STEPS_OF_GLOB * globs + _STEPS_OF_REGEX * regexes
        self._names: defaultdict[str, list[tuple[str, FamilyRow]]] = defaultdict(list)
        self._references = {text: row for row in self.families for text in row.references}
        self._any = tuple(row for row in self.families if not (row.repositories or row.references))
        for row in self.rows:
            if row.digest:
                self._digests[row.digest].append(row)
            if row.exact:
                _add_platform(self._texts.setdefault(row.exact, []), row)
        for family in self.families:
            for path in family.repositories:
                parent, _, name = f"/{path}".rpartition("/")
                self._names[name].append((parent if name == _ANY else f"/{path}", family))
        self.find = bounded_cache(
            self.look_up, _CACHE_ENTRIES, lambda reference: len(reference) <= _MAX_LENGTH
        )

    def preceded_by(self, rows: Iterable[ImageRow]) -> ImageCatalog:
        """Return a catalogue with further rows before the rows of the cluster."""
        return ImageCatalog((*rows, *self.rows), self.families, self.facts)

    def look_up(self, reference: str) -> ImageFacts:
        """Return the facts about an image; NOTHING_KNOWN if the reference is invalid or no row matches.

        A row of the cluster that does not state a fact has the fact of the built-in row.
        """
        image = parse_image(reference)
        if image is None:
            return NOTHING_KNOWN
        of_row = self._of_digest(image) if image.digest and self._digests else None
        if of_row is None and (self._texts or self._patterns):
            of_row = self._of_cluster(image)
        family = self._of_family(image) or NOTHING_KNOWN
        if family.certain_platforms and image.registry != DEFAULT_REGISTRY:
            # The built-in rows state the platforms on Docker Hub; a copy may be built for others.
            family = family._replace(certain_platforms=False)
        return family if of_row is None else _completed(*of_row, family)

    def _of_digest(self, image: Image) -> tuple[ImageFacts, ImageCase] | None:
        rows: list[ImageRow] = []
        for row in self._digests.get(image.digest or "", ()):
            _add_platform(rows, row)
        return _of_rows(self.facts, rows, image) if rows else None

    def _of_cluster(self, image: Image) -> tuple[ImageFacts, ImageCase] | None:
        """Return the facts and the case of the first row that matches and is not for another digest."""
        spellings = image.spellings
        exact = (self._texts[spelling] for spelling in spellings if spelling in self._texts)
        for rows in exact:
            if not (rows[0].digest and image.digest):
                return _of_rows(self.facts, rows, image)
        for row in self._patterns:
            if row.pattern is None or (row.digest and image.digest):
                continue
            for spelling in spellings:
                if match := row.pattern.fullmatch(spelling):
                    return _facts(self.facts, row.name, row.cases[0], image, match), row.cases[0]
        return None

    def _of_family(self, image: Image) -> ImageFacts | None:
        """Return the facts of the first built-in row that matches and has a case for the version."""
        tag, path = image.effective_tag or "", f"/{image.repository}"
        parent, _, name = path.rpartition("/")
        for rows, end_of in ((self._names.get(name), path), (self._names.get(_ANY), parent)):
            for end, row in rows or ():
                if end_of.endswith(end) and (facts := _match(self.facts, row, tag, image)):
                    return facts
        if newest := self._references.get(f"{image.name}:{tag}"):
            return _facts(self.facts, newest.name, newest.cases[0], image)
        for row in self._any:
            if facts := _match(self.facts, row, image.name if row.of_name else tag, image):
                return facts
        return None


def rebuilt(facts: Facts, image: ImageFacts, cuda: CudaVersion) -> ImageFacts:
    """Return the facts of an image after it is rebuilt with another CUDA version.

    Its NVIDIA_REQUIRE_CUDA, if any, becomes the value of nvidia/cuda. Other requirements stay.
    """
    return image._replace(
        no_cuda=False,
        accelerator="",
        cuda=cuda,
        exact=True,
        constraints=_of_base(facts)((str(cuda), True)) if image.constraints else (),
        base=cuda if image.base else None,
        branches=frozenset(),
        cuda_compat=image.cuda_compat if image.base else CompatLibraries.UNKNOWN,
        built_for=None,
        certain=True,
        cuda_origin=Message("the image is built with CUDA {cuda}", cuda=cuda),
    )


def built_in_catalog() -> ImageCatalog:
    """Return the catalogue of the built-in facts."""
    return catalog_of(BUILT_IN)


@derived
def catalog_of(facts: Facts) -> ImageCatalog:
    """Return the catalogue without rows of a cluster: facts/images.yaml."""
    return ImageCatalog((), map(_row, facts.table("images")), facts)


def _row(row: Mapping[str, Any]) -> FamilyRow:
    return FamilyRow(
        row["name"],
        pattern(row.get("image_name") or row.get("tag", ".*"), re.IGNORECASE | re.ASCII),
        tuple(_read_case({**row, **case}) for case in row.get("cases", ({},))),
        tuple(row.get("repositories", ())),
        tuple(row.get("references", ())),
        of_name="image_name" in row,
    )


def _read_case(row: Mapping[str, Any]) -> ImageCase:
    cuda, require = row.get("cuda"), row.get("require")
    return ImageCase(
        versions=row.get("versions"),
        cuda=cuda_version(cuda) if cuda and cuda != _NONE else None,
        no_cuda=cuda == _NONE,
        at_least=row.get("at_least", False),
        base=row.get("base", ""),
        require=None if require is None else () if require == _NONE else ((REQUIRE_CUDA, require),),
        branches=frozenset(row.get("branches", ())),
        cuda_compat=_COMPAT[row["cuda_compat"]] if "cuda_compat" in row else CompatLibraries.UNKNOWN,
        compute=capability(row["compute"]) if "compute" in row else None,
        built_for=capabilities(row.get("built_for", "")),
        ptx=row.get("ptx"),
        of_command=row.get("code") == _COMMAND,
        optional=row.get("optional", False),
        accelerator=row.get("accelerator", ""),
        platforms=tuple(row.get("platforms", ())),
        source=row["source"],
        status=Status(row["status"]),
    )


def _match(facts: Facts, row: FamilyRow, text: str, image: Image) -> ImageFacts | None:
    """Return the facts of a row if it matches a text and has a case for the version."""
    match = row.pattern.fullmatch(text)
    if match is None or not (case := _case(row, match.groupdict().get("version"))):
        return None
    return _facts(facts, row.name, case, image, match, has_family=bool(row.repositories))


@lru_cache(maxsize=1024)  # versions in image tags
def _case(row: FamilyRow, written: str | None) -> ImageCase | None:
    """Return the first case for a version."""
    version = parse_version(written)
    for case in row.cases:
        if case.versions is None or (version is not None and covers(case.versions, version)):
            return case
    return None


def parse_version(text: str | None) -> Version | None:
    """Return a version of a framework (PEP 440), or None if the text is invalid."""
    try:
        return Version(text) if text else None
    except InvalidVersion:
        return None


def covers(versions: str, version: Version) -> bool:
    """Return whether specifiers (PEP 440) contain a version, including its release candidates."""
    return _specifiers(versions).contains(version, prereleases=True)


_specifiers = lru_cache(maxsize=512)(SpecifierSet)  # those of the tables, which have 300


def _facts(  # noqa: PLR0913 - what an image is, and what is known of it
    facts: Facts,
    name: str,
    case: ImageCase,
    image: Image,
    match: re.Match[str] | None = None,
    *,
    has_family: bool = True,
) -> ImageFacts:
    groups = match.groupdict() if match else {}
    cuda, exact = _cuda(case, groups)
    based = _base(case, cuda if exact else None, groups)
    compat = (
        CompatLibraries.INSIDE
        if case.base and case.cuda_compat is CompatLibraries.UNKNOWN
        else case.cuda_compat
    )
    return ImageFacts(
        row=name,
        no_cuda=case.no_cuda,
        accelerator=(groups.get("accelerator") or case.accelerator).lower(),
        cuda=cuda,
        exact=exact,
        constraints=_of_base(facts)((based, case.status.certain)) if based else _written(case, image),
        base=CudaVersion.parse(based) if based else None,
        branches=case.branches,
        cuda_compat=compat,
        compute=case.compute,
        built_for=BuiltFor(case.built_for, case.ptx, case.status.certain) if case.built_for else None,
        of_command=case.of_command,
        ptx=case.ptx,
        platforms=case.platforms,
        certain_platforms=bool(case.platforms) and case.status.certain,
        memory_mib=case.memory_mib,
        framework=case.framework,
        certain=case.status.certain and not case.optional,
        cuda_origin=_cuda_origin(image, match, cuda, exact=exact, has_family=has_family)
        if cuda
        else _NO_TEXT,
        compute_origin=Message(
            "image `{short}` supports compute capability {compute} and higher",
            short=image.short,
            compute=case.compute,
        )
        if case.compute
        else _NO_TEXT,
    )


def _cuda(case: ImageCase, groups: Mapping[str, str | None]) -> tuple[CudaVersion | None, bool]:
    """Return the CUDA version, and whether it is exact; the reference takes precedence over the table."""
    if text := groups.get("cuda"):
        return CudaVersion.parse(text), True
    if major := groups.get("major"):
        minor = groups.get("minor")
        return CudaVersion(int(major), int(minor or 0)), minor is not None
    return case.cuda, not case.at_least


def _base(case: ImageCase, cuda: CudaVersion | None, groups: Mapping[str, str | None]) -> str:
    """Return the version of nvidia/cuda that an image is built on, or an empty string."""
    if case.base != _OWN_CUDA:
        return case.base
    return groups.get("cuda") or (str(cuda) if cuda else "")


@derived
def _of_base(facts: Facts) -> Callable[[tuple[str, bool]], tuple[StartConstraint, ...]]:
    """Return `_constraints_of_base` of these facts, with a cache."""
    find = partial(_constraints_of_base, facts)
    return bounded_cache(find, _REMEMBERED_BASES, lambda key: len(key[0]) < _LONGEST_BASE)


def _constraints_of_base(facts: Facts, key: tuple[str, bool]) -> tuple[StartConstraint, ...]:
    """Return the NVIDIA_REQUIRE_CUDA of an image that is built on a version of nvidia/cuda.

    key: the version, and whether that is certain.
    """
    base, certain = key
    texts: defaultdict[str, list[RequireText]] = defaultdict(list)
    for fact in require_of_nvidia_cuda(facts, base):
        texts[fact.architecture].append(fact)
    by_architecture = {
        architecture: StartConstraint(
            tuple(constraint_of_image(REQUIRE_CUDA, fact.text) for fact in facts),
            architecture=architecture,
            complete=facts[0].complete,
            certain=facts[0].status.certain and certain,
            origin=_require_origin(
                Message("nvidia/cuda {base}, on which the image is built,", base=base),
                REQUIRE_CUDA,
                facts[0].text,
            ),
        )
        for architecture, facts in texts.items()
    }
    if (
        len({(constraint.builds, constraint.certain) for constraint in by_architecture.values()}) == 1
    ):  # the same for every architecture
        return (next(iter(by_architecture.values()))._replace(architecture=""),)
    return tuple(by_architecture.values())


def _written(case: ImageCase, image: Image) -> tuple[StartConstraint, ...]:
    """Return the NVIDIA_REQUIRE_* variables that a row states."""
    return tuple(
        StartConstraint(
            (constraint_of_image(variable, text),),
            certain=case.status.certain,
            origin=_require_origin(Message("image `{short}`", short=image.short), variable, text),
        )
        for variable, text in case.require or ()
    )


def _add_platform(rows: list[ImageRow], row: ImageRow) -> None:
    """Add a row about the same image if it is the first, or of its ConfigMap and for other platforms."""
    known = {platform for other in rows for platform in other.cases[0].platforms}
    platforms = row.cases[0].platforms
    first = rows[0] if rows else row
    of_first = known and platforms and (row.name, row.digest) == (first.name, first.digest)
    if not rows or (of_first and known.isdisjoint(platforms)):
        rows.append(row)


def _of_rows(facts: Facts, rows: list[ImageRow], image: Image) -> tuple[ImageFacts, ImageCase]:
    """Return the facts of the rows about one image, and the case of the first."""
    platforms = [_facts(facts, row.name, row.cases[0], image) for row in rows]
    return _of_platforms(platforms), rows[0].cases[0]


def _completed(facts: ImageFacts, case: ImageCase, family: ImageFacts) -> ImageFacts:
    """Return the facts of a cluster's row, completed with the built-in row.

    A built-in row with another CUDA version is about another image of this name, and is ignored.
    """
    if family is NOTHING_KNOWN or (facts.cuda and family.cuda and facts.cuda != family.cuda):
        return facts
    changes: dict[str, Any] = {"branches": family.branches}
    if facts.cuda is None:
        names = ("cuda", "exact", "no_cuda", "cuda_origin", "certain")
        changes |= {name: getattr(family, name) for name in names}
    if case.require is None:
        changes |= {"constraints": family.constraints, "base": family.base}
    if facts.cuda_compat is CompatLibraries.UNKNOWN:
        changes["cuda_compat"] = family.cuda_compat
    if facts.compute is None and family.certain:
        changes |= {"compute": family.compute, "compute_origin": family.compute_origin}
    if facts.built_for is None:
        changes["built_for"] = family.built_for
    if not facts.platforms:
        changes |= {"platforms": family.platforms, "certain_platforms": family.certain_platforms}
    return facts._replace(**changes)


def _of_platforms(of_each: list[ImageFacts]) -> ImageFacts:
    """Return the facts of an image from the facts of its platforms; only constraints differ by platform."""
    if len(of_each) == 1:
        return of_each[0]
    constraints = [
        constraint._replace(architecture=platform.partition("/")[2])
        for facts in of_each
        for platform in facts.platforms or ("",)
        for constraint in facts.constraints
    ]
    platforms = tuple(dict.fromkeys(platform for facts in of_each for platform in facts.platforms))
    return of_each[0]._replace(constraints=tuple(constraints), platforms=platforms)


def _require_origin(subject: Message, variable: str, text: str) -> Message:
    shown = shortened(text, _MAX_SHOWN)
    return Message("{what} has {variable} `{shown}`", what=subject, variable=variable, shown=shown)


def _cuda_origin(
    image: Image,
    match: re.Match[str] | None,
    cuda: CudaVersion,
    *,
    exact: bool,
    has_family: bool,
) -> Message:
    """Return the source of the version as a message.

    has_family: the row is for a family of images; otherwise only the reference is known.
    """
    groups = match.groupdict() if match else {}
    group = next((name for name in ("cuda", "major") if groups.get(name)), None)
    if match is None or group is None:
        newer = Message() if exact else Message(" or newer")
        return Message(
            "image `{short}` carries CUDA {cuda}{newer}", short=image.short, cuda=cuda, newer=newer
        )
    written = cuda if exact else cuda.major
    before = match.string[: match.start(group)]
    if "/" not in match.string or ":" in before.rpartition("/")[2]:
        tag = image.effective_tag
        subject = Message("image tag `{tag}`", tag=tag)
    else:
        name = image.familiar_name
        subject = Message("image name `{name}`", name=name)
    words = _VERSION_OF if has_family else _VERSION_OF_UNKNOWN_BASE
    return words.having(what=subject, cuda=written)


# Classes that include Unicode in the other engine, in ASCII: they compile in a hundredth of the time.
_ASCII: Final = {r"\w": "0-9A-Za-z_", r"\d": "0-9", r"\s": r"\t-\r "}
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
# A token of the syntax: an escaped bracket, or one in a class, does not open a group.
_PART: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|\(\?[:!=<>P\w-]*|.", re.DOTALL)
_MAX_PATTERN_LENGTH: Final = 1024  # references are at most 780 long
# Of Python's engine, which only reads the groups of a reference that matches; real ones are shorter than 255.
_MAX_STEPS: Final = 100_000_000
_WHOLE: Final = re.compile(".*", re.DOTALL)
_MATCHES: Final = "text.matches(pattern)"


class ImageRegex:
    """A compiled regular expression of whole image references. Immutable and thread-safe."""

    __slots__ = ("_pattern", "_program", "_searched", "groups", "source")

    def __init__(self, source: str) -> None:
        """Compile source. Raises ValueError if it is invalid, or if its time could be exponential."""
        if len(source) > _MAX_PATTERN_LENGTH:
            raise ValueError(
                Message(
                    "expected at most {most} characters, got {length}",
                    most=_MAX_PATTERN_LENGTH,
                    length=len(source),
                )
            )
        try:
            self._pattern = re.compile(source, re.ASCII)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(
                Message("expected a regular expression, got {source!r}: {why}", source=source, why=str(error))
            ) from None
        self.source = source
        self.groups = tuple(self._pattern.groupindex)
        if not self.groups:
            self._pattern = _WHOLE
        elif most_steps(source, 255) > _MAX_STEPS:
            raise ValueError(
                Message(
                    "reading the group of this regular expression can take too long: {source!r}",
                    source=source,
                )
            )
        self._program = cel.compile(_MATCHES)
        try:
            self._searched = f"^(?:{_in_ascii(source)})$"
            self._matches("")
        except RuntimeError as error:
            reason = re.sub(r"\s*\n\s*", " ", str(error)).partition(" Check function")[0]
            words = Message(
                "expected a regular expression without lookaround or backreferences: {why}", why=reason
            )
            raise ValueError(words) from None

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """Return the match of a whole text, or None."""
        return self._pattern.fullmatch(text) if self._matches(text) else None

    def __repr__(self) -> str:
        return f"ImageRegex({self.source!r})"

    def _matches(self, text: str) -> Any:
        return self._program.execute({"text": text, "pattern": self._searched})


def _in_ascii(source: str) -> str:
    """Return an expression with ASCII classes for letters, digits and spaces, as with re.ASCII."""
    return "".join(map(_part_in_ascii, _PART.findall(source)))


def _part_in_ascii(part: str) -> str:
    if part.startswith("["):
        return _ESCAPED.sub(lambda match: _ASCII.get(match[0], match[0]), part)
    if letters := _ASCII.get(part.lower()):
        return f"[{letters}]" if part.islower() else f"[^{letters}]"
    return part
