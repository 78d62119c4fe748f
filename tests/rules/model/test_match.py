"""Globs, label selectors and conditions match as documented."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.cel.expression import Expression, Inputs
from rules.cel.syntax_errors import ExpressionError
from rules.cel.variables import CONDITION_VARIABLES
from rules.model.match import Match, ResourceIndex, SelectorTerm
from rules.text.glob import covers, glob, glob_text, is_glob, overlap, plain_regex

# Every text of up to five letters: they distinguish globs of up to four tokens.
TEXTS = ["".join(letters) for length in range(6) for letters in product("ab", repeat=length)]
GLOBS = st.text("ab*?", max_size=4)


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("*", "", True),
        ("*", "anything/at:all", True),
        ("nvidia.com/gpu", "nvidia.com/gpu", True),
        ("nvidia.com/gpu", "nvidia.com/gpu.shared", False),
        ("nvidia.com/gpu", "nvidiaXcom/gpu", False),
        ("nvidia.com/mig-*", "nvidia.com/mig-1g.10gb", True),
        ("nvidia.com/mig-*", "nvidia.com/mig-", True),
        ("nvidia.com/mig-*", "nvidia.com/gpu", False),
        ("*/paddle*", "registry:5000/team/paddle:2.6", True),
        ("*/paddle*", "paddle", False),
        ("gpu?", "gpu1", True),
        ("gpu?", "gpu", False),
        ("gpu?", "gpu12", False),
        ("[a-z]+", "[a-z]+", True),
        ("[a-z]+", "abc", False),
        ("a*b", "a\nb", True),
        ("team", "Team", False),
    ],
)
def test_a_glob_matches_whole_names(pattern: str, text: str, matches: bool) -> None:
    """`*` is any text, `?` one character, and nothing else is special."""
    assert matches == (glob(pattern).fullmatch(text) is not None)


@pytest.mark.parametrize(("name", "found"), [("a/b", False), ("a/*", True), ("a/b?", True), ("", False)])
def test_a_name_with_a_wildcard_is_a_glob(name: str, found: bool) -> None:
    """A plain name takes one look-up."""
    assert found == is_glob(name)


INDEX = ResourceIndex(
    [
        ("nvidia.com/mig-*", "profile"),
        ("nvidia.com/gpu", "first"),
        ("*/gpu*", "anyone's"),
        ("nvidia.com/gpu", "second"),
        ("?.com/x", "one letter"),
    ]
)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("nvidia.com/gpu", ("first", "second", "anyone's")),
        ("nvidia.com/mig-1g.10gb", ("profile",)),
        ("amd.com/gpu", ("anyone's",)),
        ("a.com/x", ("one letter",)),
        ("nvidia.com/other", ()),
        ("cpu", ()),
        ("gpu", ()),
        ("", ()),
    ],
)
def test_an_index_finds_what_is_kept_for_a_name(name: str, kept: tuple[str, ...]) -> None:
    """The exact name first, in order, then the globs of its domain, then those of any."""
    assert kept == INDEX.find(name)


@pytest.mark.parametrize(
    ("term", "labels", "holds"),
    [
        (SelectorTerm("a", "In", frozenset({"x", "y"})), {"a": "y"}, True),
        (SelectorTerm("a", "In", frozenset({"x", "y"})), {"a": "z"}, False),
        (SelectorTerm("a", "In", frozenset({"x", "y"})), {}, False),
        (SelectorTerm("a", "NotIn", frozenset({"x"})), {"a": "x"}, False),
        (SelectorTerm("a", "NotIn", frozenset({"x"})), {"a": "z"}, True),
        (SelectorTerm("a", "NotIn", frozenset({"x"})), {}, True),
        (SelectorTerm("a", "Exists"), {"a": ""}, True),
        (SelectorTerm("a", "Exists"), {"b": "a"}, False),
        (SelectorTerm("a", "DoesNotExist"), {"b": "a"}, True),
        (SelectorTerm("a", "DoesNotExist"), {"a": ""}, False),
    ],
)
def test_a_selector_term_holds_as_in_kubernetes(
    term: SelectorTerm, labels: dict[str, str], holds: bool
) -> None:
    """An absent label is not in any list, and not outside of the selector either."""
    assert holds == term.holds(labels)


@pytest.mark.parametrize(
    ("include", "exclude", "namespace", "applies"),
    [
        ((), (), "team", True),
        (("team",), (), "team", True),
        (("team",), (), "other", False),
        (("team-*",), (), "team-a", True),
        (("team-*", "ml"), (), "ml", True),
        ((), ("kube-*",), "kube-system", False),
        ((), ("kube-*",), "team", True),
        (("team-*",), ("team-b",), "team-b", False),
        (("*",), (), "", True),
    ],
)
def test_a_match_applies_to_its_namespaces_only(
    include: tuple[str, ...], exclude: tuple[str, ...], namespace: str, applies: bool
) -> None:
    """What is excluded is out, whatever is included; with nothing included all are in."""
    match = Match(("a/b",), include=tuple(map(glob, include)), exclude=tuple(map(glob, exclude)))

    assert applies == match.pod(namespace, {})


def test_all_terms_of_a_pod_selector_must_match() -> None:
    """They are ANDed, as in Kubernetes."""
    match = Match(("a/b",), selector=(SelectorTerm("a", "Exists"), SelectorTerm("b", "DoesNotExist")))

    assert [True, False, False] == [
        match.pod("team", labels) for labels in ({"a": "1"}, {"a": "1", "b": "1"}, {})
    ]


def test_any_image_glob_may_match_any_spelling() -> None:
    """Without globs every image matches."""
    match = Match(("a/b",), images=(glob("*/paddle*"), glob("tool")))

    assert [True, True, False, True] == [
        match.image(["paddle", "docker.io/library/paddle"]),
        match.image(["tool"]),
        match.image(["tools"]),
        Match(("a/b",)).image(["anything"]),
    ]


def test_the_first_false_condition_is_returned() -> None:
    """All must be true; without conditions the rule applies."""
    conditions = tuple(
        Expression(source, CONDITION_VARIABLES)
        for source in ("container.name == 'a'", "pod.namespace == 'team'")
    )
    match = Match(("a/b",), conditions=conditions)

    assert [None, conditions[1], conditions[0], None] == [
        match.unmet_condition(Inputs({"container.name": "a", "pod.namespace": "team"})),
        match.unmet_condition(Inputs({"container.name": "a", "pod.namespace": "other"})),
        match.unmet_condition(Inputs({"container.name": "b"})),
        Match(("a/b",)).unmet_condition(Inputs({})),
    ]


@pytest.mark.parametrize(
    ("sources", "unmet"),
    [
        (["limits['x'] > 1", "container.name == 'b'"], "container.name == 'b'"),
        (["container.name == 'b'", "limits['x'] > 1"], "container.name == 'b'"),
        (["container.name == 'a'", "limits['x'] > 1", "limits['y'] > 1"], "no such key: 'x'"),
        (["limits['x'] > 1"], "no such key: 'x'"),
    ],
)
def test_a_false_condition_wins_over_one_that_fails(sources: list[str], unmet: str) -> None:
    """In any order. Only if none is false, the first error counts."""
    match = Match(("a/b",), conditions=tuple(Expression(source, CONDITION_VARIABLES) for source in sources))
    try:
        condition = match.unmet_condition(Inputs({"container.name": "a", "limits": {}}))
        answer = condition and condition.source
    except ExpressionError as error:
        answer = str(error)

    assert unmet == answer


@given(st.text())
def test_the_text_of_a_compiled_glob_is_as_written(text: str) -> None:
    """Letter by letter."""
    assert text == glob_text(glob(text))


@given(GLOBS, GLOBS)
def test_globs_overlap_if_some_text_matches_both(left: str, right: str) -> None:
    """One covers another only if it matches everything that the other matches."""
    one, other = glob(left), glob(right)
    ones, others = ({text for text in TEXTS if pattern.fullmatch(text)} for pattern in (one, other))

    assert overlap(one, other) is not ones.isdisjoint(others)
    assert ones >= others or not covers(one, other)


@given(GLOBS, st.sampled_from(TEXTS))
def test_a_glob_matches_as_fnmatch_does(pattern: str, text: str) -> None:
    """And as its regular expression does; `*` matches slashes too."""
    plain = re.compile(plain_regex(glob(pattern)))

    assert fnmatchcase(text, pattern) is bool(glob(pattern).fullmatch(text)) is bool(plain.fullmatch(text))


def test_many_stars_do_not_hang() -> None:
    """Backtracking over 200 dashes and 20 stars would take years."""
    assert not glob("*-" * 20 + "x").fullmatch("-" * 200 + "y")


def test_globs_of_any_length_are_compared_in_bounded_time() -> None:
    """Longer than any name, they are taken to overlap."""
    assert overlap(glob("*a" * 5000), glob("*b" * 5000))
    assert not overlap(glob("*a" * 200), glob("*b" * 200))


def test_an_index_iterates_over_everything_in_it() -> None:
    """Names first, then globs."""
    index = ResourceIndex([("*/c", 3), ("a.com/*", 2), ("a.com/b", 1)])

    assert [1, 2, 3] == list(index)
