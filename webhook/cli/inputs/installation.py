"""How gpugate runs in a cluster, from its Deployments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rules import Action
from webhook.cli.inputs.cluster_source import ClusterSource
from webhook.cli.terminal.console import BadInputError

_OPTION: Final = "--enforcement-action"


def enforcement_action(deployment: Mapping[str, Any]) -> str:
    """Return the effect to which a Deployment of gpugate caps all rules; `deny` without a cap."""
    words = [str(word) for word in deployment["spec"]["template"]["spec"]["containers"][0].get("args", ())]
    action = Action.DENY.value
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option == _OPTION:  # the last one applies
            action = value if equals else "".join(words[at + 1 : at + 2])
    return action


def cluster_cap(cluster: ClusterSource) -> str:
    """Return the effect to which the webhook of a cluster caps all rules.

    Empty without a cap, without a webhook, with several caps, or if its Deployments may not be read.
    """
    try:
        deployments = cluster.query(lambda api: api.webhooks())
    except BadInputError:  # the decision itself does not depend on them
        return ""
    caps = {enforcement_action(deployment) for deployment in deployments} - {Action.DENY.value}
    return caps.pop() if len(caps) == 1 else ""
