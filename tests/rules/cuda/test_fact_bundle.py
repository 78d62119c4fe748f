"""Bundles of facts: what is written is read with the same values, and what is wrong has a place."""

from __future__ import annotations

import json
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules.cuda.fact_bundle import (
    SCHEMA,
    FactBundle,
    FactBundleError,
    read_all,
    read_bundle,
    write_bundle,
)
from rules.cuda.image_catalog import catalog_of
from rules.cuda.tables import DERIVED, Facts, built_in_tables
from tests.support.cpu_time import loops

TABLES = built_in_tables()
DATE = "2026-11-25"
WRITE = "; write a bundle of a folder of tables with `gpugate facts bundle FOLDER > facts.json`"


def bundle(change: Callable[[Any], object] = lambda _: None) -> bytes:
    """Return the bundle of the built-in tables, after a change of the document."""
    document = json.loads(write_bundle(FactBundle(DATE, TABLES)))
    change(document)
    return json.dumps(document).encode()


def error(data: bytes) -> str:
    """Return why a bundle is refused."""
    with pytest.raises(FactBundleError) as refused:
        read_bundle(data, TABLES)
    return str(refused.value)


def test_a_bundle_is_read_with_the_values_that_were_written() -> None:
    written = write_bundle(FactBundle(DATE, TABLES))

    assert FactBundle(DATE, TABLES) == read_bundle(written.encode(), TABLES)
    assert written == write_bundle(read_bundle(written.encode(), TABLES))


def test_a_table_is_a_line_in_the_order_of_names() -> None:
    lines = write_bundle(FactBundle(DATE, {"b": [], "a": {"x": "é"}})).splitlines()

    assert ['{"schema": 2, "date": "2026-11-25", "tables": {', '"a": {"x": "é"},', '"b": []', "}}"] == lines


def test_a_table_that_a_bundle_does_not_have_is_the_built_in_one() -> None:
    toolkits = TABLES["toolkits"][:3]
    data = json.dumps({"schema": SCHEMA, "date": DATE, "tables": {"toolkits": toolkits}}).encode()

    assert {**TABLES, "toolkits": toolkits} == read_bundle(data, TABLES).tables


def test_a_newer_schema_is_refused_in_one_line() -> None:
    data = bundle(lambda document: document.update(schema=3, new=True))

    reason = "the facts have schema 3, and this gpugate reads schemas up to 2; upgrade gpugate"
    assert f"schema: {reason}" == error(data)


SCHEMAS = {
    schema: {(place, key) for place, keys in added.items() for key in keys.split()}
    for schema, added in yaml.safe_load(
        Path(__file__).with_name("fact_schemas.yaml").read_text("utf-8")
    ).items()
}


def without(
    value: Any, removed: Container[tuple[str, str]], seen: set[tuple[str, str]], place: str = ""
) -> Any:
    """Return tables without some keys; add to seen each key that an older gpugate could refuse."""
    if isinstance(value, list):
        return [row for item in value if (row := without(item, removed, seen, f"{place}[]")) != {}]
    if not isinstance(value, dict):
        return value
    section = "." not in place and place not in ("", "sources")
    known = section or place.endswith("[]")
    if known:
        seen.update((place, key) for key in value)
    return {
        key: without(member, removed, seen, f"{place}.{key if known else '*'}" if place else key)
        for key, member in value.items()
        if (place, key) not in removed
    }


def test_a_new_table_section_or_key_of_rows_has_a_new_schema() -> None:
    seen: set[tuple[str, str]] = set()
    without(TABLES, (), seen)

    assert [*range(1, SCHEMA + 1)] == [*SCHEMAS]
    assert set() == seen - set().union(*SCHEMAS.values())


@pytest.mark.parametrize("schema", range(1, SCHEMA))
def test_a_bundle_of_an_older_schema_has_the_built_in_sections_and_no_newer_keys(schema: int) -> None:
    """The built-in ones name driver branches and sources that are newer than the bundle."""
    newer = set().union(*(SCHEMAS[number] for number in SCHEMAS if number > schema))

    def change(document: Any) -> None:
        tables = without(document["tables"], newer, set())
        tables["drivers"]["branches"] = [row for row in tables["drivers"]["branches"] if row["branch"] < 535]
        tables["drivers"]["last_branches"] = tables["drivers"]["last_branches"][:2]
        del tables["sources"][TABLES["drivers"]["first_branches"][-1]["source"]]
        document.update(schema=schema, tables=tables)

    tables = read_bundle(bundle(change), TABLES).tables
    read_all(Facts(tables.__getitem__))

    assert TABLES["drivers"]["first_branches"] == tables["drivers"]["first_branches"]
    assert not any("listed" in row for row in tables["gpus"])


