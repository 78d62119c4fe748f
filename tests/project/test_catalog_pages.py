"""The pages of the built-in rules are those of the rules of today, and no rule is left out."""

from __future__ import annotations

import pytest

from rules.text.i18n import Language
from tests.support.catalog_pages import PAGES, VENDORS, group_pages, groups, vendors_page


@pytest.mark.parametrize("language", VENDORS)
def test_the_table_of_vendors_is_that_of_the_catalogue(
    language: Language, request: pytest.FixtureRequest
) -> None:
    """`--update-golden` writes it again."""
    page, written = VENDORS[language], vendors_page(language)
    if request.config.getoption("--update-golden"):
        page.write_text(written, "utf-8")

    assert page.read_text("utf-8") == written


def test_each_folder_of_the_catalogue_has_its_page(request: pytest.FixtureRequest) -> None:
    """`--update-golden` writes them again, and removes those of folders that are gone."""
    pages = group_pages()
    if request.config.getoption("--update-golden"):
        for path in PAGES.glob("*.md"):
            path.unlink()
        for name, text in pages.items():
            (PAGES / name).write_text(text, "utf-8")

    assert pages == {path.name: path.read_text("utf-8") for path in PAGES.glob("*.md")}


def test_every_built_in_rule_has_an_example() -> None:
    """Below its own heading, from its tests."""
    pages = group_pages()
    without = []
    for group in groups():
        sections = pages[f"{group.name}.md"].split("\n## ")[1:]
        without += [section.partition("\n")[0] for section in sections if "```yaml" not in section]

    assert [] == without
