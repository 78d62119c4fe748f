"""Image, command line and variables of a container to its GPU requirements."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from rules.cuda.framework_flags import command_line, flag_requirements
from rules.cuda.image_catalog import built_in_catalog
from rules.cuda.requirements import container_facts, requirements_of
from rules.cuda.shell_script import script_index
from rules.cuda.tables import BUILT_IN
from rules.kube.json_patch import Recorder
from rules.kube.pod import Container, ContainerKind, environment
from rules.text.bounded_cache import OverBudgetError
from tests.fuzz.mutator import texts

if TYPE_CHECKING:
    from collections.abc import Iterator
from contextlib import suppress

# A word that a shell takes as it is, and the name of a program that is neither a shell's own nor a shell.
_PLAIN = re.compile(r"[\w./:=,-]+", re.ASCII)
_PROGRAM = re.compile(r"(?:vllm|python3?|sglang|text-generation-launcher|trtllm-[a-z]+|lmdeploy|-.*)")


def seeds() -> Iterator[bytes]:
    """Yield containers of each server, as lists of words and as scripts."""
    containers: list[dict[str, Any]] = [
        {
            "image": "vllm/vllm-openai:v0.8.4",
            "words": ["vllm", "serve", "m", "--dtype=bfloat16", "--quantization", "fp8"],
        },
        {
            "image": "vllm/vllm-openai:v0.8.4",
            "words": ["sh", "-c", "exec vllm serve m --kv-cache-dtype 'fp8' # x"],
        },
        {
            "image": "lmsysorg/sglang:v0.4.6",
            "words": ["python", "-m", "sglang.launch_server", "--dtype", "bfloat16"],
        },
        {
            "image": "x/tgi:1",
            "words": ["text-generation-launcher", "--quantize=$(Q)"],
            "env": [{"name": "Q", "value": "fp8"}, {"name": "DTYPE", "value": "bfloat16"}],
        },
        {
            "image": "nvcr.io/nvidia/tritonserver:24.05-py3",
            "words": ["bash", "-ec", "trtllm-build --gemm_plugin fp8\nconvert_checkpoint.py --use_fp8"],
        },
        {
            "image": "lmsysorg/sglang:v0.5.9",
            "words": [
                "bash",
                "-c",
                ': "${B:=fa3}"; if x; then A=1; fi && sglang serve --attention-backend "$B" $A',
            ],
        },
        {
            "image": "kserve/huggingfaceserver:v0.15.0-gpu",
            "words": [
                "sh",
                "-c",
                "export D=$(x); cat <<E > f\n--dtype\nE\nexec python3 -m huggingfaceserver --dtype ${D-half}",
            ],
        },
        {
            "image": "openmmlab/lmdeploy:v0.9.2",
            "words": [
                "sh",
                "-c",
                "Q=8 env P=1 lmdeploy serve x --quant-policy `x` || (lmdeploy chat --quant-policy $P)",
            ],
            "env": [{"name": "Q", "value": "fp8"}],
        },
        {
            "image": "a",
            "env": [
                {"name": "NVIDIA_REQUIRE_CUDA", "value": "cuda>=12.4"},
                {"name": "CUDA_VERSION", "value": "$(V).1"},
                {"name": "V", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
            "annotations": {
                "gpugate.dev/cuda-version.main": "12.4",
                "gpugate.dev/min-compute-capability": "8",
                "gpugate.dev/min-gpu-memory": "40Gi",
            },
        },
    ]
    yield from (json.dumps(container).encode() for container in containers)


def words() -> Iterator[str]:
    """Yield the texts of containers, and the words of their scripts."""
    for seed in seeds():
        for text in texts(json.loads(seed)):
            yield text
            yield from text.split()


def check(data: bytes) -> None:
    """Nothing else is raised; plain words require the same in a script."""
    try:
        container = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(container, dict):
        return
    image, words, entries, annotations = (
        container.get(name) for name in ("image", "words", "env", "annotations")
    )
    image = image if isinstance(image, str) else ""
    words = [word for word in words if isinstance(word, str)] if isinstance(words, list) else []
    entries = entries if isinstance(entries, list) else []
    with suppress(OverBudgetError):  # it would be denied
        env = environment(entries)
        raw = {"name": "main", "image": image, "args": words, "env": entries}
        main = Container(raw, (), ContainerKind.REGULAR, Recorder(raw))
        written = annotations.items() if isinstance(annotations, dict) else ()
        said = {name: text for name, text in written if isinstance(text, str)}
        requirements_of(container_facts(main, said), built_in_catalog())
        if (
            all(map(_PLAIN.fullmatch, words))
            and all(map(_PROGRAM.fullmatch, words[:1]))
            and not script_index(words)
            and len(words) < 200  # within the budget of steps, as a script too
        ):
            script = " ".join(words) + "\n"
            in_words, in_script = (
                flag_requirements(BUILT_IN, image, command_line(BUILT_IN, given, env.known, env.unknown))
                for given in (words, ["sh", "-c", script])
            )
            assert {need.compute for need in in_words} == {need.compute for need in in_script}
