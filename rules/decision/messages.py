"""Messages of the decision in each language: violations, warnings, denials.

A violation has: container, path, found, expected, fix. A message's first line carries the first finding,
because `kubectl get events` cuts at the first newline. Warnings fit 256 characters without losing the fix,
because API servers cut them there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from rules.model.decision import AdmissionWarning, Violation, Wording, with_fix
from rules.text.i18n import Language, Text
from rules.text.printable import printable

# https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#response
WARNING_LENGTH: Final = 256
_PREFIX: Final = "gpugate: "
_ELLIPSIS: Final = "…"
# Characters of a warning's reason that its fix does not take: container, path and what was found.
_REASON_LENGTH: Final = 96


class Words(NamedTuple):
    """The texts of one kind of violation: what was found, what is expected, what to do."""

    found: Text
    expected: Text
    fix: Text


_FOUND: Final = Text("{found}", "{found}")
LIMIT_MISSING: Final = Words(
    Text("nothing", "未设置"),
    Text("a quantity of {key}", "{key} 的数量"),
    Text("set {path}", "请设置 {path}"),
)
LIMIT_FORBIDDEN: Final = Words(
    _FOUND, Text("no limit of {key}", "不得设置 {key} 的 limits"), Text("remove {path}", "请删除 {path}")
)
REQUEST_MISSING: Final = LIMIT_MISSING
REQUEST_DIFFERS: Final = Words(
    _FOUND,
    Text("a request equal to the limit, {limit}", "requests 须与 limits 相同：{limit}"),
    Text("remove {path}, or set it to the limit", "请删除 {path}，或设为与 limits 相同"),
)
_WITHOUT_LIMIT: Final = Text("{found} and no limit", "{found}，但未设置 limits")
REQUEST_WITHOUT_LIMIT: Final = Words(
    _WITHOUT_LIMIT,
    Text("a limit, which the request follows", "requests 须取自 limits"),
    Text("move it to limits: set {limit_path}", "请改为设置 {limit_path}"),
)
REQUEST_FORBIDDEN: Final = Words(
    _WITHOUT_LIMIT,
    Text("no request of {key}", "不得设置 {key} 的 requests"),
    Text("remove {path}", "请删除 {path}"),
)
EXCLUDED: Final = Words(
    Text("{found} together with {other}", "{found}，同时设置了 {other}"),
    Text("only one of {key} and {other}", "{key} 与 {other} 互斥，只能设置其一"),
    Text("remove one of them", "请删除其中之一"),
)
NO_QUANTITY: Final = Words(
    _FOUND,
    Text("a quantity, such as 2, 500m or 8Gi", "合法的数量，例如 2、500m 或 8Gi"),
    Text("write a number with a Kubernetes suffix", "请写成带 Kubernetes 后缀的数字"),
)
NOT_WHOLE: Final = Words(_FOUND, Text("a whole number", "整数"), Text("use a whole number", "请使用整数"))
WHOLE_OR_SHARE: Final = Text(
    "use a whole number, or a resource that shares GPUs: {shares}",
    "请使用整数，或使用可共享 GPU 的资源：{shares}",
)
# Instead of the description of a rule.
API_SERVER: Final = Text(
    "the API server accepts nothing else of extended resources", "API 服务器对扩展资源的要求"
)
NOT_POSITIVE: Final = Words(
    _FOUND,
    Text("zero or more", "不小于 0 的数"),
    Text("use a positive number, or remove it", "请写成正数或删除"),
)
# A value that the user may not have written.
THE_DEFAULT: Final = Text("{found} (the default of the rule)", "{found}（该规则的默认值）")
_EXPECTED: Final = Text("{expected}", "{expected}")
INVALID: Final = Words(_FOUND, _EXPECTED, Text())
INVALID_OTHERS: Final = Words(
    _FOUND,
    _EXPECTED,
    Text(
        "change the other resource it depends on, or remove {path}", "请调整其依赖的其他资源，或删除 {path}"
    ),
)
# A variable of the container that a validation names.
VARIABLE: Final = Words(
    Text("{variable}={found}", "{variable}={found}"),
    _EXPECTED,
    Text("change {variable}, or remove it", "请修改或删除 {variable}"),
)
# The fix that a validation has itself.
OWN_FIX: Final = Text("{own_fix}", "{own_fix}")
# A suggested value in the unit of the resource.
USE_VALUE: Final = Text(
    "use {value}: {found} is {value} units of {unit}", "请使用 {value}：{found} 等于 {value} 个 {unit}"
)
NOT_EVALUATED: Final = Text(
    "a value for which {expression} can be evaluated, but: {error}",
    "可以计算表达式 {expression} 的值，但：{error}",
)
_FIX_RULE: Final = Text(
    "the rule is at fault: ask its owner to fix the expression", "规则有误：请其维护者修复该表达式"
)
VALIDATION_ERROR: Final = Words(_FOUND, NOT_EVALUATED, _FIX_RULE)
VALIDATION_IGNORED: Final = Text(
    "{expression} could not be evaluated for {key} and was skipped: {error}",
    "无法对 {key} 计算表达式 {expression}，已跳过：{error}",
)
NOTHING_INJECTED: Final = Text(
    "a condition of the rule could not be evaluated, nothing was injected: {error}",
    "无法计算规则的条件，未注入任何内容：{error}",
)
RULE_APPLIES: Final = Text(
    "a condition of the rule could not be evaluated, so the rule applies: {error}",
    "无法计算规则的条件，因此该规则生效：{error}",
)
_OLD_AFFINITY: Final = Text(
    "the pod's node affinity cannot change and is not that of the new image: incompatible nodes, if there"
    " are any, are not excluded",
    "该 Pod 的节点亲和性不可更改，与新镜像不符：若有不兼容的节点，不会被排除",
)
_CREATE_AGAIN: Final = Text("delete the pod and create it again", "请删除该 Pod 并重新创建")
EXPIRED: Final = Text("exemption {exemption} expired at {until}", "豁免 {exemption} 已于 {until} 到期")
_RENEW: Final = Text("ask its owner to renew it", "请联系其维护者续期")
ENV_FROM: Final = Text(
    "{name} is set and takes precedence over a value from {source}",
    "已注入 {name}，其优先于 {source} 中的同名变量",
)
_LIST_IN_ENV: Final = Text(
    "to keep your own value, list {name} in env", "如需保留自己的值，请在 env 中显式设置 {name}"
)
_IN_CONTAINER: Final = Text("container {container!r}: {cause}", "容器 {container!r}：{cause}")
_AT_PATH: Final = Text("container {container!r}, {path}: {cause}", "容器 {container!r}，{path}：{cause}")
_VIOLATION: Final = Text("found {found}, expected {expected}", "当前为 {found}，要求 {expected}")
_WITH_DESCRIPTION: Final = Text("{expected} ({description})", "{expected}（{description}）")
_DENIED: Final = Text("{kind} denied by gpugate: ", "gpugate 拒绝该 {kind}：")
_DENIED_SEVERAL: Final = Text(
    "{kind} denied by gpugate, {count} violations: 1. ", "gpugate 拒绝该 {kind}，共 {count} 处违规：1. "
)
_RULE: Final = Text(" [rule {rule}]", " [规则 {rule}]")


def violation(
    language: Language, words: Words, description: Text, facts: Mapping[str, object], fix: Text | None = None
) -> Wording:
    """Return what is said of a violation. facts: container and path, and what the words name.

    fix: instead of that of the words.
    """
    expected = words.expected.in_language(language).format_map(facts)
    if about := description.in_language(language):
        expected = _WITH_DESCRIPTION.in_language(language).format(expected=expected, description=about)
    found = words.found.in_language(language).format_map(facts)
    cause = printable(_VIOLATION.in_language(language).format(found=found, expected=expected))
    place = {"container": facts["container"], "path": facts["path"], "cause": cause}
    reason = _filled(language, _AT_PATH, place)
    return Wording(reason, _filled(language, fix or words.fix, facts), cause)


def invalid(variables: Sequence[str]) -> Words:
    """Return the words on a validation that is not satisfied. variables: those that its expression names."""
    return INVALID if "value" in variables else INVALID_OTHERS


def evaluation_error(
    language: Language, words: Text, rule: str, facts: Mapping[str, object]
) -> AdmissionWarning:
    """Return the warning that an expression of a rule could not be evaluated. facts: also the container."""
    return _of_container(language, rule, words, _FIX_RULE, facts)


def expired(language: Language, rule: str, exemption: str, until: str) -> AdmissionWarning:
    """Return the warning that an exemption from a violated rule has expired."""
    reason = _filled(language, EXPIRED, {"exemption": exemption, "until": until})
    return AdmissionWarning(rule, reason, _RENEW.in_language(language))


def old_affinity(language: Language, rule: str) -> AdmissionWarning:
    """Return the warning that the node affinity of a pod does not suit its new image."""
    return AdmissionWarning(rule, _filled(language, _OLD_AFFINITY, {}), _filled(language, _CREATE_AGAIN, {}))


def env_from(language: Language, rule: str, container: str, name: str, source: str) -> AdmissionWarning:
    """Return the warning that an injected variable takes precedence over one from `envFrom`."""
    facts = {"container": container, "name": name, "source": source}
    return _of_container(language, rule, ENV_FROM, _LIST_IN_ENV, facts)


def _of_container(
    language: Language, rule: str, words: Text, fix: Text, facts: Mapping[str, object]
) -> AdmissionWarning:
    cause = _filled(language, words, facts)
    reason = _filled(language, _IN_CONTAINER, {"container": facts["container"], "cause": cause})
    return AdmissionWarning(rule, reason, _filled(language, fix, facts), cause)


def warning_line(language: Language, warning: AdmissionWarning) -> str:
    """Return a warning as one line: reason, fix, rule. Of a long one the end of the reason is cut.

    The fix is cut, too, if it leaves no room for the beginning of the reason.
    """
    rule = _end(language, warning.rule, "")
    reason, fix = " ".join(warning.reason.split()), with_fix("", warning.fix, language)
    room = WARNING_LENGTH - len(_PREFIX) - len(rule)
    fix = _cut(fix, room - min(len(reason), _REASON_LENGTH))
    return (_PREFIX + _cut(reason, room - len(fix)) + fix + rule)[:WARNING_LENGTH]


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: max(length - 1, 0)] + _ELLIPSIS


def denial(language: Language, kind: str, violations: Sequence[Violation]) -> str:
    """Return the message of a denial: the first violation in the first line, then each on a line."""
    items = [_item(language, each) for each in violations]
    if len(items) == 1:
        return _DENIED.in_language(language).format(kind=kind) + items[0]
    head = _DENIED_SEVERAL.in_language(language).format(kind=kind, count=len(items)) + items[0]
    return "\n  ".join([head, *(f"{number}. {item}" for number, item in enumerate(items[1:], start=2))])


def _item(language: Language, found: Violation) -> str:
    """Return a violation with its rule; fix and rule end the first line."""
    reason, newline, table = found.reason.partition("\n")
    return reason + _end(language, found.rule, found.fix) + newline + table


def _end(language: Language, rule: str, fix: str) -> str:
    """Return the end of a violation or warning: fix and rule, as far as there are any."""
    end = with_fix("", fix, language)
    return end + (_RULE.in_language(language).format(rule=rule) if rule else "")


def _filled(language: Language, words: Text, facts: Mapping[str, object]) -> str:
    """Return a text with facts, in one line."""
    return printable(words.in_language(language).format_map(facts))
