"""`gpugate rules new`: a commented rule and its test, complete as they are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from tests.support.command import gpugate
from tests.support.paths import ROOT
from webhook.cli.test.new import KINDS

CATALOG = Path("rules/catalog")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_rule_lints_clean_and_passes_its_test(kind: str) -> None:
    """With the proposed commands."""
    written = gpugate("rules", "new", kind, "--name", "acme", "--folder", "mine")
    commands = [line.split()[1:] for line in written.stdout.splitlines() if line.startswith("  gpugate ")]

    assert (0, "") == (written.exit_code, written.stderr)
    assert ["lint", "test"] == [command[0] for command in commands]
    for command, more in zip(commands, (("--fail-on", "warn"), ()), strict=True):
        result = gpugate(*command, *more)
        assert 0 == result.exit_code, result.output


def test_the_test_of_a_new_rule_fails_if_the_rule_changes() -> None:
    """The test is effective."""
    gpugate("rules", "new", "resource", "--folder", ".")
    path = Path("example-resource.yaml")
    path.write_text(path.read_text("utf-8").replace("value <= 8", "value <= 80"), "utf-8")

    assert 1 == gpugate("test", "example-resource.test.yaml").exit_code


def test_a_new_rule_has_the_given_name() -> None:
    """In its own name, its resource and the names of its files."""
    gpugate("rules", "new", "resource", "--name", "acme", "--folder", ".")
    rule = yaml.safe_load(Path("acme-resource.yaml").read_text("utf-8"))

    assert ("cf-crl-acme-device", "acme.com/device") == (rule["metadata"]["name"], rule["data"]["key"])


def test_what_comes_next_is_in_the_language_of_the_user() -> None:
    """The commands are the same."""
    output = gpugate("rules", "new", "resource", "--folder", "mine", "--lang", "zh").stdout

    assert output.startswith("已写入 mine/example-resource.yaml\n")
    assert "下一步：编辑这两个文件，然后\n  gpugate lint mine/example-resource.yaml\n" in output


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_rule_names_the_schema_that_editors_read(kind: str) -> None:
    """By a name that `gpugate schema` has."""
    (line,) = [line for line in gpugate("rules", "new", kind).stdout.splitlines() if "yaml-language" in line]
    name = line.partition("$schema=")[2].partition(".json")[0]

    assert line.endswith(f"`gpugate schema {name}` prints.")
    assert 0 == gpugate("schema", name).exit_code


def test_without_a_folder_both_files_are_printed() -> None:
    """Each after its name; none is written."""
    result = gpugate("rules", "new", "injection")

    assert (0, []) == (result.exit_code, list(Path().iterdir()))
    assert ["# example-injection.yaml", "# example-injection.test.yaml"] == [
        line for line in result.stdout.splitlines() if line.startswith("# example")
    ]


def test_a_file_is_not_overwritten() -> None:
    """Neither the rule nor its test; nothing is written."""
    Path("example-resource.test.yaml").write_text("mine", "utf-8")
    result = gpugate("rules", "new", "resource", "--folder", ".")

    assert (2, True) == (result.exit_code, "example-resource.test.yaml already exists" in result.stderr)
    assert ["mine"] == [path.read_text("utf-8") for path in Path().iterdir()]


def test_a_rule_of_the_catalogue_gets_a_folder_that_is_listed() -> None:
    """A second rule of the same vendor is listed in that folder."""
    shutil.copytree(ROOT / CATALOG, CATALOG)
    for kind in ("resource", "compatibility"):
        assert 0 == gpugate("rules", "new", kind, "--name", "acme", "--catalog").exit_code
    listed = [
        yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))["resources"]
        for folder in (CATALOG, CATALOG / "acme")
    ]

    assert (listed[0], True) == (sorted(listed[0]), "acme" in listed[0])
    assert ["acme-compatibility.yaml", "acme-resource.yaml"] == listed[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing argument 'KIND'. Choose from: resource, injection"),
        (("recource",), "'recource' is not one of"),
        (("resource", "--name", "Acme"), "--name: expected lower-case letters, digits and -, got 'Acme'"),
        (("resource", "--catalog"), "no rules/catalog/kustomization.yaml here"),
        (("resource", "--catalog", "--folder", "."), "leave out --folder"),
    ],
)
def test_wrong_arguments_are_reported(arguments: tuple[str, ...], message: str) -> None:
    """And nothing is written."""
    result = gpugate("rules", "new", *arguments)
    said = " ".join(result.stderr.split())

    assert (2, True, []) == (result.exit_code, message in said, list(Path().iterdir())), result.stderr


def test_the_rules_command_is_unchanged(tmp_path: Path) -> None:
    """A folder of rules is not a command."""
    gpugate("rules", "new", "resource", "--folder", tmp_path / "mine")

    assert "cf-crl-example-device" in gpugate("rules", "--rules", tmp_path / "mine").stdout
    assert 0 == gpugate("rules").exit_code
