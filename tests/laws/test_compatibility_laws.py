"""Laws of compatibility: decisions and affinity agree, for any nodes, pods and requirements."""

from __future__ import annotations

from copy import deepcopy
from itertools import product
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rules.cuda.tables import BUILT_IN, branch_of_cuda, cuda_of_branch
from rules.decision.pipeline import Snapshot, decide
from rules.decision.policy import Policy
from rules.model.decision import Decision
from rules.nodes.inventory_document import inventory_of
from tests.support import reference_selector as reference
from tests.support.builders import container, patched, pod, policy, request, warning_texts
from tests.support.laws import EXAMPLES
from tests.support.node_builders import (
    A100,
    COMPUTE,
    CUDA,
    GPU,
    H100,
    MEMORY,
    RTX4090,
    T4,
    V100,
    compatibility_rule,
    gfd,
    image_catalog,
    shipped,
)

Version = tuple[int, int]
Requirement = tuple[Version | None, Version | None]  # CUDA, compute capability

ONE = {GPU: "1"}
# The CUDA version of the last driver branch that supports a GPU below a compute capability: R470 and R580.
LAST = {(5, 0): (11, 4), (7, 5): (13, 0)}
# The first CUDA version of the drivers that know GPUs of such a compute capability and higher.
FIRST: dict[Version, Version] = {(9, 0): (11, 8)}
# The lowest compute capability that the toolkits of a major compile for, as in facts/toolkits.yaml.
FLOORS = {10: (3, 0), 11: (3, 5), 12: (5, 0), 13: (7, 5)}

# The CUDA versions that one driver branch has.
KNOWN = {
    fact.value
    for branch in range(1000)
    if (fact := cuda_of_branch(BUILT_IN, branch)) and branch_of_cuda(BUILT_IN, fact.value)
}
drivers = st.sampled_from([(11, 4), (11, 8), (12, 0), (12, 2), (12, 4), (13, 0), (13, 3)])
capabilities = st.sampled_from([(3, 7), (6, 1), (7, 0), (7, 5), (8, 0), (8, 6), (9, 0)])
runtimes = st.sampled_from([(10, 2), (11, 7), (11, 8), (12, 0), (12, 2), (12, 6), (13, 0), (13, 3)])
requirements = st.tuples(st.one_of(st.none(), runtimes, runtimes), st.one_of(st.none(), capabilities))


def named(labels: list[dict[str, str]]) -> list[reference.Node]:
    """Return GPU nodes of these labels, each with a name of its own."""
    return [
        {"metadata": {"name": f"node-{at}", "labels": label}, "status": {"allocatable": {GPU: "8"}}}
        for at, label in enumerate(labels)
    ]


def all_labels(cuda: Version, compute: Version, zone: str) -> dict[str, str]:
    """Return labels of all facts."""
    return {
        "nvidia.com/cuda.runtime-version.major": str(cuda[0]),
        "nvidia.com/cuda.runtime-version.minor": str(cuda[1]),
        "nvidia.com/gpu.compute.major": str(compute[0]),
        "nvidia.com/gpu.compute.minor": str(compute[1]),
        "zone": zone,
    }


labelled = st.lists(
    st.builds(all_labels, drivers, capabilities, st.sampled_from(["a", "b"])), min_size=1, max_size=6
).map(named)
majors = st.one_of(st.sampled_from(["11", "12", "13"]), reference.version_values)
minors = st.one_of(st.sampled_from(["0", "4", "8"]), reference.version_values)
any_labels = st.fixed_dictionaries(
    {},
    optional={
        "cuda-major-version": majors,
        "cuda-minor-version": minors,
        "nvidia.com/cuda.runtime-version.major": majors,
        "nvidia.com/cuda.runtime-version.minor": minors,
        "nvidia.com/cuda.runtime-version.full": reference.whole_versions,
        "nvidia.com/gpu.compute.major": st.one_of(st.sampled_from(["6", "7", "8"]), reference.version_values),
        "nvidia.com/gpu.compute.minor": reference.version_values,
    },
)
oddly_labelled = st.lists(any_labels, min_size=1, max_size=6).map(named)
specs = st.one_of(st.just({}), reference.pod_specs)


def annotated(spec: dict[str, Any], required: list[Requirement]) -> dict[str, Any]:
    """Return a pod of this spec, with a container and annotations for each of the requirements."""
    annotations = {
        f"{annotation}.c{at}": f"{version[0]}.{version[1]}"
        for at, versions in enumerate(required)
        for annotation, version in zip((CUDA, COMPUTE), versions, strict=True)
        if version
    }
    containers = [container(ONE, ONE, name=f"c{at}", image="team/app:v1") for at in range(len(required))]
    return pod(*containers, metadata={"name": "train", "annotations": annotations}, **spec)


