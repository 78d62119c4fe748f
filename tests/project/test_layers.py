"""The layers of the packages: few, and without cycles."""

from __future__ import annotations

import pytest

from tests.support.import_levels import imports_of, levels
from tests.support.paths import ROOT


@pytest.mark.parametrize("folder", ["rules", "webhook"])
def test_packages_have_at_most_ten_levels_and_no_cycle(folder: str) -> None:
    """Imports under TYPE_CHECKING count too."""
    assert levels(imports_of(ROOT / folder, modules=False)) <= 10


@pytest.mark.parametrize("folder", ["rules", "certs", "webhook"])
def test_modules_have_no_import_cycle(folder: str) -> None:
    """A cycle raises CycleError."""
    assert levels(imports_of(ROOT / folder, modules=True)) >= 1


@pytest.mark.parametrize("folder", ["rules", "webhook"])
def test_no_module_is_outside_a_package(folder: str) -> None:
    """Except the public face, the entry point, and what all packages share."""
    known = {"__init__.py", "__main__.py", "runtime.py", "yaml_output.py"}

    assert {path.name for path in (ROOT / folder).glob("*.py")} <= known
