"""Schedule of requests: the lane that answers a request, the accounts that are charged, and its memory.

Source of the order of an AdmissionReview's fields: k8s.io/api/admission/v1, AdmissionRequest.
"""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import Final

from webhook.admission.review import Header, decode_header
from webhook.server.http import Lane, Request, Work

# The paths of reviews.
MUTATE: Final = "/mutate"
VALIDATE: Final = "/validate"

# Bytes: two typical reviews. The slowest pod of this size takes 80 ms, a rule more than a second.
_QUICK_SIZE: Final = 16 * 2**10
# Bytes of a name of an account, in UTF-8; longer ones are replaced by their hash.
_NAME: Final = 64
# Bytes that count for a list or dict. It takes 128 or 192, with a number in it; but no other thread runs
# while it is decoded and passed by the garbage collector, which takes up to 0.5 us. So the 240,000 that fit
# into a lane's memory take 0.12 s. The largest object that etcd accepts has some 40,000.
_CONTAINER: Final = 512


def schedule(request: Request) -> Work:
    """Return how a request is scheduled.

    Reviews of ConfigMaps, which may be rules, have their own lane; a review that only contains the word does
    not. A review is quick if it is small; a page or a malformed request is never decoded here.
    """
    path, body = request.path, request.body
    if request.method != "POST" or path not in (MUTATE, VALIDATE):
        return Work(Lane.OTHER, partial(_accounts, request.client, None))
    is_small = len(body) <= _QUICK_SIZE
    # Only an escape \u can spell the word otherwise; to look for one byte first is a hundred times faster.
    may_be_rule = path == VALIDATE and (b'"ConfigMap"' in body or (b"\\" in body and b"\\u" in body))
    if is_small and not may_be_rule:
        return Work(Lane.QUICK, partial(_accounts_of, request))
    header = decode_header(body)
    accounts = partial(_accounts, request.client, header)
    if may_be_rule and header is not None and header.kind.kind == "ConfigMap" and not header.kind.group:
        return Work(Lane.RULES, accounts, decoded_size(body))
    if is_small and header is not None:
        return Work(Lane.QUICK, accounts)
    return Work(Lane.LONG, accounts, decoded_size(body))


def decoded_size(body: bytes | bytearray) -> int:
    """Return the bytes that a JSON text takes at most when decoded, by counting brackets, quotes and commas.

    From the sizes of CPython 3.11 to 3.13 on 64 bits, rounded up to the allocator's 16 bytes: a list of up to
    4 elements takes 64 + 32, each further one at most 16. A dict of up to 5 entries takes 64 + 128, each
    further one at most 66, while it grows. A number takes 32, a string at most 64 and 4 for each byte of its
    text. A number follows a bracket, a colon or a comma; a further element of a list follows a comma, a
    further entry of a dict a comma and has a colon; a string has two quotes. A long number takes less than 4
    bytes for each digit. While a string is decoded, it takes 1 more for each byte. 4 KiB are for the review
    itself.

    The worst text, nested empty lists, takes 48 times its length; usual reviews take 3 to 8 times.
    """
    count = body.count
    containers = _CONTAINER * (count(b"[") + count(b"{"))
    return 4096 + 5 * len(body) + containers + 32 * count(b'"') + 50 * count(b":") + 48 * count(b",")


def _accounts_of(request: Request) -> tuple[str, ...]:
    return _accounts(request.client, decode_header(request.body))


def _accounts(client: str, header: Header | None) -> tuple[str, ...]:
    """Return the accounts that the time of a review is charged to."""
    if header is None:
        return (f"client {client}",)
    return (
        f"client {client}",
        f"namespace {_short(header.namespace)}",
        f"user {_short(header.user_info.username)}",
    )


def _short(name: str) -> str:
    data = name.encode()
    return name if len(data) <= _NAME else blake2b(data, digest_size=16).hexdigest()
