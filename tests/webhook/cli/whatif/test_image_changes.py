"""Changes of images in objects."""

from __future__ import annotations

import pytest

from webhook.cli.inputs.node_changes import ChangeError
from webhook.cli.whatif.image_changes import ImageChange, parse_image_change, with_images


@pytest.mark.parametrize(
    ("old", "new", "image", "expected"),
    [
        (
            "nvidia/cuda:12.4.1-base",
            "nvidia/cuda:13.0.0-base",
            "nvidia/cuda:12.4.1-base",
            "nvidia/cuda:13.0.0-base",
        ),
        ("nvidia/cuda:12.4.1-base", "a/b:1", "docker.io/nvidia/cuda:12.4.1-base", "a/b:1"),
        ("nvidia/cuda:12.4.1-base", "a/b:1", "nvidia/cuda:12.4.1-devel", None),
        ("nvidia/cuda", "mirror.example/cuda", "nvidia/cuda:12.4.1-base", "mirror.example/cuda:12.4.1-base"),
        ("nvidia/cuda", "nvidia/cuda:13.0.0-base", "nvidia/cuda:12.4.1-base", "nvidia/cuda:13.0.0-base"),
        ("nvidia/cuda", "a/b", "nvidia/cudagl:12", None),
        ("old.example", "new.example/copy", "old.example/team/train:1", "new.example/copy/team/train:1"),
        ("old.example/", "new.example/", "old.example/team/train:1", "new.example/team/train:1"),
        ("nvidia", "mirror/nvidia", "nvidia/cuda:12.4.1", "mirror/nvidia/cuda:12.4.1"),
        ("a/b", "c/d", "not an image", None),
    ],
)
def test_a_reference_stands_for_itself_and_a_repository_for_all_below_it(
    old: str, new: str, image: str, expected: str | None
) -> None:
    """Tags and digests stay unless the new reference has one."""
    assert expected == ImageChange(old, new).of(image)


def test_all_containers_of_an_object_get_the_new_image() -> None:
    """The object that is given stays as it is; one without the image is returned itself."""
    spec = {"initContainers": [{"image": "a/b:1"}], "containers": [{"image": "a/b:2"}, {"image": "c"}]}
    changed = with_images({"spec": spec}, [ImageChange("a/b", "d/e")])
    images = [
        container["image"]
        for container in (*changed["spec"]["initContainers"], *changed["spec"]["containers"])
    ]
    assert (["d/e:1", "d/e:2", "c"], "a/b:1") == (images, spec["initContainers"][0]["image"])
    assert spec is with_images(spec, [ImageChange("x", "y")])


@pytest.mark.parametrize("text", ["a", "=b", "a=", ""])
def test_a_change_needs_both_images(text: str) -> None:
    """OLD=NEW."""
    with pytest.raises(ChangeError):
        parse_image_change(text)
