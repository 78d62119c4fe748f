"""The nodes that the scheduler may choose: their classes."""

from __future__ import annotations

from rules import Snapshot, compile_policy, decide, load_rules
from tests.support.builders import request
from tests.support.node_builders import GPU, compatibility_rule, gpu_pod, inventory, node
from webhook.cli.report.candidate_nodes import candidate_nodes


def test_a_node_is_described_once_by_the_labels_of_any_rule() -> None:
    """Whatever the order of the rules; a node without a label is listed, too."""
    other = {"resources": ["example.com/gpu"]}
    nodes = inventory(
        node("own", {"example.com/gpu": "X1"}), node("nvidia", {f"{GPU}.product": "L4"}), node("none")
    )
    created = request(gpu_pod("team/app:v1"))
    for names in (("a", "b"), ("b", "a")):
        rules = [
            compatibility_rule(name=names[0]),
            compatibility_rule(name=names[1], match=other, labels={"product": ["example.com/gpu"]}),
        ]
        policy = compile_policy(load_rules(zip("ab", rules, strict=True)).rules)
        snapshot = Snapshot(policy, nodes)

        (result,) = candidate_nodes(snapshot, created, decide(snapshot, created))

        classes = {(row["product"], *row["names"]) for row in result["classes"]}
        assert {("X1", "own"), ("L4", "nvidia"), (None, "none")} == classes
        assert (3, 3) == (result["count"], len(result["classes"]))
