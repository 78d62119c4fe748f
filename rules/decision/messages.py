"""What gpugate says to people, in each language.

A violation's message is one line: container, path, found, wanted, what to do. Each kind of violation has its
words here; nothing else in the decision writes sentences.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from rules.text.i18n import Language, Text

LIMIT_MISSING: Final = (
    Text("nothing", "未设置"),
    Text("a quantity of {key}", "{key} 的数量"),
    Text("set {path}", "请设置 {path}"),
)
LIMIT_FORBIDDEN: Final = (
    Text("{found}", "{found}"),
    Text("no limit of {key}", "不得设置 {key} 的 limits"),
    Text("remove {path}", "请删除 {path}"),
)
REQUEST_MISSING: Final = LIMIT_MISSING
REQUEST_DIFFERS: Final = (
    Text("{found}", "{found}"),
    Text("no request of its own: the limit, {limit}", "不得单独设置 requests，须与 limits 相同：{limit}"),
    Text("remove {path}, or set it to the limit", "请删除 {path}，或设为与 limits 相同"),
)
REQUEST_WITHOUT_LIMIT: Final = (
    Text("{found} and no limit", "{found}，但未设置 limits"),
    Text("the request to follow the limit", "requests 须取自 limits"),
    Text("move it to limits: set {limit_path}", "请改为设置 {limit_path}"),
)
REQUEST_FORBIDDEN: Final = (
    Text("{found} and no limit", "{found}，但未设置 limits"),
    Text("no request of {key}", "不得设置 {key} 的 requests"),
    Text("remove {path}", "请删除 {path}"),
)
EXCLUDED: Final = (
    Text("{found} beside {other}", "{found}，同时设置了 {other}"),
    Text("one of the two: {key} and {other} exclude each other", "{key} 与 {other} 互斥，只能设置其一"),
    Text("remove one of them", "请删除其中之一"),
)
NO_QUANTITY: Final = (
    Text("{found}", "{found}"),
    Text("a quantity, such as 2, 500m or 8Gi", "合法的数量，例如 2、500m 或 8Gi"),
    Text("write a number with a Kubernetes suffix", "请写成带 Kubernetes 后缀的数字"),
)
NOT_WHOLE: Final = (
    Text("{found}", "{found}"),
    Text("a whole number", "整数"),
    Text("round it", "请取整"),
)
NOT_POSITIVE: Final = (
    Text("{found}", "{found}"),
    Text("zero or more", "不小于 0 的数"),
    Text("write a positive number, or remove it", "请写成正数或删除"),
)
INVALID: Final = (
    Text("{found}", "{found}"),
    Text("{wanted}", "{wanted}"),
    Text("write a value that suits", "请改为符合要求的值"),
)
INVALID_BESIDE: Final = (
    *INVALID[:2],
    Text(
        "write a value that suits, or change what stands beside it",
        "请改为符合要求的值，或调整与之并列的设置",
    ),
)
INVALID_NEIGHBOUR: Final = (
    *INVALID[:2],
    Text("change what stands beside it, or remove {path}", "请调整与之并列的设置，或删除 {path}"),
)
UNEVALUATED: Final = Text(
    "rule {rule}: {expression} could not be evaluated for {key} of container {container!r} and was "
    "passed over; the rule needs repair: {error}",
    "规则 {rule}：无法对容器 {container!r} 的 {key} 计算表达式 {expression}，已跳过；请修复该规则：{error}",
)
UNDECIDED: Final = Text(
    "rule {rule}: its conditions could not be evaluated for container {container!r}, nothing was injected; "
    "the rule needs repair: {error}",
    "规则 {rule}：无法对容器 {container!r} 计算其条件，未注入任何内容；请修复该规则：{error}",
)
EXPIRED: Final = Text(
    "exemption {exemption} from rule {rule} expired at {until}; who granted it may renew it",
    "规则 {rule} 的豁免 {exemption} 已于 {until} 到期，可由授予者续期",
)
ENV_FROM: Final = Text(
    "container {container!r}: rule {rule} sets {name}, which takes precedence over what {source} may hold; "
    "list it under env to keep your own value",
    "容器 {container!r}：规则 {rule} 注入了 {name}，其优先于 {source} 中的同名变量；"
    "如需保留自己的值，请在 env 中显式设置",
)
_VIOLATION: Final = Text(
    "container {container!r}, {path}: found {found}, wanted {wanted}; {remedy}",
    "容器 {container!r}，{path}：当前为 {found}，要求 {wanted}；{remedy}",
)
_WITH_DESCRIPTION: Final = Text("{wanted} ({description})", "{wanted}（{description}）")
_DENIED: Final = Text(
    "gpugate refuses this {kind}: {count} {noun} to change",
    "gpugate 拒绝该 {kind}：有 {count} 处需要修改",
)
_NOUNS: Final = ("thing", "things")
_ITEM: Final = Text("{number}. {message} [rule {rule}]", "{number}. {message} [规则 {rule}]")

MessageWriter = tuple[Text, Text, Text]


def violation(
    language: Language, words: MessageWriter, description: Text, facts: Mapping[str, object]
) -> str:
    """Return a violation's line; words are what was found, what was wanted, what to do.

    facts: at least container and path, and whatever the words name.
    """
    found, wanted, remedy = (text.in_language(language).format_map(facts) for text in words)
    if about := description.in_language(language):
        wanted = _WITH_DESCRIPTION.in_language(language).format(wanted=wanted, description=about)
    return _VIOLATION.in_language(language).format(
        container=facts["container"], path=facts["path"], found=found, wanted=wanted, remedy=remedy
    )


def invalid(variables: Collection[str]) -> MessageWriter:
    """Return the words on a validation that is not met. variables: those that its expression reads."""
    if "value" not in variables:
        return INVALID_NEIGHBOUR
    return INVALID if len(variables) == 1 else INVALID_BESIDE


def sentence(language: Language, words: Text, facts: Mapping[str, object]) -> str:
    """Return words with the facts in their places."""
    return words.in_language(language).format_map(facts)


def denial(language: Language, kind: str, reasons: list[tuple[str, str]]) -> str:
    """Return the whole refusal that kubectl prints: a headline, then each (rule, message) on a line."""
    head = _DENIED.in_language(language).format(kind=kind, count=len(reasons), noun=_NOUNS[len(reasons) != 1])
    lines = (
        _ITEM.in_language(language).format(number=number, message=message, rule=rule)
        for number, (rule, message) in enumerate(reasons, start=1)
    )
    return "\n  ".join([head, *lines])
