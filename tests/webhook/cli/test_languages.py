"""`--lang` and GPUGATE_LANG: headings and summaries of every command in English and Chinese."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tests.support.paths import ROOT
from webhook.cli import main

PODS = f"-f {ROOT}/docs/compatibility/pods.yaml"
NODES = f"--nodes {ROOT}/docs/compatibility/nodes.yaml"
RULES = f"{ROOT}/docs/tutorial/npu"

WORDS = [
    (f"preview {PODS} {NODES}", "2 objects: 1 patched, 1 denied", "2 个对象：1 个已修改，1 个拒绝"),
    (f"explain {PODS} {NODES}", "✗ denied", "✗ 拒绝"),
    (f"explain {PODS} {NODES}", "rules not applicable (use --all", "条规则不适用（使用 --all"),
    (f"audit {PODS} {NODES}", "2 pods: 1 would be denied now", "2 个 Pod：其中 1 个现在会被拒绝"),
    (f"audit {PODS} {NODES}", "ACTION  NAMESPACE", "动作  命名空间"),
    (f"rules {RULES}", "enabled", "已启用"),
    (f"rules {RULES}", "NAME", "名称"),
    (f"lint {RULES}", "4 valid rules, 0 errors, 0 warnings", "4 条有效规则，0 个错误，0 个警告"),
    (f"test {RULES}", "6 cases in 1 file: 6 passed, 0 failed", "1 个文件中的 6 个用例：6 个通过，0 个失败"),
    (f"nodes {NODES}", "PRODUCT", "产品"),
    (f"matrix {NODES}", "✓ compatible", "✓ 兼容"),
]


def _output(command: str, language: str) -> str:
    return CliRunner().invoke(main, command.split(), env={"GPUGATE_LANG": language}).output


@pytest.mark.parametrize(("command", "english", "chinese"), WORDS)
def test_every_command_has_its_words_in_both_languages(command: str, english: str, chinese: str) -> None:
    """By the variable; the option takes precedence over it."""
    outputs = [
        _output(command, "zh"),
        _output(f"{command} --lang zh", "en"),
        _output(f"{command} --lang en", "zh"),
    ]

    assert [(True, False), (True, False), (False, True)] == [
        (chinese in output, english in output) for output in outputs
    ]
