"""Commands that run no GPU code."""

from __future__ import annotations

import pytest

from rules.cuda.idle_command import is_idle


@pytest.mark.parametrize(
    "words",
    [
        ["nvidia-smi"],
        ["/usr/bin/nvidia-smi", "-L"],
        ["sleep", "infinity"],
        ["tail", "-f", "/dev/null"],
        ["bash"],
        ["sh", "-c", "nvidia-smi && sleep 3600"],
        ["/bin/bash", "-c", "--", "while true; do sleep 30; done;"],
        ["bash", "-lc", "nvidia-smi -L 2>&1 | tail; echo done > /tmp/done\nexec sleep 1d"],
        ["sh", "-c", "for i in 1 2 3; do date; nvidia-smi; sleep $i; done"],
        ["sh", "-c", "trap : TERM INT; sleep infinity & wait"],
        ["sh", "-c", "# a comment\nif [ -e /dev/nvidia0 ]; then ls -l /dev; fi"],
    ],
)
def test_a_command_that_waits_or_asks_the_driver_is_idle(words: list[str]) -> None:
    """Alone, or in a script of a shell."""
    assert is_idle(words)


@pytest.mark.parametrize(
    "words",
    [
        ["python3", "train.py"],
        ["./vectorAdd"],
        ["bash", "train.sh"],
        ["sh", "-c", "nvidia-smi; ./app"],
        ["sh", "-c", "sleep 10 && exec python3 -m vllm"],
        ["sh", "-c", "echo $(./app)"],
        ["sh", "-c", "nvidia-smi | ./app"],
        ["sh", "-c", "sleep 1; " * 200],
    ],
)
def test_any_other_program_may_have_gpu_code(words: list[str]) -> None:
    """Nor is a script that is long read."""
    assert not is_idle(words)
