"""The pages of the built-in rules: a table of vendors in both languages, and a page for each folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from rules import Snapshot, explain
from rules.kube.json_patch import Operation
from rules.model.check_result import Level
from rules.model.rule import CompatibilityRule, ResourceRule, Rule
from rules.model.sharing import SharingPolicy
from rules.model.workload_kinds import built_in_workloads
from rules.schema.config_map import DEFAULT_NAMESPACE
from rules.schema.loader import load_rules
from rules.text.glob import glob
from rules.text.i18n import Joined, Language
from tests.support.paths import ROOT
from webhook.cli.test.runner import CaseResult, Runner

CATALOG: Final = ROOT / "rules/catalog"
VENDORS: Final = {Language.EN: ROOT / "docs/vendors.md", Language("zh"): ROOT / "docs/zh/vendors.md"}
PAGES: Final = ROOT / "docs/catalog"
_FACTS: Final = ROOT / "rules/facts"
_NOTE: Final = "<!-- Written by `pytest tests/project/test_catalog_pages.py --update-golden`. -->\n"
_URL: Final = re.compile(r"https?://[^\s,;()]+[^\s,;().:]")
# A page shows the shortest case of a rule, of at most as many lines.
_MOST_LINES: Final = 40
_LINKS: Final = 3
_WORDS: Final = {
    Language.EN: {
        "colon": ": ",
        "about": f"""{_NOTE}# Supported vendors

[中文](zh/vendors.md)

The built-in rules of each vendor and sharing mode, with a page for each that has its rules and examples. To
enable and disable rules, see [rules.md](rules.md); to add a vendor,
[tutorial-new-vendor.md](tutorial-new-vendor.md).

- **Sharing**: whole devices, slices of MIG, or parts of a device; virtual are parts whose system intercepts
  CUDA calls. If the facts do not say it, see the resources.
- **CUDA**: whether images are compared with driver and GPU of the nodes. Of accelerators without CUDA,
  gpugate checks what the pod requests, and not which driver the image needs.
- **Verified**: the last day on which the rows of the resources
  ([gpu_resources.yaml](../rules/facts/gpu_resources.yaml)) were compared with their source, of several days
  the first; without a row, or if its source was not read, a resource is not verified. No rule has run with a
  device of its vendor.
""",
        "columns": ("vendor", "rules", "resources", "sharing", "CUDA", "checked", "source", "verified"),
        "other": "## Rules without a vendor",
        "other_columns": ("rules", "what they do"),
        "yes": "yes",
        "no": "no",
        "not": "**not verified**",
        "whole": "whole",
        "slices": "slices",
        "parts": "parts",
        "virtual": "parts, virtual",
        "cuda": "CUDA and driver version, compute capability",
        "memory": "GPU memory",
        "model": "size of the model",
        "min_cuda": "driver with CUDA {} or newer",
        "min_compute": "compute capability {} or newer",
        "mig": "no MIG",
        "integer": "whole numbers",
        "values": "values",
        "unit": "unit",
        "excludes": "combinations with other resources",
        "image": "images for CUDA",
        "and": ", ",
        "more": "{} more",
    },
    Language("zh"): {
        "colon": "：",
        "about": f"""{_NOTE}# 支持的厂商

[English](../vendors.md)

下表列出各厂商与共享方式的内置规则，每组规则都有一页，列出规则与示例。
启用与停用规则见 [rules.md](rules.md)；添加厂商见 [tutorial-new-vendor.md](tutorial-new-vendor.md)。

- **共享方式**：整卡、MIG 切片，或设备的一部分；虚拟表示该系统会拦截 CUDA 调用。
  事实数据未说明时，请看资源一列。
- **CUDA**：是否将镜像与节点的驱动和 GPU 比较。
  对于不运行 CUDA 的加速器，gpugate 检查 Pod 的申请，不检查镜像需要的驱动。
- **核实日期**：资源的记录（[gpu_resources.yaml](../../rules/facts/gpu_resources.yaml)）
  最后一次与来源核对的日期，各行日期不同时取最早的；没有记录或未读过来源的资源为未核实。没有任何规则在厂商的设备上运行过。
