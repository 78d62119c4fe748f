"""Policies and webhook configurations as files that the API server reads, at start and after a change.

They are in force without etcd, and nobody can delete them through the API: KEP-5793, beta in Kubernetes 1.37.
Source: k8s.io/apiserver/pkg/admission/plugin/{manifest,policy/manifest/loader,webhook/manifest/loader}.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rules.text.i18n import Message
from webhook.cluster.match_conditions import CONDITION
from webhook.yaml_output import dump_yaml

# Names that only such files may have; the API refuses to create objects with them.
SUFFIX: Final = ".static.k8s.io"
_VERSION: Final = "admissionregistration.k8s.io/v1"
# Admission plugins, each with the kind of its configuration and the kinds that it reads from its own folder.
_PLUGINS: Final[Mapping[str, tuple[str, Sequence[str]]]] = {
    "ValidatingAdmissionPolicy": (
        "ValidatingAdmissionPolicyConfiguration",
        ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    ),
    "MutatingAdmissionPolicy": (
        "MutatingAdmissionPolicyConfiguration",
        ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
    ),
    "ValidatingAdmissionWebhook": ("WebhookAdmissionConfiguration", ("ValidatingWebhookConfiguration",)),
    "MutatingAdmissionWebhook": ("WebhookAdmissionConfiguration", ("MutatingWebhookConfiguration",)),
}
_PLUGIN_OF: Final = {kind: plugin for plugin, (_, kinds) in _PLUGINS.items() for kind in kinds}
_FILE: Final = "gpugate.yaml"

_OTHER_KIND: Final = Message(
    "only policies, bindings and webhook configurations of {version}", version=_VERSION
)
_PARAMETERS: Final = Message("it has parameters, which are objects of the cluster")
_NO_POLICY: Final = Message("its policy is not in these files")
_SERVICE: Final = Message("webhook {name} has a Service, and files may only have URLs; use --webhook-url")
_CONDITION: Final = Message(
    "condition {condition} of webhook {name} is left out: gpugate keeps it up to date only in the cluster",
    condition=CONDITION,
)
_NO_CA: Final = Message(
    "webhook {name} has no caBundle: the API server trusts the CAs of its machine; use --webhook-ca"
)


@dataclass
class StaticManifests:
    """Objects for the folder of the API server.

    objects: by plugin. omitted, notes: kind and name of an object, or the kinds of many, and why they are
    not in the files, or what is different there.
    """

    objects: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {plugin: [] for plugin in _PLUGINS}
    )
    omitted: list[tuple[str, Message]] = field(default_factory=list)
    notes: list[tuple[str, Message]] = field(default_factory=list)

    def write(self, folder: Path) -> dict[str, Any]:
        """Write the files, each at once; return the configuration that names them. Raises OSError.

        Files of plugins without objects are empty: what an earlier export wrote is no longer in force.
        """
        plugins = []
        for plugin, objects in self.objects.items():
            place = folder.absolute() / plugin
            place.mkdir(parents=True, exist_ok=True)
            # An API server that reads now sees the old file or the new one; it does not read this name.
            unfinished = place / f"{_FILE}.unfinished"
            unfinished.write_text("".join(f"---\n{dump_yaml(document)}" for document in objects), "utf-8")
            unfinished.replace(place / _FILE)
            kind, _ = _PLUGINS[plugin]
            if objects or kind != "WebhookAdmissionConfiguration":
                configuration = {
                    "apiVersion": "apiserver.config.k8s.io/v1",
                    "kind": kind,
                    "staticManifestsDir": str(place),
                }
                plugins.append({"name": plugin, "configuration": configuration})
        return {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": plugins,
        }


def static_manifests(
    objects: Iterable[Mapping[str, Any]], webhook_url: str = "", webhook_ca: bytes = b""
) -> StaticManifests:
    """Return objects as the API server accepts them in files.

    webhook_url: address of the webhook instead of its Service, without the path. webhook_ca: PEM of the CA
    that signed its certificate, instead of the caBundle.
    """
    result, bindings, others = StaticManifests(), [], set[str]()
    address = {"url": webhook_url.rstrip("/"), "caBundle": b64encode(webhook_ca).decode()}
    for document in objects:
        kind, name = str(document.get("kind")), str((document.get("metadata") or {}).get("name"))
        subject = f"{kind} {name}"
        spec = document.get("spec") or {}
        if kind not in _PLUGIN_OF or document.get("apiVersion") != _VERSION:
            others.add(kind)
        elif spec.get("paramKind") or spec.get("paramRef"):
            result.omitted.append((subject, _PARAMETERS))
        elif kind.endswith("Binding"):
            bindings.append((subject, _renamed(document)))
        elif "webhooks" in document:
            if converted := _webhooks(subject, document, address, result):
                result.objects[_PLUGIN_OF[kind]].append(converted)
        else:
            result.objects[_PLUGIN_OF[kind]].append(_renamed(document))
    for subject, binding in bindings:
        objects_of_plugin = result.objects[_PLUGIN_OF[binding["kind"]]]
        # An API server refuses a whole folder with a binding without its policy.
        if any(
            binding["spec"].get("policyName") == policy["metadata"]["name"] for policy in objects_of_plugin
        ):
            objects_of_plugin.append(binding)
        else:
            result.omitted.append((subject, _NO_POLICY))
    if others:  # in one line: most manifests have many
        result.omitted.append((", ".join(sorted(others)), _OTHER_KIND))
    return result


def _renamed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with the name of a static one, without what only the API server writes."""
    metadata = document["metadata"]
    kept = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    renamed = {
        "apiVersion": _VERSION,
        "kind": document["kind"],
        "metadata": {"name": _static(metadata["name"]), **kept},
    }
    if spec := document.get("spec"):
        reference = {"policyName": _static(spec["policyName"])} if "policyName" in spec else {}
        renamed["spec"] = {**spec, **reference}
    return renamed


def _static(name: str) -> str:
    return name if name.endswith(SUFFIX) else f"{name}{SUFFIX}"


def _webhooks(
    subject: str, document: Mapping[str, Any], address: Mapping[str, str], result: StaticManifests
) -> dict[str, Any] | None:
    """Return a webhook configuration that calls URLs; None if it is omitted. address: url and caBundle."""
    webhooks = []
    for webhook in document["webhooks"]:
        client, name = dict(webhook.get("clientConfig") or {}), webhook.get("name")
        if service := client.pop("service", None):
            if not address["url"]:
                result.omitted.append((subject, _SERVICE.having(name=name)))
                return None
            client["url"] = f"{address['url']}/{str(service.get('path') or '').lstrip('/')}"
        if address["caBundle"]:
            client["caBundle"] = address["caBundle"]
        if not client.get("caBundle"):
            result.notes.append((subject, _NO_CA.having(name=name)))
        conditions = webhook.get("matchConditions") or []
        kept = [condition for condition in conditions if condition.get("name") != CONDITION]
        if len(kept) < len(conditions):
            result.notes.append((subject, _CONDITION.having(name=name)))
        webhooks.append({**webhook, "clientConfig": client, "matchConditions": kept})
    return _renamed(document) | {"webhooks": webhooks}
