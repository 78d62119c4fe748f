"""Tests of the benchmarks: each runs and has a figure in every row. `make bench` measures."""

from __future__ import annotations

import platform
import re
import ssl
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.bench import before, cluster, decisions, processes, profiles, roundtrips
from tests.bench.__main__ import main
from tests.bench.cases import BY_RULES, ROOT
from tests.bench.client import Webhook
from tests.bench.figures import TINY, Samples, Section, Spread, Table, Target
from tests.bench.page import Result, markdown
from tests.bench.peer import (
    Peer,
    _baseline,
    _gpugate,
    _target,
    compare,
    dechunked,
    python_version,
    without_wall_time,
)
from tests.bench.served import constant, gpugate
from tests.bench.whole import profile
from tests.support.tls import unverified

pytestmark = pytest.mark.slow

_FIGURE = re.compile(r"\d")


def _is_complete(section: Section) -> bool:
    """Return whether each table has rows as wide as its head, with figures in them."""
    return all(
        table.rows and all(len(row) == len(table.columns) and _FIGURE.search(row[1]) for row in table.rows)
        for table in section.tables
    )


@pytest.mark.parametrize("benchmark", [decisions, profiles, roundtrips, processes])
def test_each_benchmark_runs(benchmark: object) -> None:
    """With counts too small to mean anything."""
    section: Section = benchmark.run(TINY)  # type: ignore[attr-defined]

    assert section.tables
    assert _is_complete(section)


@pytest.mark.skipif(not cluster.available(), reason="no API server: run `make e2e-assets`")
def test_the_benchmark_of_a_real_cluster_runs() -> None:
    """With every variant of admission."""
    section = cluster.run(TINY)

    assert 2 == len(section.tables)
    assert _is_complete(section)


def test_other_webhooks_are_compared_by_the_same_pods() -> None:
    """The page shows the results for the pods as well as their cost, and CPU if the process is known."""
    with gpugate() as server, constant() as peer:
        ours = Peer("gpugate", (server.webhook(),), server.process)
        tables = compare([ours], [Peer("peer", (peer.webhook(),))], 2, TINY).tables
    connections, results, plain, mix, *paced = tables

    assert ["TLSv1.3", "TLSv1.3"] == [row[2] for row in connections.rows]
    assert [("denied", "denied", "allowed")] == [row for row in results.rows if row[0] == "denied"]
    assert len(BY_RULES) < len(results.rows)
    for costs in (plain, mix):
        assert ["gpugate", "peer"] == [row[0] for row in costs.rows]
        assert [True, False] == [bool(row[2]) for row in costs.rows]
    assert all(_FIGURE.search(row[2]) for table in paced for row in table.rows)
    assert paced


def test_gpugate_on_another_python_is_compared_with_gpugate_on_the_first(tmp_path: Path) -> None:
    """With the same pods in the same run; the name of each says which Python runs it."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/started\nexec {sys.executable} "$@"\n', "utf-8")
    python.chmod(0o755)
    version = platform.python_version()

    with gpugate() as first, gpugate(python=str(python)) as other:
        ours = [*_gpugate(first), *_gpugate(other, f"Python {version}")]
        costs = compare(ours, [], 2, TINY).tables[2]

    assert "-m webhook serve" in (tmp_path / "started").read_text("utf-8")
    assert f"{version}, {ssl.OPENSSL_VERSION}" == python_version(str(python))
    assert [
        "gpugate",
        "gpugate, mutating only",
        f"gpugate, Python {version}",
        f"gpugate, mutating only, Python {version}",
    ] == [row[0] for row in costs.rows]
    assert ["1.00 (1.00–1.00)"] * 2 == [row[4] for row in costs.rows[:2]]


def test_the_page_has_the_policies_of_the_other_webhooks_and_the_results_of_each() -> None:
    """Kyverno's in the kinds that it does not deprecate."""
    page = (ROOT / "docs/peers.md").read_text("utf-8")
    policies = chain.from_iterable(map(yaml.safe_load_all, re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)))
    denied = re.search(r"^\| denied \| (.+) \|$", page, re.MULTILINE)

    assert {"ConstraintTemplate", "AcceleratorLimits", "Assign", "MutatingPolicy", "ValidatingPolicy"} == {
        policy["kind"] for policy in policies
    }
    assert denied is not None
    assert denied[1].endswith("allowed, edits: 2 | denied | denied | denied")