def version_of(node: reference.Node, families: tuple[tuple[str, ...], ...]) -> Version | None:
    """Return the version in a node's labels; None if a part is missing or invalid."""
    version = reference.told_version(node, families)
    return None if version is None or version[1] is None else (version[0], version[1])


def is_incompatible(node: reference.Node, required: list[Requirement]) -> bool:
    """Return whether a node is incompatible: driver CUDA < runtime, or capability < minimum or floor.

    Or if the driver no longer supports the GPU, or does not know it yet.
    """
    driver, gpu = version_of(node, reference.CUDA_KEYS), version_of(node, reference.CAPABILITY_KEYS)
    if (
        driver in KNOWN
        and gpu is not None
        and (
            any(gpu < below and driver > last for below, last in LAST.items())
            or any(gpu >= since and driver < first for since, first in FIRST.items())
        )
    ):
        return True
    return any(
        (driver is not None and cuda is not None and driver < cuda)
        or (gpu is not None and compute is not None and gpu < compute)
        or (gpu is not None and cuda is not None and gpu < FLOORS[cuda[0]])
        for cuda, compute in required
    )


def names(nodes: list[reference.Node]) -> list[str]:
    """Return the names of nodes."""
    return [node["metadata"]["name"] for node in nodes]


def settled(rules: Policy, cluster: list[reference.Node], document: Any) -> tuple[Decision, Any]:
    """Return the decision and the stored pod, which is not changed or denied again."""
    before, inventory = deepcopy(document), inventory_of(cluster)
    decision = decide(Snapshot(rules, inventory), request(document))
    assert before == document
    if not decision.allowed:
        assert () == decision.patch
        return decision, document
    result = patched(document, decision)
    again = decide(Snapshot(rules, inventory), request(result))
    final = decide(Snapshot(rules, inventory), request(result, mutating=False))
    assert ((), True, True, ()) == (again.patch, again.allowed, final.allowed, final.patch)
    return decision, result


@settings(max_examples=3 * EXAMPLES)
@given(labelled, specs, st.lists(requirements, min_size=1, max_size=3))
def test_a_pod_is_admitted_to_exactly_the_compatible_nodes_among_those_of_its_own_selectors(
    cluster: list[reference.Node], spec: dict[str, Any], required: list[Requirement]
) -> None:
    """If there is none, it is denied. A second decision changes nothing."""
    candidates = [node for node in cluster if reference.may_go(node, spec)]
    compatible = [node for node in candidates if not is_incompatible(node, required)]
    decision, result = settled(shipped(), cluster, annotated(spec, required))
    bound = spec.get("nodeName") not in (None, "")  # such a pod is checked and gets no affinity

    assert decision.allowed is (not candidates or bool(compatible))
    if decision.allowed:
        reachable = [node for node in cluster if reference.may_go(node, result["spec"])]
        assert names(reachable) == names(candidates if bound else compatible)


@settings(max_examples=3 * EXAMPLES)
@given(oddly_labelled, specs, st.lists(requirements, min_size=1, max_size=2))
def test_only_labels_of_an_incompatible_node_are_a_reason_to_deny(
    cluster: list[reference.Node], spec: dict[str, Any], required: list[Requirement]
) -> None:
    """Missing and invalid ones are not; an admitted pod keeps a node that may be compatible."""
    candidates = [node for node in cluster if reference.may_go(node, spec)]
    possible = [node for node in candidates if not is_incompatible(node, required)]
    decision, result = settled(shipped(), cluster, annotated(spec, required))

    assert decision.allowed is (not candidates or bool(possible))
    if possible:
        assert any(reference.may_go(node, result["spec"]) for node in possible)


