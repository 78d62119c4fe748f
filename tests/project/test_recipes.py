"""The recipes of docs/contributing.md work: each is performed on a copy of the code, edit by edit."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs/contributing.md").read_text("utf-8")
_EDIT = re.compile(
    r"<!-- recipe (?P<recipe>[\w-]+): (?P<what>new file|insert into|replace in) (?P<file>\S+)"
    r"(?: (?P<where>after|before))?(?: `(?P<text>.*?)`)? -->\n```(?:python|yaml)\n(?P<code>.*?)```",
    re.DOTALL,
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of all that `make check` reads."""
    for name in (
        "rules",
        "certs",
        "webhook",
        "docs",
        "manifests",
        "tests",
        "Makefile",
        "README.md",
        "pyproject.toml",
    ):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    return tmp_path


def perform(recipe: str, copy: Path) -> int:
    """Make the edits of a recipe in a copy; return how many there are."""
    edits = [match for match in _EDIT.finditer(PAGE) if match["recipe"] == recipe]
    for edit in edits:
        path, code, text = copy / edit["file"], edit["code"], edit["text"]
        if edit["what"] == "new file":
            path.write_text(code, "utf-8")
            continue
        source = path.read_text("utf-8")
        assert source.count(text) == 1, (edit["file"], text)
        if edit["what"] == "replace in":
            changed = source.replace(text, code.rstrip("\n"))
        elif edit["where"] == "before":
            changed = source.replace(text, code + text)
        else:
            changed = source.replace(f"{text}\n", f"{text}\n{code}")
        path.write_text(changed, "utf-8")
    return len(edits)


def run(copy: Path, *arguments: str) -> str:
    """Return what a Python program prints that runs on the copy."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


DECIDE = """
import json, sys
from rules.nodes.inventory_document import inventory_of
from rules import AdmissionRequest, Inventory, Snapshot, compile_policy, decide, load_rules

def rule(kind, document):
    labels = {"gpugate.dev/type": kind, "gpugate.dev/enabled": "true"}
    return json.dumps({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "rule", "namespace": "kube-public", "labels": labels},
        "data": {"rule.yaml": json.dumps(document)},
    })

def decision(text, nodes=(), **spec):
    loaded = load_rules([("rule.yaml", text)])
    assert not loaded.errors, loaded.errors[0]
    limits = {"nvidia.com/gpu": "1"}
    container = {"name": "main", "image": "a", "resources": {"limits": limits, "requests": limits}}
    pod = {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [container], **spec}}
    request = AdmissionRequest("CREATE", "", "Pod", "default", pod)
    return decide(Snapshot(compile_policy(loaded.rules), inventory_of(list(nodes))), request)
"""


def test_a_new_injectable_field_is_injected_and_never_overwrites_the_users_value(copy: Path) -> None:
    """By one entry in the table."""
    assert 1 == perform("injectable-field", copy)
    program = """
document = {"match": {"resources": ["nvidia.com/gpu"]}, "inject": {"subdomain": "gpu"}}
text = rule("InjectionRule", document)
set_paths = lambda found: [each["path"] for each in found.patch if each["path"].startswith("/spec")]
print(set_paths(decision(text)), set_paths(decision(text, subdomain="mine")))
"""

    assert "['/spec/subdomain'] []\n" == run(copy, "-c", DECIDE + program)


def test_a_new_injectable_field_is_in_the_schema(copy: Path) -> None:
    """Editors and `gpugate lint` know it."""
    perform("injectable-field", copy)

    assert '"subdomain"' in run(copy, "-m", "webhook", "schema", "injection-rule")


def test_a_new_check_denies_with_its_reason_and_its_fix(copy: Path) -> None:
    """By one file, one entry, and its setting in the rule kind."""
    assert 7 == perform("check", copy)
    program = """
metadata = {"name": "n", "labels": {"nvidia.com/cuda.driver-version.full": "535.104.05"}}
node = {"kind": "Node", "metadata": metadata, "status": {"allocatable": {"nvidia.com/gpu": "1"}}}
for minimum in (535, 550):
    document = {"match": {"resources": ["nvidia.com/gpu"]}, "sharing": "physical", "minDriverBranch": minimum}
    found = decision(rule("CompatibilityRule", document), [node])
    words = ("driver branch 535, below 550", "a driver of branch 550 or newer")
    print(found.allowed, *(text in found.denial.en for text in words))
"""

    assert "True False False\nFalse True True\n" == run(copy, "-c", DECIDE + program)


def test_a_new_column_is_shown_by_the_command(copy: Path) -> None:
    """In its table."""
    assert 2 == perform("column", copy)
    table = run(copy, "-m", "webhook", "nodes", "--nodes", "docs/compatibility/nodes.yaml")

    assert "branch" in table.lower().splitlines()[0]
    assert re.search(r"\b(470|535|550|570)\s*$", table, re.MULTILINE)


def test_a_new_language_is_one_file(copy: Path) -> None:
    """Commands accept it and show it; what has no translation is in English."""
    assert 1 == perform("language", copy)
    program = """
from rules.text.i18n import Language
node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"nvidia.com/gpu": "1"}}}
text = rule("CompatibilityRule", {"match": {"resources": ["nvidia.com/gpu"]}, "sharing": "physical"})
container = {"name": "main", "image": "a", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
found = decision(text, [node], containers=[container])
print(found.denial.in_language(Language("fr")))
"""

    assert "[en|fr|zh]" in run(copy, "-m", "webhook", "preview", "--help")
    assert run(copy, "-c", DECIDE + program).startswith("Pod refusé par gpugate : ")


@pytest.mark.timeout(600)  # types and imports of a copy are checked without a cache
def test_what_the_recipes_make_is_green_in_make_check(copy: Path) -> None:
    """All of them in one copy, with the generated files that the page says to write again."""
    for recipe in ("injectable-field", "check", "column", "language"):
        perform(recipe, copy)
    run(copy, "-m", "webhook", "rules", "new", "resource", "--name", "acme", "--catalog")
    run(copy, "-m", "webhook", "rules", "new", "compatibility", "--name", "acme", "--catalog")
    run(copy, "-m", "webhook", "schema", "--write", "docs/schema")
    generated = (copy / "Makefile").read_text("utf-8").partition("GENERATED := ")[2].partition("\n\n")[0]
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *generated.replace("\\\n", " ").split()]
    run(copy, *tests, "--update-golden")

    for module in (
        ["ruff", "check", "--no-cache"],
        ["ruff", "format", "--check", "--no-cache"],
        ["mypy", "rules", "webhook"],
        ["webhook", "lint", "rules/catalog", "--fail-on", "warn"],
        ["webhook", "test", "rules/catalog"],
    ):
        run(copy, "-m", *module)
    run(
        copy, "-c", "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    )
    run(copy, *tests)


def test_every_recipe_of_the_page_is_performed_here() -> None:
    """A recipe without a test would go stale."""
    named = {match["recipe"] for match in _EDIT.finditer(PAGE)}

    assert {"injectable-field", "check", "column", "language"} == named
    assert PAGE.count("<!-- recipe ") == len([*_EDIT.finditer(PAGE)])
