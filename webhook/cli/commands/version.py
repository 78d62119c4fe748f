"""`gpugate version`: the versions of this program, of its built-in rules, and of gpugate in a cluster."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator
from hashlib import sha256
from importlib.metadata import version
from typing import Any, Final

import click

from rules import Action, Language
from rules.cuda import tables
from rules.kube.image_reference import parse_image
from rules.schema.config_map import ENABLED_LABEL, LABEL_PREFIXES, Source
from rules.text.yaml_document import Document, read
from webhook.cli.inputs.files import BUILT_IN
from webhook.cli.inputs.installation import enforcement_action
from webhook.cli.inputs.options import cluster_options, language_option, namespace_option, output_option
from webhook.cli.inputs.session import Session, with_session
from webhook.cli.terminal.console import UNKNOWN, BadInputError, print_json, print_warning
from webhook.cli.terminal.vocabulary import (
    AS_BUILT_IN,
    BUILT_IN_FACTS,
    BUILT_IN_RULES,
    CAPPED,
    CLIENT_VERSION,
    CLUSTER_RULES,
    NO_WEBHOOK,
    WEBHOOK_VERSION,
)
from webhook.yaml_output import dump_yaml

# Characters of a revision; Git shows as many of a commit.
_REVISION: Final = 12
# Prefixes of gpugate's labels; other labels are set by kustomize and Helm.
_LABELS: Final = (*LABEL_PREFIXES, "gpugate.dev/")
# The labels of enabled rules.
_ENABLED: Final = (ENABLED_LABEL, *(f"{prefix}enabled" for prefix in LABEL_PREFIXES))


@click.command()
@output_option("text", "json", "yaml")
@click.option("--client", "client_only", is_flag=True, help="Show the version of this program alone.")
@cluster_options
@namespace_option
@language_option
@with_session
def command(output: str, client_only: bool, session: Session) -> None:
    """Show the version of this program, its rules and facts, and of gpugate and the rules in a cluster.

    The date of the facts is the last day on which they were looked up. Equal revisions mean equal rules: a
    hash of names, data and gpugate's labels. The version of a webhook is the tag of its Deployment's image.

    \b
    Examples:
      gpugate version
      gpugate version --context production
      gpugate version --context production -o json | jq -r '.webhooks[].version'
      kubectl gpugate version --client
    """
    cluster, namespace, language = session.cluster, session.rules_namespace, session.language
    facts: dict[str, Any] = {
        "client": {
            "version": version("gpugate"),
            "python": platform.python_version(),
            "platform": f"{platform.system()}/{platform.machine()}".lower(),
            "rules": _rules(session.sources([BUILT_IN])),
            "facts": {"date": tables.BUILT_IN.date},
        }
    }
    try:
        if cluster.selected and not client_only:
            sources = cluster.query(lambda api: api.rules(namespace))
            facts["rules"] = {"namespace": namespace, **_rules(sources)}
            if not facts["rules"]["count"]:
                print_warning(session.no_rules(), language)
            facts["webhooks"] = [
                _webhook(deployment) for deployment in cluster.query(lambda api: api.webhooks())
            ]
    except BadInputError:  # what is known is shown, as kubectl does
        _show(facts, output, language)
        raise
    _show(facts, output, language)


def _rules(sources: Iterable[Source]) -> dict[str, Any]:
    """Return the number of rules in sources, and their revision."""
    rules, enabled = [], 0
    for name, content in sources:
        for document in read(content, name):
            if isinstance(document, Document) and isinstance(document.value, dict):
                metadata = document.value.get("metadata") or {}
                labels = metadata.get("labels") or {}
                own = {key: value for key, value in labels.items() if str(key).startswith(_LABELS)}
                enabled += any(own.get(label) == "true" for label in _ENABLED)
                rules.append([str(metadata.get("name")), own, document.value.get("data")])
    canonical = json.dumps(sorted(rules, key=lambda rule: rule[0]), sort_keys=True, default=str)
    revision = sha256(canonical.encode()).hexdigest()[:_REVISION]
    return {"count": len(rules), "enabled": enabled, "revision": revision}


def _webhook(deployment: dict[str, Any]) -> dict[str, Any]:
    """Return the facts about a Deployment of gpugate. version: None if the image has no tag."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    image = str(spec["template"]["spec"]["containers"][0]["image"])
    reference = parse_image(image)
    return {
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "image": image,
        "version": reference.tag if reference else None,
        "enforcementAction": enforcement_action(deployment),
        "replicas": spec.get("replicas", 1),
        "ready": deployment.get("status", {}).get("readyReplicas", 0),
    }


def _show(facts: dict[str, Any], output: str, language: Language) -> None:
    if output == "json":
        print_json(facts)
    elif output == "yaml":
        click.echo(dump_yaml(facts), nl=False)
    else:
        for line in _lines(facts, language):
            click.echo(line)


def _lines(facts: dict[str, Any], language: Language) -> Iterator[str]:
    """Yield a line for each known version."""
    client, rules, webhooks = facts["client"], facts.get("rules"), facts.get("webhooks")
    yield CLIENT_VERSION.having(**client).in_language(language)
    yield BUILT_IN_RULES.having(**client["rules"]).in_language(language)
    yield BUILT_IN_FACTS.having(**client["facts"]).in_language(language)
    if rules:
        same = rules["revision"] == client["rules"]["revision"]
        note = AS_BUILT_IN.in_language(language) if same else ""
        yield CLUSTER_RULES.having(**rules).in_language(language) + note
    for webhook in webhooks or ():
        line = WEBHOOK_VERSION.having(**webhook | {"version": webhook["version"] or UNKNOWN}).in_language(
            language
        )
        capped = webhook["enforcementAction"] != Action.DENY
        yield line + (
            CAPPED.having(action=webhook["enforcementAction"]).in_language(language) if capped else ""
        )
    if webhooks == []:
        yield NO_WEBHOOK.in_language(language)
