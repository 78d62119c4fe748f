"""The pod of this process, if it runs in one; imported before it is known whether `kubernetes` is installed.

Source: https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/#directly-accessing-the-rest-api
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def in_pod() -> bool:
    """Return whether this process runs in a pod."""
    return "KUBERNETES_SERVICE_HOST" in os.environ  # as in every pod


def own_namespace(folder: Path = SERVICE_ACCOUNT) -> str | None:
    """Return the namespace of this pod's service account; None if there is none."""
    path = folder / "namespace"
    return path.read_text("utf-8").strip() if path.is_file() else None