def _tables(change: Callable[[Any], object]) -> Callable[[Any], object]:
    return lambda document: change(document["tables"])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", f"1:1: not JSON: Expecting value{WRITE}"),
        (b"[]", "expected an object"),
        (b"{} {}", f"1:4: not JSON: Extra data{WRITE}"),
        (b"\xff", f"not JSON: UnicodeDecodeError{WRITE}"),
        (b"[" * 100_000, f"not JSON: RecursionError{WRITE}"),
        (b'{"schema": 1, "schema": 2}', "duplicate key 'schema'"),
        (
            b'{"date": "2026-11-25"}',
            "schema: expected a number from 1 to 2, the schemas that this gpugate reads",
        ),
        (b'{"schema": 1}', "date: expected a date such as 2026-11-25"),
        (b'{"schema": 1, "date": "2026-11-25"}', "tables: expected an object"),
        (b'{"schema": 1, "Date": ""}', "unknown key 'Date'; known keys: schema, date, tables"),
        (b" " * (2 * 2**20 + 1), "larger than 2,097,152 bytes"),
    ],
)
def test_what_is_no_bundle_is_refused(data: bytes, expected: str) -> None:
    assert expected == error(data)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda tables: tables.update(gpu=[]),
            f"tables.gpu: unknown table; the tables of this release are {', '.join(sorted(TABLES))}",
        ),
        (lambda tables: tables.update(gpus={}), "tables.gpus: expected a list, got an object"),
        (
            lambda tables: tables["toolkits"][2].pop("cuda"),
            "tables.toolkits[2]: required key 'cuda' is missing",
        ),
        (
            lambda tables: tables["toolkits"][2].update(Cuda="9.2"),
            "tables.toolkits[2]: unknown key 'Cuda'; known keys: built_for, cuda, source, status",
        ),
        (
            lambda tables: tables["drivers"]["branches"][0].update(cuda=9.0),
            "tables.drivers.branches[0].cuda: expected a string, got a number",
        ),
        (
            lambda tables: tables["drivers"].update(forwards=[]),
            f"tables.drivers: unknown key 'forwards'; known keys: {', '.join(sorted(TABLES['drivers']))}",
        ),
        (
            lambda tables: tables["drivers"]["branches"][0].update(cuda="nine"),
            "tables.drivers.branches[0].cuda: 'nine' is not a version",
        ),
        (
            lambda tables: tables["drivers"]["branches"].reverse(),
            "tables.drivers.branches[1]: branch {0} has CUDA {1}, which does not follow branch {2}",
        ),
        (
            lambda tables: tables["drivers"]["branches"][3].update(cuda="13.0"),
            "tables.drivers.branches[4]: branch 410 has CUDA 10.0, which does not follow branch 396",
        ),
        (
            lambda tables: tables["drivers"]["first_branches"][4].update(chips=561),
            "tables.drivers.first_branches[4].chips: driver branch 561 is not in the table of branches",
        ),
        (
            lambda tables: tables["drivers"]["last_branches"][0].update(branch=471),
            "tables.drivers.last_branches[0].branch: driver branch 471 is not in the table of branches",
        ),
        (
            lambda tables: tables["gpus"][1].update(source="rumour"),
            "tables.gpus[1].source: unknown source 'rumour'; add it to sources",
        ),
        (
            lambda tables: tables["gpus"][1].update(status="certain"),
            "tables.gpus[1].status: expected one of verified, secondary, derived, unverified, got 'certain'",
        ),
        (
            lambda tables: tables["toolkits"][0].update(built_for="3.0 9.x"),
            "tables.toolkits[0].built_for: '9.x' is not a version",
        ),
        (
            lambda tables: tables["drivers"]["toolkits"][0].update(driver="newest"),
            "tables.drivers.toolkits[0].driver: 'newest' is not a version",
        ),
        (
            lambda tables: tables["gpus"][1].update(label="*"),
            "tables.gpus[1].label: not a regular expression: nothing to repeat at position 0",
        ),
        (
            lambda tables: tables["gpus"][1].update(label="(?i)T4"),
            "tables.gpus[1].label: not a regular expression: expected no flags such as (?i)",
        ),
    ],
)
def test_a_wrong_table_is_refused_with_the_place(change: Callable[[Any], object], expected: str) -> None:
    branches = TABLES["drivers"]["branches"][::-1]
    names = (branches[1]["branch"], branches[1]["cuda"], branches[0]["branch"])

    assert expected.format(*names) == error(bundle(_tables(change)))


