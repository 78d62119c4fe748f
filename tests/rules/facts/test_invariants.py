"""What holds between the tables of facts; and that each invariant notices a wrong table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.specifiers import SpecifierSet

from rules.cuda.image_catalog import ImageFacts, built_in_catalog
from rules.cuda.tables import GENERATED, STORED, Status, read_table
from rules.cuda.versions import CudaVersion, DriverVersion
from rules.nodes.runtime_modes import mode_of, toolkit_version

Tables = dict[str, Any]

NAMES: Final = sorted(path.stem for path in Path(STORED).parent.glob("*.yaml"))
TABLES: Final[Tables] = {name: read_table(name) for name in NAMES}
# With the generated rows of the same form.
TABLES["toolkits"] += read_table("toolkit_wheels")
TABLES["drivers"]["branches"] += read_table("driver_redist")
# From this branch on, users ask until when a branch is supported; facts of older ones are hard to find.
FIRST_WITH_LIFECYCLE: Final = 535
KINDS: Final = {"lts", "production", "new-feature"}
# A version of an inference server that is newer than any that was read.
FUTURE: Final = "999.0"


def cuda(text: str) -> CudaVersion:
    """Return a valid CUDA version."""
    version = CudaVersion.parse(text)
    assert version is not None
    return version


def rows_with_source(table: Any) -> Iterator[dict[str, Any]]:
    """Yield every mapping with a source or a status, at any depth."""
    if isinstance(table, dict):
        if "source" in table or "status" in table:
            yield table
        for member in table.values():
            yield from rows_with_source(member)
    elif isinstance(table, list):
        for item in table:
            yield from rows_with_source(item)


def branches(tables: Tables) -> dict[int, CudaVersion]:
    """Return the CUDA version of each driver branch."""
    return {row["branch"]: cuda(row["cuda"]) for row in tables["drivers"]["branches"]}


def each_toolkit_has_a_driver_branch(tables: Tables) -> Iterator[str]:
    """Yield each CUDA of a toolkit that no driver branch has."""
    known = set(branches(tables).values())
    for row in (*tables["toolkits"], *tables["drivers"]["toolkits"]):
        if cuda(row["cuda"]) not in known:
            yield f"CUDA {row['cuda']} of a toolkit has no driver branch"


def each_driver_branch_has_a_toolkit(tables: Tables) -> Iterator[str]:
    """Yield each CUDA of a driver that no row of toolkits has. There is no toolkit 12.7."""
    known = {cuda(row["cuda"]) for row in tables["toolkits"]} | {CudaVersion(12, 7)}
    for branch, version in branches(tables).items():
        if version not in known:
            yield f"CUDA {version} of driver branch {branch} has no toolkit"


def each_toolkit_comes_with_a_driver_of_its_branch(tables: Tables) -> Iterator[str]:
    """Yield each driver of a toolkit whose branch is unknown or has another CUDA."""
    known = branches(tables)
    for row in tables["drivers"]["toolkits"]:
        branch = int(row["driver"].partition(".")[0])
        if known.get(branch) != cuda(row["cuda"]):
            yield f"driver {row['driver']} of CUDA {row['cuda']} is of a branch with CUDA {known.get(branch)}"


def branches_rise_with_cuda(tables: Tables) -> Iterator[str]:
    """Yield each driver branch that is out of order, or has an older CUDA than the branch before it."""
    rows = [(row["branch"], cuda(row["cuda"])) for row in tables["drivers"]["branches"]]
    for (branch, version), (later, other) in pairwise(rows):
        if later <= branch:
            yield f"driver branch {later} follows {branch}"
        if other < version:
            yield f"driver branch {later} has CUDA {other}, older than that of {branch}"


def toolkits_are_in_order(tables: Tables) -> Iterator[str]:
    """Yield each toolkit that does not follow an older one."""
    for before, after in pairwise(tables["toolkits"]):
        if cuda(after["cuda"]) <= cuda(before["cuda"]):
            yield f"CUDA {after['cuda']} follows {before['cuda']}"


def first_and_last_branches_are_known(tables: Tables) -> Iterator[str]:
    """Yield each first or last branch that is no driver branch, or whose architecture no GPU has."""
    known = branches(tables)
    architectures = {row["arch"] for row in tables["gpus"]}
    gpus = {(row["arch"], row.get("compute")) for row in tables["gpus"]}
    for row in tables["drivers"]["first_branches"]:
        if {row["branch"], row.get("chips", row["branch"])} - set(known):
            yield f"the first branch {row['branch']} of {row['compute']} is unknown"
        if (row["arch"], row["compute"]) not in gpus:
            yield f"no {row['arch']} GPU has compute capability {row['compute']}"
    for row in tables["drivers"]["last_branches"]:
        if row["branch"] not in known:
            yield f"the last branch {row['branch']} of {row['arch']} is unknown"
        if row["arch"] not in architectures:
            yield f"no GPU has the architecture {row['arch']}"


def drivers_that_name_a_gpu_are_in_order(tables: Tables) -> Iterator[str]:
    """Yield each GPU that is listed by drivers in another order, or by one that does not support its chip."""
    chips = {row["compute"]: row.get("chips", row["branch"]) for row in tables["drivers"]["first_branches"]}
    for row in tables["gpus"]:
        drivers = [DriverVersion.parse(word) for word in row.get("listed", "").split()]
        branches = [driver.branch if driver else 0 for driver in drivers]
        if branches != sorted(set(branches)):
            yield f"the drivers that list {row['label']} are not in order"
        if branches and branches[0] < chips[row["compute"]]:
            yield f"driver branch {branches[0]} lists {row['label']} and does not support it"


def forward_rows_name_known_branches(tables: Tables) -> Iterator[str]:
    """Yield each branch of a list for cuda-compat that is unknown or not older than its CUDA."""
    known, drivers = branches(tables), tables["drivers"]
    for key in ("forward", "forward_once_listed"):
        for row in drivers[key]:
            for branch in row["branches"]:
                if branch not in known:
                    yield f"{key} of CUDA {row['cuda']} names the unknown branch {branch}"
                elif known[branch] > cuda(row["cuda"]):
                    yield f"{key} of CUDA {row['cuda']} names branch {branch}, which has CUDA {known[branch]}"
    for row in drivers["forward"]:
        for branch in set(row["branches"]) - set(drivers["forward_listed"]):
            yield f"forward of CUDA {row['cuda']} names branch {branch}, which forward_listed lacks"


def forward_lists_are_part_of_their_history(tables: Tables) -> Iterator[str]:
    """Yield each list for cuda-compat that names a branch which its history lacks."""
    drivers = tables["drivers"]
    once = {row["cuda"]: set(row["branches"]) for row in drivers["forward_once_listed"]}
    for row in drivers["forward"]:
        for branch in set(row["branches"]) - once.get(row["cuda"], set()):
            yield f"forward_once_listed of CUDA {row['cuda']} lacks branch {branch}"


def each_source_resolves(tables: Tables) -> Iterator[str]:
    """Yield each row with an unknown status, or whose source is neither a key nor an address."""
    for name, table in tables.items():
        for row in rows_with_source(table):
            source = row.get("source", "none")
            if source not in tables["sources"] and not source.startswith("https://"):
                yield f"{name}: unknown source {source!r}"
            if "status" in row and row["status"] not in set(Status):
                yield f"{name}: unknown status {row['status']!r}"


def rows_of_drivers_and_toolkits_are_complete(tables: Tables) -> Iterator[str]:
    """Yield each row of drivers and toolkits without source or status."""
    drivers = tables["drivers"]
    lists = {"toolkits": tables["toolkits"]}
    lists |= {f"drivers: {key}": rows for key, rows in drivers.items() if key != "forward_listed"}
    for name, rows in lists.items():
        for row in rows:
            for key in {"source", "status"} - set(row):
                yield f"{name}: a row has no {key}: {row}"


def each_newer_branch_has_a_lifecycle(tables: Tables) -> Iterator[str]:
    """Yield each newer branch without kind, or without end unless it is a new feature branch."""
    rows = {row["branch"]: row for row in tables["drivers"]["lifecycle"]}
    for branch in branches(tables):
        row = rows.get(branch)
        if row is None:
            if branch >= FIRST_WITH_LIFECYCLE:
                yield f"driver branch {branch} has no lifecycle"
        elif row["kind"] != "new-feature" and "end" not in row:
            yield f"driver branch {branch} has no end of support"


def lifecycles_are_of_known_branches(tables: Tables) -> Iterator[str]:
    """Yield each lifecycle of an unknown branch, of an unknown kind, or whose end is no month."""
    known = branches(tables)
    for row in tables["drivers"]["lifecycle"]:
        year, _, month = row.get("end", "2000-01").partition("-")
        if row["branch"] not in known:
            yield f"lifecycle of the unknown branch {row['branch']}"
        if row["kind"] not in KINDS:
            yield f"driver branch {row['branch']} is of the unknown kind {row['kind']!r}"
        if not (len(year) == 4 and month in {f"{number:02}" for number in range(1, 13)}):
            yield f"the end of driver branch {row['branch']} is no month: {row['end']!r}"


def newest_rows_are_open(tables: Tables) -> Iterator[str]:
    """Yield each requirement of a flag that holds for the newest version read, but for no newer one."""
    for key, framework in tables["frameworks"]["frameworks"].items():
        newest = framework.get("newest")
        for rule in framework.get("rules", ()):
            for value in {value for row in rule["rows"] for value in row.get("values", ())}:
                rows = [row.get("versions", "") for row in rule["rows"] if value in row.get("values", ())]
                if newest and covered(rows, newest) and not covered(rows, FUTURE):
                    names = ", ".join((*rule.get("flags", ()), *rule.get("env", ())))
                    yield f"{key}: {value!r} of {names} has a closed upper bound at version {newest}"


def generated_rows_are_of_locked_documents(tables: Tables) -> Iterator[str]:
    """Yield each document of generated rows that the lock file does not name, and the other way round."""
    locked = {(document["table"], document["document"]) for document in tables["lock"]["documents"]}
    read = {(name, row["document"]) for name in GENERATED for row in tables.get(name, ())}
    for name, document in sorted(read - locked):
        yield f"{name}: {document} is not in the lock file"
    for name, document in sorted(locked - read):
        yield f"{name}: no row is of {document}, which is in the lock file"


def covered(specifiers: list[str], version: str) -> bool:
    """Return whether one of these specifiers (PEP 440) contains a version."""
    return any(SpecifierSet(specifier).contains(version, prereleases=True) for specifier in specifiers)


def test_the_first_line_of_a_table_says_whether_it_is_by_hand_or_generated() -> None:
    """`gpugate facts update` writes the generated ones and the lock file, and no other."""
    first = {path.stem: path.read_text("utf-8") for path in Path(STORED).parent.glob("*.yaml")}
    generated = {name for name, text in first.items() if text.startswith("# Generated by ")}

    assert {name for name in GENERATED if name in first} == generated
    assert [] == [
        name for name in {*first} - generated - {"lock"} if not first[name].startswith("# By hand.")
    ]


INVARIANTS: Final[tuple[Callable[[Tables], Iterator[str]], ...]] = (
    each_toolkit_has_a_driver_branch,
    each_driver_branch_has_a_toolkit,
    each_toolkit_comes_with_a_driver_of_its_branch,
    branches_rise_with_cuda,
    toolkits_are_in_order,
    first_and_last_branches_are_known,
    drivers_that_name_a_gpu_are_in_order,
    forward_rows_name_known_branches,
    forward_lists_are_part_of_their_history,
    each_source_resolves,
    rows_of_drivers_and_toolkits_are_complete,
    each_newer_branch_has_a_lifecycle,
    lifecycles_are_of_known_branches,
    newest_rows_are_open,
    generated_rows_are_of_locked_documents,
)


@pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda function: function.__name__)
def test_the_tables_agree(invariant: Callable[[Tables], Iterator[str]]) -> None:
    """Nothing contradicts an invariant."""
    assert list(invariant(TABLES)) == []


def row_of(rows: list[dict[str, Any]], **facts: Any) -> dict[str, Any]:
    """Return the first row with these facts."""
    return next(row for row in rows if facts.items() <= row.items())


def newest_branch_removed(tables: Tables) -> None:
    """Leave CUDA 13.5 without a driver."""
    tables["drivers"]["branches"] = [row for row in tables["drivers"]["branches"] if row["branch"] != 620]


def branches_swapped(tables: Tables) -> None:
    """Write branch 620 before 615."""
    rows = tables["drivers"]["branches"]
    rows[-2], rows[-1] = rows[-1], rows[-2]


def older_cuda(tables: Tables) -> None:
    """Give the newest branch the CUDA of an older one."""
    row_of(tables["drivers"]["branches"], branch=620)["cuda"] = "12.9"


def newer_driver_than_toolkits(tables: Tables) -> None:
    """Add a branch whose CUDA is no toolkit."""
    tables["drivers"]["branches"].append(
        {"branch": 625, "cuda": "13.6", "source": "none", "status": "unverified"}
    )


def driver_of_another_branch(tables: Tables) -> None:
    """Give a toolkit a driver of the branch before."""
    row_of(tables["drivers"]["toolkits"], cuda="13.5")["driver"] = "615.71.09"


def toolkits_swapped(tables: Tables) -> None:
    """Write CUDA 13.5 before 13.4."""
    rows = tables["toolkits"]
    rows[-2], rows[-1] = rows[-1], rows[-2]


def unknown_first_branch(tables: Tables) -> None:
    """Name a first branch that is in no table of branches."""
    tables["drivers"]["first_branches"][0]["branch"] = 451


def listed_too_early(tables: Tables) -> None:
    """List a GPU in a driver that does not know its chip."""
    row = next(row for row in tables["gpus"] if row.get("listed"))
    row["listed"] = "470.42.01"


def unknown_last_branch(tables: Tables) -> None:
    """Name a last branch that does not exist."""
    tables["drivers"]["last_branches"][0]["branch"] = 471


def unknown_architecture(tables: Tables) -> None:
    """Misspell an architecture."""
    tables["drivers"]["last_branches"][0]["arch"] = "keppler"


def unknown_forward_branch(tables: Tables) -> None:
    """List a branch for cuda-compat that does not exist."""
    tables["drivers"]["forward"][0]["branches"].append(571)


def newer_forward_branch(tables: Tables) -> None:
    """List a branch for cuda-compat of a CUDA that is older than its own."""
    row_of(tables["drivers"]["forward"], cuda="12.9")["branches"].append(610)


def forward_without_history(tables: Tables) -> None:
    """Take a listed branch out of the history."""
    row_of(tables["drivers"]["forward_once_listed"], cuda="13.4")["branches"].remove(570)


def missing_source(tables: Tables) -> None:
    """Remove a source that rows name."""
    del tables["sources"]["driver-lifecycle"]


def row_without_source(tables: Tables) -> None:
    """Write a row without its source."""
    del row_of(tables["drivers"]["branches"], branch=620)["source"]


def unknown_status(tables: Tables) -> None:
    """Misspell a status."""
    row_of(tables["toolkits"], cuda="13.5")["status"] = "verifed"


def branch_without_lifecycle(tables: Tables) -> None:
    """Leave out until when the newest branch is supported."""
    rows = tables["drivers"]["lifecycle"]
    rows.remove(row_of(rows, branch=620))


def production_branch_without_end(tables: Tables) -> None:
    """Leave out the end of a production branch."""
    del row_of(tables["drivers"]["lifecycle"], branch=595)["end"]


def row_of_another_document(tables: Tables) -> None:
    """Write a generated row by hand."""
    tables["toolkit_modes"][0]["document"] = "v1.99.0 auto.go"


def unknown_kind(tables: Tables) -> None:
    """Misspell the kind of a branch."""
    row_of(tables["drivers"]["lifecycle"], branch=580)["kind"] = "LTS"


def end_that_is_no_month(tables: Tables) -> None:
    """Write an end in words."""
    row_of(tables["drivers"]["lifecycle"], branch=580)["end"] = "June 2028"


def closed_bound(tables: Tables) -> None:
    """End the requirement of a flag with the newest version that was read."""
    framework = tables["frameworks"]["frameworks"]["vllm"]
    rule = next(rule for rule in framework["rules"] if "--dtype" in rule["flags"])
    row_of(rule["rows"], values=["bfloat16"])["versions"] = f"<={framework['newest']}"


@pytest.mark.parametrize(
    ("breakage", "message"),
    [
        (newest_branch_removed, "CUDA 13.5 of a toolkit has no driver branch"),
        (branches_swapped, "driver branch 615 follows 620"),
        (older_cuda, "driver branch 620 has CUDA 12.9, older than that of 615"),
        (newer_driver_than_toolkits, "CUDA 13.6 of driver branch 625 has no toolkit"),
        (
            driver_of_another_branch,
            "driver 615.71.09 of CUDA 13.5 is of a branch with CUDA 13.4",
        ),
        (toolkits_swapped, "CUDA 13.4 follows 13.5"),
        (unknown_first_branch, "the first branch 451 of 8.0 is unknown"),
        (listed_too_early, "driver branch 470 lists L4 and does not support it"),
        (unknown_last_branch, "the last branch 471 of kepler is unknown"),
        (unknown_architecture, "no GPU has the architecture keppler"),
        (unknown_forward_branch, "forward of CUDA 13.4 names the unknown branch 571"),
        (newer_forward_branch, "forward of CUDA 12.9 names branch 610, which has CUDA 13.3"),
        (forward_without_history, "forward_once_listed of CUDA 13.4 lacks branch 570"),
        (missing_source, "drivers: unknown source 'driver-lifecycle'"),
        (row_without_source, "drivers: branches: a row has no source: "),
        (unknown_status, "toolkits: unknown status 'verifed'"),
        (branch_without_lifecycle, "driver branch 620 has no lifecycle"),
        (production_branch_without_end, "driver branch 595 has no end of support"),
        (row_of_another_document, "toolkit_modes: v1.99.0 auto.go is not in the lock file"),
        (row_of_another_document, "toolkit_modes: no row is of v1.18.2 auto.go, which is in the lock file"),
        (unknown_kind, "driver branch 580 is of the unknown kind 'LTS'"),
        (end_that_is_no_month, "the end of driver branch 580 is no month: 'June 2028'"),
        (
            closed_bound,
            "vllm: 'bfloat16' of --dtype has a closed upper bound at version 0.33.0",
        ),
    ],
)
def test_a_wrong_table_is_noticed(breakage: Callable[[Tables], None], message: str) -> None:
    """Each breakage of a copy of the tables has its message."""
    tables = deepcopy(TABLES)
    breakage(tables)

    noticed = [problem for invariant in INVARIANTS for problem in invariant(tables)]

    assert [problem for problem in noticed if problem.startswith(message)] != []


def other_cuda(rows: list[dict[str, Any]]) -> list[str]:
    """Return the images whose CUDA or base is certain by images.yaml, but another one, or older than that."""
    return [row["image"] for row in rows if contradicts(built_in_catalog().find(row["image"]), row)]


def contradicts(facts: ImageFacts, row: dict[str, Any]) -> bool:
    """Return whether certain facts are other ones than those of a generated row."""
    version, base = (cuda(row[key]) if key in row else None for key in ("cuda", "base"))
    other_base = base and facts.base not in (None, base)
    older = version and facts.cuda and (facts.cuda != version if facts.exact else facts.cuda > version)
    return facts.certain and bool(older or other_base)


def test_images_have_the_cuda_and_base_that_generated_tables_have() -> None:
    image = "nvcr.io/nvidia/tritonserver:26.06-vllm-python-py3"
    based = "ghcr.io/huggingface/text-generation-inference:3.3.7"
    tables = [read_table(name) for name in GENERATED if name.endswith("_images")]

    assert [] == other_cuda([*chain.from_iterable(tables), {"image": image, "cuda": "13.3"}])
    assert [image, based] == other_cuda(
        [{"image": image, "cuda": "13.2"}, {"image": based, "base": "12.8.1"}]
    )


def test_a_container_toolkit_takes_the_mode_that_the_generated_table_has() -> None:
    """`jit-cdi` is CDI; a row with another mode is noticed."""
    wrong = {"toolkit": "1.17.9", "mode": "jit-cdi"}

    assert [wrong] == [
        row
        for row in (*read_table("toolkit_modes"), wrong)
        if mode_of("auto", toolkit_version(row["toolkit"])) != mode_of(row["mode"], ())
    ]
