"""A control plane that schedules gangs, and the PodGroup of one."""

from __future__ import annotations

from typing import Any, Final

from tests.e2e.cluster import ControlPlane, kubernetes
from tests.e2e.daemon import Daemon

# Gates and API versions with which a cluster schedules gangs: alpha in Kubernetes 1.36, beta and off in 1.37.
GANGS: Final = {
    (1, 36): ("GenericWorkload=true,GangScheduling=true", "scheduling.k8s.io/v1alpha2"),
    (1, 37): ("GenericWorkload=true,DRAWorkloadResourceClaims=true", "scheduling.k8s.io/v1beta1"),
}


class GangControlPlane(ControlPlane):
    """A control plane that schedules gangs; of 1.37 also with claims that a gang shares."""

    def _daemon(self, name: str, port: int, health: str, flags: dict[str, object]) -> Daemon:
        gates, version = GANGS[kubernetes()]
        more: dict[str, object] = {} if name == "etcd" else {"feature-gates": gates}
        more |= {"runtime-config": f"{version}=true"} if name == "kube-apiserver" else {}
        return super()._daemon(name, port, health, flags | more)


def gang(name: str, minimum: int, **spec: Any) -> dict[str, Any]:
    """Return a PodGroup that is scheduled as soon as this many of its pods can be. spec: other fields."""
    policy = {"gang": {"minCount": minimum}}
    document = {"apiVersion": GANGS[kubernetes()][1], "kind": "PodGroup", "metadata": {"name": name}}
    return document | {"spec": {"schedulingPolicy": policy, **spec}}
