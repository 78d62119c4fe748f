"""The page of `gpugate ui` as a process, and what its script sends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from tests.support.paths import ROOT


@contextmanager
def ui_process(*arguments: str) -> Iterator[str]:
    """Run `gpugate ui` and return the address that it prints, with its token; end it."""
    command = [sys.executable, "-m", "webhook", "ui", "--no-browser", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        try:
            assert run.stdout
            address = run.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:"), (address, run.poll())
            yield address
        finally:
            run.terminate()


def origin_of(address: str) -> str:
    """Return scheme, host and port of an address."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"
