"""Fixes that are written into a text: one value changes, and every other byte stays."""

from __future__ import annotations

import json
from textwrap import dedent
from typing import Any

import pytest
from yaml import ScalarNode

from rules import Decision
from rules.text.yaml_document import Document, read
from webhook.cli.inputs.fixes import NotFixable, fixed
from webhook.cli.inputs.objects import ObjectSource, subject_of
from webhook.cli.inputs.session import Session

SESSION = Session()
UNITS = """\
# first
kind: Pod   # a pod
apiVersion: v1
metadata: {name: share}
spec:
  containers:
    - image: x
      name: c
      resources:
        limits:
          tencent.com/vcuda-core: 30
          tencent.com/vcuda-memory: 8Gi   # of 16
"""
PARALLEL = """\
apiVersion: v1
kind: Pod
metadata: {name: tp}
spec:
  containers:
    - name: c
      image: vllm/vllm-openai:v0.8.5
      ARGS
      resources: {limits: {nvidia.com/gpu: 2}}
"""


def _fixed(text: str) -> str:
    """Return a text after the first fix of its first object that has findings with edits."""
    for document in read(text, "pods.yaml"):
        assert isinstance(document, Document)
        for place, value in document.objects():
            decision = _decide(value)
            for finding in (*decision.violations, *decision.notices):
                if finding.edits:
                    return fixed(text, document, place, finding, decision, _decide)
    raise AssertionError("no finding has a fix")


def _decide(value: Any) -> Decision:
    source = ObjectSource(Document(value, "pods.yaml", (), (), lambda: ScalarNode("", "")))
    return SESSION.decide(subject_of(source, value, "default", SESSION.policy.workloads).request)


def _parallel(args: str) -> str:
    return PARALLEL.replace("ARGS\n", dedent(args).strip("\n").replace("\n", "\n      ") + "\n")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_a_size_becomes_a_number_of_units_and_no_other_byte_changes(quote: str, newline: str) -> None:
    """In quotes, if the size is in quotes."""
    text = UNITS.replace("8Gi", f"{quote}8Gi{quote}").replace("\n", newline)

    assert text.replace("8Gi", "32") == _fixed(text)


def test_a_size_becomes_a_number_in_limit_and_request() -> None:
    """Both are written, and must be equal."""
    text = f"{UNITS}        requests:\n          tencent.com/vcuda-memory: 8Gi\n"

    assert text.replace("8Gi", "32") == _fixed(text)


def test_a_request_becomes_the_limit_that_it_must_equal() -> None:
    """A request of an extended resource is its limit."""
    text = UNITS.replace("8Gi", "32") + "        requests: {tencent.com/vcuda-core: 20}\n"

    assert text.replace("20}", "30}") == _fixed(text)


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (
            "requests: {nvidia.com/gpu: 1} # c",
            "limits: {nvidia.com/gpu: 1}\nrequests: {nvidia.com/gpu: 1} # c",
        ),
        (
            "limits:\n  cpu: 1\nrequests:\n  nvidia.com/gpu: 1",
            "limits:\n  nvidia.com/gpu: 1\n  cpu: 1\nrequests:\n  nvidia.com/gpu: 1",
        ),
        (
            "requests: {nvidia.com/gpu: 1}\nlimits: {}",
            "requests: {nvidia.com/gpu: 1}\nlimits: {nvidia.com/gpu: 1}",
        ),
        (
            "{requests: {nvidia.com/gpu: 1}, limits: {cpu: 1}}",
            "{requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 1, cpu: 1}}",
        ),
    ],
)
def test_a_request_without_a_limit_gets_it(resources: str, expected: str) -> None:
    """In the style of what is around it."""
    begin, indent = UNITS.partition("        limits")[0], " " * 8

    def text(lines: str) -> str:
        return begin + "".join(f"{indent}{line}\n" for line in lines.splitlines())

    assert text(expected) == _fixed(text(resources))