@pytest.mark.parametrize(
    "slow", ["(?:a|a)*!", "(?:a|a)" * 40 + "!", "a?" * 40 + "!", "a*" * 6 + "!", "(?:a*)*"]
)
@pytest.mark.parametrize(
    ("place", "row"),
    [
        ("images[0].tag", lambda tables: tables["images"][0]),
        ("gpus[0].label", lambda tables: tables["gpus"][0]),
        ("aws_instances[0].value", lambda tables: tables["aws_instances"][0]),
        ("cloud_gpus.values.gke[0].value", lambda tables: tables["cloud_gpus"]["values"]["gke"][0]),
        ("cloud_gpus.labels[0].part", lambda tables: tables["cloud_gpus"]["labels"][0]),
        ("models.suffixes[0].parts", lambda tables: tables["models"]["suffixes"][0]),
        ("frameworks.frameworks.vllm.command", lambda tables: tables["frameworks"]["frameworks"]["vllm"]),
        ("frameworks.frameworks.vllm.image", lambda tables: tables["frameworks"]["frameworks"]["vllm"]),
        ("frameworks.frameworks.vllm.version", lambda tables: tables["frameworks"]["frameworks"]["vllm"]),
        ("frameworks.other_platforms", lambda tables: tables["frameworks"]),
    ],
)
def test_a_pattern_that_could_stop_a_gate_is_refused_with_its_place(
    place: str, row: Callable[[Any], Any], slow: str
) -> None:
    """A step for each way through the text: years for a short one."""
    refused = error(bundle(_tables(lambda tables: row(tables).update({place.rpartition(".")[2]: slow}))))

    assert refused.startswith(f"tables.{place}: matching this regular expression can take too long; ")


def test_many_patterns_take_no_longer_than_one_may() -> None:
    """Each alone would be accepted."""

    def change(tables: Any) -> None:
        tables["gpus"] += [tables["gpus"][0] | {"label": f"a*a*a*{number}"} for number in range(1000)]

    assert "can take too long" in error(bundle(_tables(change)))


def test_many_patterns_are_an_error_before_all_of_them_are_read() -> None:
    """To read a bundle of patterns alone would take seconds, in which the gate answers late."""

    def change(tables: Any) -> None:
        tables["gpus"] += [tables["gpus"][0] | {"label": "a" * 200 + str(number)} for number in range(1000)]

    assert error(bundle(_tables(change))).endswith(": more than 65,536 characters of regular expressions")


def test_a_value_that_its_reader_cannot_read_is_an_error() -> None:
    """Before facts are in force, not in a decision."""
    row = next(row for row in TABLES["images"] if "cuda" in row)
    tables = {**TABLES, "images": [row | {"cuda": "newest"}]}

    assert catalog_of in DERIVED
    read_all(Facts(TABLES.__getitem__))
    with pytest.raises(FactBundleError) as refused:
        read_all(Facts(tables.__getitem__))
    assert "tables: a value cannot be read: 'newest' in a table is not a version" == str(refused.value)


def test_a_new_name_is_no_unknown_key() -> None:
    """Sources and lists of instance types are named by their authors."""

    def change(tables: Any) -> None:
        tables["sources"]["mine"] = "https://example.com"
        tables["gpus"][0]["source"] = "mine"

    assert "mine" == read_bundle(bundle(_tables(change)), TABLES).tables["gpus"][0]["source"]


def test_a_bundle_is_read_in_a_few_hundred_thousand_steps() -> None:
    """A gate reads it while it answers."""
    assert 60 > loops(lambda: read_bundle(bundle(), TABLES))
