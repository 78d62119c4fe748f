"""Image use: the images of the containers with accelerators in a cluster.

Only containers with extended resources are kept; most containers of a cluster have none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NotRequired, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from rules.kube.image_reference import Image, parse_image
from rules.text.glob import glob, is_glob
from webhook.cluster.reflector import Applied, Change, Listed
from webhook.cluster.resource import PODS, Object, Resource

# Distinct images of a cluster, somewhat more than the ConfigMaps hold; and images of one object.
MAX_IMAGES: Final = 5000
MAX_OF_OBJECT: Final = 16
# Pull secrets of an image that are tried; pods of several namespaces may use it.
_MAX_SECRETS: Final = 4


class _Metadata(TypedDict):
    name: str
    namespace: NotRequired[str]
    resourceVersion: str


class _Resources(TypedDict):
    limits: NotRequired[dict[str, Any] | None]
    requests: NotRequired[dict[str, Any] | None]


class _Container(TypedDict):
    image: NotRequired[str]
    resources: NotRequired[_Resources | None]


class _Reference(TypedDict):
    name: NotRequired[str]


class _PodSpec(TypedDict):
    containers: NotRequired[list[_Container] | None]
    initContainers: NotRequired[list[_Container] | None]
    imagePullSecrets: NotRequired[list[_Reference] | None]


class _Pod(TypedDict):
    metadata: _Metadata
    spec: NotRequired[_PodSpec]


class _Template(TypedDict):
    spec: NotRequired[_PodSpec]


class _WorkloadSpec(TypedDict):
    template: NotRequired[_Template]


class _Workload(TypedDict):
    metadata: _Metadata
    spec: NotRequired[_WorkloadSpec]


class _Job(TypedDict):
    spec: NotRequired[_WorkloadSpec]


class _CronJobSpec(TypedDict):
    jobTemplate: NotRequired[_Job]


class _CronJob(TypedDict):
    metadata: _Metadata
    spec: NotRequired[_CronJobSpec]


# The watched resources, with the decoded part of their objects, and the steps to the pod spec.
_TEMPLATE: Final = ("spec", "template", "spec")
WATCHED: Final = (
    (Resource("pods", PODS, shape=_Pod), ("spec",)),
    (Resource("deployments", "/apis/apps/v1/deployments", shape=_Workload), _TEMPLATE),
    (Resource("statefulsets", "/apis/apps/v1/statefulsets", shape=_Workload), _TEMPLATE),
    (Resource("daemonsets", "/apis/apps/v1/daemonsets", shape=_Workload), _TEMPLATE),
    (Resource("jobs", "/apis/batch/v1/jobs", shape=_Workload), _TEMPLATE),
    (Resource("cronjobs", "/apis/batch/v1/cronjobs", shape=_CronJob), ("spec", "jobTemplate", *_TEMPLATE)),
)


class PullSecret(Struct, frozen=True):
    """The name of a Secret with credentials for registries."""

    namespace: str
    name: str


class UsedImage(Struct, frozen=True):
    """An image that objects use."""

    image: Image
    secrets: tuple[PullSecret, ...] = ()  # pull secrets of their pods, at most 4


class _ObjectPart(Struct, frozen=True):
    """The part of an object that is kept."""

    containers: tuple[tuple[str, frozenset[str]], ...]  # image and extended resources
    secrets: tuple[PullSecret, ...]


def image_key(image: Image) -> str:
    """Return the text by which an image is known: canonical, and with a digest without the tag."""
    return (image._replace(tag=None) if image.digest else image).canonical


class ImageUse:
    """The images in use, from changes of objects; used from several threads.

    on_change: called when the images may have changed. omitted: images beyond the limits.
    """

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self._lock = threading.Lock()
        self._on_change = on_change
        self._listed: dict[str, dict[tuple[str, str], _ObjectPart]] = {}
        self._accelerators = _Accelerators(())
        self._images: dict[str, UsedImage] | None = None
        self.omitted = 0

    @property
    def awaited(self) -> list[str]:
        """The resources that were not listed yet."""
        return [resource.name for resource, _ in WATCHED if resource.name not in self._listed]

    def set_resources(self, resources: Collection[str]) -> None:
        """Set the names and globs of the resources whose containers count."""
        with self._lock:
            self._accelerators, self._images = _Accelerators(resources), None
        self._on_change()

    def change(self, resource: Resource, steps: tuple[str, ...], change: Change) -> None:
        """Apply a change of objects. steps: to the spec of their pods."""
        with self._lock:
            before = self._listed.get(resource.name)
            if isinstance(change, Listed):
                by_key = {_key(document): _relevant_part(document, steps) for document in change.objects}
                self._listed[resource.name] = {key: part for key, part in by_key.items() if part}
            else:
                objects = self._listed.setdefault(resource.name, {})
                key = _key(change.object)
                part = _relevant_part(change.object, steps) if isinstance(change, Applied) else None
                if objects.get(key) == part:
                    return
                if part:
                    objects[key] = part
                else:
                    objects.pop(key, None)
            if before == {} == self._listed[resource.name]:
                return
            self._images = None
        self._on_change()

    def images(self) -> Mapping[str, UsedImage]:
        """Return the images in use by their keys, at most 5,000."""
        with self._lock:
            if self._images is None:
                self._images, self.omitted = {}, 0
                parsed: dict[str, tuple[str, Image] | None] = {}
                for objects in self._listed.values():
                    for part in objects.values():
                        self._add(self._images, parsed, part)
            return self._images

    def _add(
        self, images: dict[str, UsedImage], parsed: dict[str, tuple[str, Image] | None], part: _ObjectPart
    ) -> None:
        """Add the images of an object. parsed: a cache of key and image by text; most pods share images."""
        for text, resources in part.containers:
            if not self._accelerators.match(resources):
                continue
            if text not in parsed:
                image = parse_image(text)
                parsed[text] = None if image is None else (image_key(image), image)
            if (entry := parsed[text]) is None:
                continue
            key, image = entry
            known = images.get(key)
            if known is None and len(images) >= MAX_IMAGES:
                self.omitted += 1
            elif known is None:
                images[key] = UsedImage(image, part.secrets[:_MAX_SECRETS])
            elif part.secrets and len(known.secrets) < _MAX_SECRETS:
                secrets = dict.fromkeys((*known.secrets, *part.secrets))
                images[key] = replace(known, secrets=tuple(secrets)[:_MAX_SECRETS])


class _Accelerators:
    """The extended resources of rules: names and globs."""

    def __init__(self, resources: Collection[str]) -> None:
        self._names = frozenset(resources)
        self._globs = [glob(pattern) for pattern in resources if is_glob(pattern)]

    def match(self, resources: frozenset[str]) -> bool:
        """Return whether a container's resources include an accelerator."""
        return not self._names.isdisjoint(resources) or any(
            pattern.fullmatch(name) for pattern in self._globs for name in resources
        )


def _key(document: Object) -> tuple[str, str]:
    return document["metadata"].get("namespace", ""), document["metadata"]["name"]


def _relevant_part(document: Object, steps: tuple[str, ...]) -> _ObjectPart | None:
    """Return the part of an object to keep; None if no container has an extended resource."""
    spec: Any = document
    for step in steps:
        spec = spec.get(step) or {}
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    named = {(container.get("image", ""), _extended(container)): None for container in containers}
    relevant = tuple((image, resources) for image, resources in named if image and resources)
    if not relevant:
        return None
    namespace = document["metadata"].get("namespace", "")
    names = [reference.get("name", "") for reference in spec.get("imagePullSecrets") or ()]
    secrets = tuple(PullSecret(namespace, name) for name in names[:_MAX_SECRETS] if name)
    return _ObjectPart(relevant[:MAX_OF_OBJECT], secrets)


def _extended(container: Mapping[str, Any]) -> frozenset[str]:
    """Return the extended resources that a container requests; `cpu` and the like have no domain."""
    resources = container.get("resources") or {}
    parts = (resources.get("limits") or {}, resources.get("requests") or {})
    return frozenset(name for part in parts for name in part if "/" in name)
