"""The pictures of the pages are what the commands print today, and need nothing from elsewhere."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from tests.support.pages import fences, prose, text_of
from tests.support.paths import ROOT
from tests.support.pictures import FOLDER, PREVIEW, pictures


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """Return the pictures of this version."""
    return pictures()


def test_each_picture_is_what_its_command_prints(
    made: dict[str, str], request: pytest.FixtureRequest
) -> None:
    """In both languages; `--update-golden` (`make pictures`) writes them again."""
    if request.config.getoption("--update-golden"):
        for name, text in made.items():
            (ROOT / FOLDER / name).write_text(text, "utf-8")

    assert made == {path.name: path.read_text("utf-8") for path in (ROOT / FOLDER).glob("*.svg")}


def test_no_picture_loads_anything(made: dict[str, str]) -> None:
    """GitHub shows no scripts, fonts and links of an SVG image."""
    for name, text in made.items():
        assert "://" not in text.replace('xmlns="http://www.w3.org/2000/svg"', ""), name
        assert {"a", "script", "image", "use"}.isdisjoint(
            element.tag.partition("}")[2] for element in ET.fromstring(text).iter()
        ), name


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_recording_is_of_the_command_above_it(page: str) -> None:
    """With its language."""
    text = text_of(page)
    (fence,) = [fence for fence in fences(text, page) if PREVIEW in fence.text]
    picture = re.search(r"\((docs/pictures/preview[^)]*)\)", prose(text))

    assert picture is not None
    assert (" --lang zh" in fence.text) == picture[1].endswith(".zh.svg")