@pytest.mark.parametrize(
    "args",
    [
        "args: [serve, x, --tensor-parallel-size=4, --port, '4']",
        'args: [serve, x, -tp, "4", --port, "4"]',
        "command: [vllm, serve, x]\nargs:\n- --tensor-parallel-size # GPUs\n- '4'\n- --port=4",
        "command:\n- bash\n- -c\n- |\n  # four\n  exec vllm serve x \\\n    --tensor-parallel-size 4 --p 4",
        'command: [sh, -c, "vllm serve x -tp 4"]',
    ],
)
def test_a_flag_gets_the_number_of_requested_gpus(args: str) -> None:
    """Also in a script; a flag with another meaning keeps its value."""
    lines = _parallel(args)
    before, after = lines.splitlines(), _fixed(lines).splitlines()
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]

    assert 1 == len(changed)
    assert _value(changed[0][0], "4") == _value(changed[0][1], "2")


def _value(line: str, number: str) -> str:
    for flag in ("--tensor-parallel-size=", "--tensor-parallel-size ", '-tp, "', "-tp ", "- '"):
        line = line.replace(f"{flag}{number}", flag)
    return line


def test_a_value_that_an_alias_uses_elsewhere_is_left() -> None:
    """Its change would be one of another object, too."""
    text = UNITS.replace("limits:", "limits: &share").replace("8Gi   # of 16", "8Gi")
    text += "    - {name: other, image: x, resources: {limits: *share}}\n"

    with pytest.raises(NotFixable, match="an alias or a merge uses the value at another place, too"):
        _fixed(text)


def test_a_merged_value_is_left() -> None:
    """It is written at another place."""
    text = UNITS.replace("8Gi", "32").replace("        limits:\n", "        limits: &share\n")
    text = f"x: &memory {{tencent.com/vcuda-memory: 8Gi}}\n{text}".replace(
        "          tencent.com/vcuda-memory: 32", "          <<: *memory"
    )

    with pytest.raises(NotFixable, match="the value is not written there"):
        _fixed(text)


def test_json_stays_json() -> None:
    """A text in it is quoted, and a number is not."""
    limits = {"tencent.com/vcuda-core": 30, "tencent.com/vcuda-memory": "8Gi"}
    container = {"name": "c", "image": "x", "resources": {"limits": limits}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}
    text = json.dumps(pod, indent=3)

    assert text.replace('"8Gi"', '"32"') == _fixed(text)


def test_an_item_of_a_list_in_a_later_document_is_fixed_there() -> None:
    """The same value of another object stays."""
    other = UNITS.replace("vcuda-memory", "other")
    item = UNITS.partition("\n")[2].replace("\n", "\n    ").rstrip(" ")
    text = f"{other}---\nkind: List\napiVersion: v1\nitems:\n  - {item}"

    begin, size, end = text.rpartition("8Gi")
    assert size
    assert f"{begin}32{end}" == _fixed(text)


def test_a_fix_that_leads_to_another_finding_is_left() -> None:
    """As one after which the finding remains."""
    (document,) = read(UNITS, "pods.yaml")
    assert isinstance(document, Document)
    decision = _decide(document.value)
    (finding,) = decision.violations
    other = decision._replace(violations=(finding._replace(rule="other"),))

    with pytest.raises(NotFixable, match="the finding would remain"):
        fixed(UNITS, document, (), finding, decision, lambda _: decision)
    with pytest.raises(NotFixable, match="it leads to: container 'c', spec"):
        fixed(UNITS, document, (), finding, decision, lambda _: other)


def test_a_number_of_gpus_that_models_are_not_split_among_is_no_fix() -> None:
    """The flag would need another request, too."""
    text = _parallel("args: [serve, x, --tensor-parallel-size=4]").replace("gpu: 2", "gpu: 3")

    with pytest.raises(AssertionError, match="no finding has a fix"):
        _fixed(text)
