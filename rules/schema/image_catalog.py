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
    """What images of one kind carry."""

    image: NonEmpty | None = Field(None, description="glob of the reference as written, or in full")
    regex: RegexText | None = Field(
        None, description="instead: of the whole reference; a group `cuda` gives the version"
    )
    cuda: CudaText | None = Field(None, description="the version of the CUDA toolkit inside, such as 12.4")
    compute_capabilities: list[CapabilityText] = Field(
        [], alias="computeCapabilities", description="what it has code for, such as 8.0"
    )
    ptx: bool | None = Field(None, description="whether GPUs newer than those can compile the rest")
    cuda_compat: bool = Field(
        False, alias="cudaCompat", description="forward compatibility libraries are in use"
    )

    @model_validator(mode="after")
    def _one_pattern_and_a_fact(self) -> Self:
        if [self.image, self.regex].count(None) != 1:
            raise ValueError("expected exactly one of image, regex")
        if self.ptx is not None and not self.compute_capabilities:
            raise ValueError("ptx goes with computeCapabilities: it is for GPUs newer than those")
        captured = self.regex is not None and CUDA_GROUP in ImageRegex(self.regex).groups
        if not (captured or self.cuda or self.compute_capabilities or self.cuda_compat):
            raise ValueError("says nothing of the images: give cuda, computeCapabilities or cudaCompat")
        return self


class ImageCatalogDocument(RuleDocument):
    """What images carry whose names do not tell."""

    description: TextDocument = Field(TextDocument(), description="what it is for, in listings")
    images: list[ImageDocument] = Field(
        min_length=1, description="each with `image` or `regex`; the first that matches counts"
    )


def build_image_catalog(part: RuleBuilder, data: Any) -> ImageCatalogRule | None:
    """Return the rows that an ImageCatalog's `rule.yaml` states, or None with the mistakes kept in part."""
    found = read_rule(part, data, ImageCatalogDocument)
    if found is None:
        return None
    _, read = found
    return ImageCatalogRule(
        name=part.name,
        rows=tuple(_rows(part.name, read.images)),
        description=Text(read.description.en, read.description.zh),
        enabled=part.enabled,
        location=part.document.locate(part.path),
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
