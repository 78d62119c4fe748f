"""What our pages tell a reader to type works, prints what they show, and leads where they point.

A reader types the fences of `sh` down the page, from the top of the tree; a fence of `text` right below one
is what the terminal then shows, `…` standing for what is left out. A fence of `yaml` below a line that ends
in `FILE.yaml`: is what the reader writes there. Comments above a fence, or above the title for a whole page,
tell what no reader needs to see: with `<!-- needs: kubectl -->` commands are run where there is one and
parsed elsewhere. Those that need a `cluster` are run by e2e/test_pages.py, those that need an `engine` for
containers by e2e/test_image.py. With `<!-- exits: 1 -->` they end so. Above what no test can run stands why:
`<!-- unrun: it never ends -->`. A command inside a line is parsed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from difflib import ndiff
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml
from prometheus_client import generate_latest

from rules.schema.config_map import DEFAULT_NAMESPACE
from rules.schema.loader import load_rules
from tests.support.pages import (
    DENIED,
    ENGINE,
    IN_CLUSTER,
    WITH_ENGINE,
    Fence,
    english,
    fences,
    line_of,
    prose,
    same,
    terminal,
    text_of,
    write,
)
from tests.support.paths import ROOT
from webhook.agent.metrics import REGISTRY
from webhook.cli import main
from webhook.images.resolver import metrics as resolver_metrics
from webhook.telemetry import metrics as gate_metrics

PAGES: Final = sorted(
    str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
)
# What commands find at the top of the tree; the sources too, so that shipped rules go by their short names.
_TREE: Final = ("certs", "docs", "manifests", "rules", "webhook")
# When the pages were written, for what ends by date: November 2026.
_DATE: Final = "1794700800"
# Seconds for the commands of a fence; most take half of one.
_FENCE_S: Final = 60.0

_INDENTED: Final = re.compile(r"^ {4}(.+)$", re.MULTILINE)
_INDENTED_OR_INLINE: Final = re.compile(r"^ {4}(.+)$|`([^`\n]+)`", re.MULTILINE)
_COMMAND: Final = re.compile(r"(?:^|[|(&] ?)(?:gpugate|kubectl|make) ")
_JOB: Final = re.compile(r"\b(?:run|script): (gpugate .+)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_REASON: Final = re.compile(
    r"(?:denied by gpugate(?:, \d+ violations)?: (?:1\. )?|^  \d+\. )(.+) \[rule .+\]$", re.MULTILINE
)
# What begins another command, or a file that one is redirected to.
_OPERATORS: Final = frozenset({"|", "||", "&&", ";", "(", ")", "<(", "$("})
_REDIRECTIONS: Final = frozenset({">", ">>", "<"})
_TREE_PATH: Final = re.compile(rf"(?:{'|'.join(_TREE)})/\S*")


def typed(text: str, page: str) -> Iterator[tuple[str, list[str]]]:
    """Yield (place, words) of each command of a page: in fences, indented blocks, jobs of CI and prose."""
    for fence in fences(text, page):
        script = fence.text if fence.language == "sh" else "\n".join(_JOB.findall(fence.text))
        for words in commands(script):
            yield fence.where, words
    for match in _INDENTED_OR_INLINE.finditer(prose(text)):
        code = match[1] or match[2]
        if _COMMAND.search(code):
            for words in commands(code):
                yield f"{page}:{line_of(text, match.start())}", words


def commands(script: str) -> Iterator[list[str]]:
    """Yield the words of each command in a script, without redirections and assignments before it."""
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        tokens = iter([*lexer, ";"])
        for token in tokens:
            if token in _REDIRECTIONS:
                next(tokens)
            elif token not in _OPERATORS:
                words.append(token)
            else:
                while words and re.match(r"\w+=", words[0]):
                    del words[0]
                if words:
                    yield words
                words = []


def mistake_in(words: Sequence[str], writes: Iterable[str]) -> str:
    """Return what is wrong with a command, or nothing; writes: what the page has its reader write."""
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return ", ".join(f"no target {word}" for word in words[1:] if "=" not in word and word not in targets)
    absent = [word for word in words if _TREE_PATH.fullmatch(word) and not (ROOT / word).exists()]
    if absent:
        return f"no {', '.join(absent)}"
    if words[:2] == ["kubectl", "apply"] and "-k" in words[:-1]:
        file = f"{words[words.index('-k') + 1].rstrip('/')}/kustomization.yaml"
        return "" if file.startswith("my-") or file in writes or (ROOT / file).exists() else f"no {file}"
    return _misused(words[1:]) if words[0] == "gpugate" else ""


def _misused(arguments: Sequence[str]) -> str:
    """Return what `gpugate` itself has against its arguments; a command that is only named has none."""
    command: click.Command = main
    context = click.Context(main, info_name="gpugate")
    rest = list(arguments)
    try:
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            _, subcommand, rest = command.resolve_command(context, rest)
            assert subcommand
            command, context = subcommand, click.Context(subcommand, context, subcommand.name)
        if rest:
            command.make_context(command.name, rest)
    except click.exceptions.Exit:  # --help
        return ""
    except click.ClickException as error:
        return error.format_message()
    return ""


def differences(text: str, page: str, folder: Path) -> Iterator[str]:
    """Do in a folder what a page says, and yield each place where it is not as the page says."""
    for name in _TREE:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.pyc.*"))
    for fence in fences(text, page):
        if fence.file:
            write(fence, folder)
        elif DENIED in (fence.shown or ""):
            yield from _refusal(fence, folder)
        elif fence.runs:
            status, printed = _run(fence.text, folder)
            if status != fence.exits:
                yield f"{fence.where}: exit status {status}, not {fence.exits}:\n{printed}"
            elif fence.shown is not None and not same(fence.shown, printed):
                lines = ndiff(fence.shown.splitlines(), printed.splitlines())
                yield f"{fence.where}: it prints otherwise:\n" + "\n".join(lines)


def _run(script: str, folder: Path) -> tuple[int, str]:
    """Return exit status and what a terminal without a cluster shows."""
    # At the proxy nobody answers.
    environment = {"PYTHONPATH": str(folder), "HTTPS_PROXY": "http://127.0.0.1:9", "SOURCE_DATE_EPOCH": _DATE}
    typed = "".join(line for line in script.splitlines(True) if line[:5] != "make ")
    return terminal(typed, folder, environment, _FENCE_S)


def _refusal(fence: Fence, folder: Path) -> Iterator[str]:
    """Yield what is wrong with a refusal by kubectl: `preview` and `lint` give the same reasons."""
    linted = re.sub(r"kubectl \w+ -f -$", "gpugate lint -", fence.text, flags=re.MULTILINE)
    _, printed = _run(re.sub(r"kubectl \w+ -f", "gpugate preview -f", linted), folder)
    reasons = _REASON.findall(fence.shown or "")
    if not reasons:
        yield f"{fence.where}: no reason in this refusal"
    for reason in reasons:
        if reason not in printed:
            yield f"{fence.where}: {reason}: not in\n{printed}"


def anchors(text: str) -> list[str]:
    """Return the anchors that GitHub makes of a page's headings, in their order."""
    slugs = [re.sub(r"[^\w -]", "", heading.lower()) for heading in _HEADING.findall(prose(text))]
    counted = [(slug.replace(" ", "-"), slugs[:index].count(slug)) for index, slug in enumerate(slugs)]
    return [f"{slug}-{before}" if before else slug for slug, before in counted]


