"""`python -m tests.bench.peer URL…`: the same reviews to other admission webhooks, beside the gate.

All are asked by turns over kept connections of TLS; what they answer is looked at once, then only awaited.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click
import msgspec

from tests.bench.cases import BY_NODES, BY_RULES
from tests.bench.client import Webhook, exchange, load, percentile, unverified
from tests.bench.figures import FULL, QUICK, Effort, Samples, Section, Table
from tests.bench.page import Found, text
from tests.bench.served import cpu_s, following, gpugate

_GATE: Final = "gpugate"
_REVIEWS: Final = BY_RULES | BY_NODES
# In the cluster that our gate follows; a peer has its own.
_NODES: Final = 1_000


@click.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option(
    "--ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="PEM that all of them are verified by.",
)
@click.option("--pid", "pids", type=int, multiple=True, help="Process of each URL in its order, for CPU.")
@click.option("--connections", type=click.IntRange(1, 200), default=8, show_default=True)
@click.option("--quick", is_flag=True, help="Fewer rounds.")
def main(
    urls: tuple[str, ...], ca: Path | None, pids: tuple[int, ...], connections: int, quick: bool
) -> None:
    """Send the reviews of the benchmarks to webhooks, such as https://127.0.0.1:9443/mutate."""
    if pids and len(pids) != len(urls):
        raise click.UsageError("give one --pid for each URL, or none")
    if odd := [url for url in urls if urlsplit(url).scheme != "https"]:
        raise click.UsageError(f"admission webhooks speak https: {', '.join(odd)}")
    context = ssl.create_default_context(cafile=str(ca)) if ca else unverified()
    with ExitStack() as stack:
        gate = stack.enter_context(gpugate(*stack.enter_context(following(_NODES))))
        webhooks = {_GATE: gate.webhook()} | {url: Webhook(url, context) for url in urls}
        processes = {_GATE: gate.process} | dict(zip(urls, pids, strict=False))
        section = compare(webhooks, processes, connections, QUICK if quick else FULL)
    click.echo(text(Found("Peers, by the same reviews", section)))


def compare(
    webhooks: Mapping[str, Webhook], processes: Mapping[str, int], connections: int, effort: Effort
) -> Section:
    """Return how webhooks compare with the first of them. processes: of those that run on this machine."""
    return Section((_answers(webhooks), _flooded(webhooks, processes, connections, effort)))


def _answers(webhooks: Mapping[str, Webhook]) -> Table:
    """Return what each answers to each review: peers decide other things."""
    rows = []
    for name, body in _REVIEWS.items():
        cells = []
        for webhook in webhooks.values():
            with webhook.connect() as connection:
                answer = msgspec.json.decode(exchange(connection, webhook.request(body)))["response"]
            patched = ", patched" if answer.get("patch") else ""
            cells.append(f"{'allowed' if answer['allowed'] else 'refused'}{patched}")
        rows.append((name, *cells))
    return Table("What they answer", ("", *webhooks), tuple(rows))


def _flooded(
    webhooks: Mapping[str, Webhook], processes: Mapping[str, int], connections: int, effort: Effort
) -> Table:
    """Return requests a second, latency, and CPU where the process is known."""
    rates: dict[str, list[float]] = {name: [] for name in webhooks}
    tails: dict[str, list[float]] = {name: [] for name in webhooks}
    cpu: dict[str, list[float]] = {name: [] for name in processes}
    with ExitStack() as stack:
        loads = {
            name: stack.enter_context(load(webhook, [*_REVIEWS.values()], connections))
            for name, webhook in webhooks.items()
        }
        slowest = min(each.flood(effort.requests) for each in loads.values())
        for _ in range(effort.rounds):
            for name, each in loads.items():
                before = cpu_s(processes[name]) if name in processes else 0.0
                rates[name].append(each.flood(effort.requests))
                if name in processes:
                    count = max(1, effort.requests // connections) * connections
                    cpu[name].append((cpu_s(processes[name]) - before) / count * 1e6)
                tails[name].append(percentile(each.paced(effort.requests, slowest / 2), 99))
    rate, tail, used = Samples(rates), Samples(tails), Samples(cpu)
    first = next(iter(webhooks))
    rows = tuple(
        (
            name,
            str(rate.of(name)),
            str(rate.ratio(name, first)),
            str(tail.of(name)),
            *((str(used.of(name)), str(used.ratio(name, first))) if name in processes else ("", "")),
        )
        for name in webhooks
    )
    half = f"p99 at {slowest / 2:,.0f}/s, ms"
    columns = ("", "requests/s", f"÷ {first}", half, "CPU, µs", f"CPU ÷ {first}")
    return Table(f"{connections} connections, the reviews by turns", columns, rows)


if __name__ == "__main__":
    main()