def test_a_busy_machine_leaves_cpu_and_ratios_in_a_table() -> None:
    """Not what other work on it changes."""
    table = Table(
        "Costs", ("", "pods/s", "CPU of a pod, µs", "p99, ms"), (("gpugate", "9", "5", "7"),), "note"
    )

    assert Table("Costs", ("", "CPU of a pod, µs"), (("gpugate", "5"),), "note") == without_wall_time(table)


def test_a_peer_is_compared_with_gpugate_with_as_many_webhooks() -> None:
    """Two webhooks cost more than one; a peer with three is compared with both of gpugate."""
    webhook = Webhook("https://127.0.0.1/", unverified())
    ours = [Peer("both", (webhook, webhook)), Peer("one", (webhook,))]

    baselines = [_baseline(Peer("peer", (webhook,) * count), ours) for count in (1, 2, 3)]

    assert ["one", "both", "both"] == baselines


def test_a_pod_is_validated_after_its_mutation_and_only_if_that_allowed_it() -> None:
    """As an API server does it."""
    with gpugate() as server:
        mutating = server.webhook()
        validating = replace(mutating, url=f"https://127.0.0.1:{server.port}/validate")
        peer = Peer("gpugate", (mutating, validating))
        requests, result = peer.admit(BY_RULES["default set"])
        denied = peer.admit(BY_RULES["denied"])

    assert [False, True] == [b'"tencent.com/vcuda-core"' in request for request in requests]
    assert "allowed, edits: 1" == result
    assert (1, "denied") == (len(denied[0]), denied[1])


@pytest.mark.parametrize(("times", "met"), [(3.9, False), (4.0, True)])
def test_hami_takes_at_least_four_times_the_cpu_with_the_mix(times: float, met: bool) -> None:
    """Other peers, and HAMi with pods that concern neither, take more than gpugate."""
    target = _target("All these pods in turn", "HAMi", Spread(times, times, times))

    assert met == target.met
    assert "HAMi takes at least 4 times" in target.promise
    assert _target("All these pods in turn", "Kyverno", Spread(1.1, 1.1, 1.1)).met


def test_a_server_that_is_not_installed_is_named_and_meets_or_misses_no_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With what installs it."""
    monkeypatch.setattr(roundtrips, "nginx_program", lambda: None)
    monkeypatch.setattr(before, "available", lambda: False)

    nginx, old = roundtrips._absent()

    assert "nginx: not installed (Debian: nginx-light)." == nginx
    assert "run `python -m tests.bench.before`" in old
    assert [None, None] == [target.met for target in roundtrips._targets(Samples({}))]


def test_the_server_before_is_left_out_if_it_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without Git here: the benchmarks run all the same."""
    monkeypatch.setattr(before, "_HOME", tmp_path / "absent")
    monkeypatch.setattr(before, "available", lambda: False)
    monkeypatch.setenv("PATH", "")

    before.main()

    assert "the server before is left out: " in capsys.readouterr().err


def test_a_chunked_answer_is_read_to_its_end() -> None:
    """Some servers send long answers in chunks, which arrive in any pieces."""
    sent = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n"
    pieces = iter([sent[55:70], sent[70:]])

    assert dechunked(sent[:55], lambda: next(pieces)).endswith(b"\r\nContent-Length: 13\r\n\r\nabc0123456789")


def test_the_profile_of_the_server_has_all_layers_of_a_request() -> None:
    """HTTP, the webhook, the rules."""
    packages = {row[0] for row in profile([BY_RULES["resource rules"]], 1, repeats=5).rows}

    assert {"asyncio", "OpenSSL", "webhook", "rules"} < packages


def test_a_ratio_is_taken_within_each_round() -> None:
    """A round on a busy machine is slower for both sides."""
    samples = Samples({"one": [2.0, 20.0, 2.0], "other": [1.0, 10.0, 1.0]})

    assert Spread(2.0, 2.0, 2.0) == samples.ratio("one", "other")


def test_the_page_shows_the_targets_that_are_missed() -> None:
    """With the command that measures them."""
    table = Table("Rows", ("", "µs"), (("a row", "1"),))
    section = Section((table,), (Target("below 2 µs", "3 µs", met=False),))
    page = markdown({"decisions": Result("Decisions", section)}, ["command"], 1.0, 0.5)

    assert "| below 2 µs | 3 µs | **NO** |" in page
    assert "`python -m tests.bench decisions`" in page


def test_one_benchmark_can_be_run_by_name() -> None:
    """With the command in its section of the page."""
    done = CliRunner().invoke(main, ["changes", "--tiny"])

    assert 0 == done.exit_code
    assert "An edit of one rule" in done.stdout
    assert "met: " in done.stdout
