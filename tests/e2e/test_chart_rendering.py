"""What Helm renders of the chart: the objects of the manifests, and what each value changes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules import load_rules
from rules.model.rule import Action
from rules.model.workload_kinds import built_in_workloads
from tests.e2e import helm
from tests.e2e.manifests import MANIFESTS, Object, of_kind, render
from tests.support.chart import CHART
from tests.support.paths import ROOT
from tests.webhook.cluster.test_match_conditions import asked
from webhook.cli.commands.serve import command
from webhook.cluster.match_conditions import STATIC_CONDITION, static_expression

Key = tuple[str, str, str]

# Labels that only Helm's objects have, and that kustomize does not set on what an overlay adds.
HELMS_LABELS = ("app.kubernetes.io/managed-by", "helm.sh/chart")
NAME_LABEL = "app.kubernetes.io/name"
# Helm creates the namespace (`--create-namespace`), gpugate the Secret: nothing that renders may reset it.
NOT_IN_THE_CHART = {("Namespace", "", "gpugate"), ("Secret", "gpugate", "gpugate-certs")}
CREATE_SECRETS = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}
EVERYTHING = {
    "agent.enabled": True,
    "denialEvents.enabled": True,
    "imageResolver.enabled": True,
    "monitoring.enabled": True,
    "policies.unrequestedGpus": True,
    "reports.enabled": True,
    "token.enabled": True,
}
DIGEST = f"sha256:{'0' * 64}"


def _key(document: Object) -> Key:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def _compared(document: Object) -> Object:
    """Return an object without the labels that differ; kustomize adds empty lines to folded expressions."""
    labels = document["metadata"].get("labels", {})
    rest = {key: value for key, value in labels.items() if key not in (*HELMS_LABELS, NAME_LABEL)}
    compared = document | {"metadata": document["metadata"] | {"labels": rest}}
    if document["kind"] == "ValidatingAdmissionPolicy":
        compared = json.loads(json.dumps(compared).replace(r"\n\n", r"\n"))
    return compared


def _by_key(objects: Sequence[Object]) -> dict[Key, Object]:
    return {_key(document): _compared(document) for document in objects}


def _overlay(folder: Path, *resources: str, components: Sequence[str] = ()) -> list[Object]:
    """Return the objects of an overlay: folders of the manifests."""
    at = {
        kind: [
            str(Path("../" * len(folder.parts[1:])) / (MANIFESTS / name).relative_to("/")) for name in names
        ]
        for kind, names in (("resources", resources), ("components", components))
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(at))
    return render(folder)


def _assert_equal(expected: Sequence[Object], values: dict[str, Any]) -> None:
    """Assert that the chart has the objects of kustomize, except for the Secret and the namespace."""
    manifests, chart = _by_key(expected), _by_key(helm.rendered(values))
    role = ("Role", "gpugate", "gpugate-certs")
    if role in manifests:
        manifests[role]["rules"].append(CREATE_SECRETS)
    assert manifests.keys() - NOT_IN_THE_CHART == chart.keys()
    for key, document in chart.items():
        assert manifests[key] == document


@pytest.mark.parametrize(
    ("folder", "values"),
    [
        ("base", {}),
        ("overlays/ha", {"replicas": 3, "spread": "required"}),
        ("overlays/cert-manager", {"certificates": "cert-manager"}),
        ("overlays/strict", {"rules.strict": True}),
        ("overlays/observe", {"mode": "observe"}),
    ],
)
def test_the_chart_has_the_objects_of_an_overlay(folder: str, values: dict[str, Any]) -> None:
    """Except the namespace and the Secret."""
    _assert_equal(render(MANIFESTS / folder), values)


@pytest.mark.parametrize("names", [["baseline"], ["placement", "training"]])
def test_sets_of_guardrails_are_those_of_the_components(tmp_path: Path, names: list[str]) -> None:
    """By their names."""
    components = [f"components/guardrails/{name}" for name in names]
    _assert_equal(_overlay(tmp_path, "base", components=components), {"rules.guardrails": names})


def test_the_chart_has_the_objects_of_all_components(tmp_path: Path) -> None:
    """Also the agent, monitoring, and the policies for unrequested GPUs."""
    (tmp_path / "policies").mkdir()
    names = ("image-resolver", "reports", "token", "denial-events")
    components = [f"components/{name}" for name in names]
    main = _overlay(tmp_path, "base", "agent", "monitoring", components=components)
    policies = _overlay(tmp_path / "policies", components=["components/unrequested-gpus"])
    _assert_equal(main + policies, EVERYTHING)


@pytest.mark.parametrize(
    ("components", "values"),
    [
        (["nri"], {"agent.access": "nri"}),
        (["host-driver"], {"agent.access": "host-driver"}),
        (["mig"], {"agent.mig": True}),
        (["mps"], {"agent.mps": True}),
        (["toolkit"], {"agent.toolkit": True}),
        (["mig", "host-driver"], {"agent.access": "host-driver", "agent.mig": True}),
    ],
)
def test_the_agent_is_that_of_its_components(
    components: list[str], values: dict[str, Any], tmp_path: Path
) -> None:
    """In all their combinations that make sense."""
    added = [f"agent/components/{component}" for component in components]
    expected = _overlay(tmp_path, "base", "agent", components=added)
    _assert_equal(expected, values | {"agent.enabled": True})


def test_two_renders_are_equal_and_have_no_secret_and_no_ca_bundle() -> None:
    """Nothing is random, read from the cluster or written by gpugate, so that Argo CD sees no differences."""
    values = EVERYTHING | {"workloads.kinds": {"example.com": {"Train": ["spec.pod"]}}}
    first, second = helm.rendered(values), helm.rendered(values)
    sources = [path.read_text("utf-8") for path in (CHART / "templates").rglob("*.*")]

    assert first == second
    assert [] == of_kind(first, "Secret")
    assert "caBundle" not in yaml.safe_dump(first)
    assert [] == [
        source for source in sources if re.search(r"\b(lookup|rand\w+|gen\w*Cert|genCA|uuidv4|now)\b", source)
    ]


def test_every_object_has_the_labels_of_helm() -> None:
    """And of kustomize."""
    for document in helm.rendered(EVERYTHING):
        labels = document["metadata"]["labels"]
        assert ("gpugate", "Helm") == (labels[NAME_LABEL], labels["app.kubernetes.io/managed-by"])


def test_lint_finds_nothing() -> None:
    """With all parts, and warnings count; Helm recommends an icon."""
    done = helm.run("lint", "--strict", str(CHART), *helm.options(EVERYTHING))
    messages = re.findall(r"^\[(\w+)\] (.*)$", done.stdout, re.MULTILINE)

    assert (0, [("INFO", "Chart.yaml: icon is recommended")]) == (done.returncode, messages)


def test_another_namespace_is_used_everywhere() -> None:
    """By objects, subjects of roles, webhooks, policies, names of the certificate and monitors."""
    objects = helm.rendered(EVERYTHING | {"certificates": "cert-manager"}, namespace="platform")
    text = yaml.safe_dump(objects)

    assert {None, "platform", "gpugate-agent", "kube-public", "kube-system", "default"} == {
        document["metadata"].get("namespace") for document in objects
    }
    assert [] == re.findall(
        r"namespace: gpugate$|gpugate\.gpugate\b|:gpugate:|\bgpugate/gpugate$", text, re.MULTILINE
    )
    for manifest in of_kind(objects, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        assert "platform/gpugate" == manifest["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
        assert {"platform"} == {hook["clientConfig"]["service"]["namespace"] for hook in manifest["webhooks"]}


def _webhooks(values: dict[str, Any]) -> dict[str, Any]:
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    return {
        hook["name"]: hook
        for document in of_kind(helm.rendered(values), *kinds)
        for hook in document["webhooks"]
    }


def test_the_policy_of_webhooks_for_pods_can_be_ignore() -> None:
    """That of the webhook for rules always is; their namespaces and time can be set, too."""
    changed = _webhooks(
        {
            "webhooks.failurePolicy": "Ignore",
            "webhooks.timeoutSeconds": 2,
            "webhooks.excludedNamespaces": ["kube-system", "istio-system"],
        }
    )
    expression, label = changed["mutate.gpugate.dev"]["namespaceSelector"]["matchExpressions"]

    assert {"Ignore"} == {webhook["failurePolicy"] for webhook in changed.values()}
    assert {2} == {webhook["timeoutSeconds"] for webhook in changed.values()}
    assert ["kube-system", "istio-system", "gpugate"] == expression["values"]
    assert ["true"] == label["values"]


@pytest.mark.parametrize(
    ("mode", "action", "policy", "validation"),
    [
        ("enforce", "deny", "Fail", [["Deny"], ["Warn", "Audit"]]),
        ("warn", "warn", "Ignore", [["Warn", "Audit"]] * 2),
        ("observe", "dryrun", "Ignore", [["Audit"]] * 2),
    ],
)
def test_a_mode_caps_all_rules_and_policies_and_failures(
    mode: str, action: str, policy: str, validation: list[list[str]]
) -> None:
    """By the option of the server, the policy of webhooks and the actions of policies of the API server."""
    objects = helm.rendered(
        {"mode": mode, "policies.unrequestedGpus": True, "webhooks.failurePolicy": "Fail"}
    )
    name, *arguments = _pods(objects)["gpugate"]["containers"][0]["args"]
    hooks = [hook for document in objects for hook in document.get("webhooks", ())]

    assert action == command.make_context(name, arguments).params["enforcement_action"]
    assert {
        "mutate.gpugate.dev": policy,
        "mutate.ephemeralcontainers.gpugate.dev": "Ignore",
        "validate.gpugate.dev": policy,
    } == {hook["name"]: hook["failurePolicy"] for hook in hooks if "rules" not in hook["name"]}
    assert validation == [
        document["spec"]["validationActions"]
        for document in of_kind(objects, "ValidatingAdmissionPolicyBinding")
    ]


def test_the_image_can_be_a_digest() -> None:
    """In all workloads; with secrets and a policy for pulling it."""
    values = EVERYTHING | {
        "image": {"repository": "registry.example.com/gpugate", "digest": DIGEST, "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
    }
    pods = _pods(helm.rendered(values, "--include-crds"))

    assert ["gpugate", "gpugate-agent", "gpugate-images", "gpugate-test"] == sorted(pods)
    for pod in pods.values():
        (container,) = pod["containers"]
        assert f"registry.example.com/gpugate@{DIGEST}" == container["image"]
        assert ("Always", [{"name": "registry"}]) == (container["imagePullPolicy"], pod["imagePullSecrets"])


def _pods(objects: Sequence[Object]) -> dict[str, Any]:
    """Return the specs of pods by the name of their object."""
    workloads = of_kind(list(objects), "Deployment", "DaemonSet", "Pod")
    return {
        workload["metadata"]["name"]: workload["spec"].get("template", workload).get("spec", workload["spec"])
        for workload in workloads
    }


def test_openshift_chooses_users_and_groups() -> None:
    """All other restrictions stay, and each pod without OpenShift names them."""
    values = EVERYTHING | {"certificates": "cert-manager"}
    named, unnamed = (
        _pods(helm.rendered(values | {"openshift": number}, "--include-crds")) for number in (False, True)
    )
    users = {"runAsUser", "runAsGroup", "fsGroup"}

    assert {65534} == {pod["securityContext"]["runAsUser"] for pod in named.values()}
    for name, pod in unnamed.items():
        security = {key: value for key, value in named[name]["securityContext"].items() if key not in users}
        assert named[name] | {"securityContext": security} == pod
        assert security["runAsNonRoot"]


def test_settings_change_built_in_rules() -> None:
    """By name: the rules are loaded, one warns, one is off, and none has an error."""
    settings = {
        "compatibility-pgpu": {"enforcementAction": "warn", "minorVersionCompatibility": "allow"},
        "cf-crl-pgpu-gpu": {"enabled": False, "enforcementAction": "dryrun"},
    }
    objects = helm.rendered({"rules.settings": settings, "rules.strict": True})
    config_maps = [
        document
        for document in of_kind(objects, "ConfigMap")
        if document["metadata"]["namespace"] == "kube-public"
    ]
    loaded = load_rules([("chart", yaml.safe_dump_all(config_maps))])
    compatibility = {rule.name: rule for rule in loaded.rules.compatibility}
    resources = {rule.name: rule for rule in loaded.rules.resources}

    assert () == loaded.errors
    assert Action.WARN is compatibility["compatibility-pgpu"].action
    assert (False, Action.DRYRUN) == (
        resources["cf-crl-pgpu-gpu"].enabled,
        resources["cf-crl-pgpu-gpu"].action,
    )
    assert resources["cf-crl-pgpu-gpu"].enabled is not resources["cf-crl-amd-gpu"].enabled


def test_the_example_of_the_page_renders_rules_without_errors() -> None:
    """Each of its settings has an effect."""
    page = (ROOT / "docs/helm.md").read_text("utf-8")
    (text,) = re.findall(r"```yaml\n(image:.*?)```", page, re.DOTALL)
    values = yaml.safe_load(text)
    objects = helm.rendered(values)
    rules = [
        document
        for document in of_kind(objects, "ConfigMap")
        if document["metadata"]["namespace"] == "kube-public"
    ]
    loaded = load_rules([("chart", yaml.safe_dump_all(rules))])
    changed, plain = (
        {_key(document): document for document in documents} for documents in (objects, helm.rendered())
    )

    assert () == loaded.errors
    assert {
        "gpugate",  # the Deployment and both webhook configurations
        "compatibility-pgpu",
        "cf-crl-amd-xilinx",
        "lab",
    } == {key[2] for key in changed if changed[key] != plain.get(key)}


def test_a_built_in_kind_with_a_path_of_its_own_is_always_selected_by_the_static_condition() -> None:
    """The condition knows only the built-in paths; that of gpugate knows all. Other kinds are unchanged."""
    group, kind, other = "kubeflow.org", "PyTorchJob", ("batch", "Job")
    objects = helm.rendered({"workloads.kinds": {group: {kind: ["spec.pod"]}}})
    (configuration,) = of_kind(objects, "ValidatingWebhookConfiguration")
    (text,) = (
        condition["expression"]
        for condition in configuration["webhooks"][0]["matchConditions"]
        if condition["name"] == STATIC_CONDITION
    )
    unchanged = static_expression(built_in_workloads())
    container = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    document = {"spec": {"pod": {"spec": {"containers": [container]}}}}

    assert [True, False, False] == [
        asked(text, (group, kind), document),
        asked(unchanged, (group, kind), document),
        asked(text, other, document),
    ]


def test_own_rules_are_added() -> None:
    """And the built-in ones can be left out."""
    rule = {"labels": {"gpugate.dev/type": "Exemption"}, "data": {"rule.yaml": "reason: x\n"}}
    objects = helm.rendered({"rules.builtin": False, "rules.extra": {"lab": rule}})
    (added,) = [
        document
        for document in of_kind(objects, "ConfigMap")
        if document["metadata"]["namespace"] == "kube-public"
    ]

    assert ("lab", rule["data"]) == (added["metadata"]["name"], added["data"])
    assert rule["labels"].items() <= added["metadata"]["labels"].items()


def test_own_kinds_of_workloads_are_validated() -> None:
    """By a file for the server and a rule of the webhook; other replicas start if the file changes."""
    resources = [{"apiGroups": ["example.com"], "resources": ["trains"]}]
    values = {"workloads": {"kinds": {"example.com": {"Train": ["spec.pod"]}}, "resources": resources}}
    objects = helm.rendered(values)
    (file,) = [
        document
        for document in of_kind(objects, "ConfigMap")
        if document["metadata"]["name"] == "gpugate-workloads"
    ]
    (deployment,) = of_kind(objects, "Deployment")
    other = helm.rendered({"workloads.kinds": {"example.com": {"Train": ["spec.other"]}}})
    added = _webhooks(values)["validate.gpugate.dev"]["rules"][-1]

    assert values["workloads"]["kinds"] == yaml.safe_load(file["data"]["workloads.yaml"])
    assert resources[0].items() <= added.items()
    assert (["CREATE", "UPDATE"], ["*"]) == (added["operations"], added["apiVersions"])
    assert _annotations(deployment) != _annotations(of_kind(other, "Deployment")[0])


def _annotations(deployment: Object) -> Any:
    return deployment["spec"]["template"]["metadata"]["annotations"]


@pytest.mark.parametrize("certificates", ["own", "cert-manager"])
def test_the_arguments_are_options_of_serve(certificates: str, tmp_path: Path) -> None:
    """The server accepts them, with options of the values."""
    values = {"certificates": certificates, "options": ["--lang=zh"]}
    name, *arguments = _pods(helm.rendered(values))["gpugate"]["containers"][0]["args"]
    for part in ("crt", "key"):
        (tmp_path / f"tls.{part}").touch()
    arguments = [argument.replace("/certs/", f"{tmp_path}/") for argument in arguments]

    assert ("serve", "zh") == (name, command.make_context(name, arguments).params["lang"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replica": 3}, "additional properties 'replica' not allowed"),
        ({"certificates": "mine"}, "'/certificates': value must be one of 'own', 'cert-manager'"),
        ({"image.digest": "1.2.3"}, "'/image/digest'"),
        (
            {"rules.settings": {"none": {"enabled": False}}},
            "rules.settings.none: no built-in rule has this name",
        ),
    ],
)
def test_a_wrong_value_is_an_error(values: dict[str, Any], message: str) -> None:
    """By the schema, or by the name of a rule."""
    assert message in helm.problem(values)


def test_the_package_renders_the_same_objects(tmp_path: Path) -> None:
    """Outside the repository, with no warning."""
    done = helm.run("package", str(CHART), "--destination", str(tmp_path))
    assert not done.returncode, done.stderr
    (package,) = tmp_path.glob("*.tgz")
    rendered = helm.run("template", "gpugate", str(package), "--namespace", "gpugate", "--skip-tests")

    assert "" == rendered.stderr
    assert helm.rendered() == [document for document in yaml.safe_load_all(rendered.stdout) if document]
