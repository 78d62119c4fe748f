"""Policies and webhook configurations as files; e2e/test_static_manifests.py has a real API server."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules.text.i18n import Language
from tests.support.builders import resource_rule
from tests.support.command import gpugate
from webhook.cli.export.static_manifests import static_manifests
from webhook.cluster.match_conditions import CONDITION

WEBHOOKS = Path("manifests/base/webhooks.yaml")
URL = "https://127.0.0.1:8443"
PLUGINS = [
    "ValidatingAdmissionPolicy",
    "MutatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "MutatingAdmissionWebhook",
]


def policy(name: str, **spec: Any) -> dict[str, Any]:
    """Return a policy as the API server returns it."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name, "uid": "1", "resourceVersion": "2", "labels": {"a": "b"}},
        "spec": spec,
        "status": {"observedGeneration": 1},
    }


def binding(name: str, policy_name: str, **spec: Any) -> dict[str, Any]:
    """Return a binding."""
    return policy(name) | {
        "kind": "ValidatingAdmissionPolicyBinding",
        "spec": {"policyName": policy_name, **spec},
    }


def webhooks(*conditions: str, **client: Any) -> dict[str, Any]:
    """Return a configuration with one webhook."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "gpugate"},
        "webhooks": [
            {
                "name": "mutate.gpugate.dev",
                "clientConfig": client,
                "matchConditions": [{"name": name, "expression": "true"} for name in conditions],
            }
        ],
    }


def documents(path: Path) -> list[Any]:
    """Return the objects in a file."""
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def test_rules_are_written_for_each_plugin_and_the_configuration_names_the_folders(tmp_path: Path) -> None:
    """A folder of the API server may only have kinds of its own plugin."""
    (tmp_path / "rule.yaml").write_text(
        resource_rule("vendor.com/a", group="g", limits="required", requests="required", defaultValue="3")
    )
    folder = tmp_path / "static"
    result = gpugate("export", tmp_path / "rule.yaml", "--static", folder)
    configuration = yaml.safe_load(result.stdout)
    written = {
        plugin: [
            (document["kind"], document["metadata"]["name"])
            for document in documents(folder / plugin / "gpugate.yaml")
        ]
        for plugin in PLUGINS
    }

    assert 0 == result.exit_code
    assert {
        "ValidatingAdmissionPolicy": [
            ("ValidatingAdmissionPolicy", "gpugate-g.static.k8s.io"),
            ("ValidatingAdmissionPolicyBinding", "gpugate-g.static.k8s.io"),
        ],
        "MutatingAdmissionPolicy": [
            ("MutatingAdmissionPolicy", "gpugate-g.static.k8s.io"),
            ("MutatingAdmissionPolicyBinding", "gpugate-g.static.k8s.io"),
        ],
        "ValidatingAdmissionWebhook": [],
        "MutatingAdmissionWebhook": [],
    } == written
    assert [(plugin, str(folder / plugin)) for plugin in PLUGINS[:2]] == [
        (plugin["name"], plugin["configuration"]["staticManifestsDir"]) for plugin in configuration["plugins"]
    ]


def test_a_later_export_replaces_what_an_earlier_one_wrote(tmp_path: Path) -> None:
    """A group that is gone leaves no policy in force."""
    folder = tmp_path / "static"
    static_manifests([policy("one"), webhooks(url=URL)]).write(folder)
    static_manifests([policy("two")]).write(folder)
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())

    assert [f"{plugin}/gpugate.yaml" for plugin in sorted(PLUGINS)] == files
    assert ["two.static.k8s.io"] == [
        document["metadata"]["name"] for document in documents(folder / PLUGINS[0] / "gpugate.yaml")
    ]
    assert "" == (folder / PLUGINS[3] / "gpugate.yaml").read_text()


def test_a_binding_refers_to_the_static_policy_and_fields_of_the_api_server_are_left_out() -> None:
    """Whatever order they have; labels stay."""
    manifests = static_manifests([binding("b", "p"), policy("p", failurePolicy="Fail")]).objects[PLUGINS[0]]

    assert [
        {"name": "p.static.k8s.io", "labels": {"a": "b"}},
        {"name": "b.static.k8s.io", "labels": {"a": "b"}},
    ] == [manifest["metadata"] for manifest in manifests]
    assert [{"failurePolicy": "Fail"}, {"policyName": "p.static.k8s.io"}] == [
        manifest["spec"] for manifest in manifests
    ]
    assert not any("status" in manifest for manifest in manifests)


def test_what_the_api_server_does_not_accept_in_files_is_left_out_and_listed() -> None:
    """One such object would make it refuse the whole folder, or not start."""
    result = static_manifests(
        [
            policy("with-parameters", paramKind={"apiVersion": "v1", "kind": "ConfigMap"}),
            policy("kept"),
            binding("with-parameters", "kept", paramRef={"name": "a"}),
            binding("without-policy", "other"),
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rule"}},
            policy("old") | {"apiVersion": "admissionregistration.k8s.io/v1beta1"},
            webhooks(service={"name": "gpugate", "namespace": "gpugate", "path": "/mutate"}),
        ]
    )

    assert ["kept.static.k8s.io"] == [
        document["metadata"]["name"] for objects in result.objects.values() for document in objects
    ]
    assert [
        ("ValidatingAdmissionPolicy with-parameters", "it has parameters, which are objects of the cluster"),
        (
            "ValidatingAdmissionPolicyBinding with-parameters",
            "it has parameters, which are objects of the cluster",
        ),
        (
            "MutatingWebhookConfiguration gpugate",
            "webhook mutate.gpugate.dev has a Service, and files may only have URLs; use --webhook-url",
        ),
        ("ValidatingAdmissionPolicyBinding without-policy", "its policy is not in these files"),
        (
            "ConfigMap, ValidatingAdmissionPolicy",
            "only policies, bindings and webhook configurations of admissionregistration.k8s.io/v1",
        ),
    ] == [(name, reason.in_language(Language.EN)) for name, reason in result.omitted]


def test_the_webhooks_of_the_manifests_call_the_url_with_the_ca(tmp_path: Path) -> None:
    """Everything else of them stays."""
    (tmp_path / "ca.crt").write_text("PEM")
    options = ("--manifests", WEBHOOKS, "--webhook-url", f"{URL}/", "--webhook-ca", tmp_path / "ca.crt")
    result = gpugate("export", "rules/catalog/mps", "--static", tmp_path, *options, "-o", "json")
    originals = documents(WEBHOOKS)
    parsed = [
        document
        for plugin in (PLUGINS[3], PLUGINS[2])
        for document in documents(tmp_path / plugin / "gpugate.yaml")
    ]
    called = [webhook.pop("clientConfig") for document in parsed for webhook in document["webhooks"]]
    services = [
        webhook.pop("clientConfig")["service"] for original in originals for webhook in original["webhooks"]
    ]

    assert "no caBundle" not in result.stderr
    assert PLUGINS == [plugin["name"] for plugin in json.loads(result.stdout)["plugins"]]
    assert ["gpugate.static.k8s.io"] * 2 == [document["metadata"]["name"] for document in parsed]
    assert [
        {"url": f"{URL}{service['path']}", "caBundle": base64.b64encode(b"PEM").decode()}
        for service in services
    ] == called
    for original, converted in zip(originals, parsed, strict=True):
        for before, after in zip(original["webhooks"], converted["webhooks"], strict=True):
            assert {"matchConditions": [], **before} == after


def test_a_condition_that_gpugate_keeps_up_to_date_is_left_out_with_a_note() -> None:
    """In a file it would stay as it was, and not select the resources of later rules."""
    result = static_manifests([webhooks("other", CONDITION, url=URL, caBundle="eA==")])
    (configuration,) = result.objects[PLUGINS[3]]

    conditions = [condition["name"] for condition in configuration["webhooks"][0]["matchConditions"]]
    ((_, note),) = result.notes

    assert ["other"] == conditions
    assert note.in_language(Language.EN).startswith(
        f"condition {CONDITION} of webhook mutate.gpugate.dev is left out"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--manifests", "a"], "--manifests requires --static"),
        (["--static", "a", "--webhook-url", URL], "--webhook-url and --webhook-ca require --manifests"),
        (["--static", "a", "--manifests", "b", "--webhook-url", "http://a"], "is not an https URL"),
        (["--static", "/dev/null/a"], "Not a directory"),
        (["--static", "a", "--manifests", "docs/export.md"], "docs/export.md"),
    ],
)
def test_options_that_make_no_sense_are_reported(arguments: list[str], message: str, tmp_path: Path) -> None:
    """Before anything is written."""
    places = [str(tmp_path / argument) if argument == "a" else argument for argument in arguments]
    result = gpugate("export", "rules/catalog/mps", *places)

    assert 2 == result.exit_code
    assert message in result.stderr
    assert [] == list(tmp_path.iterdir())
