"""Figures for people: as text on a terminal, and as the page docs/performance.md with where they are from."""

from __future__ import annotations

import os
import platform
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tests.bench.figures import Section, Table

_PACKAGES: Final = ("msgspec", "uvicorn", "h11", "flask", "common-expression-language", "kubernetes")
_HEAD: Final = """\
# Performance

Written by `make bench`; do not edit. Numbers with a unit are of this machine, in this run. What carries over
are the **ratios**: both sides were measured in the same run, by turns, and the ratio taken within each round.
A figure is the median of the rounds, with the quartiles in brackets. Decisions are counted in CPU of one
thread, because a machine that has other things to do takes the core away in the middle of one; a busy machine
makes them dearer all the same, by its caches.
"""
_PEERS: Final = """
## Peers

[Beside other webhooks](peers.md): HAMi, Gatekeeper and Kyverno by the same pods, in one run.
`python -m tests.bench.peer NAME=URL…` sends them through any admission webhooks and through the gate, by
turns, and prints the ratios. The API server's own policies are measured above.
"""


@dataclass(frozen=True, slots=True)
class Found:
    """What one benchmark found, under its title."""

    title: str
    section: Section


def text(found: Found) -> str:
    """Return tables and targets in columns."""
    lines = [found.title]
    for table in found.section.tables:
        rows = [table.columns, *table.rows]
        widths = [max(len(row[at]) for row in rows) for at in range(len(table.columns))]
        lines += ["", f"  {table.title}"]
        lines += [
            "    " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        lines += [f"    {table.note}"] if table.note else []
    lines += ["" for _ in found.section.targets[:1]]
    for target in found.section.targets:
        lines.append(f"  met: {target.verdict:4} {target.promise}: {target.measured}")
    return "\n".join(lines) + "\n"


def markdown(found: Mapping[str, Found], command: Sequence[str], seconds: float, load: float) -> str:
    """Return the page. command: what was run; seconds: how long it took; load: the average before it."""
    parts = [_HEAD, render_facts(command, seconds, load, packages()), "\n## Targets\n", render_targets(found)]
    for name, each in found.items():
        parts += [f"\n## {each.title}\n\n`python -m tests.bench {name}`\n"]
        parts += [render_table(table) for table in each.section.tables]
    return "\n".join(part.rstrip("\n") for part in [*parts, _PEERS]) + "\n"


def render_facts(command: Sequence[str], seconds: float, load: float, versions: Mapping[str, str]) -> str:
    """Return where figures are from. versions: of what was measured, beside Python's."""
    model = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text("utf-8"))
    rows = {
        "command": f"`{' '.join(command)}`, {seconds:.0f} s",
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores",
        "load average": f"{load:.1f} before, {os.getloadavg()[0]:.1f} after; the run itself makes some two",
        "Python": f"{platform.python_version()}, {ssl.OPENSSL_VERSION}",
        **versions,
    }
    return "\n" + render_rows(("", ""), [*rows.items()], "---:")


def packages() -> dict[str, str]:
    """Return the versions of the packages that figures depend on."""
    return {"packages": ", ".join(f"{name} {version(name)}" for name in _PACKAGES)}


def render_targets(found: Mapping[str, Found]) -> str:
    """Return what was promised, and whether it holds."""
    rows = [
        (target.promise, target.measured, f"**{target.verdict}**")
        for each in found.values()
        for target in each.section.targets
    ]
    return "\n" + render_rows(("target", "measured", "met"), rows, "---:")


def render_table(table: Table) -> str:
    """Return a table under its title."""
    note = f"\n{table.note}\n" if table.note else ""
    return f"\n### {table.title}\n\n{render_rows(table.columns, table.rows, '---:')}{note}"


def render_rows(columns: Sequence[str], rows: Sequence[Sequence[str]], others: str = "---") -> str:
    """Return a table. others: how columns but the first are aligned."""
    lines = [columns, ["---", *[others] * (len(columns) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
