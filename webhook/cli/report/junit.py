"""Objects as test cases, in JUnit XML for CI systems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple
from xml.etree import ElementTree as ET

from rules.text.printable import printable


class Case(NamedTuple):
    """An object. suite: its file or namespace. place: file and line, or the namespace.

    denied: why it is denied; empty if it is admitted. not_checked: what nothing is known of.
    """

    suite: str
    place: str
    name: str
    denied: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()


def junit(cases: Iterable[Case], tool: str) -> str:
    """Return JUnit XML with a suite for each file or namespace.

    A denied object is a failure; one of which something was not checked is skipped, never passed; warnings
    are its output.
    """
    suites: defaultdict[str, list[Case]] = defaultdict(list)
    for each in cases:
        suites[each.suite].append(each)
    root = ET.Element("testsuites", _counts([case for those in suites.values() for case in those], tool))
    del root.attrib["skipped"]
    for suite, those in suites.items():
        element = ET.SubElement(root, "testsuite", _counts(those, suite))
        for case in those:
            _add(element, case)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True)


def _counts(cases: list[Case], name: str) -> dict[str, str]:
    skipped = sum(bool(case.not_checked and not case.denied) for case in cases)
    numbers = {"tests": len(cases), "failures": sum(bool(case.denied) for case in cases), "errors": 0}
    counts = numbers | {"skipped": skipped}
    return {"name": _text(name)} | {key: str(number) for key, number in counts.items()}


def _add(suite: ET.Element, case: Case) -> None:
    element = ET.SubElement(suite, "testcase", name=_text(case.name), classname=_text(case.place))
    output = [f"warning: {each}" for each in case.warned]
    if case.denied:
        first, *_ = case.denied[0].splitlines() or [""]
        failure = ET.SubElement(element, "failure", type="deny", message=_text(first))
        failure.text = _text("\n".join(case.denied))
        output += [f"not checked: {each}" for each in case.not_checked]
    elif case.not_checked:
        ET.SubElement(element, "skipped", message=_text("; ".join(case.not_checked)))
    if output:
        ET.SubElement(element, "system-out").text = _text("\n".join(output))


def _text(text: str) -> str:
    """Return a text without the characters that XML cannot have."""
    return printable(text, "\n")
