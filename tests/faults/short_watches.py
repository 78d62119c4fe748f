"""`gpugate serve` with watches of seconds instead of minutes.

Run as `python tests/faults/short_watches.py serve …`.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import webhook.cluster.inventory_sync
import webhook.cluster.rule_sync
from webhook.cli import main
from webhook.cluster.reflector import Reflector

# Seconds of one watch request.
WATCH_S: Final = 4.0

if __name__ == "__main__":
    for module in (webhook.cluster.inventory_sync, webhook.cluster.rule_sync):
        vars(module).update(Reflector=partial(Reflector, watch_s=WATCH_S))
    main()
