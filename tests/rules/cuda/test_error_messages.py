"""Texts of errors against those of NVIDIA's library, which a log has."""

from __future__ import annotations

import ctypes
import hashlib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from rules.cuda.tables import read_table

GOLDEN: Final[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("libcudart.yaml").read_text("utf-8"))


def test_the_messages_are_those_of_the_library() -> None:
    """As read from the library; the test below reads it again."""
    assert GOLDEN["messages"] == {row["code"]: row["message"] for row in read_table("errors")}


@pytest.mark.parametrize("wheel", GOLDEN["wheels"])
def test_the_library_of_an_installed_wheel_returns_these_messages(wheel: str) -> None:
    """Whatever its version; the named version is the file that was read."""
    try:
        installed = distribution(wheel)
    except PackageNotFoundError:
        pytest.skip(f"pip install {wheel}=={GOLDEN['wheels'][wheel]['version']} to compare with the library")
    (path,) = (path for path in installed.files or () if path.name.startswith("libcudart.so"))
    library = ctypes.CDLL(str(installed.locate_file(path)))
    library.cudaGetErrorString.restype = ctypes.c_char_p
    digest = hashlib.sha256(Path(str(installed.locate_file(path))).read_bytes()).hexdigest()

    assert GOLDEN["messages"] == {
        code: library.cudaGetErrorString(code).decode() for code in GOLDEN["messages"]
    }
    assert installed.version != GOLDEN["wheels"][wheel]["version"] or (
        digest == GOLDEN["wheels"][wheel]["sha256"]
    )
