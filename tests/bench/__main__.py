"""`python -m tests.bench`: run all benchmarks or the named ones; print text, write a page with --write."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Final

import click

from tests.bench import changes, cluster, decisions, processes, profiles, roundtrips
from tests.bench.figures import FULL, QUICK, TINY, Effort, Section
from tests.bench.page import Result, markdown, text
from tests.bench.translation import write_pages

_RUNS: Final[dict[str, tuple[str, Callable[[Effort], Section]]]] = {
    "decisions": (decisions.TITLE, decisions.run),
    "profiles": (profiles.TITLE, profiles.run),
    "roundtrips": (roundtrips.TITLE, roundtrips.run),
    "processes": (processes.TITLE, processes.run),
    "changes": (changes.TITLE, changes.run),
    "cluster": (cluster.TITLE, cluster.run),
}
_EFFORTS: Final = {"full": FULL, "quick": QUICK, "tiny": TINY}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(_RUNS)), metavar="[NAME]...")
@click.option("--quick", "effort", flag_value="quick", help="Takes a minute; wider spreads.")
@click.option("--tiny", "effort", flag_value="tiny", help="Only check that everything runs.")
@click.option("--requests", type=click.IntRange(1), help="Reviews of the memory measurement, e.g. 1000000.")
@click.option(
    "--write",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of the page; the Chinese one: zh/FILE.",
)
def main(names: tuple[str, ...], effort: str | None, requests: int | None, write: Path | None) -> None:
    """Run all benchmarks, or those of NAME."""
    size = _EFFORTS[effort or "full"]
    if requests:
        size = replace(size, soak=requests)
    results: dict[str, Result] = {}
    start, load = perf_counter(), os.getloadavg()[0]
    for name in names or _RUNS:
        title, run = _RUNS[name]
        if name == "cluster" and not cluster.available():
            click.echo("cluster: skipped, no API server: run `make e2e-assets`", err=True)
            continue
        click.echo(f"{title} …", err=True)
        results[name] = Result(title, run(size))
        click.echo(text(results[name]))
    click.echo(f"{perf_counter() - start:.0f} s", err=True)
    if write:
        command = ["python -m tests.bench", *sys.argv[1:]]
        write_pages(write, markdown(results, command, perf_counter() - start, load))


if __name__ == "__main__":
    main()
