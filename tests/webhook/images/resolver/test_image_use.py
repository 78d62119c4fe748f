"""Image use: which containers count, and what is kept of objects."""

from __future__ import annotations

from typing import Any

from webhook.cluster.reflector import Applied, Deleted, Listed
from webhook.images.resolver.image_use import MAX_IMAGES, MAX_OF_OBJECT, WATCHED, ImageUse, PullSecret

GPU = {"limits": {"nvidia.com/gpu": "1"}}
STEPS = {resource.name: (resource, steps) for resource, steps in WATCHED}
DIGEST = "sha256:" + "0123456789abcdef" * 4


def container(image: str, resources: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a container with one GPU, or other resources."""
    return {"image": image, "resources": GPU if resources is None else resources}


def under(steps: tuple[str, ...], spec: dict[str, Any]) -> dict[str, Any]:
    """Return an object with a pod's spec at some steps."""
    for step in reversed(steps):
        spec = {step: spec}
    return {"metadata": {"name": "a", "namespace": "ml", "resourceVersion": "1"}, **spec}


def pod(*containers: dict[str, Any], name: str = "a", namespace: str = "ml", **spec: Any) -> dict[str, Any]:
    """Return a pod."""
    document = under(("spec",), {"containers": list(containers), **spec})
    document["metadata"] |= {"name": name, "namespace": namespace}
    return document


def use(
    *pods: dict[str, Any], resources: tuple[str, ...] = ("nvidia.com/gpu", "nvidia.com/mig-*")
) -> ImageUse:
    """Return the images that pods use."""
    image_use = ImageUse()
    image_use.set_resources(resources)
    image_use.change(*STEPS["pods"], Listed(list(pods)))
    return image_use


def test_only_containers_that_request_an_accelerator_of_a_rule_count() -> None:
    """By name or glob, in limits or requests; init containers as well."""
    image_use = use(
        pod(
            container("gpu:1"),
            container("mig:1", {"requests": {"nvidia.com/mig-1g.5gb": "1"}}),
            container("plain:1", {"limits": {"cpu": "1"}}),
            container("npu:1", {"limits": {"huawei.com/Ascend910": "1"}}),
            container("none:1", {}),
            initContainers=[container("init:1")],
        )
    )

    assert {f"docker.io/library/{name}:1" for name in ("gpu", "mig", "init")} == image_use.images().keys()


def test_templates_of_the_built_in_workloads_count_before_there_are_pods() -> None:
    """Deployments, StatefulSets, DaemonSets, Jobs and CronJobs."""
    for resource, steps in WATCHED:
        image_use = ImageUse()
        image_use.set_resources(["nvidia.com/gpu"])
        image_use.change(resource, steps, Listed([under(steps, {"containers": [container("x:1")]})]))

        assert ["docker.io/library/x:1"] == list(image_use.images())


def test_spellings_of_an_image_are_one_image_and_with_a_digest_the_tag_is_ignored() -> None:
    """And what is not a reference is no image."""
    images = ("x", "docker.io/library/x:latest", f"x:1@{DIGEST}", f"x@{DIGEST}", "<image>")
    image_use = use(pod(*map(container, images)))

    assert ["docker.io/library/x:latest", f"docker.io/library/x@{DIGEST}"] == list(image_use.images())


def test_an_image_is_in_use_as_long_as_an_object_names_it() -> None:
    """A change of an object replaces its images."""
    image_use = use(pod(container("a:1"), name="one"), pod(container("a:1"), name="two"))
    image_use.change(*STEPS["pods"], Deleted(pod(container("a:1"), name="one")))
    kept = list(image_use.images())
    image_use.change(*STEPS["pods"], Applied(pod(container("b:1"), name="two")))

    assert (["docker.io/library/a:1"], ["docker.io/library/b:1"]) == (kept, list(image_use.images()))


def test_other_rules_make_other_containers_count() -> None:
    """Without that anything is listed again."""
    image_use = use(pod(container("a:1"), container("b:1", {"limits": {"tencent.com/vcuda-core": "20"}})))
    image_use.set_resources(["tencent.com/vcuda-*"])

    assert ["docker.io/library/b:1"] == list(image_use.images())


def test_changes_of_objects_without_accelerators_are_not_reported() -> None:
    """A cluster has many of them."""
    reported: list[int] = []
    image_use = ImageUse(lambda: reported.append(1))
    image_use.change(*STEPS["pods"], Listed([pod(container("x:1", {}))]))
    image_use.change(*STEPS["pods"], Applied(pod(container("x:2", {}))))
    image_use.change(*STEPS["pods"], Deleted(pod(container("x:2", {}))))
    listed = len(reported)
    image_use.change(*STEPS["pods"], Applied(pod(container("x:3"))))
    image_use.change(*STEPS["pods"], Applied(pod(container("x:3"))))

    assert (1, 2) == (listed, len(reported))


def test_the_images_of_an_object_and_of_a_cluster_are_bounded() -> None:
    """A user who creates pods cannot fill the memory."""
    one = use(pod(*(container(f"x:{number}") for number in range(100))))
    many = use(*(pod(container(f"x:{number}"), name=str(number)) for number in range(MAX_IMAGES + 7)))

    assert MAX_OF_OBJECT == len(one.images())
    assert (MAX_IMAGES, 7) == (len(many.images()), many.omitted)


def test_pull_secrets_of_all_pods_with_an_image_are_known_four_at_most() -> None:
    """Each in the namespace of its pod."""
    image_use = use(
        *(
            pod(
                container("x:1"),
                namespace=f"team-{number}",
                imagePullSecrets=[{"name": "pull"}, {"name": "b"}],
            )
            for number in range(5)
        )
    )
    (used,) = image_use.images().values()

    assert (
        PullSecret("team-0", "pull"),
        PullSecret("team-0", "b"),
        PullSecret("team-1", "pull"),
        PullSecret("team-1", "b"),
    ) == used.secrets


def test_everything_is_awaited_until_it_was_listed() -> None:
    """Even if there is nothing."""
    image_use = ImageUse()
    before = image_use.awaited
    for resource, steps in WATCHED:
        image_use.change(resource, steps, Listed([]))

    assert ([resource.name for resource, _ in WATCHED], []) == (before, image_use.awaited)
