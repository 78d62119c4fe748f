"""Laws of injected node affinity: they hold for any nodes, pods and requirements."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rules.affinity.classes import MOST_TERMS, Split, distinguishing
from rules.affinity.node_affinity import Requirement, conjoin, inject, prefer
from rules.affinity.version_range import VersionRange, version_requirement
from rules.nodes.inventory_document import inventory_of
from rules.nodes.label_families import LabelNames
from rules.nodes.node_selector import admitted
from tests.support import reference_selector as reference
from tests.support.laws import EXAMPLES

_NAMES = LabelNames()
_EXTRA = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}

versions = st.tuples(st.sampled_from([0, 1, 8, 11, 12, 13]), st.sampled_from([0, 1, 3, 4, 5]))
intervals = st.builds(VersionRange, st.one_of(st.just((0, 0)), versions), st.one_of(st.none(), versions))
families = st.sampled_from(
    [(_NAMES.cuda, reference.CUDA_KEYS), (_NAMES.compute_capability[:1], reference.CAPABILITY_KEYS)]
)


def is_inside(node: reference.Node, cluster: list[reference.Node], interval: VersionRange, keys: Any) -> bool:
    """Return whether the version of a node is inside; if its minor is missing, with any minor."""
    if interval == VersionRange() or not any(
        name[0] in reference.labels_of(other) for other in cluster for name in keys
    ):
        return True
    version = reference.told_version(node, keys)
    if version is None:
        return False
    major, minor = version
    possible = (0, 10**9) if minor is None else (minor,)
    return all((major, possible_minor) in interval for possible_minor in possible)


# A bound pod gets no affinity, and its selectors do not count.
unbound_specs = reference.pod_specs.map(
    lambda spec: {key: value for key, value in spec.items() if key != "nodeName"}
)


@settings(max_examples=3 * EXAMPLES)
@given(
    reference.clusters,
    unbound_specs,
    st.lists(st.tuples(intervals, families), max_size=2),
    st.one_of(st.none(), reference.term_lists),
)
def test_affinity_admits_exactly_the_nodes_that_were_admitted_before_and_satisfy_the_requirement(
    cluster: list[reference.Node], spec: dict[str, Any], required: list[Any], rule_terms: list[Any] | None
) -> None:
    """A second injection changes nothing; the submitted pod is not modified."""
    inventory = inventory_of(cluster)
    requirement = Requirement()
    for interval, (labels, _) in required:
        requirement &= version_requirement(interval, labels, inventory)
    if rule_terms is not None:
        requirement &= Requirement.of_terms(rule_terms)
    before = deepcopy(spec)
    terms = inject(spec, requirement)
    patched = spec if terms is None else reference.with_required(spec, terms)

    expected = [
        node["metadata"]["name"]
        for node in cluster
        if reference.may_go(node, spec)
        and all(is_inside(node, cluster, interval, keys) for interval, (_, keys) in required)
        and (rule_terms is None or reference.terms_match(node, rule_terms))
    ]
    assert [node["metadata"]["name"] for node in cluster if reference.may_go(node, patched)] == expected
    assert inject(patched, requirement) is None
    assert spec == before


@settings(max_examples=2 * EXAMPLES)
@given(reference.clusters, st.one_of(st.none(), reference.term_lists, reference.junk), reference.term_lists)
def test_conjoined_terms_match_the_nodes_that_both_lists_match(
    cluster: list[reference.Node], user_terms: Any, added: list[Any]
) -> None:
    """For any lists; a second conjunction changes nothing."""
    before = deepcopy((user_terms, added))
    joined = conjoin(user_terms, added)

    for node in cluster:
        user = user_terms is None or reference.terms_match(node, user_terms)
        assert reference.terms_match(node, joined) == (user and reference.terms_match(node, added))
    assert conjoin(joined, added) == joined
    assert (user_terms, added) == before


@given(st.lists(reference.sound_terms, min_size=1, max_size=4), reference.term_lists)
def test_the_users_terms_stay_first_and_in_order(user_terms: list[dict[str, Any]], added: list[Any]) -> None:
    """None is lost, and their expressions and fields come before those that are added."""
    numbered = [{**user_term, "number": number} for number, user_term in enumerate(user_terms)]
    joined = conjoin(numbered, [*added, _EXTRA])

    assert list(dict.fromkeys(term["number"] for term in joined)) == list(range(len(user_terms)))
    for joined_term in joined:
        for section in ("matchExpressions", "matchFields"):
            own = numbered[joined_term["number"]].get(section, [])
            assert joined_term.get(section, [])[: len(own)] == own


@given(reference.clusters, intervals, families)
def test_no_node_satisfies_two_terms_of_a_version(
    cluster: list[reference.Node], interval: VersionRange, chosen: Any
) -> None:
    """So preferred affinity gives every node the weight once."""
    requirement = version_requirement(interval, chosen[0], inventory_of(cluster))
    preferred = prefer({}, requirement, 10)

    for node in cluster:
        assert sum(reference.term_matches(node, preference["preference"]) for preference in preferred) <= 1


KINDS = st.fixed_dictionaries({}, optional={key: st.sampled_from(["1", "2", "x"]) for key in "abcd"})


@settings(max_examples=3 * EXAMPLES)
@given(st.lists(st.tuples(KINDS, st.booleans()), min_size=1, max_size=12), st.sampled_from(["", "b", "d"]))
def test_terms_of_labels_admit_the_nodes_that_fit_and_no_other_that_labels_distinguish(
    kinds: list[tuple[dict[str, str], bool]], rising: str
) -> None:
    """Also where one label is a number with a lower bound; the number of terms is bounded."""
    nodes = [{"metadata": {"name": f"n{at}", "labels": labels}} for at, (labels, _) in enumerate(kinds)]
    fit, unfit = (
        sum(1 << at for at, (_, fits) in enumerate(kinds) if fits is number) for number in (True, False)
    )
    inventory = inventory_of(nodes)
    terms = distinguishing(Split(inventory, fit, unfit), [["b", "a"], ["c"], ["d"]], (), {rising: 1})

    fitting = [labels for labels, fits in kinds if fits]
    expected = [at for at, (labels, fits) in enumerate(kinds) if not fits and labels in fitting]
    reached = admitted(inventory, terms)
    assert fit == fit & reached
    assert expected == [at for at in range(len(kinds)) if unfit & reached & 1 << at]
    assert len(terms) <= MOST_TERMS
