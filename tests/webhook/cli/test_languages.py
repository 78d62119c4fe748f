"""`--lang` and GPUGATE_LANG: headings and summaries of every command in English and Chinese."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.builders import config_map, container, exemption, injection_rule, pod, resource_rule
from tests.support.command import gpugate
from tests.support.nvml import failing, library, recorded
from tests.support.paths import ROOT

PODS = f"-f {ROOT}/docs/compatibility/pods.yaml"
NODES = f"--nodes {ROOT}/docs/compatibility/nodes.yaml"
RULES = f"{ROOT}/docs/tutorial/npu"

WORDS = [
    (f"preview {PODS} {NODES}", "2 objects: 1 patched, 1 denied", "2 个对象：1 个已修改，1 个拒绝"),
    (f"explain {PODS} {NODES}", "✗ denied", "✗ 拒绝"),
    (f"explain {PODS} {NODES}", "rules not applicable (use --all", "条规则不适用（使用 --all"),
    (
        f"audit {PODS} {NODES}",
        "2 workloads with 2 pods: 1 would",
        "2 个工作负载（2 个 Pod）：其中 1 个现在会被拒绝",
    ),
    (f"audit {PODS} {NODES}", "ACTION  NAMESPACE", "动作  命名空间"),
    (f"rules --rules {RULES}", "enabled", "已启用"),
    (f"rules --rules {RULES}", "NAME", "名称"),
    (f"lint {RULES}", "4 valid rules, 0 errors, 0 warnings", "4 条有效规则，0 个错误，0 个警告"),
    (f"test {RULES}", "6 cases in 1 file: 6 passed, 0 failed", "1 个文件中的 6 个用例：6 个通过、0 个失败"),
    (f"nodes {NODES}", "PRODUCT", "产品"),
    (f"matrix {NODES}", "✓ compatible", "✓ 兼容"),
]

# Words of nearly every English sentence, outside names such as `nvidia-of-x`.
ENGLISH = re.compile(r"(?<![\w-])(?:the|is|are|was|has|have|not|no|of|with|in|to|by|at|and|for|its)(?![\w-])")


def _output(command: str, language: str) -> str:
    return gpugate(*command.split(), env={"GPUGATE_LANG": language}).output


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


def _chinese(*command: str | Path) -> str:
    """Return what a command prints on stdout and stderr in Chinese."""
    environment = {"NODE_NAME": None, "KUBECONFIG": "/dev/null"}
    return gpugate(*command, "--lang", "zh", env=environment).output


def test_certs_prints_chinese(tmp_path: Path) -> None:
    """Tables, problems and next steps; the roles in JSON stay."""
    at = ("--directory", tmp_path / "new")
    empty, made = _chinese("certs", "show", *at), _chinese("certs", "init", *at, "--name", "localhost")
    table = _chinese("certs", "show", *at, "-o", "wide")
    document = json.loads(_chinese("certs", "show", *at, "-o", "json"))
    begun, hurried = _chinese("certs", "rotate", "--ca", *at), _chinese("certs", "rotate", *at)

    assert empty.startswith("错误：")
    assert empty.endswith("new 为空；下一步：gpugate certs init\n")
    assert "有效期至 20" in made
    assert ["证书", "失效日期", "剩余天数", "受信任于", "名称", "主体", "生效日期", "SHA-256"] == (
        table.splitlines()[0].split()
    )
    assert ["CA", "serving"] == [certificate["role"] for certificate in document["certificates"]]
    assert "新旧 CA 均受信任" in begun
    assert "CA 轮换正在进行" in hurried
    assert [] == ENGLISH.findall(f"{empty}{made}{table}{begun}{hurried}")


def test_node_check_prints_chinese() -> None:
    """The codes in JSON stay."""
    with library("h100"):
        text, document = _chinese("node", "check"), json.loads(_chinese("node", "check", "-o", "json"))

    assert text.startswith("驱动 535.129.03，CUDA 12.2\n")
    assert "11.8 至 12.2  是" in text
    assert "通过次版本兼容性" in text
    assert (
        "数据类型     float16, bfloat16, fp8\n拓扑         nvlink：每块 GPU 都通过 NVLink 与其他 GPU 相连\n"
        in text
    )
    assert "\nMPS          可以共享这些 GPU\n" in text
    assert [] == ENGLISH.findall(text)
    assert "minor version compatibility" in [runtime["by"] for runtime in document["runtimes"]]
    assert [] == ENGLISH.findall(str([runtime["reasons"] for runtime in document["runtimes"]]))


def test_the_problems_of_a_node_are_in_chinese() -> None:
    """Of both commands, as text and as JSON."""
    machine = recorded("t4")
    machine["gpus"][0]["computeMode"] = 3
    with library(machine):
        warned = _chinese("node", "check")
    with library("t4", failing("nvmlInit", "NVML_ERROR_LIB_RM_VERSION_MISMATCH")):
        errors = [_chinese("node", "check"), _chinese("node", "label", "--dry-run")]
        (problem,) = json.loads(_chinese("node", "check", "-o", "json"))["problems"]

    assert "警告：GPU 0 的计算模式为 Exclusive_Process，但未找到 MPS 控制守护进程" in warned
    assert {True} == {"错误：驱动的库与内核中的驱动版本不同" in error for error in errors}
    assert ("NVML_ERROR_LIB_RM_VERSION_MISMATCH", "nvmlInit") == (problem["nvml"], problem["at"])
    assert [] == ENGLISH.findall("".join((warned, *errors, problem["what"], problem["remedy"])))


DEVICE, OTHER = "vendor.com/device", "vendor.com/other"
LABELS = {"labels": {"a": "b"}}
# Rules and what is wrong with them; each file is checked alone.
WRONG = [
    (
        resource_rule(limits="optinal"),
        "data.limits: 要求 disabled、required、optional 之一，当前为 'optinal'",
    ),
    (resource_rule(limits="optinal"), "；是否应为 'optional'？"),
    (resource_rule(limit="optional"), "data.limit: 未知的键 'limit'；是否应为 'limits'？"),
    (config_map("x", {"gpugate.dev/type": "ResourceRule"}, {}), "要求资源规则的标签（"),
    (resource_rule().replace("  namespace: kube-public\n", ""), "未设置命名空间"),
    (resource_rule(validations=[{"expression": "value = 8"}]), "第 7 列：此处不应有 `=`；是否应为 `==`？"),
    (
        resource_rule(validations=[{"expression": "value <= 8", "messageZh": "1 到 8"}]),
        "消息说明为 1 到 8，但 0 可以通过",
    ),
    (
        resource_rule(DEVICE, name="cf-crl-one-device") + "---\n" + resource_rule(DEVICE, group="other"),
        "也使用 'vendor.com/device'",
    ),
    (exemption("x", serviceAccounts=["a"]), "任何租户都可以取得该豁免"),
    (resource_rule(unit=7), "要求字符串，当前为数字：请加引号"),  # type: ignore[arg-type]
    (resource_rule(group="a b"), "要求最多 63 个字符"),
    (resource_rule() + "---\n" + resource_rule(OTHER, enabled=False), "资源组 'group' 仅部分启用"),
    (resource_rule() + "---\n" + resource_rule(), "处的规则名称也是 'cf-crl-group-device'"),
    (injection_rule({"volumeMounts": [{"name": "x", "mountPath": "/x"}]}), "没有规则注入卷 'x'"),
    (injection_rule(LABELS, match={"resources": []}), "要求至少 1 项，当前为 0 项"),
    (injection_rule(LABELS, match={"images": ["a b", "https://x", "x/A", ""]}), "至少 1 个字符"),
    (
        injection_rule(
            LABELS,
            match={"podSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}},
        ),
        "运算符 In 要求至少一个值",
    ),
    (
        injection_rule({"env": [{"name": "A", "value": "1"}]}, name="a")
        + "---\n"
        + injection_rule({"env": [{"name": "A", "value": "2"}]}, name="b"),
        "值冲突：env A 在 a（",
    ),
    (exemption("x", expires="2026-02-30"), "日期不存在：'2026-02-30'"),
    (config_map("x", {"gpugate.dev/type": "Exemptions"}, {}), "；是否应为 'Exemption'？"),
    (config_map("cf-crl-x", {}, {}), "资源规则要求标签"),
]


@pytest.mark.parametrize(("text", "chinese"), WRONG)
def test_lint_prints_its_findings_in_chinese(text: str, chinese: str, tmp_path: Path) -> None:
    """Codes, levels of other formats and paths stay."""
    (tmp_path / "x.yaml").write_text(text, "utf-8")
    command = (
        "lint",
        tmp_path,
        "--rules",
        tmp_path,
    )  # without the built-in rules, which take most of the time
    output_in_chinese, english = _chinese(*command), gpugate(*command).output
    codes = [re.findall(r"\[([a-z-]+)\]$", output, re.MULTILINE) for output in (output_in_chinese, english)]

    assert chinese in output_in_chinese
    assert codes[0] == codes[1] != []
    assert [] == ENGLISH.findall(output_in_chinese.replace(str(tmp_path), ""))


def test_other_commands_print_errors_of_rules_in_chinese(tmp_path: Path) -> None:
    """In listings, before decisions and exports, and in tests; also if there are no rules."""
    (tmp_path / "rules.yaml").write_text(resource_rule(limits="x"), "utf-8")
    (tmp_path / "empty.yaml").write_text("a: 1\n", "utf-8")
    pods = ("-f", ROOT / "docs/compatibility/pods.yaml", "--rules", tmp_path / "rules.yaml")

    outputs = [
        _chinese(*command)
        for command in (
            ("rules", "--rules", tmp_path / "rules.yaml"),
            ("preview", *pods),
            ("explain", *pods),
            ("export", tmp_path / "rules.yaml"),
        )
    ]
    assert [True] * len(outputs) == ["之一，当前为 'x'" in output for output in outputs]
    assert "未找到规则" in _chinese("lint", tmp_path / "empty.yaml")


def test_export_prints_chinese(tmp_path: Path) -> None:
    """Messages of the policies, what is not converted, and a name that two groups have."""
    rule = resource_rule(
        limits="required",
        excludeResources=OTHER,
        failurePolicy="Ignore",
        validations=[{"expression": "value > 0"}],
    )
    spared = exemption("*", namespaces={"include": ["a"]})
    groups = resource_rule(name="cf-crl-a-device", group="A") + "---\n" + resource_rule(OTHER, group="a")
    (tmp_path / "a.yaml").write_text("---\n".join((rule, injection_rule(LABELS), spared)), "utf-8")
    (tmp_path / "b.yaml").write_text(groups, "utf-8")
    exported, collided = (_chinese("export", tmp_path / name) for name in ("a.yaml", "b.yaml"))

    messages = re.findall(r"message: (.+)", exported)
    assert "cf-crl-group-device：未转换：failurePolicy 为 Fail：无法求值的校验视为违规" in exported
    assert "injection：未转换：策略仅支持资源规则" in exported
    assert "exemption：未转换：策略不支持豁免" in exported
    assert "必须出现在 limits 中" in messages[0]
    assert [] == ENGLISH.findall("".join(messages))
    assert "的策略名同为 gpugate-a；请重命名其中之一" in collided


def test_explain_has_its_warnings_in_chinese_in_json_too(tmp_path: Path) -> None:
    """With the separator of the language."""
    text = resource_rule(validations=[{"expression": "1 / (value - 3) > 0"}], failurePolicy="Ignore")
    (tmp_path / "rule.yaml").write_text(text, "utf-8")
    (tmp_path / "pod.yaml").write_text(json.dumps(pod(container({DEVICE: "3"}))), "utf-8")
    command = ("explain", "-f", tmp_path / "pod.yaml", "--rules", tmp_path / "rule.yaml", "-o", "json")
    _note, _, facts = _chinese(*command).partition("\n")
    (document,) = json.loads(facts)["objects"]
    (rule,) = document["pods"][0]["containers"][0]["rules"]

    assert "；" in rule["warnings"][0]
    assert "; " not in rule["warnings"][0]


@pytest.mark.parametrize(
    ("words", "english", "chinese"),
    [
        (
            ["preview", "--nope"],
            "No such option '--nope'. Did you mean '--nodes'?",
            "没有选项 '--nope'。是否指 '--nodes'？",
        ),
        (
            ["previe"],
            "No such command 'previe' – did you mean 'preview'?",
            "没有命令 'previe'。是否指 'preview'？",
        ),
        (["preview"], "no objects given (use FILE", "没有指定对象（请使用 FILE"),
        (
            ["preview", "x", "-o", "yml"],
            "Invalid value for '-o' / '--output': 'yml' is not one of 'diff'",
            "'-o' / '--output' 的值无效：'yml' 不在可选值中：'diff'",
        ),
        (
            ["ui", "--port", "99999"],
            "Invalid value for '--port': 99999 is not in the range 0<=x<=65535.",
            "'--port' 的值无效：99999 超出范围 0<=x<=65535。",
        ),
        (["rules", "new"], "Missing argument 'KIND'. Choose from:", "缺少参数 'KIND'，可选：resource"),
        (["lint", "--fail-on"], "Option '--fail-on' requires an argument.", "选项 '--fail-on' 需要一个值。"),
        (["schema", "exemption", "x"], "Got unexpected extra argument (x)", "多余的参数：x"),
        (["matrix", "--baseline", "12.4"], "--baseline requires --sharing", "--baseline 需要 --sharing"),
    ],
)
def test_wrong_arguments_are_told_in_both_languages(words: list[str], english: str, chinese: str) -> None:
    """By the variable or the option, before the arguments are parsed; those of click, too."""
    outputs = [gpugate(*words, env={"GPUGATE_LANG": language}) for language in ("en", "zh")]

    assert [2, 2] == [output.exit_code for output in outputs]
    assert f"error: {english}" in outputs[0].output
    assert f"错误：{chinese}" in outputs[1].output


@pytest.mark.parametrize(
    ("command", "text", "chinese"),
    [
        ("preview missing.yaml", "", "missing.yaml：没有该文件或目录；该路径相对于 {folder}"),
        ("preview file.yaml", "a: [1\n", "file.yaml:2:1: 不是 YAML：while parsing a flow sequence"),
        ("preview file.yaml", "a: 1\n", "file.yaml:1: 应为带有 apiVersion 和 kind 的 Kubernetes 对象"),
        ("preview file.yaml", "", "file.yaml: 不包含任何对象"),
        (
            "preview file.yaml",
            "{apiVersion: v1, kind: Pod, spec: {containers: 1}}",
            "file.yaml:1: spec.containers：应为列表，实际为数字",
        ),
        (
            "audit -f file.yaml",
            "{apiVersion: v1, kind: Pod}",
            "file.yaml:1: 无效的 Pod：缺少 metadata 或 spec",
        ),
        ("nodes --nodes file.yaml", "{kind: Pod}", "file.yaml:1:1：document.kind：应为 Node、"),
        ("nodes --nodes a1000", "", "a1000：没有此名称的文件或 GPU；是否应为 'a100'？"),
        ("lint .", "", ".：此文件夹中没有 YAML 或 JSON 文件"),
        (
            "why -f file.yaml",
            "{apiVersion: v1, kind: Job}",
            "file.yaml：应为 kubectl 输出的一个 Pod，实际为 Job；",
        ),
        ("rules nope --rules file.yaml", "a: 1", "file.yaml: 未找到规则"),
        ("rules nope", "", "没有名为 'nope' 的规则"),
        ("test file.yaml", "{kind: RuleTests}", "file.yaml:1:8: kind: 应为 kind: RuleTest，实际为 RuleTests"),
        ("why pod/x --kubeconfig missing", "", "没有集群：missing: No such file or directory；请检查 "),
        ("certs show --directory none", "", "文件夹 none 为空；下一步：gpugate certs init"),
        ("image inspect not!an!image", "", "'not!an!image'：不是镜像引用"),
        ("image inspect app --registry-config file.yaml", "[", "file.yaml：不是 Docker 配置文件："),
        ("facts diff builtin file.yaml", "a", "file.yaml: 1:1: 不是 JSON："),
        ("facts update", "", "rules/facts：没有此文件夹；请在仓库中运行"),
        ("rules new resource --name X", "", "--name：应为小写字母、数字和 -，实际为 'X'"),
        ("ui -f missing.yaml --no-browser", "", "missing.yaml：没有该文件或目录"),
    ],
)
def test_what_is_wrong_with_an_input_is_in_chinese(
    command: str, text: str, chinese: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of files, folders, names and objects; texts of the system and of the YAML reader stay."""
    monkeypatch.chdir(tmp_path)
    if "file.yaml" in command:
        Path("file.yaml").write_text(text, "utf-8")
    output = gpugate(*command.split(), "--lang", "zh", env={"KUBECONFIG": "/dev/null"}).stderr

    assert f"错误：{chinese.format(folder=tmp_path) if '{folder}' in chinese else chinese}" in output


def test_the_option_for_the_language_holds_for_wrong_arguments() -> None:
    """Also of the lines above the error; it takes precedence over the variable."""
    usage = "用法：main preview [OPTIONS] [FILE]...\n请用 'main preview --help' 查看帮助。\n\n错误：没有选项"
    outputs = [gpugate("preview", *option, "--nope").output for option in (["--lang", "zh"], ["--lang=zh"])]
    english = gpugate("preview", "--lang", "en", "--nope", env={"GPUGATE_LANG": "zh"}).output

    assert [True, True] == [output.startswith(usage) for output in outputs]
    assert english.startswith("Usage: ")
