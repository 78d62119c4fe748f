"""The reviews and pods that are sent during a fault, about each kind of rule, and their expected answers."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import dataclass, replace
from typing import Any, Final

import yaml

from tests.e2e.installed import TEAM
from tests.support.builders import config_map, exemption, injection_rule, resource_rule
from tests.support.webhooks import body, pod

# Resources of test rules. A request for the first adds some of the second; likewise the third and fourth,
# whose default is edited during each fault.
A, B = "faults.example.com/a", "faults.example.com/b"
C, D = "faults.example.com/c", "faults.example.com/d"
_GPU: Final = "nvidia.com/gpu"
EXEMPT: Final = "exempt"
# The node of an installation has CUDA 12.2.
_FITS, _FITS_NOT = "faults.example.com/cuda:fits", "faults.example.com/cuda:fits-not"
# The label of nodes that join during a fault; none has a driver for the second image.
_ROUND: Final = "faults.example.com/round"
_AT_MOST: Final = {"expression": "value <= 4", "messageEn": "four at most", "messageZh": "至多四个"}


def _labelled(kind: str, name: str, document: dict[str, Any]) -> str:
    labels = {"gpugate.dev/type": kind, "gpugate.dev/enabled": "true"}
    return config_map(name, labels, {"rule.yaml": yaml.safe_dump(document)})


def edited_rule(number: int) -> dict[str, Any]:
    """Return the rule that is edited, with this number as its default."""
    return dict(yaml.safe_load(resource_rule(D, group="faults-edited", defaultValue=str(number))))


def rules() -> list[dict[str, Any]]:
    """Return the test rules of the probes; the compatibility rule is a built-in one."""
    images = [{"image": _FITS, "cuda": "12.1"}, {"image": _FITS_NOT, "cuda": "13.0"}]
    texts = (
        resource_rule(A, group="faults", validations=[_AT_MOST]),
        resource_rule(B, group="faults", defaultValue="3"),
        resource_rule(C, group="faults-edited"),
        injection_rule(
            {"env": [{"name": "FAULTS", "value": "set"}]}, name="faults", match={"resources": [A]}
        ),
        _labelled("ImageCatalog", "faults-images", {"images": images}),
        exemption("*", name="faults-exemption", expires="2099-12-31", namespaces={"include": [EXEMPT]}),
    )
    return [*map(yaml.safe_load, texts), edited_rule(0)]


def late_node(number: int) -> dict[str, Any]:
    """Return the node that joins in a round."""
    offered = {_GPU: "8"}
    labels = {_ROUND: str(number), "cuda-major-version": "12", "cuda-minor-version": "2"}
    metadata = {"name": f"late-{number}", "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "status": {"capacity": offered, "allocatable": offered},
    }


@dataclass(frozen=True, slots=True)
class Probe:
    """A review and its expected answer. about: the kind of rule.

    path: of the endpoint. allowed: the result. needle: text in the patch or message; empty for no patch.
    """

    about: str
    path: str
    body: bytes
    allowed: bool
    needle: str = ""

    def right(self, answer: bytes) -> bool:
        """Return whether an answer is the expected one."""
        try:
            response = json.loads(answer)["response"]
            edits = b64decode(response.get("patch", "")).decode()
            message = response.get("status", {}).get("message", "")
        except (ValueError, LookupError, TypeError, AttributeError):
            return False
        text = edits if self.allowed else message
        holds = self.needle in text if self.needle else not text
        return response.get("allowed") is self.allowed and holds


def _probe(about: str, document: dict[str, Any], needle: str = "", *, denied: bool = False) -> Probe:
    path = "/validate" if denied else "/mutate"
    namespace = document["metadata"]["namespace"]
    return Probe(about, path, body(document, namespace=namespace), not denied, needle)


def _gpu(image: str, **spec: Any) -> dict[str, Any]:
    document = pod({_GPU: "1"}, image=image)
    document["spec"] |= spec
    return document


def _exempted() -> dict[str, Any]:
    document = pod({A: "9"})
    document["metadata"]["namespace"] = EXEMPT
    return document


STEADY: Final = (
    _probe("resource rule", pod({A: "1"}), '"3"'),
    _probe("resource rule", pod({A: "9", B: "3"}), "four at most", denied=True),
    _probe("injection rule", pod({A: "1", B: "1"}), "FAULTS"),
    _probe("compatibility rule, image catalogue, nodes", _gpu(_FITS_NOT), "13.0", denied=True),
    _probe("image catalogue, nodes", _gpu(_FITS), "nodeAffinity"),
    _probe("exemption", _exempted()),
    _probe("no rule", pod({"cpu": "1"})),
)


def edited(number: int) -> Probe:
    """Return the probe that is answered right when the edited rule is in force."""
    return _probe("edited rule", pod({C: "1"}), f'"{number}"')


def joined(number: int) -> Probe:
    """Return the probe that is answered right when the node of a round is known."""
    return _probe("new node", _gpu(_FITS_NOT, nodeSelector={_ROUND: str(number)}), "13.0", denied=True)


def read_image(image: str) -> Probe:
    """Return the probe that is answered right when an image is known to require CUDA 13.0."""
    return _probe("image read by the resolver", _gpu(image), "13.0", denied=True)


def unread_image(image: str) -> Probe:
    """Return the probe that is answered right when nothing is known about an image."""
    return replace(read_image(image), about="image without facts", allowed=True, needle="")


@dataclass(frozen=True, slots=True)
class Creation:
    """A pod that is created through the API server, as a dry run, and its expected result.

    limits: of its container. denied: by gpugate; otherwise `gets` must be among its limits.
    """

    limits: dict[str, str]
    denied: bool = False
    gets: tuple[str, str] | None = None

    @property
    def about(self) -> str:
        """Return a description."""
        return "a pod that must be denied" if self.denied else "a pod that must get a default"

    def document(self, name: str) -> dict[str, Any]:
        """Return the pod."""
        document = pod(self.limits)
        document["metadata"] = {"name": name, "namespace": TEAM}
        return document

    def right(self, created: dict[str, Any]) -> bool:
        """Return whether the admitted pod is as expected."""
        limits = created["spec"]["containers"][0]["resources"]["limits"]
        return not self.denied and (self.gets is None or limits.get(self.gets[0]) == self.gets[1])


CREATIONS: Final = (Creation({A: "1"}, gets=(B, "3")), Creation({A: "9", B: "3"}, denied=True))
