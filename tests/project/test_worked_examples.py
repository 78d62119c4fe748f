"""The pages of worked examples show the answers of today, and what an answer says to do works."""

from __future__ import annotations

from pathlib import Path

import jsonpatch
import pytest
import yaml

from rules.text.i18n import Language
from tests.support.paths import ROOT
from tests.support.worked_examples import FOLDER, PAGES, examples, page

EXAMPLES = {example.file.removesuffix(".yaml"): example for example in examples()}
# The first characters of an answer, and what only an answer to a warning has.
MARKS = {"unchanged": "✓", "patched": "✎", "denied": "✗", "warned": "✓✎", "told": "✓–"}
FOUND = ("\n    deny ", "\n    warn ", "\n    quota ", " not checked ", "error: ", "warning: ")


@pytest.fixture(autouse=True)
def _at_the_top(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("language", PAGES)
def test_the_page_shows_the_answers_of_today(language: Language, request: pytest.FixtureRequest) -> None:
    """`--update-golden` writes it again."""
    written = page(language)
    if request.config.getoption("--update-golden"):
        PAGES[language].write_text(written, "utf-8")

    assert PAGES[language].read_text("utf-8") == written


def test_every_manifest_is_an_example_or_belongs_to_one() -> None:
    """No file is forgotten."""
    used = {name for each in examples() for name in (each.file, f"nodes/{each.nodes}", *each.rules)}
    files = {str(path.relative_to(ROOT / FOLDER)) for path in (ROOT / FOLDER).rglob("*.yaml")}

    assert set() == files - used - {"index.yaml"}


def _mark(answer: str) -> str:
    """Return the mark of the last object."""
    marked = [line for line in answer.splitlines() if line.startswith(("✓", "✎", "✗", "–"))]
    return next(line[0] for line in reversed(marked) if line[0] != "–" or " unchanged " in line)


@pytest.mark.parametrize("name", [name for name, each in EXAMPLES.items() if "lint" not in each.command])
def test_an_example_has_its_answer(name: str) -> None:
    """The verdict, the exit status and what the answer says."""
    example = EXAMPLES[name]
    result = example.run()

    assert _mark(result.output) in MARKS[example.answer]
    assert (example.answer == "denied") == bool(result.exit_code)
    assert (example.answer == "warned") == ("\n    warn " in result.output and not result.exit_code)
    assert [] == [words for words in example.says if words not in result.output]


@pytest.mark.parametrize("name", [name for name, each in EXAMPLES.items() if "lint" in each.command])
def test_lint_of_an_example_has_its_answer(name: str) -> None:
    """A rule without mistakes has no output but the summary."""
    example = EXAMPLES[name]
    result = example.run()

    assert (example.answer == "denied") == bool(result.exit_code) == ("error: " in result.output)
    assert [] == [words for words in example.says if words not in result.output]


@pytest.mark.parametrize("name", [name for name, each in EXAMPLES.items() if each.fix])
def test_what_an_answer_says_to_do_works(name: str, tmp_path: Path) -> None:
    """Done, nothing is found any more."""
    example, path = EXAMPLES[name], tmp_path / "fixed.yaml"
    *others, last = yaml.safe_load_all(example.path.read_text("utf-8"))
    path.write_text(yaml.safe_dump_all([*others, jsonpatch.apply_patch(last, list(example.fix))]), "utf-8")
    result = example.run(path=path)

    assert (0, "✓") == (result.exit_code, _mark(result.output).replace("✎", "✓"))
    assert [] == [words for words in FOUND if words in result.output]


def test_every_denial_and_warning_has_a_fix_that_is_tried() -> None:
    """Except where it is another node, model or setting of a driver, and for mistakes in rules."""
    without = {
        name for name, each in EXAMPLES.items() if each.answer in ("denied", "warned") and not each.fix
    }

    assert without <= {
        *("new-gpu-old-driver", "mps-old-driver", "vllm-awq", "rule-with-mistakes", "claim-config"),
    }
