"""Two replicas behind one address: one is told to end, and nobody notices."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.e2e.gate import eventually
from tests.e2e.replicas import (
    CLIENTS,
    Load,
    Replica,
    apply_rules,
    called_at,
    is_completed,
)
from tests.e2e.service import Service, ask

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import ControlPlane

# Seconds. The Service sends the last new connection a second and a half after the signal.
DRAIN_S = 4.0


def test_no_call_fails_when_one_of_two_replicas_is_told_to_end(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Under load, by SIGTERM; the other answers alone afterwards."""
    apply_rules(control_plane, namespace)
    with ExitStack() as stack:
        replicas = [
            stack.enter_context(
                Replica(control_plane, namespace, tmp_path / f"{number}.log", drain_s=DRAIN_S)
            )
            for number in range(2)
        ]
        service = stack.enter_context(Service([replica.port for replica in replicas]))
        stack.enter_context(called_at(control_plane, service.port))
        eventually(lambda: is_completed(control_plane, namespace))
        with Load(control_plane, namespace) as load:
            load.go_on()
            eventually(lambda: min(replica.reviews() for replica in replicas) > 1)
            status = replicas[0].terminate()
            calls, reviews = load.calls, replicas[1].reviews()
            load.go_on()
        ended = ask(replicas[0].port, "/healthz")
        answered = replicas[1].reviews() - reviews

    assert [] == load.failures
    assert (0, (0, "")) == (status, ended)
    # Each call is one review to mutate, one to validate; those that were under way may count already.
    assert answered >= 2 * (load.calls - calls - CLIENTS)
    assert answered > 0
