"""The pages of worked examples show the answers of today, and what an answer says to do works."""

from __future__ import annotations

from pathlib import Path

import jsonpatch
import pytest
import yaml

from rules.text.i18n import Language
from tests.support.paths import ROOT
from tests.support.worked_examples import FOLDER, PAGES, Example, examples, page, subjects

EXAMPLES = {example.name: example for example in examples()}
PREVIEWED = [name for name, example in EXAMPLES.items() if example.command == "gpugate preview"]
# The first characters of an answer, and what only an answer to a warning has.
MARKS = {"unchanged": "✓·", "patched": "✎", "denied": "✗", "warned": "✓✎", "told": "✓–"}
FOUND = ("    deny ", "    warn ", "    quota ", "– not checked ", "error: ", "warning: ")


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
    used = {
        name for example in examples() for name in (example.file, f"nodes/{example.nodes}", *example.rules)
    }
    files = {str(path.relative_to(ROOT / FOLDER)) for path in (ROOT / FOLDER).rglob("*.yaml")}

    assert set() == files - used


def test_every_subject_has_an_example() -> None:
    """One that finds something, with a fix that is tried; for NVLink, there is nothing to find."""
    answers = {
        example.subject: "patched"
        for example in examples()
        if example.subject and example.answer == "patched"
    }
    answers |= {example.subject: example.answer for example in examples() if example.fix or example.nodes_fix}
    numbers = range(1, len(subjects()) + 1)

    assert [] == [number for number in numbers if number not in answers]
    assert [11] == [number for number in numbers if answers[number] == "patched"]


def _mark(answer: str) -> str:
    """Return the mark of the last object."""
    marked = [line for line in answer.splitlines() if line.startswith(("✓", "✎", "✗", "–", "·"))]
    return next(line[0] for line in reversed(marked) if line[0] != "–" or " unchanged " in line)


@pytest.mark.parametrize("name", PREVIEWED)
def test_an_example_has_its_answer(name: str) -> None:
    """The verdict, the exit status and what the answer says."""
    example = EXAMPLES[name]
    result = example.run()

    assert _mark(result.output) in MARKS[example.answer]
    assert (example.answer == "denied") == bool(result.exit_code)
    assert (example.answer == "warned") == ("\n    warn " in result.output and not result.exit_code)
    assert [] == [words for words in example.says if words not in result.output]


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - set(PREVIEWED)))
def test_an_example_of_another_command_has_its_answer(name: str) -> None:
    """The exit status and what the answer says."""
    example = EXAMPLES[name]
    result = example.run()

    assert (example.answer == "denied") == bool(result.exit_code) == ("error: " in result.output)
    assert [] == [words for words in example.says if words not in result.output]


@pytest.mark.parametrize(
    "name", [name for name, example in EXAMPLES.items() if example.fix or example.nodes_fix]
)
def test_what_an_answer_says_to_do_works(name: str, tmp_path: Path) -> None:
    """Done, nothing is found any more, except what the example names."""
    example = EXAMPLES[name]
    result = example.run(path=_fixed(example, tmp_path), nodes=_fixed_nodes(example, tmp_path))
    lines = [line for line in result.output.splitlines() if any(words in line for words in FOUND)]

    assert 0 == result.exit_code
    assert name not in PREVIEWED or "✓" == _mark(result.output).replace("✎", "✓")
    assert len(example.left) == len(lines)
    assert [] == [words for words, line in zip(example.left, lines, strict=True) if words not in line]
    assert [] == [words for words in example.says if words in result.output]


def _fixed(example: Example, folder: Path) -> Path:
    """Write the manifest with its last object fixed."""
    *others, last = yaml.safe_load_all(example.path.read_text("utf-8"))
    path = folder / "fixed.yaml"
    path.write_text(yaml.safe_dump_all([*others, jsonpatch.apply_patch(last, list(example.fix))]), "utf-8")
    return path


def _fixed_nodes(example: Example, folder: Path) -> Path | None:
    """Write the nodes with their fix; None if they are as they were."""
    if example.nodes_path is None:
        return None
    nodes = yaml.safe_load(example.nodes_path.read_text("utf-8"))
    path = folder / "nodes.yaml"
    path.write_text(yaml.safe_dump(jsonpatch.apply_patch(nodes, list(example.nodes_fix))), "utf-8")
    return path


def test_every_denial_and_warning_has_a_fix_that_is_tried() -> None:
    """Of the manifest or of the nodes."""
    assert [] == [
        name
        for name, example in EXAMPLES.items()
        if example.answer in ("denied", "warned") and not example.fix and not example.nodes_fix
    ]
