"""What was checked as test cases, in JUnit XML for CI systems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from rules.text.printable import printable
from webhook.cli.report.model import DENY, NOT_CHECKED, WARN, Report, Target


def junit(report: Report) -> str:
    """Return JUnit XML with a suite for each file or namespace, and a case for each object.

    A denied object is a failure; one of which something was not checked is skipped, never passed; warnings
    are its output.
    """
    suites: defaultdict[str, list[Target]] = defaultdict(list)
    for target in report.targets:
        suites[target.place.file if target.place else target.namespace].append(target)
    root = ET.Element("testsuites", _counts(report.tool, report.targets))
    del root.attrib["skipped"]
    for name, targets in suites.items():
        suite = ET.SubElement(root, "testsuite", _counts(name, targets))
        for target in targets:
            _add_object(suite, target)
    return xml(root)


def junit_of_files(report: Report) -> str:
    """Return JUnit XML with a case for each file: errors are failures, warnings are output."""
    failed = sum(bool(target.messages(DENY)) for target in report.targets)
    facts = {"name": report.tool, "tests": str(len(report.targets)), "failures": str(failed)}
    suite = ET.Element("testsuite", facts)
    for target in report.targets:
        case = ET.SubElement(
            suite, "testcase", name=str(target.place), classname=report.tool.replace(" ", ".")
        )
        for finding in target.findings:
            line = f"{finding.place}: {finding.message}"
            if finding.effect == DENY:
                ET.SubElement(case, "failure", type=finding.code, message=finding.message).text = line
            else:
                ET.SubElement(case, "system-out").text = line
    return xml(suite)


def xml(root: ET.Element) -> str:
    """Return an XML document with an element in a line, and without the characters that XML cannot have."""
    for element in root.iter():
        element.text = element.text and printable(element.text, "\n")
        for name, value in element.items():
            element.set(name, printable(value, "\n"))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True)


def _counts(name: str, targets: Sequence[Target]) -> dict[str, str]:
    failed = sum(bool(target.messages(DENY)) for target in targets)
    skipped = sum(bool(target.messages(NOT_CHECKED) and not target.messages(DENY)) for target in targets)
    counts = {"tests": len(targets), "failures": failed, "errors": 0, "skipped": skipped}
    return {"name": name} | {key: str(number) for key, number in counts.items()}


def _add_object(suite: ET.Element, target: Target) -> None:
    place = target.place or f"{target.namespace}.{target.reference['kind']}"
    case = ET.SubElement(suite, "testcase", name=target.title, classname=str(place))
    denied, unchecked = target.messages(DENY), target.messages(NOT_CHECKED)
    output = [f"warning: {message}" for message in target.messages(WARN)]
    if denied:
        failure = ET.SubElement(case, "failure", type="deny", message=denied[0].partition("\n")[0])
        failure.text = "\n".join(denied)
        output += [f"not checked: {message}" for message in unchecked]
    elif unchecked:
        ET.SubElement(case, "skipped", message="; ".join(unchecked))
    if output:
        ET.SubElement(case, "system-out").text = "\n".join(output)
