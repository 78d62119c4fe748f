"""The version of the release that manifests and pages name."""

from __future__ import annotations

from typing import Final

import yaml

from tests.support.paths import ROOT

RELEASE: Final[str] = yaml.safe_load((ROOT / "manifests/chart/Chart.yaml").read_text("utf-8"))["appVersion"]
