"""All faults, in the order of the page."""

from __future__ import annotations

from typing import Final

from tests.faults import api_server_faults, certificate_faults, image_faults, process_faults, rule_faults
from tests.faults.measure import Fault

FAULTS: Final[tuple[Fault, ...]] = (
    *api_server_faults.FAULTS,
    *certificate_faults.FAULTS,
    *rule_faults.FAULTS,
    *process_faults.FAULTS,
    *image_faults.FAULTS,
)
# In an order in which a running server can be reused for the next fault.
IN_TURN: Final = sorted(FAULTS, key=lambda fault: repr(fault.serve))