# Rules, variables and catalogues, on nodes with GPU models of the tables and driver branches that NVIDIA
# lists for forward compatibility, or without some labels.
PARTS = [f"nvidia.com/cuda.driver-version.{part}" for part in ("major", "minor", "revision")]
OLD = {"nvidia.com/cuda.runtime-version.major": "11", "nvidia.com/cuda.runtime-version.minor": "0"}
PARTITIONED = {"nvidia.com/mig-1g.5gb.count": "7"}
FACTS = {
    "cuda": ("nvidia.com/cuda.runtime-version.major", "nvidia.com/cuda.runtime-version.minor"),
    "driver": ("nvidia.com/cuda.driver-version.full",),
    "compute": ("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor"),
    "product": ("nvidia.com/gpu.product",),
}
models = st.sampled_from([V100, T4, A100, H100, RTX4090])
of_one_architecture = st.one_of(
    st.builds(gfd, st.sampled_from(["12.2", "12.8", "13.0"]), models),
    st.builds(gfd, st.sampled_from(["12.2", "12.8", "13.0"]), models),
    # Of CUDA 11.0, on both sides of the floor of minor version compatibility.
    st.builds(
        lambda model, driver: gfd("11.2", model) | OLD | {"nvidia.com/cuda.driver-version.full": driver},
        models,
        st.sampled_from(["450.51.06", "450.80.02"]),
    ),
)
fully_labelled = st.builds(
    dict.__or__,
    of_one_architecture,
    st.fixed_dictionaries(
        {},
        optional={
            "kubernetes.io/arch": st.sampled_from(["amd64", "arm64"]),
            "nvidia.com/gpu.memory": st.sampled_from(["15360", "040960", "81559", "0", "80Gi", "9999999"]),
            "nvidia.com/gpu.sharing-strategy": st.sampled_from(["none", "mps", "time-slicing"]),
        },
    ),
)


def in_parts(labels: dict[str, str]) -> dict[str, str]:
    """Return labels with the driver version in three parts."""
    driver = labels["nvidia.com/cuda.driver-version.full"].split(".")
    others = {key: value for key, value in labels.items() if not key.endswith("full")}
    return others | dict(zip(PARTS, driver, strict=True))


def without(labels: dict[str, str], missing: set[str]) -> dict[str, str]:
    """Return labels without those of some facts."""
    keys = {key for fact in missing for key in FACTS[fact]}
    return {key: value for key, value in labels.items() if key not in keys}


known = st.lists(st.one_of(fully_labelled, fully_labelled.map(in_parts)), min_size=1, max_size=6).map(named)
half_known = st.lists(
    st.one_of(
        fully_labelled.map(in_parts),
        st.builds(without, fully_labelled, st.sets(st.sampled_from(sorted(FACTS)))),
        st.builds(
            dict.__or__, fully_labelled, st.sampled_from([PARTITIONED, {"nvidia-device-enable": "vgpu"}])
        ),
        st.builds(
            dict.__or__,
            st.builds(without, fully_labelled, st.just({"cuda"})),
            st.sampled_from([{}, {"cuda-major-version": "12", "cuda-minor-version": "4"}]),
        ),
    ),
    min_size=1,
    max_size=6,
).map(named)
actions = st.sampled_from(["deny", "warn", "allow"])
of_any_mode = {
    "minorVersionCompatibility": actions,
    "minDriverCuda": st.sampled_from(["11.5", "12.4"]),
    "minComputeCapability": st.sampled_from(["7.0", "8.0"]),
    "deviceMode": st.sampled_from(["pgpu", "vgpu"]),
    "migSlices": st.sampled_from(["allow", "deny"]),
}
terms = st.one_of(
    st.fixed_dictionaries(
        {"sharing": st.just("physical")},
        optional=of_any_mode,
    ),
    st.fixed_dictionaries(
        {"sharing": st.just("virtual")},
        optional={
            "baseline": st.sampled_from(["11.8", "12.4", "13.0"]),
            "majorVersionMismatch": actions,
            **of_any_mode,
        },
    ),
)
rows = st.fixed_dictionaries(
    {"image": st.just("team/*"), "cuda": st.sampled_from(["11.8", "12.2", "12.4", "12.8", "13.0", "13.1"])},
    optional={
        "computeCapabilities": st.lists(
            st.sampled_from(["7.0", "7.5", "8.0", "8.6", "9.0"]), min_size=1, max_size=3, unique=True
        ),
        "cudaCompat": st.booleans(),
        "platforms": st.sampled_from([["linux/amd64"], ["linux/arm64"], ["linux/amd64", "linux/arm64"]]),
    },
).flatmap(
    lambda row: st.fixed_dictionaries(
        {key: st.just(value) for key, value in row.items()},
        optional={"ptx": st.booleans()} if "computeCapabilities" in row else {},
    )
)
operators = st.sampled_from(["=", ">=", ">", "<", "<=", "!="])
factors = st.one_of(
    st.builds("cuda{}{}".format, operators, st.sampled_from(["12.2", "12.8", "12.2.1", "13"])),
    st.builds(
        "driver{}{}".format,
        operators,
        st.sampled_from(["571", "535.104.05", "450.80.2", "570.124.06"]),
    ),
    st.builds("arch{}{}".format, operators, st.sampled_from(["7", "7.5", "8.9"])),
    st.sampled_from(["brand=tesla", "brand!=titan"]),
)
groups = st.lists(factors, min_size=1, max_size=2).map(",".join)
expressions = st.one_of(factors, groups, st.lists(groups, min_size=2, max_size=3).map(" ".join))


