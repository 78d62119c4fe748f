"""CompatibilityRule and ImageCatalog files: compiled rules, and errors with their locations."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from msgspec.structs import replace

from rules.cuda.image_catalog import CompatLibraries
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.model.check_result import Level
from rules.model.rule import Action, CompatibilityRule, ImageCatalogRule
from rules.model.sharing import CHECKS_OFF, Checks, SharingPolicy
from rules.nodes.label_families import LabelNames, read_driver_families, read_families
from rules.nodes.runtime_modes import RuntimeMode
from rules.schema.builder import PATCHABLE, patchable_keys
from rules.schema.compatibility_rule import ChecksDocument, CompatibilityRuleDocument
from rules.schema.loader import load_rules
from rules.text.i18n import Text
from tests.support.invalid_documents import invalid_documents
from tests.support.node_builders import compatibility_rule, image_catalog, shipped

HEAD = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: rule
  namespace: kube-public
  labels:
    gpugate.dev/type: {kind}
    gpugate.dev/enabled: "true"
data:
  rule.yaml: |
"""
# Line and column at which a document under `rule.yaml` starts.
FIRST_LINE = HEAD.count("\n") + 1
FIRST_COLUMN = 5
INVALID = Path(__file__).parent / "invalid"


def written(kind: str, document: str) -> str:
    """Return a ConfigMap of a kind with this rule."""
    return HEAD.format(kind=kind) + indent(document, "    ")


def mistakes(kind: str, document: str) -> list[str]:
    """Return the errors of a rule as `line:column: path: message`, counted in its own document."""
    loaded = load_rules([("rule.yaml", written(kind, document))])
    assert [] == list(loaded.rules)
    lines = []
    for error in loaded.errors:
        line, column = error.location.line - FIRST_LINE + 1, error.location.column - FIRST_COLUMN + 1
        assert str(error).startswith(f"rule.yaml:{error.location.line}:{error.location.column}: ")
        where = f"{error.path}: " if error.path else ""
        lines.append(f"{line}:{column}: {where}{error.message}")
    return lines


def compatibility(text: str) -> CompatibilityRule:
    """Return the one CompatibilityRule of a text."""
    (rule,) = load_rules([("rule.yaml", text)]).rules.compatibility
    return rule


def catalog(text: str) -> ImageCatalogRule:
    """Return the one ImageCatalog of a text."""
    loaded = load_rules([("rule.yaml", text)])
    assert [] == [str(error) for error in loaded.errors]
    (rule,) = loaded.rules.images
    return rule


MATCH = "match: {resources: [nvidia.com/gpu]}\n"


@pytest.mark.parametrize(("document", "errors"), invalid_documents(INVALID / "compatibility_rule.diff"))
def test_an_error_in_a_compatibility_rule_has_its_location(document: str, errors: list[str]) -> None:
    """File, line and column; the expected value; and a suggestion."""
    assert errors == mistakes("CompatibilityRule", document)


@pytest.mark.parametrize(("document", "errors"), invalid_documents(INVALID / "image_catalog.diff"))
def test_an_error_in_an_image_catalog_has_its_location(document: str, errors: list[str]) -> None:
    """Row by row."""
    assert errors == mistakes("ImageCatalog", document)


@pytest.mark.parametrize("kind", ["CompatibilityRule", "ImageCatalog"])
def test_a_rule_without_its_document_is_an_error(kind: str) -> None:
    """The rule is in rule.yaml."""
    text = HEAD.format(kind=kind).partition("  rule.yaml: |\n")[0] + "  {}\n"
    (error,) = load_rules([("rule.yaml", text)]).errors

    assert ("data", "required key 'rule.yaml' is missing: it contains the rule") == (
        error.path,
        error.message,
    )


def test_an_invalid_rule_does_not_affect_others() -> None:
    """Each file is loaded separately."""
    good, bad = compatibility_rule(name="good"), compatibility_rule(name="bad", sharing="none")
    loaded = load_rules([("good.yaml", good), ("bad.yaml", bad)])

    assert (["good"], ["bad"]) == (
        [rule.name for rule in loaded.rules],
        [error.rule for error in loaded.errors],
    )


