"""Each benchmark runs, and finds something in every row; what it finds is for `make bench`."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from click.testing import CliRunner

from tests.bench import cluster, decisions, processes, profiles, roundtrips
from tests.bench.__main__ import main
from tests.bench.cases import BY_RULES
from tests.bench.client import Webhook, unverified
from tests.bench.figures import TINY, Samples, Section, Spread, Table, Target
from tests.bench.page import Found, markdown
from tests.bench.peer import Peer, _baseline, compare, whole
from tests.bench.served import constant, gpugate
from tests.bench.whole import profile

_FIGURE = re.compile(r"\d")


def _is_whole(section: Section) -> bool:
    """Tell whether each table has rows, as wide as its head, with figures in them."""
    return all(
        table.rows and all(len(row) == len(table.columns) and _FIGURE.search(row[1]) for row in table.rows)
        for table in section.tables
    )


@pytest.mark.parametrize("benchmark", [decisions, profiles, roundtrips, processes])
def test_each_benchmark_runs(benchmark: object) -> None:
    """With counts too small to mean anything."""
    section: Section = benchmark.run(TINY)  # type: ignore[attr-defined]

    assert section.tables
    assert _is_whole(section)


@pytest.mark.skipif(not cluster.available(), reason="no API server: run `make e2e-assets`")
def test_the_benchmark_of_a_real_cluster_runs() -> None:
    """Every way of a pod into the API server."""
    section = cluster.run(TINY)

    assert 2 == len(section.tables)
    assert _is_whole(section)


def test_other_webhooks_are_compared_by_the_same_pods() -> None:
    """What becomes of pods stands beside what they cost; CPU where the process is known."""
    with gpugate() as gate, constant() as peer:
        ours = Peer("gpugate", (gate.webhook(),), gate.process)
        asked, answers, plain, mix, *late = compare([ours], [Peer("peer", (peer.webhook(),))], 2, TINY).tables

    assert ["TLSv1.3", "TLSv1.3"] == [row[2] for row in asked.rows]
    assert [("refused", "refused", "allowed")] == [row for row in answers.rows if row[0] == "refused"]
    assert len(BY_RULES) < len(answers.rows)
    for costs in (plain, mix):
        assert ["gpugate", "peer"] == [row[0] for row in costs.rows]
        assert [True, False] == [bool(row[2]) for row in costs.rows]
    assert all(_FIGURE.search(row[2]) for table in late for row in table.rows)
    assert late


def test_a_peer_is_compared_with_ours_that_is_asked_as_often() -> None:
    """A webhook that mutates and one that validates are not the price of one; three stand beside both."""
    asked = Webhook("https://127.0.0.1/", unverified())
    ours = [Peer("both", (asked, asked)), Peer("one", (asked,))]

    baselines = [_baseline(Peer("peer", (asked,) * count), ours) for count in (1, 2, 3)]

    assert ["one", "both", "both"] == baselines


def test_a_pod_is_validated_as_it_was_mutated_and_only_if_it_was_let_pass() -> None:
    """As the API server does it."""
    with gpugate() as gate:
        mutating = gate.webhook()
        validating = replace(mutating, url=f"https://127.0.0.1:{gate.port}/validate")
        peer = Peer("gpugate", (mutating, validating))
        edited, became = peer.way(BY_RULES["a default put in"])
        refused = peer.way(BY_RULES["refused"])

    assert [False, True] == [b'"tencent.com/vcuda-core"' in request for request in edited]
    assert "allowed, edits: 1" == became
    assert (1, "refused") == (len(refused[0]), refused[1])


def test_an_answer_in_chunks_is_read_whole() -> None:
    """As some servers send what is long; whatever the pieces in which it arrives."""
    sent = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n"
    pieces = iter([sent[55:70], sent[70:]])

    assert whole(sent[:55], lambda: next(pieces)).endswith(b"\r\nContent-Length: 13\r\n\r\nabc0123456789")


def test_the_profile_of_the_server_holds_the_way_of_a_request() -> None:
    """TLS and HTTP, then ours."""
    packages = {row[0] for row in profile([BY_RULES["resource rules"]], 1, turns=5).rows}

    assert {"h11", "webhook", "rules"} < packages


def test_a_ratio_is_taken_within_each_round() -> None:
    """A round in which the machine was busy made both sides dearer."""
    samples = Samples({"one": [2.0, 20.0, 2.0], "other": [1.0, 10.0, 1.0]})

    assert Spread(2.0, 2.0, 2.0) == samples.ratio("one", "other")


def test_the_page_says_which_targets_are_missed() -> None:
    """With the command that measures them again."""
    table = Table("Rows", ("", "µs"), (("a row", "1"),))
    section = Section((table,), (Target("below 2 µs", "3 µs", met=False),))
    page = markdown({"decisions": Found("Decisions", section)}, ["command"], 1.0, 0.5)

    assert "| below 2 µs | 3 µs | **NO** |" in page
    assert "`python -m tests.bench decisions`" in page


def test_one_benchmark_can_be_asked_for() -> None:
    """As its section of the page says."""
    done = CliRunner().invoke(main, ["changes", "--tiny"])

    assert 0 == done.exit_code
    assert "An edit of one rule" in done.stdout
    assert "met: " in done.stdout
