"""Pages and questions of the page of `gpugate ui`, with the built-in rules."""

from __future__ import annotations

from functools import cache

from rules import RuleSet
from rules.nodes.inventory_document import inventory_of
from rules.text.i18n import Language
from rules.text.yaml_document import read
from webhook.cli.inputs.session import Session
from webhook.cli.ui.page import Nodes, Page, Question, Rules

T4 = """apiVersion: v1
kind: Node
metadata:
  name: t4
  labels:
    nvidia.com/gpu.product: Tesla-T4
    nvidia.com/gpu.compute.major: "7"
    nvidia.com/gpu.compute.minor: "5"
    nvidia.com/cuda.runtime-version.major: "12"
    nvidia.com/cuda.runtime-version.minor: "4"
status:
  allocatable: {nvidia.com/gpu: "4"}
"""
POD = """apiVersion: v1
kind: Pod
metadata: {name: serve, namespace: ml}
spec:
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.6.3
      args:
        - --dtype=bfloat16
      resources:
        limits:
          nvidia.com/gpu: 1
"""


@cache
def built_in_rules() -> RuleSet:
    """Return the built-in rules, read once."""
    return Session().rules


def new_page(nodes: str | None = None) -> Page:
    """Return a page with the built-in rules. nodes: those of the command."""
    given = None
    if nodes is not None:
        documents = [
            result.value for result in read(nodes, "nodes.yaml") if not isinstance(result, ValueError)
        ]
        given = Nodes("nodes.yaml", inventory_of(documents), nodes)
    rules = {"builtin": Rules("builtin", built_in_rules(), ("builtin",))}
    return Page(rules, Session().workloads, given)


def asked(pod: str = POD, node_text: str = T4, **others: str) -> Question:
    """Return a question about a pod and nodes as texts."""
    fields = {"pod": pod, "node_text": node_text, "nodes": "text" if node_text else "none"}
    if "language" in others:
        others = {**others, "language": Language(others["language"])}
    return Question(**{**fields, **others})  # type: ignore[arg-type]  # a misspelt field fails in a test