def test_a_compatibility_rule_has_a_sharing_policy() -> None:
    """All settings."""
    rule = compatibility(
        compatibility_rule(
            description={"en": "shares", "zh": "共享"},
            sharing="virtual",
            baseline="12.4",
            minDriverCuda="11.5",
            minComputeCapability="7.0",
            deviceMode="vgpu",
            migSlices="deny",
            labels={"cuda": ["a/major a/minor", "a/cuda"], "driver": ["a/driver"], "product": []},
        )
    )

    assert rule.sharing == SharingPolicy(
        checks=Checks(),
        virtual=True,
        baseline=CudaVersion(12, 4),
        min_cuda=CudaVersion(11, 5),
        min_compute=ComputeCapability(7, 0),
        device_mode="vgpu",
        mig=False,
        labels=LabelNames(
            cuda=read_families(["a/major a/minor", "a/cuda"]),
            driver=read_driver_families(["a/driver"]),
            product=(),
        ),
    )
    assert (Text("shares", zh="共享"), True, ("nvidia.com/gpu",)) == (
        rule.description,
        rule.enabled,
        rule.match.resources,
    )


def test_the_defaults_of_a_compatibility_rule_are_strict() -> None:
    """The default action is deny."""
    rule = compatibility(compatibility_rule())

    assert (Action.DENY, None, SharingPolicy(checks=Checks())) == (
        rule.action,
        rule.no_fitting_node,
        rule.sharing,
    )
    assert rule.declarations is None


@pytest.mark.parametrize(
    ("word", "level"), [("deny", Level.INCOMPATIBLE), ("warn", Level.UNSTABLE), ("allow", Level.COMPATIBLE)]
)
@pytest.mark.parametrize("sharing", ["physical", "virtual"])
def test_minor_version_compatibility_is_a_level(word: str, level: Level, sharing: str) -> None:
    """For a node whose driver has the same major and a lower minor version."""
    rule = compatibility(compatibility_rule(sharing=sharing, minorVersionCompatibility=word))

    assert level is rule.sharing.minor_versions


@pytest.mark.parametrize(
    ("word", "level"), [("deny", Level.INCOMPATIBLE), ("warn", Level.UNSTABLE), ("allow", Level.COMPATIBLE)]
)
def test_a_major_version_mismatch_is_a_level(word: str, level: Level) -> None:
    """For virtual GPUs, and for whole ones."""
    rule = compatibility(compatibility_rule(majorVersionMismatch=word))

    assert level is rule.sharing.major_versions


@pytest.mark.parametrize(
    ("word", "level"), [("deny", Level.INCOMPATIBLE), ("warn", Level.UNSTABLE), ("off", Level.COMPATIBLE)]
)
def test_each_check_has_a_level(word: str, level: Level) -> None:
    """The document and the model have the same checks."""
    names = [*Checks.__struct_fields__]
    written = {field.alias or name: word for name, field in ChecksDocument.model_fields.items()}

    rule = compatibility(compatibility_rule(checks=written))

    assert names == [*ChecksDocument.model_fields]
    assert (Checks(*[level] * len(names)), None) == (rule.sharing.checks, rule.trial)


def test_a_rule_without_cuda_compares_nothing_with_nodes() -> None:
    """Nor does the dry run of its checks."""
    rule = compatibility(compatibility_rule(sharing="withoutCuda", checks={"exclusiveDevices": "dryrun"}))

    assert not rule.sharing.cuda
    assert rule.trial is not None
    assert not rule.trial.sharing.cuda


def test_a_check_that_is_a_dry_run_is_tried_by_a_rule_of_its_own() -> None:
    """It evaluates nothing else, and denies nothing."""
    rule = compatibility(compatibility_rule(checks={"taints": "dryrun", "gpuCount": "off"}))

    assert Checks(gpu_count=Level.COMPATIBLE, taints=Level.COMPATIBLE) == rule.sharing.checks
    assert rule.trial is not None
    assert (rule.name, Action.DRYRUN) == (rule.trial.name, rule.trial.action)
    assert replace(CHECKS_OFF, taints=Level.INCOMPATIBLE) == rule.trial.sharing.checks
    assert rule.trial.sharing.trial


@pytest.mark.parametrize(
    ("sharing", "data", "expected"),
    [
        (
            "physical",
            {"enforcementAction": "warn"},
            (Action.WARN, Action.WARN, SharingPolicy(checks=Checks())),
        ),
        ("physical", {"noFittingNode": "warn"}, (Action.DENY, Action.WARN, SharingPolicy(checks=Checks()))),
        (
            "physical",
            {"minorVersionCompatibility": "allow", "majorVersionMismatch": "deny"},
            (Action.DENY, Action.DENY, SharingPolicy(minor_versions=Level.COMPATIBLE, checks=Checks())),
        ),
        (
            "virtual",
            {"majorVersionMismatch": "warn"},
            (
                Action.DENY,
                Action.DENY,
                SharingPolicy(virtual=True, major_versions=Level.UNSTABLE, checks=Checks()),
            ),
        ),
    ],
)
def test_settings_in_the_data_take_precedence(
    sharing: str, data: dict[str, str], expected: tuple[Action, Action, SharingPolicy]
) -> None:
    """An overlay can patch them there, and not inside the text of `rule.yaml`."""
    text = compatibility_rule(sharing=sharing, enforcementAction="deny", noFittingNode="deny", data=data)
    rule = compatibility(text)

    assert expected == (rule.action, rule.no_fitting_node, rule.sharing)


