"""Reading a cluster once, as the commands do: raw JSON, with errors that say what to do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import urllib3.exceptions
from kubernetes import client, config

from rules.load import LABEL_PREFIXES, RESOURCE_RULE_TYPE, TYPE_LABEL
from webhook.dump import dump_yaml

# What tells a rule from other ConfigMaps. Selectors have no OR, so each is a request.
RULE_SELECTORS: Final = (*(f"{prefix}type={RESOURCE_RULE_TYPE}" for prefix in LABEL_PREFIXES), TYPE_LABEL)
# Seconds for a request; an API server that is there answers a list of some hundred objects in well under one.
_TIMEOUT: Final = 10
# Objects of one answer; the rest comes with the next.
_PAGE: Final = 500


class ClusterError(Exception):
    """The cluster cannot be read; says which call failed and what to look at."""


class Cluster:
    """A cluster that a kubeconfig names. Raises ClusterError where the kubeconfig names none."""

    def __init__(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        """Take the given or the usual kubeconfig, and the given or its current context."""
        try:
            api = config.new_client_from_config(  # type: ignore[no-untyped-call]
                kubeconfig, context, persist_config=False
            )
        except (config.ConfigException, OSError) as error:
            raise ClusterError(f"no cluster: {error}; look at --kubeconfig and --context") from error
        api.configuration.retries = urllib3.Retry(2, redirect=0, backoff_factor=0.2)
        self._core = client.CoreV1Api(api)

    def rules(self, namespace: str) -> list[tuple[str, str]]:
        """Return (name, YAML) of each rule ConfigMap of a namespace, as `kubectl get -o yaml` prints it.

        Raises ClusterError.
        """
        found: dict[str, str] = {}
        for selector in RULE_SELECTORS:
            for item in _list_all(
                f"ConfigMaps of namespace {namespace!r}",
                partial(self._core.list_namespaced_config_map, namespace, label_selector=selector),
            ):
                name = str(item["metadata"]["name"])
                item["metadata"].pop("managedFields", None)
                found[name] = dump_yaml({"apiVersion": "v1", "kind": "ConfigMap"} | item, sort_keys=True)
        return [(f"configmap {namespace}/{name}", text) for name, text in sorted(found.items())]

    def nodes(self) -> list[dict[str, Any]]:
        """Return all nodes, as JSON. Raises ClusterError."""
        return list(_list_all("Nodes", self._core.list_node))


def _list_all(what: str, call: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list, page by page. Raises ClusterError."""
    page = ""
    while True:
        try:
            answer = call(limit=_PAGE, _continue=page, _preload_content=False, _request_timeout=_TIMEOUT)
            document = json.loads(answer.data)
        except client.ApiException as error:
            raise ClusterError(f"cannot list {what}: {error.status} {error.reason}") from error
        except urllib3.exceptions.HTTPError as error:
            raise ClusterError(f"the API server does not answer: {error}") from error
        yield from document["items"]
        page = document["metadata"].get("continue", "")
        if not page:
            return
