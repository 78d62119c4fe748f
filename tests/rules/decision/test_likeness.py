"""What stands for images and labels of which rules make the same: small, bounded, and never guessed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.cel.expression import ExpressionError
from rules.decision.likeness import Likeness
from rules.decision.policy import Policy
from rules.decision.reads import Reads
from tests.support.builders import DEVICE, injection_rule, policy
from tests.support.node_builders import compatibility_rule, cuda_image

NAMES = (DEVICE,)


def _reads(rules: Policy) -> tuple[Likeness, Reads]:
    reads = rules.reads_of(NAMES)
    assert reads is not None
    return rules.likeness, reads


def test_the_first_image_stands_for_those_of_which_as_much_is_known() -> None:
    """The same CUDA, told by the same tag."""
    like, _ = _reads(policy(compatibility_rule(match={"resources": [DEVICE]})))
    first, other, newer = "a/b:cuda12.2-v1", "c/d:cuda12.2-v1", "a/b:cuda12.4-v1"

    assert [first, first, newer, first] == [
        like.image((NAMES, each)) for each in (first, other, newer, first)
    ]


def test_of_a_rule_that_cannot_be_evaluated_for_it_nothing_is_alike() -> None:
    """Such a pod is decided as it is, with a warning."""
    failing = "container.image.matches('a') || {'a': true}[container.image]"
    like, _ = _reads(policy(injection_rule({"hostIPC": True}, match={"conditions": [failing]})))

    assert like.image((NAMES, "a")) == "a"
    with pytest.raises(ExpressionError):
        like.image((NAMES, "b"))


@pytest.mark.parametrize(
    "labels",
    [{"a": "x" * 2000}, {"x" * 2000: "a"}, {"a": None}, {"a": 1}],
    ids=["value", "key", "null", "number"],
)
def test_labels_that_are_long_or_none_stand_for_themselves(labels: dict[str, str]) -> None:
    """And none is kept; nor are others, beside names of resources that are long."""
    condition = "pod.labels.exists(key, key == 'b')"
    like, reads = _reads(policy(injection_rule({"hostIPC": True}, match={"conditions": [condition]})))

    assert like.labels(reads, labels) is labels
    like.labels(replace(reads, names=("x" * 2000,)), {"a": "b"})
    assert not like._first_labels._kept


@pytest.mark.parametrize(("names", "image"), [(NAMES, "x" * 2**20), ((DEVICE, "x" * 2**20), "a")])
def test_no_long_image_is_kept(names: tuple[str, ...], image: str) -> None:
    """It may be a megabyte, and so may the names of resources beside it."""
    like, _ = _reads(policy(compatibility_rule(match={"resources": [DEVICE]})))

    assert like.image((names, image)) is image
    assert not like._first_image._kept
    assert not like.image.__self__  # type: ignore[attr-defined]


def test_so_many_are_kept_and_no_more() -> None:
    """One more, and all are found anew."""
    like, _ = _reads(policy(compatibility_rule(match={"resources": [DEVICE]})))
    images = [f"{cuda_image('12.2')}-{number}" for number in range(1025)]
    found = [like.image((NAMES, each)) for each in images]

    assert images == found
    assert list(like._first_image._kept.values()) == images[-1:]
