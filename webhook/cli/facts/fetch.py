"""Documents by their addresses, under the guards of the registry client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from rules.text.i18n import Message
from webhook.cli.terminal.console import progress
from webhook.images.errors import ImageError, Reason

if TYPE_CHECKING:
    from webhook.images.registry import ClientSettings

# Of a document. The largest wheel of a compiler has 48 MB.
MAX_BYTES: Final = 256 * 2**20
_REQUEST_S: Final = 300.0


@contextmanager
def fetcher(settings: ClientSettings) -> Iterator[Callable[[str], bytes]]:
    """Yield a function that returns the content of an https address; it raises ImageError.

    The mirrors of the settings are by host.
    """
    # Imported here: aiohttp is an extra, and its import takes a quarter of a second.
    from yarl import URL

    from webhook.images.guards import Limits
    from webhook.images.transport import Transport

    limits = Limits(_REQUEST_S, MAX_BYTES, other_hosts=False)

    async def opened() -> Transport:
        return Transport(settings.guards, settings.tls, settings.proxy_of, settings.lookup, limits)

    async def sent(url: URL) -> bytes:
        answer = await transport.send("GET", url, {})
        if answer.status != HTTPStatus.OK:
            text = Message("{url}: HTTP status {status}", url=str(url), status=answer.status)
            raise ImageError(Reason.UNAVAILABLE, text)
        return answer.body

    def get(address: str) -> bytes:
        url = URL(address)
        if mirror := settings.mirrors.get(url.host or ""):
            url = URL(f"https://{mirror}{url.raw_path_qs}", encoded=True)
        with progress(Message("reading {url}", url=address)):
            return runner.run(sent(url))

    with asyncio.Runner() as runner:
        transport = runner.run(opened())
        try:
            yield get
        finally:
            runner.run(transport.close())
