"""What the manifests say of the program is so: its options, ports and paths, its metrics, its pages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram

from rules import compile_policy, load_rules
from rules.model.check_result import Level
from rules.model.rule import Action, InjectionAction
from rules.schema.config_map import Loaded
from tests.support.builders import warning_texts
from tests.support.node_builders import gfd, gpu_pod, inventory, judged, node
from tests.support.paths import ROOT
from tests.support.release import RELEASE
from tests.support.webhooks import builtin_handler
from webhook.admission.app import create_app
from webhook.cli.audit.command import command as audit
from webhook.cli.commands.images import command as images
from webhook.cli.commands.serve import command
from webhook.cli.inputs.session import Session
from webhook.images.resolver.fact_store import NAMES
from webhook.server.server import ServerConfig
from webhook.telemetry import metrics

MANIFESTS = ROOT / "manifests"
DEPLOYMENT, *_ = yaml.safe_load_all((MANIFESTS / "base/deployment.yaml").read_text("utf-8"))
# Seconds for `kubectl kustomize`, which takes half of one.
_KUSTOMIZE_S = 60.0
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def _options() -> dict[str, Any]:
    """Return what the Deployment's arguments mean to `gpugate serve`, which refuses others."""
    name, *arguments = CONTAINER["args"]
    assert "serve" == name
    return command.make_context(name, arguments).params


def test_the_arguments_are_options_of_serve() -> None:
    """And the port that it listens on by default is the container's."""
    assert "gpugate-certs" == _options()["certs_secret"]
    assert [_options()["port"]] == [port["containerPort"] for port in CONTAINER["ports"]]
    assert ServerConfig().port == _options()["port"]


def test_probes_ask_for_pages_that_there_are() -> None:
    """Over TLS."""
    pages = {rule.rule for rule in create_app(builtin_handler()).url_map.iter_rules()}
    pages_of_probes = [
        CONTAINER[f"{probe}Probe"]["httpGet"] for probe in ("startup", "readiness", "liveness")
    ]

    assert {"/healthz", "/readyz"} == {probe["path"] for probe in pages_of_probes} & pages
    assert {("https", "HTTPS")} == {(probe["port"], probe["scheme"]) for probe in pages_of_probes}


def test_the_drain_and_the_slowest_client_fit_into_the_grace_period() -> None:
    """The kubelet kills what is left then."""
    slowest = _options()["drain_seconds"] + ServerConfig().client_timeout

    assert slowest < POD["terminationGracePeriodSeconds"]


def test_the_image_is_of_this_version() -> None:
    """In the Deployment and in the page's overlay."""
    assert f"gpugate:{RELEASE}" == CONTAINER["image"]
    assert f"newTag: {RELEASE}" in (ROOT / "docs/install.md").read_text("utf-8")


def test_no_file_lies_beside_a_kustomization_unused() -> None:
    """Kustomize says nothing of a file that nobody names."""
    for path in MANIFESTS.rglob("kustomization.yaml"):
        text = path.read_text("utf-8")
        others = {file.name for file in path.parent.iterdir() if file.is_file()} - {path.name}

        assert set() == {name for name in others if name not in text}


def test_gate_and_agent_reach_no_more_than_the_api_server_and_dns() -> None:
    """By their NetworkPolicies, which name the same ports."""
    gate = yaml.safe_load((MANIFESTS / "base/network.yaml").read_text("utf-8"))["spec"]
    _, policy = yaml.safe_load_all((MANIFESTS / "agent/daemonset.yaml").read_text("utf-8"))

    assert {443, 6443, 53} == {port["port"] for rule in gate["egress"] for port in rule["ports"]}
    assert gate["egress"] == policy["spec"]["egress"]
    assert [["Ingress", "Egress"]] * 2 == [gate["policyTypes"], policy["spec"]["policyTypes"]]


def test_the_image_resolver_reaches_no_more_ports_and_writes_only_the_config_maps_that_it_has() -> None:
    """Its Deployment has options of `gpugate images`; its ConfigMaps are those of its role."""
    folder = MANIFESTS / "components/image-resolver"
    deployment, policy = yaml.safe_load_all((folder / "deployment.yaml").read_text("utf-8"))
    gate = yaml.safe_load((MANIFESTS / "base/network.yaml").read_text("utf-8"))["spec"]
    roles = list(yaml.safe_load_all((folder / "rbac.yaml").read_text("utf-8")))
    (names,) = [
        rule["resourceNames"] for role in roles for rule in role.get("rules", ()) if "resourceNames" in rule
    ]
    state = [
        document["metadata"]["name"]
        for document in yaml.safe_load_all((folder / "state.yaml").read_text("utf-8"))
    ]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    name, *arguments = container["args"]
    options = images.make_context(name, arguments).params

    assert gate["egress"] == policy["spec"]["egress"]
    assert list(NAMES) == names == state
    assert ("images", [options["port"]]) == (name, [port["containerPort"] for port in container["ports"]])
    assert (1, "Recreate") == (deployment["spec"]["replicas"], deployment["spec"]["strategy"]["type"])
    assert POD["securityContext"].items() <= pod["securityContext"].items()
    assert CONTAINER["securityContext"] == container["securityContext"]
    assert CONTAINER["image"] == container["image"]


