"""The page of worked examples: manifests with gpugate's answers, in both languages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from click.testing import Result

from rules.text.i18n import Language
from tests.support.command import gpugate
from tests.support.paths import ROOT

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
answer says to do, and previews the result.
""",
    Language("zh"): f"""{_NOTE}# 示例与回答

[English](../worked-examples.md)

用户编写的清单，每个都附有作者的目的和 gpugate 的回答。请在源代码的顶层目录中运行命令。文件位于
[worked-examples](../worked-examples)，节点位于 `{FOLDER}/nodes`。回答由
`pytest tests/project/test_worked_examples.py --update-golden` 写入；该测试还会按回答修改清单，并预览结果。
""",
}


@dataclass(frozen=True, slots=True)
class Example:
    """An entry of the index. section: the heading above it, in both languages; others as in the index."""

    section: dict[str, str]
    file: str
    answer: str
    title: dict[str, str]
    wants: dict[str, str]
    nodes: str = ""
    rules: tuple[str, ...] = ()
    command: str = "gpugate preview"
    says: tuple[str, ...] = ()
    fix: tuple[dict[str, Any], ...] = ()

    @property
    def path(self) -> Path:
        """The manifest."""
        return FOLDER / self.file

    def words(self, path: Path | None = None) -> list[str]:
        """Return the command for the manifest, or for another one in its place."""
        words = [*self.command.split(), str(path or self.path)]
        for rule in self.rules:
            words += ["--rules", rule if rule == "builtin" else str(FOLDER / rule)]
        return [*words, "--nodes", str(FOLDER / "nodes" / self.nodes)] if self.nodes else words

    def run(self, language: Language = Language.EN, path: Path | None = None) -> Result:
        """Run the command at the top of the tree."""
        return gpugate(*self.words(path)[1:], "--lang", language)


def examples() -> list[Example]:
    """Return the entries of the index."""
    sections = yaml.safe_load((ROOT / FOLDER / "index.yaml").read_text("utf-8"))
    return [
        Example(section=section["section"], **{name: _frozen(value) for name, value in entry.items()})
        for section in sections
        for entry in section["examples"]
    ]


def page(language: Language) -> str:
    """Return the page in a language."""
    return "\n".join([_ABOUT[language], *_parts(language)])


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
