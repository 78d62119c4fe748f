"""Hypothesis strategies: any JSON, and documents of which parts are any JSON."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=10,
)


@st.composite
def broken(draw: st.DrawFn, document: dict[str, Any]) -> Any:
    """Return a document of which some values are replaced by any JSON."""
    copy = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, 3))):
        place: Any = copy
        while isinstance(place, dict | list) and place:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = draw(st.sampled_from(keys))
            if draw(st.booleans()) or not isinstance(place[key], dict | list):
                place[key] = draw(JSON)
                break
            place = place[key]
    return copy
