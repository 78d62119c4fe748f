"""What stands for the images and labels of pods in their gists: of those that tell the same, the first.

A cluster's images and labels are many: a tag for each build, a label for each job. What rules make of them is
little. So a gist holds others in their place of which rules make the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from rules.decision.injection_stage import spellings
from rules.text.bounded_cache import Firsts, bounded_cache, length

if TYPE_CHECKING:
    from rules.cuda.image_catalog import ImageFacts
    from rules.decision.reads import Reads

Names = tuple[str, ...]

# Images that are remembered, and images and labels that stand for others; 2 KB each at most.
_IMAGES: Final = 4096
_FIRST: Final = 1024
# Characters of an image, or of labels, with the names of resources beside them.
_LONGEST: Final = 1024


class Likeness:
    """Finds what stands for an image or labels, as far as rules read them. Any thread may ask it.

    image: for the names of resources that bring the rules in and an image, the image that stands for it.
    Raises ExpressionError where a rule cannot be evaluated for it.
    """

    __slots__ = ("_facts_of", "_first_image", "_first_labels", "_reads_of", "image")

    def __init__(
        self, reads_of: Callable[[Names], Reads | None], facts_of: Callable[[str], ImageFacts]
    ) -> None:
        """reads_of: what rules read of pods that ask for resources. facts_of: what is known of an image."""
        self._reads_of = reads_of
        self._facts_of = facts_of
        self._first_image: Firsts[str] = Firsts(_FIRST)
        self._first_labels: Firsts[Mapping[str, str]] = Firsts(_FIRST)
        self.image = bounded_cache(self._find_image, _IMAGES, _is_short)

    def _find_image(self, asked: tuple[Names, str]) -> str:
        names, image = asked
        reads = self._reads_of(names)
        if reads is None or reads.images or not _is_short(asked):
            return image
        written = spellings(image) if reads.globs else ()
        told = (
            names,
            self._facts_of(image) if reads.needs else None,
            tuple([any(glob.fullmatch(each) for each in written for glob in globs) for globs in reads.globs]),
            tuple([term.afresh({"container": {"image": image}}.__getitem__) for term in reads.image_terms]),
        )
        return self._first_image(told, image)

    def labels(self, reads: Reads, labels: Mapping[str, str]) -> Mapping[str, str]:
        """Return the labels that stand for those of a pod. Raises ExpressionError likewise."""
        items = tuple(labels.items())
        if reads.labels is None or length((reads.names, items)) > _LONGEST:
            return labels
        told = (
            reads.names,
            tuple([term.afresh({"pod": {"labels": labels}}.__getitem__) for term in reads.label_terms]),
            tuple([(key, labels[key]) for key in reads.labels if key in labels]),
        )
        return self._first_labels(told, labels)


def _is_short(asked: tuple[Names, str]) -> bool:
    names, image = asked
    return len(image) + sum(map(len, names)) <= _LONGEST