""",
        "columns": ("厂商", "规则", "资源", "共享方式", "CUDA", "检查内容", "来源", "核实日期"),
        "other": "## 与厂商无关的规则",
        "other_columns": ("规则", "作用"),
        "yes": "是",
        "no": "否",
        "not": "**未核实**",
        "whole": "整卡",
        "slices": "切片",
        "parts": "部分",
        "virtual": "部分，虚拟",
        "cuda": "CUDA 与驱动版本、计算能力",
        "memory": "GPU 显存",
        "model": "模型大小",
        "min_cuda": "驱动支持 CUDA {} 及以上",
        "min_compute": "计算能力 {} 及以上",
        "mig": "不支持 MIG",
        "integer": "整数",
        "values": "取值",
        "unit": "单位",
        "excludes": "与其他资源的组合",
        "image": "为 CUDA 构建的镜像",
        "and": "、",
        "more": "另有 {} 个",
    },
}


@dataclass(frozen=True)
class Group:
    """A folder of the catalogue. rules: by their files, in the order of its kustomization."""

    name: str
    about: str
    rules: tuple[tuple[Path, Rule], ...]

    @property
    def resources(self) -> list[ResourceRule]:
        """The rules that define a resource."""
        return [rule for _, rule in self.rules if isinstance(rule, ResourceRule) and not rule.additional]

    @property
    def compatibility(self) -> list[CompatibilityRule]:
        """The rules that compare images with nodes."""
        return [rule for _, rule in self.rules if isinstance(rule, CompatibilityRule)]

    @property
    def sources(self) -> list[str]:
        """The addresses in the comments of its files, without duplicates."""
        addresses_per_file = (_URL.findall(_comment(path)) for path, _ in self.rules)
        return list(dict.fromkeys(address for addresses in addresses_per_file for address in addresses))


@cache
def groups() -> tuple[Group, ...]:
    """Return the folders of the catalogue by their names."""
    return tuple(_group(path.parent) for path in sorted(CATALOG.glob("*/kustomization.yaml")))


def _group(folder: Path) -> Group:
    kustomization = folder / "kustomization.yaml"
    files = [folder / name for name in yaml.safe_load(kustomization.read_text("utf-8"))["resources"]]
    rules = [next(iter(load_rules([(path.name, path.read_text("utf-8"))]).rules)) for path in files]
    return Group(folder.name, _comment(kustomization), tuple(zip(files, rules, strict=True)))


def _comment(path: Path) -> str:
    """Return the comment at the top of a file, as one line."""
    lines = path.read_text("utf-8").splitlines()
    count = next(at for at, line in enumerate(lines) if not line.startswith("#"))
    return " ".join(line.removeprefix("#").strip() for line in lines[:count])


def vendors_page(language: Language) -> str:
    """Return the table of vendors."""
    words: dict[str, Any] = _WORDS[language]
    listed = [group for group in groups() if group.resources]
    others = [group for group in groups() if not group.resources]
    rows = sorted(_vendor_row(group, language) for group in listed)
    return "\n".join(
        [
            words["about"],
            *_table(words["columns"], rows),
            f"\n{words['other']}\n",
            *_table(words["other_columns"], [_other_row(group, language) for group in others]),
            "",
        ]
    )


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    heads = list(columns)
    cells = [heads, ["---"] * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return [f"| {' | '.join(row)} |" for row in cells]


def _link(group: Group, language: Language) -> str:
    return f"[{group.name}]({'../' * (language is not Language.EN)}catalog/{group.name}.md)"


def _other_row(group: Group, language: Language) -> list[str]:
    texts = [rule.description.in_language(language) for _, rule in group.rules]
    return [_link(group, language), Joined("; ", dict.fromkeys(texts)).in_language(language)]


def _vendor_row(group: Group, language: Language) -> list[str]:
    words: dict[str, Any] = _WORDS[language]
    facts = [_fact(rule.key) for rule in group.resources]
    names = [
        f"`{rule.key}`{words['colon']}{rule.description.in_language(language)}" for rule in group.resources
    ]
    days = sorted({fact.verified for fact in facts if fact.verified})[:1]
    unknown = [
        f"`{rule.key}`" for rule, fact in zip(group.resources, facts, strict=True) if not fact.verified
    ]
    if unknown:
        names_of_unknown = Joined(", ", unknown).in_language(language)
        days.append(f"{words['not']}{words['colon']}{names_of_unknown}" if days else words["not"])
    sharing = [
        word
        for word, applies in (
            ("whole", any(fact.units == 1 and not fact.slices for fact in facts)),
            ("slices", any(fact.slices for fact in facts)),
            ("virtual", any(rule.sharing.virtual for rule in group.compatibility)),
            ("parts", any(fact.units > 1 for fact in facts) or any(rule.unit for rule in group.resources)),
        )
        if applies
    ]
    shown = [word for word in sharing if word != "parts" or "virtual" not in sharing]
    cuda = any(rule.sharing.cuda for rule in group.compatibility)
    return [
        ", ".join(sorted({fact.vendor for fact in facts if fact.vendor})) or "–",
        _link(group, language),
        "<br>".join(names),
        words["and"].join(words[word] for word in shown) or "–",
        words["yes"] if cuda else words["no"],
        words["and"].join(dict.fromkeys(_checked(group, language))),
        _sources(group.sources, words),
        Joined("; ", days).in_language(language),
    ]


def _sources(addresses: list[str], words: dict[str, Any]) -> str:
    shown = [f"[{_short(address)}]({address})" for address in addresses[:_LINKS]]
    if rest := len(addresses) - _LINKS:
        shown += [words["more"].format(rest)] if rest > 0 else []
    return "<br>".join(shown)


def _short(address: str) -> str:
    """Return host and path of an address: of a repository its name."""
    host, *path = address.partition("://")[2].rstrip("/").split("/")
    return "/".join(path[:2]) if host == "github.com" else host


def _checked(group: Group, language: Language) -> Iterator[str]:
    """Yield what the rules of a folder check."""
    words: dict[str, Any] = _WORDS[language]
    for sharing in (rule.sharing for rule in group.compatibility):
        yield from _compared(sharing, words) if sharing.cuda else [words["image"]]
    for rule in group.resources:
        values = {"integer": rule.integer, "values": rule.validations, "unit": rule.unit}
        yield from (words[name] for name, present in values.items() if present)
        if not rule.excludes.is_empty:
            yield words["excludes"]


def _compared(sharing: SharingPolicy, words: dict[str, Any]) -> Iterator[str]:
    """Yield what is compared with the nodes."""
    yield words["cuda"]
    if sharing.checks.gpu_memory is not Level.COMPATIBLE:
        yield words["memory"]
    if sharing.checks.model is not Level.COMPATIBLE:
        yield words["model"]
    for name in ("min_cuda", "min_compute"):
        if (least := getattr(sharing, name)) is not None:
            yield words[name].format(least)
    if not sharing.mig:
        yield words["mig"]


class _Fact(NamedTuple):
    vendor: str = ""
    units: int = 0  # of a device; 0: unknown
    slices: bool = False
    verified: str = ""  # the day on which it was, if it is


@cache
def _fact_rows() -> tuple[tuple[re.Pattern[str], _Fact], ...]:
    table = yaml.safe_load((_FACTS / "gpu_resources.yaml").read_text("utf-8"))
    rows = [*table["resources"], *(row | {"units": 1} for row in table["networks"]), *table["others"]]
    return tuple(
        (
            glob(name),
            _Fact(
                table["vendors"][row["vendor"]] if "vendor" in row else "",
                row.get("units", 0),
                row.get("slices", False),
                row.get("read", table["read"]) if row["status"] == "verified" else "",
            ),
        )
        for row in rows
        for name in row["names"]
    )


def _fact(resource: str) -> _Fact:
    """Return what is known of a resource: the first row that matches is used."""
    return next((fact for name, fact in _fact_rows() if name.fullmatch(resource)), _Fact())


@cache
def group_pages() -> dict[str, str]:
    """Return the page of each folder, by its file name."""
    return {f"{group.name}.md": _group_page(group) for group in groups()}


def _group_page(group: Group) -> str:
    examples = _examples(group)
    folder = f"../../rules/catalog/{group.name}"
    parts = [
        f"{_NOTE}# Built-in rules: {group.name}",
        _prose(group.about),
        f"Files: [rules/catalog/{group.name}]({folder}). All vendors: [vendors.md](../vendors.md).",
    ]
    for path, rule in group.rules:
        state = "Enabled" if getattr(rule, "enabled", True) else "Disabled by default"
        parts += [
            f"## {rule.name}",
            f"{state}. {_prose(rule.description.en)} · {_prose(rule.description.zh)}",
            f"[{path.name}]({folder}/{path.name}): {_prose(_comment(path))}",
            *(_example(example) for example in examples.get(rule.name, ())),
        ]
    return "\n\n".join(parts) + "\n"


def _prose(text: str) -> str:
    """Return a comment as Markdown: addresses are links, and what is in backticks is code."""
    parts = text.split("`")
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(r"([\\*_<>\[\]|~#])", r"\\\1", parts[at])
        parts[at] = _URL.sub(lambda match: f"<{match[0].replace(chr(92), '')}>", parts[at])
    return "`".join(parts)


def _example(result: CaseResult) -> str:
    case = _case(result)
    name = result.case.name
    return (
        f"**{name[:1].upper()}{_prose(name[1:])}**\n\n```yaml\n{case}```\n\nAnswer:\n\n"
        f"```text\n{_answer(result)}\n```"
    )


def _case(result: CaseResult) -> str:
    document = result.case.document.value
    case = document["cases"][result.case.path[1]]
    shown = {key: case[key] for key in ("nodes", "pod") if key in case}
    if "nodes" in document and "nodes" not in shown:
        shown = {"nodes": document["nodes"], **shown}
    text: str = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)
    return text


def _answer(result: CaseResult) -> str:
    decision = result.decision
    if not decision.allowed:
        return decision.denial.in_language(Language.EN)
    changes = [_change(operation) for operation in decision.patch]
    warnings = [line.in_language(Language.EN) for line in decision.warning_lines]
    return "\n".join(["allowed", *changes, *warnings])


def _change(operation: Operation) -> str:
    value = yaml.safe_dump(operation.get("value"), default_flow_style=True, width=10_000, sort_keys=False)
    return f"{operation['op']} {operation['path']}: {value.removesuffix('...' + chr(10)).strip()}"


def _examples(group: Group) -> dict[str, list[CaseResult]]:
    """Return for each rule the shortest case that it denies and that it changes; else one that it allows."""
    runner = Runner(DEFAULT_NAMESPACE, built_in_workloads(), lambda _: True)
    cases: dict[str, dict[str, CaseResult]] = {}
    for path in sorted((CATALOG / group.name).glob("*.test.yaml")):
        for result in runner.run(str(path), path.read_text("utf-8")).results:
            if "file: " in _case(result) or len(_case(result).splitlines()) > _MOST_LINES:
                continue
            for rule, role in _roles(result):
                best = cases.setdefault(rule, {}).get(role)
                if best is None or len(_case(result)) < len(_case(best)):
                    cases[rule][role] = result
    return {rule: _chosen(case) for rule, case in cases.items()}


def _chosen(results_by_role: dict[str, CaseResult]) -> list[CaseResult]:
    finds = results_by_role.get("denies", results_by_role.get("warns"))
    return [result for result in (finds, results_by_role.get("changes")) if result] or [
        results_by_role["allows"]
    ]


def _roles(result: CaseResult) -> Iterator[tuple[str, str]]:
    """Yield each rule with what it does in a case."""
    decision = result.decision
    for violation in decision.violations:
        yield violation.rule, "denies" if violation.action == "deny" else "warns"
    for notice in decision.notices:
        if notice.rule:
            yield notice.rule, "warns"
    case = result.case
    snapshot = Snapshot(
        result.policy, case.inventory.with_facts(result.policy.facts), namespaces=case.namespaces
    )
    for pod in explain(snapshot, case.request, case.now).pods:
        edits = [
            edit
            for container in pod.containers
            for evaluation in container.evaluations
            for edit in evaluation.edits
        ]
        for edit in (*pod.own, *edits) if decision.allowed else ():
            if edit.rule:
                yield edit.rule, "changes"
    for rule in decision.rules:
        yield rule, "allows"
