"""`--lang` and GPUGATE_LANG: headings and summaries of every command in English and Chinese."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.nvml import failing, library, recorded
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

# Words of nearly every English sentence, outside names such as `nvidia-of-x`.
ENGLISH = re.compile(r"(?<![\w-])(?:the|is|are|was|has|have|not|no|of|with|in|to|by|at|and|for|its)(?![\w-])")


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


def test_every_text_of_the_code_has_both_languages() -> None:
    """Except words that are the same in both, such as CUDA."""
    calls = [
        (path.name, call)
        for package in ("rules", "webhook")
        for path in (ROOT / package).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Text"
    ]
    literals = (ast.Constant, ast.JoinedStr)
    one = [
        (name, ast.unparse(call))
        for name, call in calls
        if len(call.args) == 1 and isinstance(call.args[0], literals)
    ]

    assert len(calls) > 100
    assert [] == [text for text in one if re.search(r"[a-z]{3,} [a-z]{2,}", text[1])]


def _chinese(*command: str | Path) -> str:
    """Return what a command prints on stdout and stderr in Chinese."""
    environment = {"NODE_NAME": None, "KUBECONFIG": "/dev/null"}
    return CliRunner().invoke(main, [*map(str, command), "--lang", "zh"], env=environment).output


def test_certs_prints_chinese(tmp_path: Path) -> None:
    """Tables, problems and next steps; the roles in JSON stay."""
    at = ("--directory", tmp_path / "new")
    empty, made = _chinese("certs", "show", *at), _chinese("certs", "init", *at, "--name", "localhost")
    table = _chinese("certs", "show", *at)
    document = json.loads(_chinese("certs", "show", *at, "-o", "json"))
    begun, hurried = _chinese("certs", "rotate", "--ca", *at), _chinese("certs", "rotate", *at)

    assert empty.startswith("错误: ")
    assert empty.endswith("new 为空；下一步：gpugate certs init\n")
    assert "有效期至 20" in made
    assert ["证书", "主体", "名称", "生效日期", "失效日期", "剩余天数", "SHA-256", "受信任于"] == (
        table.splitlines()[0].split()
    )
    assert ["CA", "serving"] == [each["role"] for each in document["certificates"]]
    assert "新旧 CA 均受信任" in begun
    assert "CA 轮换正在进行" in hurried
    assert [] == ENGLISH.findall(f"{empty}{made}{table}{begun}{hurried}")


def test_node_check_prints_chinese() -> None:
    """The codes in JSON stay."""
    with library("h100"):
        text, document = _chinese("node", "check"), json.loads(_chinese("node", "check", "-o", "json"))

    assert text.startswith("驱动 535.129.03，CUDA 12.2\n")
    assert "11.8 至 12.2  是" in text
    assert "通过次要版本兼容性" in text
    assert "数据类型     float16, bfloat16, fp8\nMPS          可以共享这些 GPU\n" in text
    assert [] == ENGLISH.findall(text)
    assert "minor version compatibility" in [each["by"] for each in document["runtimes"]]
    assert [] == ENGLISH.findall(str([each["reasons"] for each in document["runtimes"]]))


def test_the_problems_of_a_node_are_in_chinese() -> None:
    """Of both commands, as text and as JSON."""
    machine = recorded("t4")
    machine["gpus"][0]["computeMode"] = 3
    with library(machine):
        warned = _chinese("node", "check")
    with library("t4", failing("nvmlInit", "NVML_ERROR_LIB_RM_VERSION_MISMATCH")):
        errors = [_chinese("node", "check"), _chinese("node", "label", "--dry-run")]
        (problem,) = json.loads(_chinese("node", "check", "-o", "json"))["problems"]

    assert "警告: GPU 0 的计算模式为 Exclusive_Process，但未找到 MPS 控制守护进程" in warned
    assert {True} == {each.startswith("错误: 驱动的库与内核中的驱动版本不同") for each in errors}
    assert ("NVML_ERROR_LIB_RM_VERSION_MISMATCH", "nvmlInit") == (problem["nvml"], problem["at"])
    assert [] == ENGLISH.findall("".join((warned, *errors, problem["what"], problem["remedy"])))
