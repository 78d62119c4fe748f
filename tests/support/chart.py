"""The Helm chart: its values, as its README lists them, and its copies of manifests and rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.support.paths import ROOT

MANIFESTS: Final = ROOT / "manifests"
CHART: Final = MANIFESTS / "chart"
VALUES: Final = CHART / "values.yaml"
SCHEMA: Final = CHART / "values.schema.json"
README: Final = CHART / "README.md"
FILES: Final = CHART / "files"
_COPY: Final = "# Copied by `pytest tests/project/test_chart.py --update-golden`: do not edit.\n"
# The copies, and the files of the manifests in them.
_COPIED: Final = {
    "base.yaml": ["base/rbac.yaml", "base/state.yaml", "base/network.yaml"],
    "webhooks.yaml": ["base/webhooks.yaml"],
    "certificates.yaml": ["overlays/cert-manager/certificates.yaml"],
    "agent.yaml": ["agent/rbac.yaml", "agent/policy.yaml"],
    "image-resolver.yaml": [
        "components/image-resolver/rbac.yaml",
        "components/image-resolver/policy.yaml",
        "components/image-resolver/state.yaml",
    ],
    "reports.yaml": ["components/reports/rbac.yaml"],
    "denial-events.yaml": ["components/denial-events/rbac.yaml"],
    "view.yaml": ["components/view/rbac.yaml"],
    "unrequested-gpus.yaml": [
        "components/unrequested-gpus/deny.yaml",
        "components/unrequested-gpus/warn.yaml",
    ],
    "monitoring.yaml": ["monitoring/servicemonitor.yaml", "monitoring/alerts.yaml"],
    "monitoring-agent.yaml": ["monitoring/agent.yaml"],
    "monitoring-image-resolver.yaml": ["monitoring/images.yaml"],
}
_HEADING: Final = "## Values\n\n"


class Value(NamedTuple):
    """A value of the chart. path: its keys, separated by dots. description: the comment above it."""

    path: str
    default: Any
    description: str


def values() -> list[Value]:
    """Return the values that have a comment, in order, and those without one that are not mappings."""
    text = VALUES.read_text("utf-8")
    return list(_values(yaml.compose(text, yaml.SafeLoader), text.splitlines(), ()))


def _values(node: Any, lines: list[str], path: tuple[str, ...]) -> Iterator[Value]:
    for key, value in node.value:
        at = (*path, key.value)
        if described := _comment(lines, key.start_mark.line):
            yield Value(".".join(at), _default(value), described)
        elif isinstance(value, yaml.MappingNode):
            yield from _values(value, lines, at)
        else:
            yield Value(".".join(at), _default(value), "")


def _comment(lines: list[str], line: int) -> str:
    """Return the comment that ends directly above a line, as one line."""
    comment_lines: list[str] = []
    while line and (comment := re.fullmatch(r"\s*# ?(.*)", lines[line - 1])):
        comment_lines.insert(0, comment[1])
        line -= 1
    return " ".join(comment_lines)


def _default(node: Any) -> Any:
    return yaml.safe_load(yaml.serialize(node))


def readme() -> str:
    """Return the README with the table of the values as they are now."""
    written, _, _ = README.read_text("utf-8").partition(_HEADING)
    rows = [
        f"| `{value.path}` | `{json.dumps(value.default)}` | {_cell(value.description)} |"
        for value in values()
    ]
    return "\n".join([written + _HEADING + "| value | default | description |", "|---|---|---|", *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def files() -> dict[str, str]:
    """Return the files of the folder `files` by name: copies, because Helm reads nothing outside a chart."""
    documents = {name: [MANIFESTS / source for source in sources] for name, sources in _COPIED.items()}
    documents["rules.yaml"] = list(_listed(ROOT / "rules/catalog"))
    dashboard = (MANIFESTS / "monitoring/dashboard.json").read_text("utf-8")
    return {name: _joined(paths) for name, paths in documents.items()} | {"dashboard.json": dashboard}


def _listed(path: Path) -> Iterator[Path]:
    """Yield the files of a kustomization and of those that it lists."""
    if path.is_dir():
        listed = yaml.safe_load((path / "kustomization.yaml").read_text("utf-8"))
        for resource in listed["resources"]:
            yield from _listed(path / resource)
    else:
        yield path


def _joined(paths: Iterable[Path]) -> str:
    """Return the documents of files without the comments above them."""
    documents = [part for path in paths for part in path.read_text("utf-8").split("\n---\n")]
    return (
        _COPY
        + "\n---\n".join(re.sub(r"\A(#.*\n)+", "", document).rstrip("\n") for document in documents)
        + "\n"
    )
