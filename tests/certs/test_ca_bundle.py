"""The caBundle of gpugate's webhooks is updated, and nothing else is changed."""

from __future__ import annotations

import copy
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import pytest

from certs.authority import make_authority
from certs.ca_bundle import read_configurations, write_ca_bundles
from certs.kubernetes_api import Conflict, KubernetesError
from tests.support.memory import CONFIGURATIONS, Memory, ca_bundle, ca_bundles, webhook, with_configurations

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
FIRST, SECOND = (make_authority("test CA", NOW).certificate_pem for _ in range(2))
MUTATING, VALIDATING = CONFIGURATIONS


def write_all(memory: Memory, *authorities: bytes) -> None:
    """Write these CAs to each caBundle."""
    for configuration in read_configurations(memory):
        write_ca_bundles(memory, configuration, lambda _: authorities)


def test_both_configurations_get_the_ca_bundle() -> None:
    """A later one replaces it."""
    memory = with_configurations()
    read = [configuration.kind for configuration in read_configurations(memory)]
    write_all(memory, FIRST)
    write_all(memory, SECOND, FIRST)

    assert ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] == read
    assert {(SECOND, FIRST)} == ca_bundles(memory)


def test_a_correct_ca_bundle_is_not_written() -> None:
    """The order of CAs does not matter to a verifier."""
    memory = with_configurations()
    write_all(memory, FIRST, SECOND)
    memory.calls.clear()
    write_all(memory, SECOND, FIRST)

    assert not [call for call in memory.calls if call.startswith("PATCH")]


@pytest.mark.parametrize("value", ["", "Cg==", "bm8gUEVN", b64encode(b"-----BEGIN X-----").decode()])
def test_a_ca_bundle_that_is_not_pem_is_replaced(value: str) -> None:
    """A line feed is the placeholder in many charts."""
    memory = with_configurations()
    memory.put(
        MUTATING,
        {"metadata": {"name": "gpugate"}, "webhooks": [webhook("mutate.gpugate.dev", caBundle=value)]},
    )
    write_all(memory, FIRST)

    assert {(FIRST,)} == ca_bundles(memory)


def test_webhooks_of_others_and_unknown_fields_are_unchanged() -> None:
    """In a configuration named gpugate that somebody extended."""
    memory = with_configurations()
    strangers = [webhook("a.example.com"), webhook("gpugate.dev.example.com", caBundle="Cg==")]
    ours = [webhook("one.gpugate.dev"), webhook("two.gpugate.dev", caBundle="Cg==")]
    document: dict[str, Any] = {
        "metadata": {"name": "gpugate", "labels": {"team": "ml"}},
        "webhooks": [strangers[0], ours[0], strangers[1], ours[1]],
        "newField": 1,
    }
    memory.put(MUTATING, copy.deepcopy(document))
    write_all(memory, FIRST)
    for our in ours:
        our["clientConfig"]["caBundle"] = b64encode(FIRST).decode()
    stored = memory.objects[MUTATING]
    del stored["metadata"]["resourceVersion"]

    assert document == stored


def test_a_configuration_that_changed_since_it_was_read_is_a_conflict() -> None:
    """The other writer may know more."""
    memory = with_configurations()
    (configuration, _) = read_configurations(memory)
    memory.put(MUTATING, memory.get(MUTATING))

    with pytest.raises(Conflict):
        write_ca_bundles(memory, configuration, lambda _: (FIRST,))
    assert () == ca_bundle(memory, MUTATING)


@pytest.mark.parametrize("webhooks", [None, [], [webhook("a.example.com")]])
def test_a_configuration_without_a_webhook_of_gpugate_is_ignored(
    webhooks: list[dict[str, Any]] | None,
) -> None:
    """So is a missing one."""
    memory = Memory()
    memory.put(VALIDATING, {"metadata": {"name": "gpugate"}, "webhooks": webhooks})

    assert [] == read_configurations(memory)


def test_a_configuration_trusts_the_cas_that_all_its_webhooks_trust() -> None:
    """A CA that is missing in one caBundle is not trusted."""
    memory = with_configurations()
    bundles = [b64encode(pem).decode() for pem in (FIRST + SECOND, SECOND)]
    webhooks = [webhook(f"{index}.gpugate.dev", caBundle=bundle) for index, bundle in enumerate(bundles)]
    memory.put(MUTATING, {"metadata": {"name": "gpugate"}, "webhooks": webhooks})
    (configuration, _) = read_configurations(memory)

    assert {SECOND} == configuration.trusted


def test_a_denial_of_the_api_server_is_raised() -> None:
    """So that an administrator can fix RBAC."""
    memory = with_configurations()

    def refuse(method: str, path: str) -> None:
        if method == "PATCH":
            raise KubernetesError(f"PATCH {path}: 403 forbidden")

    memory.before = refuse

    with pytest.raises(KubernetesError, match="403 forbidden"):
        write_all(memory, FIRST)
