"""The caBundle of our webhooks: which CAs the API server trusts when it calls them."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from certs.bundle import certificates_in
from certs.kubernetes_api import Kubernetes, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

# The name of both webhook configurations, and what our webhooks' names end with. Whatever else stands in a
# configuration of this name is somebody else's.
NAME: Final = "gpugate"
DOMAIN: Final = ".gpugate.dev"
KINDS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


@dataclass(frozen=True, slots=True)
class Configuration:
    """A webhook configuration as it was read.

    kind: one of KINDS. version: its resourceVersion. ca_bundles: place of each webhook of ours in it, and the
    CAs, PEM, in its caBundle; none where that is absent or no PEM.
    """

    kind: str
    version: str
    ca_bundles: dict[int, tuple[bytes, ...]]

    @property
    def trusted(self) -> frozenset[bytes]:
        """The CAs that each of our webhooks trusts."""
        return frozenset.intersection(*map(frozenset, self.ca_bundles.values()))


def read_configurations(api: Kubernetes) -> list[Configuration]:
    """Return the webhook configurations that are there and hold a webhook of ours; raises KubernetesError."""
    return [found for kind in KINDS if (found := _read(api, kind)) is not None]


def write_ca_bundles(
    api: Kubernetes, configuration: Configuration, trust: Callable[[tuple[bytes, ...]], tuple[bytes, ...]]
) -> None:
    """Let each caBundle hold what `trust` makes of the CAs in it, where that is not what it holds.

    All at once, and nothing else is touched. Raises Conflict where the configuration has changed since it was
    read, KubernetesError.
    """
    operations: list[dict[str, Any]] = []
    for place, held in configuration.ca_bundles.items():
        wanted = trust(held)
        if set(wanted) != set(held):
            value = b64encode(b"".join(wanted)).decode()
            operations.append(
                {"op": "add", "path": f"/webhooks/{place}/clientConfig/caBundle", "value": value}
            )
    if operations:
        # Not `test`, whose failure is a 422 among others: an old version in the result is a 409.
        version = {"op": "replace", "path": "/metadata/resourceVersion", "value": configuration.version}
        api.patch(_path(configuration.kind), [version, *operations])


def _read(api: Kubernetes, kind: str) -> Configuration | None:
    try:
        document = api.get(_path(kind))
    except NotFound:
        return None
    ca_bundles = {
        place: certificates_in(b64decode(webhook["clientConfig"].get("caBundle") or ""))
        for place, webhook in enumerate(document.get("webhooks") or ())
        if webhook["name"].endswith(DOMAIN)
    }
    return Configuration(kind, document["metadata"]["resourceVersion"], ca_bundles) if ca_bundles else None


def _path(kind: str) -> str:
    return f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}s/{NAME}"
