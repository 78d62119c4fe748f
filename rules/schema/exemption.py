"""Exemptions: the document and the rule that it makes."""

from __future__ import annotations

import calendar
import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field, WithJsonSchema

from rules.model.match import Match
from rules.model.rule import Exemption
from rules.schema.builder import KindDocument, RuleBuilder
from rules.schema.field_types import (
    MAX_ENTRIES,
    MAX_NAMES,
    Glob,
    NamespacesDocument,
    NonEmpty,
    PodSelectorDocument,
    build_selector,
)
from rules.text.i18n import Message, Text

_DAY_S: Final = 86_400
_DATE: Final = r"(\d{4})-(\d{2})-(\d{2})"
# RFC 3339, section 5.6, without leap seconds.
_TIME: Final = r"[Tt ]([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.\d+)?(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))"
_EXPIRES: Final = re.compile(f"{_DATE}(?:{_TIME})?", re.ASCII)


def _expires(text: str) -> str:
    instant(text)
    return text


def instant(text: str) -> float:
    """Return the end of a date (in UTC) or an RFC 3339 time, in seconds since the epoch.

    Raises ValueError with a Text for other text.
    """
    match = _EXPIRES.fullmatch(text)
    if match is None:
        date, time = "2026-12-31", "2026-12-31T18:00:00Z"
        raise ValueError(
            Message(
                "expected a date such as {date}, or a time with zone such as {time}; got {text!r}",
                date=date,
                time=time,
                text=text,
            )
        )
    year, month, day = (int(part) for part in match.groups()[:3])
    if not (year and 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1]):
        raise ValueError(Message("the day does not exist: {text!r}", text=text))
    midnight = calendar.timegm((year, month, day, 0, 0, 0))
    if match[4] is None:
        return midnight + _DAY_S
    hour, minute, second = (int(part) for part in match.groups()[3:6])
    offset = int(f"{match[7]}1") * (int(match[8]) * 3600 + int(match[9]) * 60) if match[7] else 0
    return midnight + hour * 3600 + minute * 60 + second - offset


Expires = Annotated[
    str,
    AfterValidator(_expires),
    WithJsonSchema({"type": "string", "pattern": f"^{_EXPIRES.pattern}$"}),
]


class ExemptionDocument(KindDocument):
    """Exempts some pods from rules until a date."""

    reason: NonEmpty = Field(description="the reason, for listings and logs")
    expires: Expires = Field(description="the last day (UTC), or a time with zone (RFC 3339)")
    rules: list[NonEmpty] = Field(min_length=1, max_length=MAX_ENTRIES, description="rule names or globs")
    namespaces: NamespacesDocument = Field(NamespacesDocument(), description="namespaces of the pod")
    pod_selector: PodSelectorDocument = Field(
        PodSelectorDocument(), alias="podSelector", description="labels of the pod in the request"
    )
    service_accounts: list[Glob] = Field(
        [],
        alias="serviceAccounts",
        max_length=MAX_NAMES,
        description="names or globs of the pod's service account; empty: any",
    )

    def rule(self, builder: RuleBuilder) -> Exemption:
        """Return the rule."""
        return Exemption(
            name=builder.name,
            rules=tuple(self.rules),
            match=Match(
                resources=(),
                include=tuple(self.namespaces.include),
                exclude=tuple(self.namespaces.exclude),
                selector=build_selector(self.pod_selector),
            ),
            service_accounts=tuple(self.service_accounts),
            expires=instant(self.expires),
            until=self.expires,
            description=Text(self.reason),
            enabled=builder.enabled,
            location=builder.location,
        )
