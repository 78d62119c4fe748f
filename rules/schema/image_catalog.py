"""Image catalogues: document model and builder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from pydantic import Field, model_validator

from rules.cuda.image_catalog import ImageCase, ImageRow
from rules.cuda.image_pattern import ImageRegex
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.model.rule import ImageCatalogRule
from rules.schema.base import NonEmpty, RuleDocument, TextDocument
from rules.schema.builder import RuleBuilder, read_rule
from rules.schema.field_types import CUDA_GROUP, CapabilityText, CudaText, RegexText, parse_optional_version
from rules.text.glob import glob
from rules.text.i18n import Text


class ImageDocument(RuleDocument):
    """The contents of images that match a pattern."""

    image: NonEmpty | None = Field(None, description="glob of the image reference, as written or in full")
    regex: RegexText | None = Field(
        None, description="instead of `image`: regex of the whole reference; its group `cuda` is the version"
    )
    cuda: CudaText | None = Field(
        None, description="the version of the CUDA toolkit in the image, such as 12.4"
    )
    compute_capabilities: list[CapabilityText] = Field(
        [],
        alias="computeCapabilities",
        description="compute capabilities that the image has code for, such as 8.0",
    )
    ptx: bool | None = Field(None, description="whether the image has PTX, which newer GPUs can compile")
    cuda_compat: bool = Field(
        False, alias="cudaCompat", description="whether the image uses forward compatibility libraries"
    )

    @model_validator(mode="after")
    def _one_pattern_and_a_fact(self) -> Self:
        if [self.image, self.regex].count(None) != 1:
            raise ValueError("expected exactly one of image, regex")
        if self.ptx is not None and not self.compute_capabilities:
            raise ValueError("ptx requires computeCapabilities: it is for GPUs newer than those")
        captured = self.regex is not None and CUDA_GROUP in ImageRegex(self.regex).groups
        if not (captured or self.cuda or self.compute_capabilities or self.cuda_compat):
            raise ValueError("no fact about the images: set cuda, computeCapabilities or cudaCompat")
        return self


class ImageCatalogDocument(RuleDocument):
    """The contents of images whose names do not show them."""

    description: TextDocument = Field(TextDocument(), description="the purpose, for listings")
    images: list[ImageDocument] = Field(
        min_length=1, description="each with `image` or `regex`; the first match is used"
    )


def build_image_catalog(builder: RuleBuilder, data: Any) -> ImageCatalogRule | None:
    """Return the rows in an ImageCatalog's `rule.yaml`, or None with the errors added to builder."""
    found = read_rule(builder, data, ImageCatalogDocument)
    if found is None:
        return None
    _, read = found
    return ImageCatalogRule(
        name=builder.name,
        rows=tuple(_rows(builder.name, read.images)),
        description=Text(read.description.en, read.description.zh),
        enabled=builder.enabled,
        location=builder.document.locate(builder.path),
    )


def _rows(name: str, images: list[ImageDocument]) -> Iterator[ImageRow]:
    for image in images:
        pattern = glob(image.image) if image.image is not None else ImageRegex(image.regex or "")
        case = ImageCase(
            cuda=parse_optional_version(CudaVersion, image.cuda),
            built_for=tuple(filter(None, map(ComputeCapability.parse, image.compute_capabilities))),
            ptx=image.ptx,
            cuda_compat=image.cuda_compat,
            source=name,
        )
        yield ImageRow(name, pattern, (case,))