@pytest.mark.parametrize(
    ("word", "mode"), [("auto", None), ("legacy", RuntimeMode.LEGACY), ("cdi", RuntimeMode.CDI)]
)
def test_the_mode_of_the_container_runtime_is_a_setting(word: str, mode: RuntimeMode | None) -> None:
    """Of the document, or of its data, as an overlay sets it."""
    assert mode is compatibility(compatibility_rule(containerRuntime=word)).sharing.runtime_mode
    assert mode is compatibility(compatibility_rule(data={"containerRuntime": word})).sharing.runtime_mode


def test_off_needs_no_quotes_in_the_rule() -> None:
    """YAML 1.1 reads it as false; the API server accepts only texts in the data."""
    text = written("CompatibilityRule", f"{MATCH}sharing: physical\nchecks: {{taints: off}}\n")
    loaded = load_rules([("rule.yaml", compatibility_rule(data={"checks.taints": False}))])

    assert Level.COMPATIBLE is compatibility(text).sharing.checks.taints
    assert ["expected one of deny, warn, dryrun, off, got 'False'"] == [
        str(error.message) for error in loaded.errors
    ]


def test_a_check_can_be_set_in_the_data() -> None:
    """Others keep what the document says."""
    data = {"checks.sharedMemory": "off", "checks.gpuCount": "warn"}
    rule = compatibility(compatibility_rule(checks={"taints": "deny", "gpuCount": "off"}, data=data))

    expected = Checks(gpu_count=Level.UNSTABLE, taints=Level.INCOMPATIBLE, shared_memory=Level.COMPATIBLE)
    assert expected == rule.sharing.checks


def test_mission_4_the_baseline_can_be_set_in_the_data() -> None:
    """So an overlay or Helm can set it to what the installed release supports."""
    text = compatibility_rule(sharing="virtual", data={"baseline": "12.9"})

    assert CudaVersion(12, 9) == compatibility(text).sharing.baseline
    assert ["baseline is for sharing: virtual"] == [
        str(error.message)
        for error in load_rules([("rule.yaml", compatibility_rule(data={"baseline": "12.9"}))]).errors
    ]


def test_every_patchable_setting_is_one_of_some_kind_of_rule() -> None:
    """A setting whose name in the file is that in the code has no alias."""
    text = compatibility_rule(data={"declarations": "deny"})

    checks = {f"checks.{field.alias or name}" for name, field in ChecksDocument.model_fields.items()}
    assert {*PATCHABLE} - {"checks"} | checks == {*patchable_keys(CompatibilityRuleDocument)}
    assert Action.DENY is compatibility(text).declarations


@pytest.mark.parametrize(
    ("rule", "data", "expected"),
    [
        (
            {},
            {"minorVersionCompatibility": "allowed"},
            [
                (
                    "data.minorVersionCompatibility: expected one of deny, warn, allow, got 'allowed' – "
                    "did you mean 'allow'?"
                )
            ],
        ),
        (
            {},
            {"majorVersionMismatch": "warn", "noFittingNode": "allow"},
            ["data.noFittingNode: expected one of auto, deny, warn, got 'allow'"],
        ),
        (
            {"sharing": "both"},
            {"majorVersionMismatch": "never", "noFittingNode": "warn"},
            [
                "sharing: expected one of physical, virtual, withoutCuda, got 'both'",
                "data.majorVersionMismatch: expected one of deny, warn, allow, got 'never'",
            ],
        ),
        (
            {"noFittingNode": "sometimes"},
            {"noFittingNode": "warn"},
            ["noFittingNode: expected one of auto, deny, warn, got 'sometimes'"],
        ),
        (
            {},
            {"checks.taints": "never"},
            ["data[checks.taints]: expected one of deny, warn, dryrun, off, got 'never'"],
        ),
        (
            {},
            {"minCuda": "12.4"},
            [
                (
                    "data.minCuda: unknown key 'minCuda'; known keys: rule.yaml, enforcementAction, "
                    "minorVersionCompatibility, majorVersionMismatch, newerMajorVersions, noFittingNode, "
                    "newNodes, migSlices, baseline, declarations, containerRuntime, "
                    "checks.gpuCount, checks.taints, checks.parallelism, checks.sharedMemory, "
                    "checks.sharedGpuCount, checks.exclusiveDevices, checks.architecture, checks.gpuMemory, "
                    "checks.gpuSettings, checks.model, checks.interception, checks.claimConfigs"
                )
            ],
        ),
    ],
)
def test_an_error_in_a_setting_names_its_key_in_the_data(
    rule: dict[str, Any], data: dict[str, str], expected: list[str]
) -> None:
    """With its line; errors of the document are reported, too, also if a setting replaces the value."""
    text = compatibility_rule(**rule, data=data)
    loaded = load_rules([("rule.yaml", text)])
    lines = text.splitlines()

    assert ([], expected) == (
        list(loaded.rules),
        [f"{error.path}: {error.message}" for error in loaded.errors],
    )
    for error in loaded.errors:
        key = error.path.removeprefix("data").strip(".[]") if error.path.startswith("data") else "rule.yaml"
        assert f"{key}:" == lines[error.location.line - 1].strip().split()[0]