def level_on(rules: Policy, node: reference.Node, document: Any) -> int:
    """Return the result for a cluster of this node: 0 compatible, 1 unknown, 2 denied."""
    decision = decide(Snapshot(rules, inventory_of(node)), request(document))
    unknown = any("compatibility unknown" in warning for warning in warning_texts(decision))
    return 2 if not decision.allowed else 1 if unknown else 0


def assert_best_nodes(
    rules: Policy, cluster: list[reference.Node], document: Any, *, exact_if_unknown: bool
) -> None:
    """Assert that affinity admits exactly the best nodes; if all are unknown, at least those."""
    levels = {node["metadata"]["name"]: level_on(rules, node, document) for node in cluster}
    decision, result = settled(rules, cluster, document)
    best = min(levels.values())
    expected = [name for name, level in levels.items() if level == best]
    reachable = names([node for node in cluster if reference.may_go(node, result["spec"])])

    assert decision.allowed is (best < 2)
    if best == 0 or (best == 1 and exact_if_unknown):
        assert expected == reachable
    elif best == 1:
        assert set(expected) <= set(reachable)


@settings(max_examples=4 * EXAMPLES)
@given(
    st.one_of(known, half_known),
    terms,
    rows,
    st.booleans(),
    st.tuples(
        st.sampled_from(["", "", "15Gi", "40Gi", "81559Mi", "200Gi"]), st.sampled_from(["1", "1", "2"])
    ),
)
def test_affinity_admits_exactly_the_nodes_on_which_the_pod_would_be_admitted_alone(
    cluster: list[reference.Node],
    rule: dict[str, Any],
    row: dict[str, Any],
    annotated: bool,
    sizes: tuple[str, str],
) -> None:
    """For any rule, catalogue, annotations and number of GPUs; if none is compatible, the unknown ones."""
    memory, gpus = sizes
    annotations = ({COMPUTE: "8.0"} if annotated else {}) | ({MEMORY: memory} if memory else {})
    metadata = {"name": "train", "annotations": annotations}
    document = pod(container({GPU: gpus}, {GPU: gpus}, image="team/app:v1"), metadata=metadata)

    rules = policy(compatibility_rule(**rule), image_catalog(row))
    assert_best_nodes(rules, cluster, document, exact_if_unknown=not row.get("cudaCompat"))


@settings(max_examples=4 * EXAMPLES)
@given(st.one_of(known, half_known), expressions, st.sampled_from([{}, {"sharing": "virtual"}]))
def test_affinity_admits_exactly_the_nodes_that_satisfy_nvidia_require(
    cluster: list[reference.Node], expression: str, rule: dict[str, Any]
) -> None:
    """Alternatives, gaps, all parts of a version; of unknown nodes possibly more than those."""
    env = [{"name": "NVIDIA_REQUIRE_CUDA", "value": expression}]
    document = pod(container(ONE, ONE, image="team/app:v1", env=env))

    few = len(expression.replace(" ", ",").split(",")) == 1
    assert_best_nodes(policy(compatibility_rule(**rule)), cluster, document, exact_if_unknown=few)


@settings(max_examples=2 * EXAMPLES)
@given(known, terms, rows, terms, st.sampled_from(["warn", "dryrun"]))
def test_a_rule_that_does_not_deny_changes_no_denial(
    cluster: list[reference.Node],
    rule: dict[str, Any],
    row: dict[str, Any],
    trial: dict[str, Any],
    action: str,
) -> None:
    """A dry run changes nothing that a user sees."""
    strict, catalog = compatibility_rule(name="strict", **rule), image_catalog(row)
    document = pod(container(ONE, ONE, image="team/app:v1"))
    before, _ = settled(policy(strict, catalog), cluster, document)
    tried = compatibility_rule(name="trial", enforcementAction=action, **trial)
    after, _ = settled(policy(strict, catalog, tried), cluster, document)

    assert before.allowed is after.allowed
    if action == "dryrun":
        assert (before.denial.en, warning_texts(before), before.patch) == (
            after.denial.en,
            warning_texts(after),
            after.patch,
        )