def _outline(page: str) -> dict[str, list[Any]]:
    """Return what a page has in any language."""
    text = text_of(page)
    words = prose(text)
    return {
        "headings": [len(level) for level in re.findall(r"^(#+) ", words, re.MULTILINE)],
        "fences": [_shape(fence) for fence in fences(text, page)],
        "commands": [
            line.partition("#")[0].strip() for line in _INDENTED.findall(words) if _COMMAND.search(line)
        ],
        "tables": [line.count("|") for line in words.splitlines() if line.startswith("|")],
        "paragraphs": [_paragraphs(section) for section in re.split(r"^#+ .*", words, flags=re.MULTILINE)],
        "links": sorted((english(path), anchor) for path, anchor in _targets(page) if path != _other(page)),
        "code": sorted(re.findall(r"`([^`\n]+)`", words)),
    }


def _shape(fence: Fence) -> tuple[str, ...]:
    """Return what a fence has in any language; of YAML, all but the comments; of output, nothing."""
    notes = (fence.language, fence.file, fence.needs, str(bool(fence.unrun)), str(fence.exits))
    if fence.language == "yaml":
        return (*notes, str([*yaml.safe_load_all(fence.text)]))
    code = re.sub(r" --lang zh|(?<= )#.*", "", fence.text) if fence.language != "text" else ""
    return (*notes, *(line.rstrip() for line in code.splitlines()), str(fence.shown is None))


