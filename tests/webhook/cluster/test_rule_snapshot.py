"""The last good versions of rules in their ConfigMap, whatever is found there."""

from __future__ import annotations

import gzip
import logging
from base64 import b64encode

import pytest

from certs.kubernetes_api import KubernetesError
from tests.support.memory import Memory
from webhook.cluster.rule_snapshot import RuleSnapshot

PATH = "/api/v1/namespaces/gpugate/configmaps/gpugate-last-good"


def kept(**config_map: object) -> Memory:
    """Return an API server with the ConfigMap, which may hold something."""
    memory = Memory()
    memory.put(PATH, {"metadata": {"labels": {"team": "a"}}, **config_map})
    return memory


def test_what_was_saved_is_loaded_by_the_next() -> None:
    """Other fields of the ConfigMap stay."""
    memory = kept()
    saved = RuleSnapshot(memory, "gpugate").save({"a": "{}"})

    assert saved
    assert {"a": "{}"} == RuleSnapshot(memory, "gpugate").load()
    assert {"team": "a"} == memory.objects[PATH]["metadata"]["labels"]


def test_what_is_kept_already_is_not_written_again() -> None:
    """Neither by the one who wrote it nor by another replica."""
    memory = kept()
    first, second = RuleSnapshot(memory, "gpugate"), RuleSnapshot(memory, "gpugate")
    first.save({"a": "{}"})
    first.save({"a": "{}"})
    second.save({"a": "{}"})

    assert 1 == sum(call.startswith("PUT") for call in memory.calls)


def test_what_somebody_emptied_is_filled_by_the_next_change() -> None:
    """Also where what is in force is what it was, as when an edit reads wrong."""
    memory = kept()
    last_good = RuleSnapshot(memory, "gpugate")
    last_good.save({"a": "{}"})
    memory.put(PATH, {"metadata": {}})
    last_good.save({"a": "{}"})

    assert {"a": "{}"} == RuleSnapshot(memory, "gpugate").load()


def test_who_is_overtaken_by_another_writes_over_it() -> None:
    """Both are at what is in force; the later one knows better."""
    memory = kept()
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
    ids=["no base64", "no gzip", "no rules", "cut"],
)
def test_what_cannot_be_read_is_logged_and_counts_for_nothing(
    packed: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The next version that comes into force is written over it."""
    memory = kept(binaryData={"rules.json.gz": packed})
    last_good = RuleSnapshot(memory, "gpugate")
    with caplog.at_level(logging.WARNING):
        found = last_good.load()
        (record,) = caplog.records
    last_good.save({"a": "{}"})

    assert ({}, "cannot be read" in record.getMessage()) == (found, True)
    assert {"a": "{}"} == RuleSnapshot(memory, "gpugate").load()


def test_an_api_server_that_refuses_is_logged_and_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """A gate without the ConfigMap works on; only a restart would lose what is stale."""
    memory = Memory()
    last_good = RuleSnapshot(memory, "gpugate")
    with caplog.at_level(logging.WARNING):
        found = last_good.load()
        last_good.save({"a": "{}"})
    memory.put(PATH, {"metadata": {}})
    last_good.save({"a": "{}"})

    assert {} == found
    assert ["not known: ", "would lose"] == [
        word for word in ("not known: ", "would lose") if word in caplog.text
    ]
    assert {"a": "{}"} == RuleSnapshot(memory, "gpugate").load()


def test_a_failing_api_server_does_not_stop_the_gate() -> None:
    """Whatever it answers; what it does not tell is not the same as nothing."""
    memory = kept()

    def fail(method: str, path: str) -> None:
        raise KubernetesError(f"{method} {path}: 500")

    memory.before = fail
    last_good = RuleSnapshot(memory, "gpugate")

    assert (False, None) == (last_good.save({"a": "{}"}), last_good.load())


def test_the_same_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """It is tried again and again."""
    last_good = RuleSnapshot(Memory(), "gpugate")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            last_good.save({"a": "{}"})

    assert 1 == len(caplog.records)
