"""`python -m tests.faults`: injects faults under load and prints the results; --write writes the page."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

import click

from tests.bench.translation import write_pages
from tests.e2e.cluster import assets, missing
from tests.faults.faults import FAULTS, IN_TURN
from tests.faults.measure import Outcome, measure
from tests.faults.page import markdown, text
from tests.faults.world import World

_NAMES: Final = [fault.name for fault in FAULTS]


@click.command()
@click.option("--only", multiple=True, type=click.Choice(_NAMES), help="Name of a fault; may be repeated.")
@click.option("--seconds", default=4.0, show_default=True, help="Duration of each fault.")
@click.option(
    "--write",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Page to write; the Chinese one: zh/PAGE.",
)
def main(only: tuple[str, ...], seconds: float, write: Path | None) -> None:
    """Inject one fault after the other, and report what was lost."""
    if absent := missing(assets()):
        raise click.UsageError(f"no {', '.join(absent)}: run `make e2e-assets`")
    faults = [fault for fault in IN_TURN if not only or fault.name in only]
    start, load = perf_counter(), os.getloadavg()[0]
    outcomes: dict[str, Outcome] = {}
    bad = False
    with TemporaryDirectory() as folder, World(assets(), Path(folder) / "world") as world:
        for fault in faults:
            begun = perf_counter()
            outcomes[fault.name] = outcome = measure(world, fault, seconds)
            click.echo(text(fault, outcome, perf_counter() - begun))
            bad = bad or bool(outcome.undeclared(fault))
    click.echo(f"{perf_counter() - start:.0f} s", err=True)
    if write:
        command = ["python -m tests.faults", *sys.argv[1:]]
        write_pages(write, markdown(outcomes, command, perf_counter() - start, load))
    sys.exit(bad)


if __name__ == "__main__":
    main()