def _paragraphs(section: str) -> tuple[int, int]:
    """Return how many paragraphs and items of lists a section has."""
    blocks = [block for block in re.split(r"\n\s*\n", section) if block.strip() and "<!--" not in block]
    return len(blocks), len(re.findall(r"^(?:-|\d+\.) ", section, re.MULTILINE))


def _other(page: str) -> str:
    """Return the page in the other language, which each page links at its top."""
    if page != english(page):
        return english(page)
    return next((other for other in PAGES if other != page and english(other) == page), "")


def _targets(page: str) -> Iterator[tuple[str, str]]:
    """Yield (path, place) of each link of a page: the place is a number of a heading, in any language."""
    for link in _LINK.findall(prose(text_of(page))):
        path, _, anchor = link.partition("#")
        if "://" in link:
            yield link, ""
            continue
        target = os.path.normpath(Path(page).parent / path) if path else page
        # In both languages the heading has the same number.
        yield target, str(anchors(text_of(target)).index(anchor)) if anchor else ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(fence.runs for fence in fences(text_of(page), page))]
)
def test_a_reader_who_does_what_a_page_says_sees_what_it_shows(page: str, tmp_path: Path) -> None:
    """`make` is left out: its targets are what everybody runs all day."""
    assert "" == "\n".join(differences(text_of(page), page, tmp_path))


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_is_one_that_there_is(page: str) -> None:
    """Those too that need a cluster, and those inside a line."""
    text = text_of(page)
    writes = {fence.file for fence in fences(text, page)}
    mistakes = {
        f"{place}: {' '.join(words)}": mistake_in(words, writes) for place, words in typed(text, page)
    }

    assert {} == {command: mistake for command, mistake in mistakes.items() if mistake}


def unrun(text: str, page: str) -> Iterator[str]:
    """Yield each place with commands that no test runs and that do not say why."""
    for fence in fences(text, page):
        walked = {
            "": True,
            "kubectl": True,
            "cluster": english(page) in IN_CLUSTER,
            ENGINE: english(page) in WITH_ENGINE,
        }
        if fence.language == "sh" and not fence.unrun and not walked.get(fence.needs):
            yield fence.where
    for match in _INDENTED.finditer(prose(text)):
        if _COMMAND.search(match[1]) and not match[1].startswith("make "):
            yield f"{page}:{line_of(text, match.start())}"


# Its commands want a node with GPUs, or are in tests/e2e/test_agent.py.
@pytest.mark.parametrize("page", [page for page in PAGES if english(page) != "docs/agent.md"])
def test_every_command_of_a_page_is_run_or_says_why_not(page: str) -> None:
    """Here, or by e2e/test_pages.py and e2e/test_image.py. `make` is what everybody runs all day."""
    assert [] == list(unrun(text_of(page), page))


@pytest.mark.parametrize(
    "page",
    [
        "\n    kubectl get pods\n",
        "\n<!-- needs: pods -->\n```sh\nkubectl get pods\n```\n",
        "\n<!-- needs: cluster -->\n```sh\nkubectl get pods\n```\n",
    ],
)
def test_a_command_that_nobody_runs_is_told(page: str) -> None:
    """On a page that is not among those that are run in a cluster."""
    assert [] != list(unrun(f"# Page\n{page}", "page.md"))


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: str) -> None:
    """Of this tree; other sites are their own."""
    text = prose(text_of(page))
    broken = []
    for match in _LINK.finditer(text):
        path, _, anchor = match[1].partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        leads = target.exists() and (not anchor or anchor in anchors(target.read_text("utf-8")))
        if "://" not in match[1] and not leads:
            broken.append(f"{page}:{line_of(text, match.start())}: {match[1]}")

    assert [] == broken


