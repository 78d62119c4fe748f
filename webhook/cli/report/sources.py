"""What a report was made with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version

from webhook.cli.inputs.files import BUILT_IN
from webhook.cli.inputs.session import Session
from webhook.cli.terminal.vocabulary import (
    CLUSTER_CONTEXT,
    CURRENT_CONTEXT,
    NODES_HEADING,
    RULES_HEADING,
    TIME_HEADING,
    VERSION_HEADING,
)


def sources_of(session: Session, new_rules: Sequence[str] = ()) -> dict[str, str]:
    """Return the rules and nodes with their sources, the time and the version, by heading.

    new_rules: paths of the rules after a change.
    """
    language, cluster = session.language, session.cluster
    of_cluster = CLUSTER_CONTEXT.having(
        context=cluster.context or CURRENT_CONTEXT.in_language(language)
    ).in_language(language)
    rules = ", ".join(session.rule_paths) or (of_cluster if cluster.selected else BUILT_IN)
    rules = " → ".join(filter(None, (rules, ", ".join(new_rules))))
    nodes = ", ".join(session.node_paths) or (of_cluster if cluster.selected else "–")
    decisive = sum(
        map(
            len,
            (
                session.policy.rules.resources,
                session.policy.rules.injections,
                session.policy.rules.compatibility,
            ),
        )
    )
    values = (f"{decisive} ({rules})", f"{len(session.inventory)} ({nodes})")
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    headings = (RULES_HEADING, NODES_HEADING, TIME_HEADING, VERSION_HEADING)
    return dict(
        zip(
            (text.in_language(language) for text in headings), (*values, now, version("gpugate")), strict=True
        )
    )
