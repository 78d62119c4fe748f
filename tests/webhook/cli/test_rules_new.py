"""`gpugate rules new`: the created rule lints clean and passes its test."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from tests.support.command import gpugate
from tests.support.paths import ROOT

KEY = ("--key", "vendor.com/device")
POOL = ("--label", "karpenter.sh/nodepool=gpu")


def _new(kind: str, *facts: str, folder: Path = Path()) -> Result:
    return gpugate("rules", "new", "--kind", kind, *facts, "--folder", folder)


def _next(result: Result) -> list[list[str]]:
    """Return the proposed commands, split into words."""
    return [line.split() for line in result.stdout.partition("next:\n")[2].splitlines()]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("kind", "facts", "cases"),
    [
        ("resource", KEY, 2),
        ("resource", (*KEY, "--check", "value <= 100 || value % 100 == 0", "--default", "20"), 3),
        ("resource", (*KEY, "--requests", "fromLimits", "--data-type", "float", "--group", "my-group"), 2),
        ("resource", ("--key", "vendor.com/slice-*", "--limits", "optional", "--description", "a slice"), 2),
        ("resource", (*KEY, "--exclude", "nvidia.com/*", "--exclude", "amd.com/gpu"), 4),
        ("resource", (*KEY, "--runtime-class", "vendor", "--description-zh", "设备"), 2),
        ("injection", (*KEY, "--toleration", "vendor.com/device:NoSchedule", "--toleration", "a=b"), 2),
        ("injection", (*KEY, "--runtime-class", "vendor", "--env", "A=1", "--description-zh", "变量"), 3),
        ("injection", (*KEY, "--env", "FLAGS=a=b", "--env-quantity", "SHARE"), 3),
        ("injection", (*KEY, "--env", "A=1", "--image", "*/paddle*", "--image", "tool:*"), 4),
        ("compatibility", KEY, 2),
        ("compatibility", (*KEY, "--sharing", "virtual", "--baseline", "11.8"), 2),
        ("image-catalog", ("--image", "registry.example.com/team/train:*", "--cuda", "12.4"), 3),
        ("exemption", ("--rule", "cf-crl-mps-*", "--namespace", "ml-*", "--reason", "until the move"), 3),
        ("exemption", ("--rule", "compatibility-pgpu", "--namespace", "ml", "--reason", "so"), 3),
        ("exemption", ("--rule", "mps-environment", "--namespace", "ml", "--reason", "so"), 3),
        ("node-profile", (*POOL, "--product", "NVIDIA-H100-80GB-HBM3", "--cuda", "13.0", "--gpus", "8"), 2),
        ("node-profile", (*POOL, "--label", "zone=a", "--product", "Tesla-T4", "--cuda", "12.4"), 2),
    ],
)
def test_a_created_rule_lints_clean_and_passes_its_test(
    kind: str, facts: tuple[str, ...], cases: int
) -> None:
    """With the proposed commands."""
    written = _new(kind, *facts, folder=Path("my-rules"))
    assert (0, "") == (written.exit_code, written.stderr)
    lint, test, apply = _next(written)
    linted, tested = (
        gpugate(*words[1:], *more) for words, more in ((lint, ("--fail-on", "warn")), (test, ()))
    )

    assert (0, True) == (linted.exit_code, linted.stderr.endswith("0 errors, 0 warnings\n")), linted.output
    assert (0, f"{cases} cases in 1 file: {cases} passed, 0 failed") == (
        tested.exit_code,
        tested.stdout.splitlines()[-1],
    )
    assert (["kubectl", "apply", "-f", lint[2]], 0) == (apply, gpugate("test", "my-rules").exit_code)


def test_the_created_test_fails_if_the_rule_changes() -> None:
    """The test is effective."""
    _new("resource", *KEY, "--check", "value <= 8")
    path = Path("vendor-device.yaml")
    path.write_text(path.read_text("utf-8").replace("value <= 8", "value <= 80"), "utf-8")

    assert 1 == gpugate("test", "vendor-device.test.yaml").exit_code


def test_an_exemption_prefers_the_rules_of_its_folder() -> None:
    """In addition to the built-in rules; the default is ninety days."""
    _new("resource", *KEY)
    written = _new("exemption", "--rule", "cf-crl-vendor-device", "--namespace", "ml", "--reason", "so")
    rules = yaml.safe_load(Path("exempt-ml.test.yaml").read_text("utf-8"))["rules"]

    assert (["exempt-ml.yaml", "vendor-device.yaml"], 0) == (rules, written.exit_code)
    assert (0, 0) == (gpugate("lint", ".", "--fail-on", "warn").exit_code, gpugate("test", ".").exit_code)


@pytest.mark.parametrize(("check", "expected"), [((), "api-server"), (("--check", "value <= 8"), None)])
def test_the_test_of_an_exemption_has_a_pod_that_only_the_rule_denies(
    check: tuple[str, ...], expected: str | None
) -> None:
    """If there is one; what the API server rejects of an extended resource is denied in any case."""
    _new("resource", *KEY, *check)
    _new("exemption", "--rule", "cf-crl-vendor-device", "--namespace", "ml", "--reason", "so")
    exempt, other, _ = yaml.safe_load(Path("exempt-ml.test.yaml").read_text("utf-8"))["cases"]
    violations = [{"rule": expected}] if expected else None

    assert (expected is None, violations) == tuple(map(exempt["expect"].get, ("allowed", "violations")))
    assert [{"rule": "cf-crl-vendor-device"}] == other["expect"]["violations"]


def test_a_created_rule_has_what_the_options_say() -> None:
    """Excluded resources, runtime class, tolerations, and descriptions in both languages."""
    _new("resource", *KEY, "--exclude", "a.com/b", "--exclude", "c.com/*", "--runtime-class", "x")
    data = yaml.safe_load(Path("vendor-device.yaml").read_text("utf-8"))["data"]
    described = ("--description", "a device", "--description-zh", "设备")
    _new("injection", *KEY, "--toleration", "a=b:NoSchedule", "--toleration", "c", *described)
    text = yaml.safe_load(Path("inject-device.yaml").read_text("utf-8"))["data"]["rule.yaml"]
    rule = yaml.safe_load(text)

    assert ("a.com/b, c.com/*", "x") == (data["excludeResources"], data["runtimeClassName"])
    assert {"en": "a device", "zh": "设备"} == rule["description"]
    assert [
        {"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"},
        {"key": "c", "operator": "Exists"},
    ] == rule["inject"]["tolerations"]


def test_no_file_is_overwritten() -> None:
    """Neither the rule nor its test; nothing is written."""
    Path("vendor-device.test.yaml").write_text("mine", "utf-8")
    result = _new("resource", *KEY)

    assert (2, True) == (result.exit_code, "vendor-device.test.yaml already exists" in result.stderr)
    assert ["mine"] == [path.read_text("utf-8") for path in Path().iterdir()]


def test_a_dry_run_prints_both_files_and_writes_none() -> None:
    """Each after its name."""
    result = _new("resource", *KEY, "--dry-run")

    assert (0, []) == (result.exit_code, list(Path().iterdir()))
    assert ["# vendor-device.yaml", "# vendor-device.test.yaml"] == [
        line for line in result.stdout.splitlines() if line.startswith("#")
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--key", "vendor.com/device"), "--kind is missing: one of resource, injection"),
        (("--kind", "resource", "--default", "1"), "--key is missing"),
        (("--kind", "resource", *KEY, "--cuda", "12.4"), "--cuda cannot be used with --kind resource"),
        (("--kind", "resource", "--key", "device"), "expected a resource name with its domain"),
        (("--kind", "resource", *KEY, "--check", "valu <= 8"), "did you mean 'value'?"),
        (("--kind", "resource", *KEY, "--check", "value < 0"), "write its test manually"),
        (("--kind", "injection", *KEY), "nothing to inject: set --env NAME=VALUE"),
        (
            ("--kind", "injection", *KEY, "--toleration", "a:Never"),
            "inject.tolerations[0].effect: expected one of NoSchedule, PreferNoSchedule, NoExecute",
        ),
        (("--kind", "injection", *KEY, "--env", "A"), "expected --env NAME=VALUE, got 'A'"),
        (("--kind", "node-profile", "--label", "a"), "expected --label NAME=VALUE, got 'a'"),
        (("--kind", "node-profile", *POOL, "--cuda", "13.0"), "--product is missing"),
        (
            ("--kind", "node-profile", *POOL, "--product", "Tesla-V100-PCIE-16GB", "--cuda", "13.1"),
            "'a new node runs CUDA 13.1' fails with this rule",
        ),
        (
            ("--kind", "image-catalog", "--image", "a", "--cuda", "new"),
            "expected a CUDA version such as 12.4",
        ),
        (
            ("--kind", "exemption", "--rule", "no-such", "--namespace", "a", "--reason", "b"),
            "no enabled rule is named no-such",
        ),
        (
            ("--kind", "exemption", "--rule", "a", "--namespace", "a", "--reason", "b", "--expires", "soon"),
            "--expires: expected a date such as 2026-12-31",
        ),
        (
            ("--kind", "resource", *KEY, "--default", "9", "--check", "value <= 8"),
            "data.defaultValue: the rule's own validation is false for the default '9': value <= 8",
        ),
        (
            ("--kind", "injection", *KEY, "--env", "A=1", "--image", "my image"),
            "match.images[0]: 'my image' matches no image",
        ),
    ],
)
def test_options_that_make_an_invalid_rule_are_reported(arguments: tuple[str, ...], message: str) -> None:
    """And nothing is written."""
    result = gpugate("rules", "new", *arguments)

    assert (2, True, []) == (result.exit_code, message in result.stderr, list(Path().iterdir())), (
        result.stderr
    )


def test_it_prompts_on_a_terminal() -> None:
    """For the required options, with defaults; on a terminal only."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "webhook", "rules", "new"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        text=True,
    ) as process:
        os.write(ours, b"\nvendor.com/device\n\nvalue <= 8\n")
        asked, _ = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)

    assert (0, True) == (process.returncode, "Kind (resource, " in asked), asked
    assert "value <= 8" in Path("vendor-device.yaml").read_text("utf-8")


def test_the_rules_command_is_unchanged(tmp_path: Path) -> None:
    """A folder of rules is not a command."""
    _new("resource", *KEY, folder=tmp_path / "mine")

    assert "cf-crl-vendor-device" in gpugate("rules", "--rules", tmp_path / "mine").stdout
    assert 0 == gpugate("rules").exit_code