def test_a_reader_of_the_readme_comes_to_every_page() -> None:
    """By links from page to page, or to the folder that a page is in."""
    reached, todo = {ROOT / "README.md"}, [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        paths = [match[1].partition("#")[0] for match in _LINK.finditer(text_of(str(page)))]
        links = {(page.parent / path).resolve() for path in paths if path}
        linked = {
            page_path for page_path in map(ROOT.joinpath, PAGES) if {page_path, page_path.parent} & links
        }
        todo += linked - reached
        reached |= linked

    assert [] == sorted({*PAGES} - {str(page.relative_to(ROOT)) for page in reached})


@pytest.mark.parametrize("page", PAGES)
def test_every_rule_that_a_page_shows_whole_is_sound(page: str) -> None:
    """As the loader has it; what a page shows of a rule in part is not looked at."""
    errors = []
    for fence in fences(text_of(page), page):
        if fence.language == "yaml" and "kind: ConfigMap" in fence.text and "\ndata:" in fence.text:
            errors += [
                str(error) for error in load_rules([(fence.where, fence.text)], DEFAULT_NAMESPACE).errors
            ]

    assert [] == errors


@pytest.mark.parametrize("page", PAGES)
def test_every_metric_that_a_page_names_is_served(page: str) -> None:
    """By the name that Prometheus knows."""
    # The gate's, the node agent's and the image resolver's.
    registries = gate_metrics.REGISTRY, REGISTRY, resolver_metrics.REGISTRY
    texts = b"".join(map(generate_latest, registries))
    served = set(re.findall(r"^# TYPE (gpugate_\w+)", texts.decode(), re.MULTILINE))
    named = {name.removesuffix("_bucket") for name in re.findall(r"\bgpugate_\w+", text_of(page))}

    assert set() == named - served


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_readme_is_short(page: str) -> None:
    """What a stranger reads first; the rest is in docs."""
    assert len(text_of(page).splitlines()) <= 150


def test_the_page_of_the_command_line_has_each_command_in_its_table() -> None:
    """Each that `gpugate --help` lists."""
    rows = re.findall(r"^\| `gpugate (.+?)`", text_of("docs/command-line.md"), re.MULTILINE)
    listed = main.list_commands(click.Context(main))

    assert [] == [name for name in listed if not any(f"{row} ".startswith(f"{name} ") for row in rows)]


@pytest.mark.parametrize("page", [page for page in PAGES if page != english(page)])
def test_a_chinese_page_says_what_the_english_one_says(page: str) -> None:
    """The same headings, code but for the language of messages and comments, tables and links.

    Links to pages that are in Chinese lead to these.
    """
    there, here = _outline(english(page)), _outline(page)

    for part, expected in there.items():
        assert expected == here[part], part
    for path, _ in _targets(page):
        assert path not in map(english, {*PAGES} - {path}) or path == english(page), (
            f"there is a Chinese {path}"
        )


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ("```sh\necho one\n```\n\n```text\none\n```\n", []),
        ("```sh\necho one\n```\n\n```text\ntwo\n```\n", ["page.md:3: it prints otherwise"]),
        ("\n```sh\nfalse | true\n```\n", ["page.md:4: exit status 1, not 0"]),
        ("<!-- unrun: it never ends -->\n```sh\nfalse\n```\n", []),
        ("\n```sh\nfalse\necho two\n```\n", ["page.md:4: exit status 1, not 0"]),
        ("<!-- exits: 1 -->\n```sh\ntrue\n```\n", ["page.md:4: exit status 0, not 1"]),
        ("<!-- needs: cluster -->\n```sh\nfalse\n```\n", []),
        ("`one.yaml`:\n\n```yaml\na: 1\n```\n\n```sh\ncat one.yaml\n```\n```text\na: …\n```\n", []),
        ("```sh\nseq 5\n```\n```text\n1\n…\n5\n```\n", []),
        ("```sh\nseq 5\n```\n```text\n1\n…\n4\n```\n", ["page.md:3: it prints otherwise"]),
    ],
)
def test_what_is_not_as_a_page_says_is_told_with_itsline_of(
    page: str, told: list[str], tmp_path: Path
) -> None:
    """The tests above can fail."""
    lines = differences(f"# Page\n\n{page}", "page.md", tmp_path)

    assert told == [line.partition(":\n")[0] for line in lines]


@pytest.mark.parametrize(
    ("command", "mistake"),
    [
        ("gpugate preview -f pod.yaml --node nodes.yaml", "No such option"),
        ("kubectl get pods -o yaml | gpugate audits -f -", "No such command 'audits'"),
        ("X=1 gpugate lint -o xml", "'xml' is not one of"),
        ("gpugate certs show && make tests", "no target tests"),
        ("gpugate preview -f docs/examples/refused.yml", "no docs/examples/refused.yml"),
        ("kubectl apply -k manifests/overlays/production", "no manifests/overlays/production"),
    ],
)
def test_a_command_that_there_is_not_is_told(command: str, mistake: str) -> None:
    """Wherever in a line it stands."""
    (reported,) = filter(None, (mistake_in(words, ()) for words in commands(command)))

    assert mistake in reported
