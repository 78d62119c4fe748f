"""Output of `gpugate image inspect`: table, JSON, and an ImageCatalog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from rules import Language
from rules.cuda.nvidia_require import constraints
from rules.kube.image_reference import parse_image
from webhook.cli.input.image_source import Inspection
from webhook.cli.output.console import UNKNOWN
from webhook.images.errors import ImageError
from webhook.images.inspection import InspectedImage, PlatformConfig

_LINUX: Final = "linux/"
_SHORT_DIGEST: Final = 19  # characters: sha256: and 12 digits, as Docker shows ids


def table_rows(inspections: Iterable[Inspection]) -> Iterator[dict[str, str]]:
    """Yield a row for each image and set of facts."""
    for each in inspections:
        if isinstance(each.result, InspectedImage):
            more = f" (+{each.result.omitted})" if each.result.omitted else ""
            for _, platforms in each.result.by_facts():
                yield {
                    "image": _short(each.result),
                    "cuda": str(platforms[0].cuda or UNKNOWN),
                    "requires": _requires(platforms[0]),
                    "platforms": ", ".join(found.platform.removeprefix(_LINUX) for found in platforms) + more,
                }


def _short(image: InspectedImage) -> str:
    parsed = parse_image(image.reference)
    if parsed is None:
        return image.reference
    return (
        parsed.short if parsed.tag or not parsed.digest else f"{parsed.short}@{parsed.digest[:_SHORT_DIGEST]}"
    )


def _requires(config: PlatformConfig) -> str:
    """Return the first alternative of each requirement, and the number of the others."""
    shown = []
    for each in constraints(config.env):
        first, *others = each.text.split() or [UNKNOWN]
        shown.append(f"{first} (+{len(others)})" if others else first)
    return ", ".join(shown) or UNKNOWN


def document(inspections: Iterable[Inspection], language: Language) -> dict[str, Any]:
    """Return the images and the errors as JSON."""
    images, errors = [], []
    for each in inspections:
        if isinstance(each.result, ImageError):
            message = each.result.text.in_language(language)
            errors.append({"image": each.name, "reason": each.result.reason.value, "message": message})
        else:
            images.append(_image(each.result))
    return {"images": images, "errors": errors}


def _image(image: InspectedImage) -> dict[str, Any]:
    platforms = [
        {"platform": each.platform, "digest": each.digest or None, **each.facts} for each in image.platforms
    ]
    facts = {"image": image.reference, "digest": image.digest or None}
    return facts | {"platforms": platforms, "omittedPlatforms": image.omitted}


def catalog_rows(inspections: Iterable[Inspection]) -> list[dict[str, Any]]:
    """Return the rows of an ImageCatalog, each once."""
    rows: list[dict[str, Any]] = []
    for each in inspections:
        for row in each.result.rows() if isinstance(each.result, InspectedImage) else ():
            if row not in rows:
                rows.append(row)
    return rows
