"""The component unrequested-gpus builds, and knows the resources of the built-in rules."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from rules.model.rule import RuleSet
from tests.support.paths import ROOT
from webhook.cli.inputs.session import Session
from webhook.cluster.match_conditions import PODS, expression, resources_of

COMPONENT: Final = ROOT / "manifests/components/unrequested-gpus"
POLICIES: Final = {"deny.yaml": ["Deny"], "warn.yaml": ["Warn", "Audit"]}
# Seconds for `kubectl kustomize`, which takes half of one.
_KUSTOMIZE_S: Final = 60.0
# The test of a resource key in a match condition of the webhook.
_KEY_TEST: Final = re.compile(r'key in \[[^]]*\] \|\| key\.matches\("[^"]*"\)')


def _read(file: str) -> tuple[dict[str, Any], dict[str, Any]]:
    policy, binding = yaml.safe_load_all((COMPONENT / file).read_text("utf-8"))
    return policy["spec"], binding["spec"]


def _variables(file: str) -> dict[str, str]:
    return {variable["name"]: variable["expression"] for variable in _read(file)[0]["variables"]}


def test_the_component_is_two_policies_with_bindings(tmp_path: Path) -> None:
    """As kustomize builds it."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    shutil.copytree(COMPONENT, tmp_path / "component")
    (tmp_path / "kustomization.yaml").write_text("components: [component]")
    command = [kubectl, "kustomize", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_KUSTOMIZE_S, check=True)
    built = {(document["kind"], document["metadata"]["name"]) for document in yaml.safe_load_all(done.stdout)}

    assert {
        (f"ValidatingAdmissionPolicy{end}", name)
        for end in ("", "Binding")
        for name in ("gpugate-unrequested-gpus", "gpugate-possible-gpus")
    } == built


def test_only_what_is_certain_is_denied() -> None:
    """The other policy warns and leaves an audit annotation."""
    assert POLICIES == {file: _read(file)[1]["validationActions"] for file in POLICIES}


def test_both_policies_select_the_same_objects_and_namespaces() -> None:
    """They cannot share expressions, so they have copies."""
    (deny, deny_binding), (warn, warn_binding) = (_read(file) for file in POLICIES)
    both = _variables("deny.yaml").items() & _variables("warn.yaml").items()

    assert [deny[name] for name in ("failurePolicy", "matchConstraints", "matchConditions")] == [
        warn[name] for name in ("failurePolicy", "matchConstraints", "matchConditions")
    ]
    assert {
        *("ownResources", "spec", "allContainers", "claimed", "requested", "requestedOfNvidia"),
        *("containers", "visible"),
    } == {name for name, _ in both}
    assert deny_binding["matchResources"] == warn_binding["matchResources"]
    # The overlay of the page replaces it by its place.
    assert ["ownResources"] * 2 == [spec["variables"][0]["name"] for spec in (deny, warn)]


@pytest.mark.parametrize("file", POLICIES)
def test_a_request_is_a_resource_of_the_built_in_rules(file: str, request: pytest.FixtureRequest) -> None:
    """`--update-golden` rewrites it."""
    rules = Session().rules
    of_cuda = RuleSet(compatibility=tuple(rule for rule in rules.compatibility if rule.sharing.cuda))
    every, cuda = (
        _KEY_TEST.findall(expression(resources_of(rule_set), PODS))[0] for rule_set in (rules, of_cuda)
    )
    if request.config.getoption("--update-golden"):
        path = COMPONENT / file
        replacements = iter((every, cuda))
        path.write_text(_KEY_TEST.sub(lambda _: next(replacements), path.read_text("utf-8")), "utf-8")
    variables = _variables(file)

    assert [every] == _KEY_TEST.findall(variables["requested"])
    assert [cuda] == _KEY_TEST.findall(variables["requestedOfNvidia"])
    assert ("google.com/tpu" in every, "google.com/tpu" in cuda, "nvidia.com/gpu" in cuda) == (
        True,
        False,
        True,
    )
