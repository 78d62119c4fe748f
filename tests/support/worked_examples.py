"""The page of worked examples: manifests with gpugate's answers, in both languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import yaml
from click.testing import Result

from rules.cuda.versions import CudaVersion
from rules.text.i18n import Language
from tests.support.command import gpugate
from tests.support.nvml import library
from tests.support.paths import ROOT
from webhook.agent.cuda_view import CudaView

FOLDER: Final = Path("docs/worked-examples")
PAGES: Final = {
    Language.EN: ROOT / "docs/worked-examples.md",
    Language("zh"): ROOT / "docs/zh/worked-examples.md",
}
_NOTE: Final = "<!-- unrun: tests/project/test_worked_examples.py runs them, and writes the answers -->\n"
_ABOUT: Final = {
    Language.EN: f"""{_NOTE}# Worked examples

[中文](zh/worked-examples.md)

Manifests as users write them, each with what its author wants and with gpugate's answer. Run the commands at
the top of the source tree. The files are in [worked-examples](worked-examples), nodes in `{FOLDER}/nodes`.
`pytest tests/project/test_worked_examples.py --update-golden` writes the answers; the test also does what an
answer says to do, and runs the command again.
""",
    Language("zh"): f"""{_NOTE}# 示例与回答

[English](../worked-examples.md)

用户编写的清单，每个都附有作者的目的和 gpugate 的回答。请在本仓库的顶层文件夹中运行命令。文件位于
[worked-examples](../worked-examples)，节点位于 `{FOLDER}/nodes`。回答由
`pytest tests/project/test_worked_examples.py --update-golden` 写入；该测试还会按回答修改清单，
并再次运行命令。
""",
}
_TABLE: Final = {
    Language.EN: "|  | subject | examples |\n|---|---|---|",
    Language("zh"): "|  | 主题 | 示例 |\n|---|---|---|",
}
_NODE_CHECK: Final = "gpugate node check"


@dataclass(frozen=True, slots=True)
class Example:
    """An entry of the index. section: the heading above it, in both languages; others as in the index."""

    section: dict[str, str]
    file: str
    answer: str
    title: dict[str, str]
    wants: dict[str, str]
    subject: int = 0
    nodes: str = ""
    rules: tuple[str, ...] = ()
    command: str = "gpugate preview"
    says: tuple[str, ...] = ()
    fix: tuple[dict[str, Any], ...] = ()
    nodes_fix: tuple[dict[str, Any], ...] = ()
    left: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its tests: of the file, after the number of its subject, if it has one."""
        return f"subject-{self.subject}-" * bool(self.subject) + Path(self.file).stem

    @property
    def path(self) -> Path:
        """The manifest."""
        return FOLDER / self.file

    @property
    def nodes_path(self) -> Path | None:
        """The file of nodes, if it has one."""
        return FOLDER / "nodes" / self.nodes if self.nodes else None

    def words(self, path: Path | None = None, nodes: Path | None = None) -> list[str]:
        """Return the command; path, nodes: other files in the place of its own."""
        if self.command == _NODE_CHECK:
            return self.command.split()
        words = [*self.command.split(), str(path or self.path)]
        for rule in self.rules:
            words += ["--rules", rule if rule == "builtin" else str(FOLDER / rule)]
        return [*words, "--nodes", str(nodes or self.nodes_path)] if self.nodes else words

    def run(
        self, language: Language = Language.EN, path: Path | None = None, nodes: Path | None = None
    ) -> Result:
        """Run the command at the top of the tree."""
        words = [*self.words(path, nodes)[1:], "--lang", language]
        if self.command != _NODE_CHECK:
            return gpugate(*words)
        machine = yaml.safe_load((path or self.path).read_text("utf-8"))
        cuda = CudaVersion(*divmod(machine["cuda"] // 10, 100))
        view = CudaView(machine["libcuda"], "cuInit", cuda, len(machine["gpus"]))
        with (
            library(machine),
            patch("webhook.cli.commands.node.kernel_module", lambda: machine["driver"]),
            patch("webhook.cli.commands.node.see_cuda_in_time", lambda: view),
            patch("webhook.cli.commands.node.fabric_manager_version", lambda: None),
        ):
            return gpugate(*words, env={"GPUGATE_HOST_ROOT": "/dev/null", "KUBECONFIG": "/dev/null"})


def examples() -> list[Example]:
    """Return the entries of the index."""
    return [
        Example(section=section["section"], **{name: _frozen(value) for name, value in entry.items()})
        for section in _index()["sections"]
        for entry in section["examples"]
    ]


def subjects() -> list[dict[str, str]]:
    """Return what the examples are about, in both languages; the first one has number 1."""
    listed: list[dict[str, str]] = _index()["subjects"]
    return listed


def _index() -> dict[str, Any]:
    index: dict[str, Any] = yaml.safe_load((ROOT / FOLDER).with_suffix(".yaml").read_text("utf-8"))
    return index


def page(language: Language) -> str:
    """Return the page in a language."""
    return "\n".join([_ABOUT[language], *_rows(language), "", *_parts(language)])


def _rows(language: Language) -> Iterator[str]:
    """Yield the lines of the table of subjects."""
    yield _TABLE[language]
    for number, subject in enumerate(subjects(), 1):
        titles = [example.title[language] for example in examples() if example.subject == number]
        links = [f"[{title}](#{_anchor(title)})" for title in titles]
        yield f"| {number} | {subject[language]} | {' · '.join(links)} |"


def _anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _parts(language: Language) -> Iterator[str]:
    section = ""
    for example in examples():
        if (heading := example.section[language]) != section:
            section = heading
            yield f"## {heading}\n"
        yield f"### {example.title[language]}\n\n{example.wants[language]}\n"
        # A page shows sound rules as `yaml`.
        mistaken = "lint" in example.command and example.answer == "denied"
        yield _fence("yml" if mistaken else "yaml", (ROOT / example.path).read_text("utf-8"))
        extra = f" --lang {language.value}" if language.value != "en" else ""
        yield _fence("sh", f"{' '.join(example.words())}{extra}\n")
        yield _fence("text", example.run(language).output)


def _fence(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