def _alerts() -> list[dict[str, Any]]:
    document = yaml.safe_load((MANIFESTS / "monitoring/alerts.yaml").read_text("utf-8"))
    return [rule for group in document["spec"]["groups"] for rule in group["rules"]]


def _panels() -> list[dict[str, Any]]:
    dashboard = json.loads((MANIFESTS / "monitoring/dashboard.json").read_text("utf-8"))
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def _expressions() -> Iterator[str]:
    yield from (target["expr"] for panel in _panels() for target in panel["targets"])
    yield from (alert["expr"] for alert in _alerts())


def _series() -> dict[str, set[str]]:
    """Return the labels of each time series that the program exposes, and of those that Prometheus adds."""
    labels_by_series = {"up": set[str]()}
    for metric in vars(metrics).values():
        if isinstance(metric, Counter | Gauge | Histogram):
            (family,) = metric.describe()
            suffixes = {Counter: ["_total"], Gauge: [""], Histogram: ["_bucket", "_sum", "_count"]}[
                type(metric)
            ]
            labels_by_series |= {f"{family.name}{suffix}": set(metric._labelnames) for suffix in suffixes}
            if isinstance(metric, Histogram):
                labels_by_series[f"{family.name}_bucket"] |= {"le"}
    return {name: labels | {"job", "instance", "namespace"} for name, labels in labels_by_series.items()}


# Of PromQL, what the expressions use.
_FUNCTIONS = {"absent", "histogram_quantile", "increase", "max", "min", "rate", "sum", "time"}
_OPERATORS = {"and", "by", "offset", "on", "unless"}


@pytest.mark.parametrize("expression", list(_expressions()))
def test_an_expression_asks_for_metrics_and_labels_that_there_are(expression: str) -> None:
    """Whatever else stands in it is a number, a duration, or a word of PromQL."""
    series = _series()
    rest = re.sub(r'"[^"]*"', '""', expression)
    assert rest.count("(") == rest.count(")")
    known_labels = set()
    for name, matchers in re.findall(r"\b((?:gpugate_\w+|up)\b)(?:\{(.*?)\})?", rest):
        assert name in series
        known_labels |= series[name]
        assert set(re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*""', matchers)) <= series[name]
    for grouped in re.findall(r"\b(?:by|on) \((.*?)\)", rest):
        assert set(grouped.split(", ")) <= known_labels
    rest = re.sub(r"\{.*?\}|\[.*?\]|\b(?:by|on) \(.*?\)|\b(?:gpugate_\w+|up)\b", " ", rest)

    assert set(re.findall(r"\b[a-z_]+\b(?=\s*\()", rest)) <= _FUNCTIONS
    assert set(re.findall(r"\b[a-z_]+\b(?!\s*\()", rest)) <= _OPERATORS


def test_the_dashboard_shows_single_numbers_as_stat_panels_of_the_selected_namespace() -> None:
    """The state of rules, certificates, nodes and drivers is one number each; others have an axis or bars."""
    kinds = {panel["title"]: panel["type"] for panel in _panels()}

    assert {
        "Enforcement action",
        "Ready replicas",
        "Rules by state",
        "Nodes in the inventory",
        "Time until certificates expire",
        "Time until drivers are out of support",
    } == {title for title, kind in kinds.items() if kind == "stat"}
    assert "bargauge" == kinds["Would be denied, by rule"] == kinds["GPU nodes by driver branch and CUDA"]
    for panel in _panels():
        for target in panel["targets"]:
            assert 'namespace=~"$namespace"' in target["expr"]
            assert (panel["type"] != "timeseries") is ("instant" in target)


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    """In Grafana's grid of 24 columns."""
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in _panels())
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]

    assert len({*cells}) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_the_emergency_page_says_how_long_a_pod_waits_at_most() -> None:
    """The API server calls the webhooks of a pod one after the other."""
    documents = yaml.safe_load_all((MANIFESTS / "base/webhooks.yaml").read_text("utf-8"))
    seconds = [
        webhook["timeoutSeconds"]
        for document in documents
        for webhook in document["webhooks"]
        if any("CREATE" in rule["operations"] and "pods" in rule["resources"] for rule in webhook["rules"])
    ]
    page = " ".join((ROOT / "docs/emergency.md").read_text("utf-8").split())

    assert [5, 5] == seconds
    assert "waits five seconds for each of the two webhooks of a pod, so up to ten" in page


