"""What a command imports: only what it needs, since each call pays for it again."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.paths import ROOT

# Runs a command, and prints the imported modules on stderr.
_RUN = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from webhook.cli import main
main(prog_name="gpugate")
"""
PREVIEW = ["preview", "-f", "docs/examples/patched.yaml"]


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--help"], ["rules", "certs", "rich", "yaml", "pydantic"]),
        (["--version"], ["rules", "certs", "rich", "yaml", "pydantic"]),
        (["completion", "bash"], ["rules", "certs", "rich", "yaml", "pydantic"]),
        (["schema", "exemption"], ["rules.decision", "rules.lint", "rules.nodes.inventory"]),
        (PREVIEW, ["rules.lint", "webhook.cli.test", "urllib.request", "flask", "rich", "pydantic"]),
    ],
)
def test_a_command_imports_only_what_it_needs(arguments: list[str], absent: list[str]) -> None:
    """Of the rules, and of packages that are slow to import."""
    command = [sys.executable, "-c", _RUN, *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    imported = set(result.stderr.splitlines()[-1].split())

    assert "click" in imported
    assert [] == [name for name in absent if name in imported]


def test_the_face_of_rules_has_each_name_that_it_lists() -> None:
    """A module is imported when its name is used; other names are errors."""
    import rules

    assert [] == [name for name in rules._MODULES if not hasattr(rules, name)]
    assert not hasattr(rules, "other")
