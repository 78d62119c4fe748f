"""Sessions and questions of the page of `gpugate ui`, with the built-in rules."""

from __future__ import annotations

from functools import cache

from rules import RuleSet, load_rules
from rules.nodes.inventory_document import inventory_of
from rules.text.yaml_document import read
from webhook.cli.inputs.files import RuleSource, load_workloads
from webhook.cli.ui.session import Nodes, Question, Rules, Session

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
    return load_rules(RuleSource().sources(["builtin"])).rules


def new_session(nodes: str | None = None) -> Session:
    """Return a session with the built-in rules. nodes: those of the command."""
    given = None
    if nodes is not None:
        documents = [each.value for each in read(nodes, "nodes.yaml") if not isinstance(each, ValueError)]
        given = Nodes("nodes.yaml", inventory_of(documents), nodes)
    rules = {"builtin": Rules("builtin", built_in_rules(), ("builtin",))}
    return Session(rules, load_workloads([]), given)


def asked(pod: str = POD, node_text: str = T4, **others: str) -> Question:
    """Return a question about a pod and nodes as texts."""
    fields = {"pod": pod, "node_text": node_text, "nodes": "text" if node_text else "none"}
    return Question(**{**fields, **others})  # type: ignore[arg-type]  # a misspelt field fails in a test
