"""Each benchmark runs, and finds something in every row; what it finds is for `make bench`."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from tests.bench import cluster, decisions, processes, profiles, roundtrips
from tests.bench.__main__ import main
from tests.bench.cases import BY_RULES
from tests.bench.figures import TINY, Samples, Section, Spread, Table, Target
from tests.bench.page import Found, markdown
from tests.bench.peer import compare
from tests.bench.served import constant, gpugate

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


def test_other_webhooks_are_compared_by_the_same_reviews() -> None:
    """What they answer stands beside what they cost; CPU where the process is known."""
    with gpugate() as gate, constant() as peer:
        webhooks = {"gpugate": gate.webhook(), "peer": peer.webhook()}
        answers, costs = compare(webhooks, {"gpugate": gate.process}, 2, TINY).tables

    assert [("refused", "refused", "allowed")] == [row for row in answers.rows if row[0] == "refused"]
    assert len(BY_RULES) < len(answers.rows)
    assert ["gpugate", "peer"] == [row[0] for row in costs.rows]
    assert [True, False] == [bool(row[4]) for row in costs.rows]


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
