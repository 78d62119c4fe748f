"""The command under test, in this process."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner, Result

from webhook.cli import main


def gpugate(*words: object, **settings: Any) -> Result:
    """Run a command. settings: of click's runner, such as input and env."""
    return CliRunner().invoke(main, [*map(str, words)], **settings)
