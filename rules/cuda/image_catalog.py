"""The image catalogue: facts about images by reference, from data/images.yaml and a cluster's own rows.

Vendors' tags are data; this module only matches rows. Facts of an unmatched image stay unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from rules.cuda.image_pattern import ImageRegex
from rules.cuda.tables import Status, capabilities, capability, cuda_version, read_table
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.kube.image_reference import Image, parse_image
from rules.text.bounded_cache import bounded_cache
from rules.text.i18n import Text

_NOWHERE: Final = Text()


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
class ImageCase:
    """The facts about the images of a row, or about some versions of it.

    cuda: the toolkit, or None if the match contains it or it is unknown. at_least: it may also be newer.
    compute: the lowest supported capability. built_for: the capabilities that it has code for, or empty.
    ptx: whether it has PTX for newer GPUs. cuda_compat: it contains forward compatibility libraries.
    """

    versions: SpecifierSet | None = None
    cuda: CudaVersion | None = None
    at_least: bool = False
    compute: ComputeCapability | None = None
    built_for: tuple[ComputeCapability, ...] = ()
    ptx: bool | None = None
    cuda_compat: bool = False
    source: str = ""
    status: Status = Status.VERIFIED


@dataclass(frozen=True, slots=True)
class ImageRow:
    """Images of one kind. pattern: matches one of Image.spellings. cases: the first match is used.

    whole: whether the pattern is for references with a tag or digest and begins with an optional path; then
    only the canonical spellings of these are compared.
    """

    name: str
    pattern: re.Pattern[str] | ImageRegex
    cases: tuple[ImageCase, ...]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """The facts about an image. row: the matching row. The origins explain where a value comes from.

    exact: cuda is the toolkit of the image; otherwise it may also be newer. The rest is as in ImageCase.
    """

    row: str = ""
    cuda: CudaVersion | None = None
    exact: bool = False
    compute: ComputeCapability | None = None
    built_for: BuiltFor | None = None
    cuda_compat: bool = False
    certain: bool = False
    cuda_origin: Text = _NOWHERE
    compute_origin: Text = _NOWHERE


NOTHING_KNOWN: Final = ImageFacts()
# Cached images of a cluster, including some that change; a reference is at most 800 characters.
_CACHE_ENTRIES: Final = 4096
_MAX_LENGTH: Final = 800


class ImageCatalog:
    """Rows in order; the first that matches an image has its facts. Immutable.

    find: `look_up` with a cache.
    """

    __slots__ = ("find", "rows")

    def __init__(self, rows: Iterable[ImageRow]) -> None:
        self.rows = tuple(rows)
        self.find = bounded_cache(
            self.look_up, _CACHE_ENTRIES, lambda reference: len(reference) <= _MAX_LENGTH
        )

    def preceded_by(self, rows: Iterable[ImageRow]) -> ImageCatalog:
        """Return a catalogue with other rows before these."""
        return ImageCatalog((*rows, *self.rows))

    def look_up(self, reference: str) -> ImageFacts:
        """Return the facts about an image; NOTHING_KNOWN if the reference is invalid or no row matches."""
        image = parse_image(reference)
        if image is None:
            return NOTHING_KNOWN
        spellings = image.spellings
        # Patterns of whole references begin with an optional path, so the canonical spellings are enough.
        registry = f"{image.registry}/"
        wholes = [each for each in spellings if each.startswith(registry) and ":" in each.rpartition("/")[2]]
        for row in self.rows:
            for spelling in wholes if row.whole else spellings:
                if (match := row.pattern.fullmatch(spelling)) is None:
                    continue
                groups = match.groupdict()
                if case := _case(row, groups.get("version")):
                    return _facts(row, case, match, groups, image)
        return NOTHING_KNOWN


@cache
def built_in_catalog() -> ImageCatalog:
    """Return the built-in catalogue: data/images.yaml."""
    return ImageCatalog(_row(row) for row in read_table("images"))


def _row(row: Mapping[str, Any]) -> ImageRow:
    pattern = re.compile(row["match"], re.IGNORECASE | re.ASCII)
    cases = tuple(_read_case({**row, **case}) for case in row.get("cases", ({},)))
    return ImageRow(row["name"], pattern, cases, whole=True)


def _read_case(row: Mapping[str, Any]) -> ImageCase:
    return ImageCase(
        versions=SpecifierSet(row["versions"]) if "versions" in row else None,
        cuda=cuda_version(row["cuda"]) if "cuda" in row else None,
        at_least=row.get("at_least", False),
        compute=capability(row["compute"]) if "compute" in row else None,
        built_for=capabilities(row.get("built_for", "")),
        ptx=row.get("ptx"),
        cuda_compat=row.get("cuda_compat", False),
        source=row["source"],
        status=Status(row["status"]),
    )


def _case(row: ImageRow, written: str | None) -> ImageCase | None:
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


def covers(versions: SpecifierSet, version: Version) -> bool:
    """Return whether specifiers contain a version, including its release candidates."""
    return versions.contains(version, prereleases=True)


def _facts(
    row: ImageRow, case: ImageCase, match: re.Match[str], groups: Mapping[str, str | None], image: Image
) -> ImageFacts:
    cuda, exact = _cuda(case, groups)
    return ImageFacts(
        row=row.name,
        cuda=cuda,
        exact=exact,
        compute=case.compute,
        built_for=BuiltFor(case.built_for, case.ptx, case.status.certain) if case.built_for else None,
        cuda_compat=case.cuda_compat,
        certain=case.status.certain,
        cuda_origin=_cuda_origin(image, match, groups, cuda, exact=exact) if cuda else _NOWHERE,
        compute_origin=Text(
            f"image `{image.short}` supports compute capability {case.compute} and higher",
            f"镜像 `{image.short}` 只支持计算能力 {case.compute} 及以上",
        )
        if case.compute
        else _NOWHERE,
    )


def _cuda(case: ImageCase, groups: Mapping[str, str | None]) -> tuple[CudaVersion | None, bool]:
    """Return the CUDA version, and whether it is exact; the reference takes precedence over the table."""
    if text := groups.get("cuda"):
        return CudaVersion.parse(text), True
    if major := groups.get("major"):
        minor = groups.get("minor")
        return CudaVersion(int(major), int(minor or 0)), minor is not None
    return case.cuda, not case.at_least


def _cuda_origin(
    image: Image,
    match: re.Match[str],
    groups: Mapping[str, str | None],
    cuda: CudaVersion,
    *,
    exact: bool,
) -> Text:
    """Return the sentence that explains where the version comes from."""
    group = next((name for name in ("cuda", "major") if groups.get(name)), None)
    if group is None:
        newer = Text() if exact else Text(" or newer", " 或更新版本")
        return Text(
            f"image `{image.short}` carries CUDA {cuda}{newer.en}",
            f"镜像 `{image.short}` 自带 CUDA {cuda}{newer.zh}",
        )
    written = cuda if exact else cuda.major
    if ":" in match.string[: match.start(group)].rpartition("/")[2]:
        tag = image.effective_tag
        return Text(f"image tag `{tag}` says CUDA {written}", f"镜像标签 `{tag}` 表明 CUDA {written}")
    name = image.familiar_name
    return Text(f"image name `{name}` says CUDA {written}", f"镜像名 `{name}` 表明 CUDA {written}")
