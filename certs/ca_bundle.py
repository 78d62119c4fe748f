"""The caBundle of gpugate's webhooks: the CAs that the API server trusts when it calls them."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from certs.bundle import certificates_in
from certs.kubernetes_api import Kubernetes, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

# The name of both webhook configurations, and the suffix of gpugate's webhook names. Other webhooks in these
# configurations belong to somebody else.
NAME: Final = "gpugate"
DOMAIN: Final = ".gpugate.dev"
KINDS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


@dataclass(frozen=True, slots=True)
class Configuration:
    """A webhook configuration as it was read.

    Attributes:
        kind: one of KINDS.
        version: its resourceVersion.
        ca_bundles: the CAs in the caBundle of each webhook of gpugate, PEM, by index of the webhook; empty if
        the
            caBundle is absent or not PEM.
    """

    kind: str
    version: str
    ca_bundles: dict[int, tuple[bytes, ...]]

    @property
    def trusted(self) -> frozenset[bytes]:
        """The CAs that all caBundles contain."""
        return frozenset.intersection(*map(frozenset, self.ca_bundles.values()))


def read_configurations(api: Kubernetes) -> list[Configuration]:
    """Return the webhook configurations that contain a webhook of gpugate; raises KubernetesError."""
    return [configuration for kind in KINDS if (configuration := _read(api, kind)) is not None]


def write_ca_bundles(
    api: Kubernetes, configuration: Configuration, trust: Callable[[tuple[bytes, ...]], tuple[bytes, ...]]
) -> None:
    """Replace the CAs of each caBundle by the result of `trust` for them, in one patch.

    An equal set is not written. Raises Conflict if the configuration has changed since it was read,
    KubernetesError.
    """
    operations: list[dict[str, Any]] = []
    for index, current in configuration.ca_bundles.items():
        expected = trust(current)
        if set(expected) != set(current):
            value = b64encode(b"".join(expected)).decode()
            operations.append(
                {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": value}
            )
    if operations:
        # Not `test`: it fails with 422, as other errors do. An old resourceVersion fails with 409.
        version = {"op": "replace", "path": "/metadata/resourceVersion", "value": configuration.version}
        api.patch(configuration_path(configuration.kind), [version, *operations])


def _read(api: Kubernetes, kind: str) -> Configuration | None:
    try:
        document = api.get(configuration_path(kind))
    except NotFound:
        return None
    ca_bundles = {
        index: certificates_in(b64decode(webhook["clientConfig"].get("caBundle") or ""))
        for index, webhook in enumerate(document.get("webhooks") or ())
        if webhook["name"].endswith(DOMAIN)
    }
    return Configuration(kind, document["metadata"]["resourceVersion"], ca_bundles) if ca_bundles else None


def configuration_path(kind: str) -> str:
    """Return the path of gpugate's webhook configuration of a kind."""
    return f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}s/{NAME}"
