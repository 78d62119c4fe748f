"""All faults, in the order of the page."""

from __future__ import annotations

from typing import Final

from tests.faults import of_certificates, of_rules, of_the_api_server, of_the_process
from tests.faults.measure import Fault

FAULTS: Final[tuple[Fault, ...]] = (
    *of_the_api_server.FAULTS,
    *of_certificates.FAULTS,
    *of_rules.FAULTS,
    *of_the_process.FAULTS,
)
# In an order in which a gate that runs as the next fault wants it goes on.
IN_TURN: Final = sorted(FAULTS, key=lambda fault: repr(fault.serve))
