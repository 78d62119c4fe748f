"""The month that support of drivers is compared with."""

from __future__ import annotations

import os
from datetime import UTC, datetime


def this_month() -> str:
    """Return the present month, such as 2026-11; with $SOURCE_DATE_EPOCH, that of its time.

    Pages and pictures are made with that variable, so that they do not change by themselves.
    """
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.fromtimestamp(int(seconds), UTC) if seconds.isdecimal() else datetime.now(UTC)
    return f"{now:%Y-%m}"
