"""Counters of each rule, read from the metrics of running webhooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from webhook.cli.input.files import read_path
from webhook.cli.output.console import BadInputError

# Names of samples in webhook/telemetry/metrics.py; importing that module for a listing would be slow.
_MATCHES: Final = "gpugate_rule_matches_total"
_VIOLATIONS: Final = "gpugate_rule_violations_total"
_STALE: Final = "gpugate_rule_stale"


@dataclass(frozen=True, slots=True)
class Counts:
    """Matches and violations of each rule. stale: rules whose last valid version is active."""

    matches: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    stale: frozenset[str] = frozenset()


def read_counts(paths: Iterable[str]) -> Counts:
    """Return the sum of the counters in files that contain `/metrics` of a webhook each; `-` is stdin.

    Raises BadInputError for a file that cannot be read or does not contain metrics of gpugate.
    """
    from prometheus_client.parser import text_string_to_metric_families

    sums: dict[str, Counter[str]] = {_MATCHES: Counter(), _VIOLATIONS: Counter(), _STALE: Counter()}
    for name, text in (found for path in paths for found in read_path(path)):
        try:
            samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        except ValueError as error:
            raise BadInputError(f"{name}: not in the Prometheus text format: {error}") from None
        if not any(sample.name.startswith("gpugate_") for sample in samples):
            raise BadInputError(f"{name}: contains no metrics of gpugate")
        for sample in samples:
            if sample.name in sums:
                sums[sample.name][sample.labels["rule"]] += int(sample.value)
    return Counts(sums[_MATCHES], sums[_VIOLATIONS], frozenset(+sums[_STALE]))
