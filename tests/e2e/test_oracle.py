"""Our code agrees with that of Kubernetes.

On quantities, node affinity, image references, references to variables, extended resources, and selectors of
devices.
"""

from __future__ import annotations

import json
import subprocess
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rules.decision.messages import API_SERVER_RULE
from rules.kube.image_reference import parse_image
from rules.kube.names import is_extended_resource
from rules.kube.pod import expand
from rules.kube.quantity import MAX_QUANTITY, QuantityError, parse_quantity
from rules.nodes.devices.selectors import Match, compile_selector
from rules.nodes.inventory_document import inventory_of
from rules.nodes.node_selector import candidates
from tests.e2e.cluster import assets
from tests.rules.nodes.devices.test_selectors import ATTRIBUTES, CAPACITY, DRIVER, OWN, RESULTS, kind
from tests.support import reference_selector as reference
from tests.support.builders import container, decision, pod, policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Oracle = Callable[..., Any]

EXAMPLES: Final = 500
_digits = st.text("0123456789", max_size=22)
_suffixes = st.sampled_from(["", *"numkMGTPE", *(f"{prefix}i" for prefix in "kKMGTPE"), "K", "B", " "])
_exponents = st.builds(
    "{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), st.integers(0, 99)
)
_quantities = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(["", "", "+", "-", " "]),
    _digits,
    st.sampled_from(["", "", ".", ".."]),
    _digits,
    st.one_of(_suffixes, _suffixes, _exponents),
)
_hosts = st.sampled_from(
    ["", "localhost/", "a.b/", "A/", "docker.io/", "index.docker.io/", "a_b.c/", "[::1]:5/"]
)
_repositories = st.one_of(
    st.sampled_from(["a", "library/a", "docker.io/a", "t.x/a__b/c--d", "a" * 255, "0a" * 32]),
    st.lists(st.sampled_from(["a", "B", "_", ".", "-", "/"]), max_size=6).map("".join),
)
_tags = st.sampled_from(
    ["", "", ":1", ":V_1.0-a", ":1/a", ":", ":-", f":{'a' * 128}", f":{'a' * 129}", ":\u0661"]
)
_digests = st.sampled_from(
    ["", "", f"@sha256:{'0a' * 32}", f"@sha512:{'f' * 128}", "@sha256:0", f"@md5:{'a' * 32}"]
)
_images = st.builds("{}{}{}{}".format, _hosts, _repositories, _tags, _digests)
_texts = st.lists(st.sampled_from(["$", "$", "(", ")", "A", "B(", "x", "é"]), max_size=12).map("".join)
_domains = st.sampled_from(
    ["a.com", "requests.a.com", "kubernetes.io", "a.kubernetes.io", "A.com", "", "a" * 240]
)
_names = st.builds(
    "{}{}{}".format, _domains, st.sampled_from(["/", "/", "", "//"]), st.text("aA.-_1", max_size=65)
)
_few = st.sampled_from(["0", "0m", "1", "1000m", "1.0", " 1 ", "2", "0.5", "1n", "-1", "1k", "1000"])
_container = st.dictionaries(st.sampled_from(["a.com/x", "b.com/y", "a.kubernetes.io/z"]), _few)
# Selectors that are true or false, fail, or are no texts of true or false in the end.
_atoms = st.sampled_from(
    [
        f"{OWN}.{text}"
        for text in ("yes", "no", "one", "absent", "text == 'x'", "absent > 1", "text.contains('T')")
    ]
    + [
        "true",
        "false",
        "has(device.attributes['absent.example.com'].x)",
        f"'one' in {OWN}",
        f"{OWN}.one == 'x'",
    ]
)
_selectors = st.recursive(
    _atoms,
    lambda selectors: st.one_of(
        st.builds("!({})".format, selectors),
        st.builds("({} && {})".format, selectors, selectors),
        st.builds("({} || {})".format, selectors, selectors),
        st.builds("({} ? {} : {})".format, selectors, selectors, selectors),
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    """Yield a client of Kubernetes' code."""
    program = assets() / "oracle"
    if not program.is_file():
        pytest.skip("the oracle is built by `make e2e-assets`, of the Kubernetes of go.mod alone")
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        lines, answers = process.stdin, process.stdout
        assert lines is not None
        assert answers is not None

        def ask(**question: Any) -> Any:
            print(json.dumps(question), file=lines, flush=True)
            return json.loads(answers.readline())

        yield ask
        lines.close()


@settings(max_examples=EXAMPLES, deadline=None)
@example("9223372036854775808")
@example("-9Ei")
@example("1e-99")
@given(text=_quantities)
def test_a_quantity_has_the_same_value_as_in_kubernetes(oracle: Oracle, text: str) -> None:
    """Capped as documented; its code does so only for binary suffixes."""
    try:
        ours = Fraction(parse_quantity(text))
    except QuantityError:
        ours = None
    answer = oracle(quantity=text)
    number = Fraction(answer["number"]) if answer else None
    theirs = None if number is None else max(Fraction(-MAX_QUANTITY), min(number, Fraction(MAX_QUANTITY)))

    # Without a digit it is no number in the documentation, and zero in the code, which sends it on as 0.
    if any(character.isdigit() for character in text.partition("e")[0].partition("E")[0]):
        assert ours == theirs
    if theirs is not None and abs(theirs) < MAX_QUANTITY:
        assert parse_quantity(answer["text"]) == theirs


@settings(max_examples=EXAMPLES, deadline=None)
@given(cluster=reference.clusters, spec=reference.pod_specs)
def test_the_candidates_of_a_pod_are_those_of_the_scheduler(
    oracle: Oracle, cluster: list[reference.Node], spec: dict[str, Any]
) -> None:
    """If the API server can decode it."""
    theirs = oracle(spec=spec, nodes=cluster)
    inventory = inventory_of(cluster)

    assert theirs is None or set(inventory.names(candidates(inventory, spec))) == set(theirs)


@settings(max_examples=EXAMPLES, deadline=None)
@given(text=_images)
def test_an_image_reference_has_the_same_parts_as_in_container_runtimes(oracle: Oracle, text: str) -> None:
    """A name such as a_b.c/d is not a registry here: it could not be pulled."""
    image, theirs = parse_image(text), oracle(image=text)
    ours = image and {
        "registry": image.registry,
        "repository": image.repository,
        **({"tag": image.tag} if image.tag else {}),
        **({"digest": image.digest} if image.digest else {}),
    }

    assert ours == (theirs if theirs and theirs["registry"] else None)


@settings(max_examples=EXAMPLES, deadline=None)
@example("$(A$$(A)")
@example("$(x$(A))")
@given(text=_texts)
def test_references_to_variables_are_expanded_as_by_the_kubelet(oracle: Oracle, text: str) -> None:
    """With and without a value, and names with brackets."""
    variables = {"A": "1", "B(": "$(A)", "": "empty"}

    assert expand(text, variables) == oracle(text=text, variables=variables)


@settings(max_examples=EXAMPLES, deadline=None)
@given(name=_names)
def test_a_name_is_an_extended_resource_as_in_kubernetes(oracle: Oracle, name: str) -> None:
    """`IsExtendedResourceName`."""
    assert is_extended_resource(name) == oracle(resource=name)


@settings(max_examples=EXAMPLES, deadline=None)
@given(limits=_container, requests=_container)
def test_what_the_api_server_rejects_of_extended_resources_is_denied(
    oracle: Oracle, limits: dict[str, str], requests: dict[str, str]
) -> None:
    """And nothing else: its rules for other resources are left to it."""
    answer = decision(policy(), pod(container(limits, requests)))
    extended = [
        {key: amounts[key] for key in amounts if "kubernetes.io" not in key} for amounts in (limits, requests)
    ]
    faults = oracle(resources={"limits": extended[0], "requests": extended[1]})

    assert bool(faults) == (not answer.allowed)
    assert {violation.rule for violation in answer.violations} <= {API_SERVER_RULE}


def _selected(oracle: Oracle, expression: str) -> Match | None:
    """Return what the scheduler makes of a selector; None if the API server rejects it."""
    device = {"name": "gpu-0", "attributes": ATTRIBUTES, "capacity": CAPACITY}
    answer = oracle(selector=expression, driver=DRIVER, device=device)
    return answer and Match(answer["matches"], answer["error"])


def _agrees(oracle: Oracle, expression: str) -> bool:
    theirs, ours = _selected(oracle, expression), compile_selector(expression).match(kind())
    if ours.matches is None or theirs is None:  # unknown here, or never in a cluster
        return True
    return (theirs.matches, theirs.failed) == (ours.matches, ours.failed)


@pytest.mark.parametrize("expression", [expression for expression, _ in RESULTS])
def test_a_selector_matches_or_fails_as_in_the_scheduler(oracle: Oracle, expression: str) -> None:
    """Each of the unit tests."""
    assert _agrees(oracle, expression)


@settings(max_examples=EXAMPLES, deadline=None)
@given(expression=_selectors)
def test_a_selector_of_several_parts_matches_or_fails_as_in_the_scheduler(
    oracle: Oracle, expression: str
) -> None:
    """`&&` and `||` absorb errors of one side."""
    assert _agrees(oracle, expression)
