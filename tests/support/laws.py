"""How many examples Hypothesis makes of a law."""

from __future__ import annotations

import os
from typing import Final

# Few, for `make test`; 100 in `make test-all`, and for a search as many as one has time for.
# A law that needs more takes a multiple.
EXAMPLES: Final = int(os.environ.get("GPUGATE_LAW_EXAMPLES", "20"))
