"""What a decision costs: microseconds in one thread, and ratios within this run.

The pods are recorded reviews grown to 4 KB of spec; the baseline is decoding the same review.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rules.decide import decide
from rules.inventory import Inventory
from rules.load import DEFAULT_NAMESPACE, load
from rules.model import AdmissionRequest, RuleSet
from rules.policy import Policy, compile_policy
from tests.bench.timing import measure, show
from webhook.cli.inputs import RuleSource
from webhook.review import decode_review, encode_decision

REVIEWS = Path(__file__).parents[1] / "reviews"
NO_NODES = Inventory.of([])
POD_BYTES = 4096
# How much the cost may grow from the shipped rules to a thousand more.
GROWTH = 1.2
CASES = {
    "no accelerator": "003-create-pod-no-accelerator",
    "resource rules": "000-create-pod-vcuda-limits-only",
    "a default put in": "002-create-pod-vcuda-memory-alone",
    "variables injected": "005-create-pod-mps",
}


def _body(case: str) -> bytes:
    """Return a recorded review whose pod is at least POD_BYTES of JSON."""
    review: dict[str, Any] = json.loads((REVIEWS / case / "request.json").read_text("utf-8"))
    container = review["request"]["object"]["spec"]["containers"][0]
    environment = container.setdefault("env", [])
    while len(json.dumps(review["request"]["object"])) < POD_BYTES:
        environment.append({"name": f"VARIABLE_{len(environment)}", "value": "x" * 40})
    return json.dumps(review).encode()


def _thousand_more(rules: RuleSet) -> RuleSet:
    """Return the rules and a thousand resource rules of other vendors, in groups of two."""
    text = "\n---\n".join(
        f"""apiVersion: v1
kind: ConfigMap
metadata:
  name: cf-crl-vendor{number // 2}-device{number}
  labels:
    features.cpaas.io/type: CustomResourceLimitation
    features.cpaas.io/group: vendor{number // 2}
    features.cpaas.io/enabled: "true"
data:
  key: vendor{number // 2}.example.com/device{number}
  dataType: integer
  limits: optional
  requests: disabled
  validations: "[{{expression: value <= 100 || value % 100 == 0}}]"
"""
        for number in range(1000)
    )
    loaded = load([("generated", text)])
    assert not loaded.errors, loaded.errors[0]
    return RuleSet(rules.resources + loaded.rules.resources, rules.injections)


def main() -> int:
    """Print the tables; return 1 where a thousand rules make a decision dearer than GROWTH."""
    shipped = RuleSource(DEFAULT_NAMESPACE).load([]).rules
    policies = {
        "shipped rules": compile_policy(shipped),
        "and 1,000 more": compile_policy(_thousand_more(shipped)),
    }
    bodies = {name: _body(case) for name, case in CASES.items()}
    requests = {name: decode_review(body, mutating=True).request for name, body in bodies.items()}

    def deciding(policy: Policy, request: AdmissionRequest) -> Any:
        return lambda: decide(policy, NO_NODES, request)

    grown = False
    for name, request in requests.items():
        body = bodies[name]
        cases = {label: deciding(policy, request) for label, policy in policies.items()}
        decision = decide(policies["shipped rules"], NO_NODES, request)
        cases |= {
            "decode the review": lambda body=body: decode_review(body, mutating=True),
            "json.loads of it": lambda body=body: json.loads(body),
            "encode the answer": lambda decision=decision: encode_decision("uid", decision),
        }
        figures = measure(cases)
        grown |= figures["and 1,000 more"] > GROWTH * figures["shipped rules"]
        show(f"{name}: pod of {len(json.dumps(request.object))} bytes", "µs", figures, "shipped rules")
    print("\na thousand rules more:", f"MORE than {GROWTH} times" if grown else f"within {GROWTH} times")
    return int(grown)


if __name__ == "__main__":
    sys.exit(main())