@pytest.mark.parametrize(
    ("action", "word", "expected"),
    [
        ("deny", "allow", None),
        ("deny", "warn", Action.WARN),
        ("deny", "deny", Action.DENY),
        ("warn", "deny", Action.WARN),
        ("dryrun", "deny", Action.DRYRUN),
    ],
)
def test_declarations_have_an_action_never_stricter_than_the_rule(
    action: str, word: str, expected: Action | None
) -> None:
    """None if they are allowed, as by default."""
    assert (
        expected
        is compatibility(compatibility_rule(enforcementAction=action, declarations=word)).declarations
    )


@pytest.mark.parametrize(
    ("action", "no_node", "expected"),
    [
        ("deny", "deny", Action.DENY),
        ("deny", "warn", Action.WARN),
        ("warn", "deny", Action.WARN),
        ("dryrun", "warn", Action.DRYRUN),
    ],
)
def test_no_fitting_node_is_never_stricter_than_the_rule(action: str, no_node: str, expected: Action) -> None:
    """A rule that only warns never denies."""
    rule = compatibility(compatibility_rule(enforcementAction=action, noFittingNode=no_node))

    assert expected is rule.no_fitting_node


def test_a_disabled_rule_is_loaded_but_not_active() -> None:
    """It is linted, and listed."""
    assert not compatibility(compatibility_rule(enabled="false")).enabled


def test_an_image_catalog_has_its_rows_in_order_under_its_own_name() -> None:
    """Messages name the catalogue as the source of a fact."""
    rule = catalog(
        image_catalog(
            {"image": "a/*", "cuda": "12.4"},
            {"regex": "b/.*", "computeCapabilities": ["7.5", "8.0"], "ptx": False, "cudaCompat": True},
            name="ours",
        )
    )
    first, second = rule.rows

    assert ("ours", "ours") == (first.name, second.name)
    assert (CudaVersion(12, 4), (), None, CompatLibraries.UNKNOWN) == (
        first.cases[0].cuda,
        first.cases[0].built_for,
        first.cases[0].ptx,
        first.cases[0].cuda_compat,
    )
    assert ((ComputeCapability(7, 5), ComputeCapability(8, 0)), False, CompatLibraries.LOADER_PATH) == (
        second.cases[0].built_for,
        second.cases[0].ptx,
        second.cases[0].cuda_compat,
    )
    assert first.pattern
    assert second.pattern
    assert first.pattern.fullmatch("a/anything:1")
    assert not second.pattern.fullmatch("docker.io/b/c:1")


@pytest.mark.parametrize(
    ("resources", "rules"),
    [
        (("nvidia.com/gpu",), ["compatibility-pgpu"]),
        (
            ("tencent.com/vcuda-core",),
            ["compatibility-gpu-manager-cards", "compatibility-gpu-manager-shares"],
        ),
        (("nvidia.com/gpumem",), ["compatibility-hami"]),
        (("nvidia.com/mig-1g.5gb",), ["compatibility-mig"]),
        (("nvidia.com/mps-core",), ["compatibility-mps"]),
        (("cpu", "amd.com/gpu"), ["compatibility-amd"]),
        (("cpu", "gpu.intel.com/xe"), []),
    ],
)
def test_each_built_in_sharing_method_has_its_rule(resources: tuple[str, ...], rules: list[str]) -> None:
    """CUDA is for NVIDIA GPUs: a rule for another vendor's compares nothing with nodes."""
    assert rules == [rule.name for rule in shipped().plan_for(resources).compatibility]
