"""Changes of images in the objects of workloads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from rules.kube.image_reference import Image, parse_image
from rules.text.i18n import Message
from webhook.cli.inputs.node_changes import ChangeError

_IMAGE: Final = "image"
_NO_CHANGE: Final = Message("expected OLD=NEW, two image references or repository prefixes, got {change!r}")


class ImageChange(NamedTuple):
    """The replacement of an image, or of a repository and the repositories below it."""

    old: str
    new: str

    def of(self, image: str) -> str | None:
        """Return the new reference of an image; None if the change does not apply to it.

        A repository without tag and digest applies to all of its images, which keep their tags and digests,
        and to the repositories below it.
        """
        parsed, old, new = parse_image(image), parse_image(self.old), parse_image(self.new)
        if parsed is None:
            return None
        if old and (old.tag or old.digest):
            return self.new if parsed.canonical == old.canonical else None
        prefixes = {self.old.rstrip("/"), *({old.name} if old else ())}
        for name in (parsed.name, parsed.familiar_name):
            if name in prefixes:
                return self.new if new and (new.tag or new.digest) else f"{self.new}{_version(parsed)}"
            for prefix in prefixes:
                if name.startswith(f"{prefix}/"):
                    return f"{self.new.rstrip('/')}{name.removeprefix(prefix)}{_version(parsed)}"
        return None


def parse_image_change(text: str) -> ImageChange:
    """Return the change of OLD=NEW. Raises ChangeError."""
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise ChangeError(_NO_CHANGE, change=text)
    return ImageChange(old, new)


def with_images(document: Any, changes: Iterable[ImageChange]) -> Any:
    """Return an object with its images replaced; the object itself if no image changes."""
    renames = list(changes)
    if isinstance(document, dict):
        members = {key: with_images(value, renames) for key, value in document.items()}
        image = document.get(_IMAGE)
        if isinstance(image, str):
            members[_IMAGE] = next((new for change in renames if (new := change.of(image))), image)
        changed = any(members[key] is not value for key, value in document.items())
        return members if changed else document
    if isinstance(document, list):
        items = [with_images(item, renames) for item in document]
        return items if any(new is not old for new, old in zip(items, document, strict=True)) else document
    return document


def _version(image: Image) -> str:
    """Return tag and digest of a reference as written."""
    tag = f":{image.tag}" if image.tag else ""
    return f"{tag}@{image.digest}" if image.digest else tag
