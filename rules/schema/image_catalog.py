"""Image catalogues: the document and the rule that it makes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from rules.cuda.gpu_memory import parse_memory
from rules.cuda.image_catalog import CompatLibraries, ImageCase, ImageRow
from rules.cuda.nvidia_require import REQUIRE_PREFIX, parse_constraint
from rules.kube.image_reference import is_digest
from rules.model.rule import ImageCatalogRule
from rules.schema.builder import KindDocument, RuleBuilder
from rules.schema.field_types import (
    CUDA_GROUP,
    MAX_ENTRIES,
    Capability,
    Cuda,
    NonEmpty,
    Regex,
    RuleDocument,
    TextDocument,
    parsed,
)
from rules.text.glob import glob, is_glob
from rules.text.i18n import Message

_COMPAT: Final[dict[str | bool | None, CompatLibraries]] = {
    None: CompatLibraries.UNKNOWN,
    True: CompatLibraries.LOADER_PATH,
    False: CompatLibraries.NONE,
    **{libraries.value: libraries for libraries in CompatLibraries},
}
_PLATFORM: Final = re.compile(r"[a-z0-9]+/[a-z0-9]+(/[a-z0-9]+)?")


def _digest(text: str) -> str:
    if not is_digest(text):
        raise ValueError(
            Message("expected a digest, such as sha256:<64 hexadecimal digits>, got {text!r}", text=text)
        )
    return text


def _require_name(text: str) -> str:
    if not text.startswith(REQUIRE_PREFIX) or text == REQUIRE_PREFIX:
        raise ValueError(
            Message(
                "expected the name of a variable {prefix}*, got {text!r}", prefix=REQUIRE_PREFIX, text=text
            )
        )
    return text


def _require_text(text: str) -> str:
    if problem := parse_constraint("the value", text).problem:
        raise ValueError(problem)
    return text


_NO_FACT: Final = Message(
    "no fact about the images: set cuda, require, computeCapabilities, cudaCompat, platforms, "
    "minGpuMemory or framework"
)
_TOO_MANY_REGEXES: Final = Message(
    "more than {most} images with `regex`, each of which is compared with every image; use `image`",
    most=MAX_ENTRIES,
)


def _platform(text: str) -> str:
    if not _PLATFORM.fullmatch(text):
        raise ValueError(
            Message(
                "expected operating system and architecture, such as linux/amd64, got {text!r}", text=text
            )
        )
    return text


def _memory(text: str) -> int:
    if (mib := parse_memory(text)) is None:
        raise ValueError(Message("expected an amount of memory, such as 40Gi, got {text!r}", text=text))
    return mib


DigestText = Annotated[str, AfterValidator(_digest)]
RequireName = Annotated[str, AfterValidator(_require_name)]
RequireText = Annotated[str, AfterValidator(_require_text)]
PlatformText = Annotated[str, AfterValidator(_platform)]
Memory = Annotated[int, parsed(_memory)]  # MiB


class ImageDocument(RuleDocument):
    """The contents of images that match a pattern or have a digest."""

    image: NonEmpty | None = Field(None, description="glob of the image reference, as written or in full")
    digest: DigestText | None = Field(
        None,
        description="the digest of a manifest or index, instead of or in addition to `image`: a reference "
        "with a digest is compared by it alone",
    )
    regex: Regex | None = Field(
        None, description="instead of `image`: regex of the whole reference; its group `cuda` is the version"
    )
    cuda: Cuda | None = Field(
        None, description="the CUDA version that the programs in the image need, such as 12.4"
    )
    require: dict[RequireName, RequireText] | None = Field(
        None,
        description="its variables NVIDIA_REQUIRE_*, which NVIDIA's container runtime checks before it "
        "starts the container; empty: the image has none, or sets NVIDIA_DISABLE_REQUIRE",
    )
    compute_capabilities: list[Capability] = Field(
        [],
        alias="computeCapabilities",
        description="compute capabilities that the image has code for, such as 8.0",
    )
    ptx: bool | None = Field(None, description="whether the image has PTX, which newer GPUs can compile")
    cuda_compat: Literal["loader-path", "inside", "none"] | bool | None = Field(
        None,
        alias="cudaCompat",
        description="forward compatibility libraries: on the loader's path (also written true), only inside "
        "the image, or none (also written false)",
    )
    platforms: list[PlatformText] = Field(
        [],
        description="operating system and CPU architecture that the row is for, such as linux/amd64; the "
        "rows of an image name all that it has",
    )
    min_gpu_memory: Memory | None = Field(
        None,
        alias="minGpuMemory",
        description="the memory that its programs need on each GPU, such as 40Gi; an annotation of the pod "
        "takes precedence",
    )
    framework: NonEmpty | None = Field(
        None,
        description="the framework of its programs, such as paddle: `container.framework` in CEL; the "
        "annotation gpugate.dev/framework of the pod takes precedence",
    )

    @model_validator(mode="after")
    def _one_pattern_and_a_fact(self) -> Self:
        if self.image and self.regex:
            raise ValueError(Message("expected only one of image, regex"))
        if not (self.image or self.regex or self.digest):
            raise ValueError(Message("expected image, regex or digest"))
        if self.ptx is not None and not self.compute_capabilities:
            raise ValueError(Message("ptx requires computeCapabilities: it is for GPUs newer than those"))
        captured = self.regex is not None and CUDA_GROUP in self.regex.groups
        facts = (
            *(self.cuda, self.require is not None, self.compute_capabilities),
            *(self.cuda_compat is not None, self.platforms, self.min_gpu_memory is not None, self.framework),
        )
        if not (captured or any(facts)):
            raise ValueError(_NO_FACT)
        return self


class ImageCatalogDocument(KindDocument):
    """The contents of images whose names do not show them."""

    description: TextDocument = Field(TextDocument(), description="the purpose, for listings")
    images: list[ImageDocument] = Field(
        min_length=1, description="each with `image` or `regex`; the first match is used"
    )

    @model_validator(mode="before")
    @classmethod
    def _few_regexes(cls, value: Any) -> Any:
        images = value.get("images") if isinstance(value, dict) else None
        entries = images if isinstance(images, list) else []
        if sum(isinstance(entry, dict) and "regex" in entry for entry in entries) > MAX_ENTRIES:
            raise ValueError(_TOO_MANY_REGEXES)
        return value

    def rule(self, builder: RuleBuilder) -> ImageCatalogRule:
        """Return the rule."""
        return ImageCatalogRule(
            name=builder.name,
            rows=tuple(_rows(builder.name, self.images)),
            description=self.description.text,
            enabled=builder.enabled,
            location=builder.location,
        )


def _rows(name: str, images: list[ImageDocument]) -> Iterator[ImageRow]:
    for image in images:
        pattern = glob(image.image) if image.image else image.regex
        case = ImageCase(
            cuda=image.cuda,
            require=None if image.require is None else tuple(image.require.items()),
            built_for=tuple(image.compute_capabilities),
            ptx=image.ptx,
            cuda_compat=_COMPAT[image.cuda_compat],
            platforms=tuple(image.platforms),
            memory_mib=image.min_gpu_memory,
            framework=image.framework or "",
            source=name,
        )
        exact = image.image if image.image and not is_glob(image.image) else ""
        yield ImageRow(name, pattern, (case,), digest=image.digest or "", exact=exact)
