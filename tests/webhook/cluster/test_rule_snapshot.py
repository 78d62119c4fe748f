"""Rule snapshot: the last good versions of rules in a ConfigMap, whatever its content is."""

from __future__ import annotations

import gzip
import logging
from base64 import b64encode

import pytest

from certs.kubernetes_api import KubernetesError
from tests.support.memory import Memory
from webhook.cluster.rule_snapshot import RuleSnapshot

PATH = "/api/v1/namespaces/gpugate/configmaps/gpugate-last-good"


def stored(**config_map: object) -> Memory:
    """Return an API server with the ConfigMap and these fields of it."""
    memory = Memory()
    memory.put(PATH, {"metadata": {"labels": {"team": "a"}}, **config_map})
    return memory


def test_saved_versions_are_loaded_by_the_next_process() -> None:
    """Other fields of the ConfigMap stay."""
    memory = stored()
    saved = RuleSnapshot(memory, "gpugate").save({"a": "{}"})

    assert saved
    assert {"a": "{}"} == RuleSnapshot(memory, "gpugate").load()
    assert {"team": "a"} == memory.objects[PATH]["metadata"]["labels"]


def test_unchanged_versions_are_not_written_again() -> None:
    """Neither by the same replica nor by another."""
    memory = stored()
    first, second = RuleSnapshot(memory, "gpugate"), RuleSnapshot(memory, "gpugate")
    first.save({"a": "{}"})
    first.save({"a": "{}"})
    second.save({"a": "{}"})

    assert 1 == sum(call.startswith("PUT") for call in memory.calls)


def test_an_emptied_config_map_is_filled_by_the_next_change() -> None:
    """Even if the versions in force are the same, as after an edit with an error."""
    memory = stored()
    snapshot = RuleSnapshot(memory, "gpugate")
    snapshot.save({"a": "{}"})
    memory.put(PATH, {"metadata": {}})
    snapshot.save({"a": "{}"})

    assert {"a": "{}"} == RuleSnapshot(memory, "gpugate").load()


def test_after_a_write_conflict_the_later_replica_overwrites() -> None:
    """Both save the versions in force; the later one has the newer."""
    memory = stored()
    others = [{"binaryData": {"other": ""}}]

    def overtake(method: str, path: str) -> None:
        if method == "PUT" and others:
            memory.put(path, others.pop())

    memory.before = overtake
    RuleSnapshot(memory, "gpugate").save({"a": "{}"})

    assert {"a": "{}"} == RuleSnapshot(memory, "gpugate").load()


@pytest.mark.parametrize(
    "packed",
    ["!", "YQ==", b64encode(gzip.compress(b"[1]")).decode(), b64encode(gzip.compress(b"{}")[:-9]).decode()],
    ids=["not base64", "not gzip", "not rules", "truncated"],
)
def test_invalid_content_is_logged_and_treated_as_empty(
    packed: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The next version that comes into force overwrites it."""
    memory = stored(binaryData={"rules.json.gz": packed})
    snapshot = RuleSnapshot(memory, "gpugate")
    with caplog.at_level(logging.WARNING):
        loaded = snapshot.load()
        (record,) = caplog.records
    snapshot.save({"a": "{}"})

    assert ({}, "are invalid" in record.getMessage()) == (loaded, True)
    assert {"a": "{}"} == RuleSnapshot(memory, "gpugate").load()


def test_a_missing_config_map_is_logged_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    """Without it everything works; only a restart would lose the stale rules."""
    memory = Memory()
    snapshot = RuleSnapshot(memory, "gpugate")
    with caplog.at_level(logging.WARNING):
        loaded = snapshot.load()
        snapshot.save({"a": "{}"})
    memory.put(PATH, {"metadata": {}})
    snapshot.save({"a": "{}"})

    assert {} == loaded
    assert ["cannot read ", "would lose"] == [
        word for word in ("cannot read ", "would lose") if word in caplog.text
    ]
    assert {"a": "{}"} == RuleSnapshot(memory, "gpugate").load()


def test_a_failure_of_the_api_server_is_no_exception() -> None:
    """An unknown snapshot is not an empty one."""
    memory = stored()

    def fail(method: str, path: str) -> None:
        raise KubernetesError(f"{method} {path}: 500")

    memory.before = fail
    snapshot = RuleSnapshot(memory, "gpugate")

    assert (False, None) == (snapshot.save({"a": "{}"}), snapshot.load())


def test_the_same_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """It is retried many times."""
    snapshot = RuleSnapshot(Memory(), "gpugate")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            snapshot.save({"a": "{}"})

    assert 1 == len(caplog.records)
