"""Our code agrees with that of Kubernetes on quantities, node affinity and image references."""

from __future__ import annotations

import json
import subprocess
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rules.kube.image_reference import parse_image
from rules.kube.quantity import MAX_QUANTITY, QuantityError, parse_quantity
from rules.nodes.inventory import Inventory
from rules.nodes.node_selector import candidates
from tests.e2e.cluster import assets
from tests.support import reference_selector as reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Oracle = Callable[..., Any]

EXAMPLES: Final = 500
_digits = st.text("0123456789", max_size=22)
_suffixes = st.sampled_from(["", *"numkMGTPE", *(f"{each}i" for each in "kKMGTPE"), "K", "B", " "])
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


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    """Yield a client of Kubernetes' code."""
    program = assets() / "oracle"
    if not program.is_file():
        pytest.skip(f"no {program}: run `make e2e-assets`")
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
    inventory = Inventory.of(cluster)

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
