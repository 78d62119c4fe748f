"""Drivers as a user writes them: a branch, or a whole version."""

from __future__ import annotations

from typing import NamedTuple

from rules.cuda.tables import certain_branches, cuda_of_branch, newest_release
from rules.cuda.versions import CudaVersion, DriverVersion
from rules.text.i18n import Text
from webhook.cli.evaluation.errors import ChangeError

_NO_VERSION = Text(
    "expected a driver branch such as 595, or a version such as 580.95.05, got {version!r}",
    "应为驱动分支（例如 595）或驱动版本（例如 580.95.05），实际为 {version!r}",
)
_NO_BRANCH = Text(
    "unknown driver branch {branch}; known branches: {known}", "未知的驱动分支 {branch}；已知分支：{known}"
)
_SHOWN = 12  # newest branches in a message


class Driver(NamedTuple):
    """A driver, and the CUDA version of its API."""

    version: DriverVersion
    cuda: CudaVersion


def parse_driver(text: str) -> Driver:
    """Return the driver of a version; of a branch alone, its newest release that came with a toolkit.

    Raises ChangeError for anything else, and for a branch of which no CUDA version is known.
    """
    version = DriverVersion.parse(text)
    if version is None:
        raise ChangeError(_NO_VERSION, version=text)
    fact = cuda_of_branch(version.branch)
    if fact is None or not fact.certain:
        known = ", ".join(map(str, certain_branches()[-_SHOWN:]))
        raise ChangeError(_NO_BRANCH, branch=version.branch, known=known)
    if len(version.numbers) == 1:
        version = newest_release(version.branch) or version
    return Driver(version, fact.value)
