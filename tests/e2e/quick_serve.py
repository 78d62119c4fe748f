"""`gpugate serve` with lifetimes of certificates in seconds, and a handshake for each request.

Run as `python tests/e2e/quick_serve.py serve …`. A rotation takes a minute and a day otherwise, and an API
server that keeps its connections would not see the new certificate for as long as they last.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import certs.rotator
import webhook.runtime
import webhook.server.server
from certs.rotation_plan import Plan
from webhook.admission.app import create_server_application
from webhook.cli import main

if TYPE_CHECKING:
    from webhook.server.http import Application, Request, Response


def closing(application: Application) -> Application:
    """Return the application with an end to each connection."""

    def answer(request: Request) -> Response:
        response = application(request)
        return response._replace(headers=(*response.headers, ("Connection", "close")))

    return answer


if __name__ == "__main__":
    vars(certs.rotator).update(RECONCILE_INTERVAL=0.2)
    vars(webhook.server.server).update(_RELOAD_INTERVAL=0.1)
    vars(webhook.runtime).update(
        # Certificates know whole seconds, so an overlap of 4 may be one of 3.
        Plan=partial(Plan, settling=timedelta(seconds=1), overlap=timedelta(seconds=4)),
        create_server_application=lambda *given, **named: closing(create_server_application(*given, **named)),
    )
    main()
