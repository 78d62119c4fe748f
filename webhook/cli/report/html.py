"""Reports as one HTML file, from the templates in `templates/`, which escape each value."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rules import Language
from rules.model.check_result import level_of
from rules.text.i18n import Message
from rules.text.printable import printable
from webhook.cli.matrix.matrix import FACTS, LEVEL_LABELS, Column, footnotes, letters
from webhook.cli.report.model import DENY, EFFECTS, NOT_CHECKED, WARN, Report
from webhook.cli.report.rule_pages import address_of
from webhook.cli.terminal.console import UNKNOWN, counted
from webhook.cli.terminal.vocabulary import heading, value

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES: Final = Path(__file__).with_name("templates")
# Rows of a table; a browser shows some thousand at once.
_MOST_ROWS: Final = 2000
# The tag of a language whose code does not say its script.
_TAGS: Final = {"zh": "zh-Hans"}


class _Row(NamedTuple):
    effect: str
    owner: str
    rule: str
    message: str
    objects: int


def html(report: Report) -> str:
    """Return the page of a report of workloads: fixes, findings by team, what was not checked, and nodes."""
    teams = {
        effect: {target.team for target in report.targets if target.messages(effect)} for effect in EFFECTS
    }
    return page(
        "audit.html",
        report.language,
        summary=report.summary,
        report=report,
        teams={target.team for target in report.targets},
        denied=teams[DENY],
        warned=teams[WARN],
        unchecked=teams[NOT_CHECKED],
        findings=_findings(report),
    )


def _findings(report: Report) -> dict[str, list[_Row]]:
    """Return for each namespace what is wrong with how many objects of an owner, the most severe first."""
    by_namespace: dict[str, list[_Row]] = {}
    for namespace, targets in report.by_namespace().items():
        objects = Counter(
            row
            for target in targets
            for row in {
                (finding.effect, target.owner, finding.rule, finding.message)
                for finding in target.findings
                if finding.effect != NOT_CHECKED
            }
        )
        rows = [_Row(*row, number) for row, number in objects.items()]
        if rows:
            by_namespace[namespace] = sorted(rows, key=lambda row: (EFFECTS.index(row.effect), row))
    return by_namespace


def page(template: str, language: Language, **facts: Any) -> str:
    """Return the page of a template. facts: its variables."""
    templates = _templates(language)
    # The style is allowed by its hash; nothing else is loaded or run, wherever the file is opened.
    digest = b64encode(sha256(templates.get_template("page.css").render().encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return templates.get_template(template).render(facts, policy=policy)


@cache
def _templates(language: Language) -> Environment:
    """Return the templates. A variable that is absent is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup, escape

    def shown(value: Any) -> Any:
        """Return a value without markup and control characters, with which no line begins."""
        if isinstance(value, Markup):
            return value
        text = value.in_language(language) if isinstance(value, Message) else str(value)
        return escape(printable(text, "\n\t")).replace("\n", Markup("&#10;"))

    def fact_names(column: Column) -> Markup:
        """Return a line for the name of each fact of a column."""
        line = Markup('<span class="fact">{}</span>')
        return Markup().join(line.format(FACTS[key].in_language(language)) for key in column.facts)

    def fact_values(column: Column) -> Markup:
        """Return a line for each fact of a column, with its name for screen readers alone."""
        line = Markup('<span class="fact"><span class="hidden">{} </span>{}</span>')
        return Markup().join(
            line.format(FACTS[key].in_language(language), UNKNOWN if fact is None else printable(str(fact)))
            for key, fact in column.facts.items()
        )

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "_": Message,
        "heading": partial(heading, language=language),
        "value": partial(value, language=language),
        "counted": counted,
        "language": language,
        "lang": _TAGS.get(language, language),
        "address_of": address_of,
        "most_rows": _MOST_ROWS,
        "footnotes": footnotes,
        "labels": LEVEL_LABELS,
        "level_of": level_of,
        "letters": letters,
    }
    environment.filters |= {"fact_names": fact_names, "fact_values": fact_values}
    return environment