def test_an_alert_says_how_bad_it_is_and_where_to_read_on() -> None:
    """At a heading that there is, as GitHub makes anchors of them."""
    page = (ROOT / "docs/emergency.md").read_text("utf-8")
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}

    assert {"critical", "warning"} == {alert["labels"]["severity"] for alert in _alerts()}
    for alert in _alerts():
        file, _, anchor = alert["annotations"]["runbook"].partition("#")
        assert ("docs/emergency.md", True) == (file, anchor in anchors)
        assert alert["annotations"]["summary"]
    for anchor in re.findall(r"\]\(#(.*?)\)", page):
        assert anchor in anchors


@cache
def _rendered(folder: Path) -> Loaded:
    """Return the rules that `kubectl apply -k` would apply; the test is skipped if there is no kubectl."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    command = [kubectl, "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_KUSTOMIZE_S, check=True)
    return load_rules([(folder.name, done.stdout)])


# The rules of HAMi-core, whose maintainers support other major versions, and of Aliyun and qGPU, which
# replace no CUDA library.
_LENIENT = {
    "compatibility-aliyun",
    "compatibility-hami",
    "compatibility-koordinator-hami-core",
    "compatibility-qgpu-shares",
    "compatibility-volcano-vgpu-hami-core",
}


def test_the_overlay_strict_sets_the_formal_rules_for_all_gpus() -> None:
    """Of the built-in rules, those for HAMi-core, Aliyun and qGPU warn about another major version."""
    levels = {
        folder: {
            rule.name: (rule.sharing.minor_versions, rule.sharing.major_versions)
            for rule in _rendered(MANIFESTS / folder).rules.compatibility
        }
        for folder in ("base", "overlays/strict")
    }
    strict = Level.INCOMPATIBLE, Level.INCOMPATIBLE

    assert levels["base"] == {
        name: (strict[0], Level.UNSTABLE) if name in _LENIENT else strict for name in levels["base"]
    }
    assert levels["overlays/strict"] == dict.fromkeys(levels["base"], strict)
    assert levels["base"].keys() >= _LENIENT


_SHARES = {
    "HAMi": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"},
    "Volcano": {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000"},
    "GPU-Manager": {"tencent.com/vcuda-core": "20", "tencent.com/vcuda-memory": "8"},
}


@pytest.mark.parametrize(
    ("folder", "share", "allowed", "warnings"),
    [
        ("base", "HAMi", True, 1),
        ("base", "Volcano", True, 1),
        ("base", "GPU-Manager", False, 0),
        ("overlays/strict", "HAMi", False, 0),
        ("overlays/strict", "Volcano", False, 0),
        ("overlays/strict", "GPU-Manager", False, 0),
    ],
)
def test_a_share_of_another_major_version_is_denied_by_the_overlay_strict(
    folder: str, share: str, allowed: bool, warnings: int
) -> None:
    """CUDA 11.0 on a driver of CUDA 13.0; the base warns for HAMi-core, and denies for GPU-Manager."""
    policy = compile_policy(_rendered(MANIFESTS / folder).rules)
    limits = _SHARES[share]
    cluster = inventory(node("r580", gfd("13.0"), **dict.fromkeys(limits, "800000")))
    decision = judged(policy, cluster, gpu_pod("nvidia/cuda:11.0.3-base-ubuntu20.04", limits=limits))

    assert (allowed, warnings) == (decision.allowed, len(warning_texts(decision)))


def _patched(folder: Path, patches: list[Any]) -> Loaded:
    """Return the built-in rules with the patches of an overlay."""
    shutil.copytree(ROOT / "rules/catalog", folder / "rules")
    overlay = {"resources": ["rules"], "patches": patches}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay), "utf-8")
    return _rendered(folder)


def _setting(key: str, value: str, selector: str) -> dict[str, Any]:
    """Return the patch that sets a key in the data of the rules with a label."""
    patch = [{"op": "add", "path": f"/data/{key}", "value": value}]
    return {"target": {"kind": "ConfigMap", "labelSelector": selector}, "patch": yaml.safe_dump(patch)}


def test_an_overlay_sets_the_action_of_every_built_in_rule(tmp_path: Path) -> None:
    """Of all kinds that have an action: to warn, and of injection rules to dryrun."""
    loaded = _patched(
        tmp_path,
        [
            _setting("enforcementAction", "warn", "features.cpaas.io/type=CustomResourceLimitation"),
            _setting("enforcementAction", "warn", "features.alauda.io/type=CustomResourceLimitation"),
            _setting("enforcementAction", "warn", "gpugate.dev/type=CompatibilityRule"),
            _setting("enforcementAction", "dryrun", "gpugate.dev/type=InjectionRule"),
        ],
    )
    rules = loaded.rules
    validations = [validation.action for rule in rules.resources for validation in rule.validations]
    base = load_rules(
        (str(path), path.read_text("utf-8")) for path in sorted((ROOT / "rules/catalog").rglob("*.yaml"))
    )

    assert ((), len([*base.rules])) == (loaded.errors, len([*rules]))
    assert {Action.WARN} == {rule.action for rule in rules.resources}
    assert {Action.WARN} == {rule.action for rule in rules.compatibility}
    assert Action.WARN in validations
    assert Action.DENY not in validations
    assert {InjectionAction.DRYRUN} == {rule.action for rule in rules.injections}
    assert Action.DENY not in {rule.no_fitting_node for rule in rules.compatibility}
    assert [*rules.resources, *rules.injections, *rules.compatibility, *rules.images] == [*rules]


def test_an_overlay_of_five_lines_changes_a_built_in_rule(tmp_path: Path) -> None:
    """As the install page describes, without restating the rule."""
    page = (ROOT / "docs/install.md").read_text("utf-8")
    patch = next(part for part in page.split("```yaml\n")[1:] if "/data/minorVersionCompatibility" in part)
    loaded = _patched(tmp_path, yaml.safe_load(patch.partition("```")[0])["patches"])
    (changed,) = [
        rule for rule in loaded.rules.compatibility if rule.sharing.minor_versions is Level.COMPATIBLE
    ]

    assert ((), "compatibility-pgpu", Action.WARN) == (loaded.errors, changed.name, changed.action)


def test_developers_may_list_what_the_commands_read_of_nodes_and_rules_and_nothing_else() -> None:
    """As the base has it for the webhook, without claims and labels of others; nobody is bound to it."""
    base = yaml.safe_load_all((MANIFESTS / "base/rbac.yaml").read_text("utf-8"))
    gate = next(document for document in base if document["kind"] == "ClusterRole")
    role, rules = yaml.safe_load_all((MANIFESTS / "components/view/rbac.yaml").read_text("utf-8"))

    def listed(role_document: Any) -> set[tuple[str, str]]:
        return {
            (group, name)
            for rule in role_document["rules"]
            for group in rule["apiGroups"]
            for name in rule["resources"]
        }

    others = {"resourceclaims", "resourceclaimtemplates", "daemonsets", "namespaces"}
    groups = {"admissionregistration.k8s.io"}
    wanted = {(group, name) for group, name in listed(gate) if name not in others and group not in groups}
    assert ("ClusterRole", wanted) == (role["kind"], listed(role))
    assert ("kube-public", {("", "configmaps")}) == (rules["metadata"]["namespace"], listed(rules))
    assert {"list"} == {
        verb for document in (role, rules) for rule in document["rules"] for verb in rule["verbs"]
    }


def test_the_reports_may_list_each_kind_of_workload_and_write_only_reports() -> None:
    """By the table of kinds; their CronJob has options of `gpugate audit`, and the limits of the gate."""
    folder = MANIFESTS / "components/reports"
    cronjob, policy = yaml.safe_load_all((folder / "cronjob.yaml").read_text("utf-8"))
    gate = yaml.safe_load((MANIFESTS / "base/network.yaml").read_text("utf-8"))["spec"]
    roles = list(yaml.safe_load_all((folder / "rbac.yaml").read_text("utf-8")))
    rules = [rule for role in roles for rule in role.get("rules", ())]
    rights = {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    listed = {(group, resource) for group, resource, verb in rights if verb == "list"}
    kinds = {
        (group, f"{kind.lower()}s") for group, kind in Session().workloads.paths if group != "extensions"
    }
    pod = cronjob["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    name, *arguments = container["args"]
    options = audit.make_context(name, arguments).params

    assert kinds <= listed
    assert {("openreports.io", "reports")} == {right[:2] for right in rights if right[2] != "list"}
    assert gate["egress"] == policy["spec"]["egress"]
    assert ("audit", "openreports", True) == (name, options["output"], options["write"])
    assert pod["securityContext"] | {"fsGroup": 65534} == POD["securityContext"] | {"fsGroup": 65534}
    assert CONTAINER["securityContext"] == container["securityContext"]
    assert CONTAINER["image"] == container["image"]
