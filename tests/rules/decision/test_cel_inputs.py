"""The inputs of CEL expressions from a container and its pod."""

from __future__ import annotations

from rules.decision.cel_inputs import ContainerInputs
from rules.kube.pod import Pod
from tests.support.builders import container, pod


def test_an_input_is_read_once_for_all_expressions_of_a_container() -> None:
    """Several validations read the variables of the same container."""
    document = pod(container({"a.com/x": "1"}, env=[{"name": "A", "value": "1"}]))
    read = Pod(document, document)
    inputs = ContainerInputs(read.containers[0], read, "team-a")

    assert {"A": "1"} == dict(inputs["container.env"].items())
    assert inputs["container.env"] is inputs["container.env"]


def test_a_quantity_is_given_as_written() -> None:
    """So that equal quantities share a cached result only if they are written alike."""
    document = pod(container({"a.com/x": "1"}))
    read = Pod(document, document)
    inputs, found = ContainerInputs(read.containers[0], read, "team-a"), []
    for quantity in ("1k", 3):
        inputs.set_value(quantity)
        found.append(inputs["value"])

    assert ["1k", 3] == found