# Images that are known by name, with certain facts for every architecture.
IMAGES = [
    *(
        f"nvidia/cuda:{version}-base-ubuntu22.04"
        for version in (
            "11.0.3",
            "11.3.1",
            "11.8.0",
            "12.2.2",
            "12.4.1",
            "12.6.3",
            "13.0.2",
            "13.2.0",
            "13.4.1",
        )
    ),
    "vllm/vllm-openai:v0.7.0",
    "nvcr.io/nvidia/tritonserver:24.04-py3",
    "nvcr.io/nvidia/pytorch:22.12-py3",
    "team/app:cuda12.6",
]
DRIVERS = {
    "450.80.02": "11.0",
    "470.82.01": "11.4",
    "525.85.12": "12.0",
    "535.104.05": "12.2",
    "550.54.14": "12.4",
    "570.124.06": "12.8",
    "580.65.06": "13.0",
}
PRODUCTS = ["Tesla-T4", "NVIDIA-A100-SXM4-80GB", "NVIDIA-GeForce-RTX-4090", "NVIDIA-RTX-A6000", "NVIDIA-X9"]


def of_machine(driver: str, product: str, architecture: str, missing: set[str]) -> dict[str, str]:
    """Return the labels of a machine, without some of them; without a CUDA version there is no driver."""
    major, minor = DRIVERS[driver].split(".")
    facts = {"driver": {"nvidia.com/cuda.driver-version.full": driver}}
    facts["product"] = {"nvidia.com/gpu.product": product}
    cuda = dict(zip(FACTS["cuda"], (major, minor), strict=True))
    labels = {
        key: value
        for fact, labels_of_fact in facts.items()
        if fact not in missing
        for key, value in labels_of_fact.items()
    }
    reported = labels | cuda if "cuda" not in missing else {}
    return reported | {"kubernetes.io/arch": architecture}


machines = st.lists(
    st.builds(
        of_machine,
        st.sampled_from(sorted(DRIVERS)),
        st.sampled_from(PRODUCTS),
        st.sampled_from(["amd64", "amd64", "arm64"]),
        st.sets(st.sampled_from(["cuda", "driver", "product"]), max_size=1),
    ),
    min_size=1,
    max_size=5,
).map(named)


@settings(max_examples=4 * EXAMPLES)
@given(machines, st.sampled_from(IMAGES), terms)
def test_affinity_admits_exactly_the_nodes_on_which_a_known_image_would_be_admitted_alone(
    cluster: list[reference.Node], image: str, rule: dict[str, Any]
) -> None:
    """By driver, brand, architecture and branch, any of which may have no label."""
    document = pod(container(ONE, ONE, image=image))

    assert_best_nodes(policy(compatibility_rule(**rule)), cluster, document, exact_if_unknown=False)


# Drivers that do not know the GPU: affinity excludes it, also once it has a new driver.
TOO_OLD = {
    ("450.80.02", "NVIDIA-RTX-A6000"),
    ("450.80.02", "NVIDIA-GeForce-RTX-4090"),
    ("470.82.01", "NVIDIA-GeForce-RTX-4090"),
}
kinds_of_machines = st.lists(
    st.sampled_from(
        [kind for kind in product(sorted(DRIVERS), PRODUCTS[:4]) if kind not in TOO_OLD],
    ),
    min_size=2,
    max_size=6,
)


@settings(max_examples=4 * EXAMPLES)
@given(
    kinds_of_machines,
    st.sampled_from([image for image in IMAGES if ":13.2" not in image and ":13.4" not in image]),
)
def test_a_pod_that_waits_may_use_each_node_that_gets_a_new_driver_and_fits_then(
    kinds: list[tuple[str, str]], image: str
) -> None:
    """While drivers are replaced one node after the other, it keeps the affinity of before.

    The new driver has CUDA 13.0, so that no image here depends on forward compatibility with it.
    """
    document = pod(container(ONE, ONE, image=image))
    cluster = named([of_machine(driver, product, "amd64", set()) for driver, product in kinds])
    decision, result = settled(shipped(), cluster, document)
    assume(decision.allowed and not warning_texts(decision))
    upgraded = named([of_machine("580.65.06", product, "amd64", set()) for _, product in kinds])

    for node in upgraded:
        if level_on(shipped(), node, document) == 0:
            assert reference.may_go(node, result["spec"])
