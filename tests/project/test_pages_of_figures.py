"""Tests of the pages with measured figures in Chinese, which `make bench` and `make faults` write, too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.bench.translation import chinese, write_pages
from tests.support.paths import ROOT


@pytest.mark.parametrize("page", ["reliability.md", "performance.md"])
def test_the_chinese_page_is_the_english_one_with_each_text_translated(page: str) -> None:
    """With its figures; it fails if only one of them was written, or a generator has a new text."""
    english = (ROOT / "docs" / page).read_text("utf-8")

    assert ((ROOT / "docs/zh" / page).read_text("utf-8"), []) == chinese(english)


@pytest.mark.parametrize("page", ["reliability.md", "performance.md"])
def test_each_row_has_the_same_figures_in_both_languages(page: str) -> None:
    """In any order, as a sentence may turn them round."""
    rows = [
        [
            sorted(re.findall(r"\d(?:[\d,.]*\d)?", line))
            for line in path.read_text("utf-8").splitlines()
            if line[:1] == "|"
        ]
        for path in (ROOT / "docs" / page, ROOT / "docs/zh" / page)
    ]

    assert rows[0] == rows[1]


def test_no_translation_loses_or_repeats_a_figure() -> None:
    """Each has those figures and that code that its English text has."""
    catalogue = yaml.safe_load((ROOT / "tests/bench/zh.yaml").read_text("utf-8"))
    wrong = []
    for text, translated in catalogue.items():
        figures = [f"<{at}>" for at in range(text.count("{}"))]
        if sorted(re.findall("<.>", translated.format(*figures))) != figures:
            wrong.append(text)

    assert [] == wrong


def test_both_pages_are_written_and_a_text_without_translation_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stays in English."""
    page = "# Performance\n\n| target | met |\n| --- | ---: |\n| at most 65 µs, a new text | **NO** |\n"
    write_pages(tmp_path / "page.md", page)

    assert page == (tmp_path / "page.md").read_text("utf-8")
    assert "# 性能\n\n| 目标 | 达到 |\n| --- | ---: |\n| 最多 65 µs，a new text | **否** |\n" == (
        tmp_path / "zh/page.md"
    ).read_text("utf-8")
    assert "['a new text']" in capsys.readouterr().err
