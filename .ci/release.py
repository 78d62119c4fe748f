"""Steps of a release: `python .ci/release.py check|bump|notes|krew VERSION`; see docs/releasing.md."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
CHANGELOG: Final = ROOT / "CHANGELOG.md"
CHART: Final = ROOT / "manifests/chart/Chart.yaml"
KREW: Final = ROOT / ".ci/krew.yaml"
# Versions in commands and examples, by their own text: each with the number of the release.
_NAMED: Final = (
    r"(\bgpugate:)({})\b",
    r"(\bnewTag: )({})\b",
    r"(\bgpugate@v)({})\b",
    r"(\brev: v)({})\b",
    r"(--version )({})\b",
    r"(\bVERSION=)({})\b",
    r"((?:^|\n)(?:version|appVersion): )({})(?=\n)",
)
_VERSION: Final = r"\d+\.\d+\.\d+(?:-[a-z]+\.\d+)?"
_FILES: Final = ("*.md", "docs/**/*.md", "manifests/**/*.yaml")


def current() -> str:
    """Return the version that manifests and pages name."""
    (found,) = re.findall(r"^appVersion: (.+)$", CHART.read_text("utf-8"), re.MULTILINE)
    return str(found)


def named(version: str) -> dict[Path, int]:
    """Return by file how often a version is named as that of gpugate."""
    patterns = [re.compile(pattern.format(re.escape(version))) for pattern in _NAMED]
    texts = {
        path: path.read_text("utf-8")
        for pattern in _FILES
        for path in ROOT.glob(pattern)
        if path != CHANGELOG
    }
    counts = {path: sum(len(pattern.findall(text)) for pattern in patterns) for path, text in texts.items()}
    return {path: count for path, count in counts.items() if count}


def bump(version: str) -> None:
    """Replace the current version by another in manifests and pages, and name the changes after it."""
    before = current()
    for path in named(before):
        text = path.read_text("utf-8")
        for pattern in _NAMED:
            text = re.sub(pattern.format(re.escape(before)), rf"\g<1>{version}", text)
        path.write_text(text, "utf-8")
    text = CHANGELOG.read_text("utf-8")
    heading = f"## Unreleased\n\n## {version} – {datetime.now(UTC):%Y-%m-%d}\n"
    CHANGELOG.write_text(text.replace("## Unreleased\n", heading, 1), "utf-8")


def notes(version: str) -> str:
    """Return the changes of a version. Raises SystemExit if there are none."""
    for section in re.split(r"^## ", CHANGELOG.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        if title.split()[0] == version and body.strip():
            return body.strip()
    raise SystemExit(
        f"CHANGELOG.md: no section '## {version}' with changes; run: python .ci/release.py bump {version}"
    )


def check(version: str) -> None:
    """Raise SystemExit unless manifests, pages and changes are of a version."""
    if not re.fullmatch(_VERSION, version):
        raise SystemExit(f"expected a tag such as v1.2.3 or v1.2.3-rc.1, got v{version}")
    if current() != version:
        raise SystemExit(
            f"manifests are of {current()}, not {version}; run: python .ci/release.py bump {version}"
        )
    notes(version)


def krew(version: str, url: str, archives: list[Path]) -> str:
    """Return the manifest of the plugin. archives: gpugate-OS-ARCH.tar.gz; url: of their folder."""
    platforms = []
    for archive in sorted(archives):
        system, processor = archive.name.removeprefix("gpugate-").removesuffix(".tar.gz").split("-")
        platforms.append(
            f"""    - selector:
        matchLabels: {{os: {system}, arch: {processor}}}
      uri: {url}/{archive.name}
      sha256: {sha256(archive.read_bytes()).hexdigest()}
      bin: kubectl-gpugate
"""
        )
    return KREW.read_text("utf-8").format(version=version, platforms="".join(platforms))


def main(command: str, version: str, *rest: str) -> None:
    """Run a command. version: with or without v."""
    version = version.removeprefix("v")
    if command == "check":
        check(version)
    elif command == "bump":
        bump(version)
    elif command == "notes":
        sys.stdout.write(f"{notes(version)}\n")
    elif command == "krew":
        sys.stdout.write(krew(version, rest[0], [Path(each) for each in rest[1:]]))
    else:
        raise SystemExit(f"no command {command!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
