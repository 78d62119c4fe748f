"""Objects at paths of JSON documents."""

from __future__ import annotations

from typing import Any

import pytest

from rules.text.paths import object_at


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ((), {"spec": {"pool": {"name": "a"}, "driver": "d"}}),
        (("spec", "pool"), {"name": "a"}),
        (("spec", "driver"), {}),
        (("spec", "driver", "name"), {}),
        (("status",), {}),
    ],
)
def test_the_object_at_a_path_is_empty_if_there_is_none(path: tuple[str, ...], expected: Any) -> None:
    document = {"spec": {"pool": {"name": "a"}, "driver": "d"}}
    assert expected == object_at(document, *path)
    assert {} == object_at([document], *path)
