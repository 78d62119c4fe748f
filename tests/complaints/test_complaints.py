"""What GPU users complain about most: gpugate says it before the pod starts, and its fix helps.

Each folder is a complaint: `pod.yaml` as a user writes it, with threads about it; `nodes.yaml`,
the cluster; `expected.txt`, what gpugate says; `fixed.yaml`, the pod after the suggested fix. `rules.yaml` is
added to the built-in rules. `pytest tests/complaints --update-golden` writes expected.txt.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.command import gpugate
from tests.support.paths import ROOT

FOLDER: Final = Path(__file__).parent
COMPLAINTS: Final = sorted(path.parent.name for path in FOLDER.glob("*/pod.yaml"))
BUILT_IN: Final = ROOT / "rules" / "catalog"
# Exit statuses: denied; allowed with a warning, by `--fail-on warn`.
DENIED: Final = 1
WARNED: Final = 3


def preview(complaint: str, manifest: str) -> tuple[int, str]:
    """Return exit status and messages of `gpugate preview` for a manifest of a complaint."""
    status, answer = previewed(complaint, manifest)
    denials = [
        f"deny: {violation['message']}\n"
        for violation in answer["violations"]
        if violation["action"] == "deny"
    ]
    return status, "".join([*denials, *(f"warn: {warning}\n" for warning in answer["warnings"])])


def previewed(complaint: str, manifest: str) -> tuple[int, dict[str, Any]]:
    """Return exit status and result of `gpugate preview` for the pod of a manifest of a complaint."""
    folder = FOLDER / complaint
    own = folder / "rules.yaml"
    rules = ["--rules", str(BUILT_IN), "--rules", str(own)] if own.exists() else []
    files = ["-f", str(folder / manifest), "--nodes", str(folder / "nodes.yaml"), *rules]
    result = gpugate("preview", *files, "--fail-on", "warn", "-o", "json")
    assert "" == result.stderr
    (document,) = json.loads(result.stdout)["objects"]
    return result.exit_code, document


@pytest.mark.parametrize("complaint", COMPLAINTS)
def test_the_complaint_is_told_before_the_pod_starts(complaint: str, request: pytest.FixtureRequest) -> None:
    """With what is wrong, where, and what to do."""
    golden = FOLDER / complaint / "expected.txt"

    status, output = preview(complaint, "pod.yaml")

    if request.config.getoption("--update-golden"):
        golden.write_text(output, "utf-8")
    assert golden.read_text("utf-8") == output
    assert status in (DENIED, WARNED)


@pytest.mark.parametrize("complaint", COMPLAINTS)
def test_with_the_suggested_fix_the_pod_passes(complaint: str) -> None:
    """Without a warning."""
    status, output = preview(complaint, "fixed.yaml")

    assert 0 == status, output
