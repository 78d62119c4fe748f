"""Files at http and https addresses, as `kubectl -f URL` reads them."""

from __future__ import annotations

from time import monotonic
from typing import Final

from webhook.cli.output.console import BadInputError

# A manifest is far smaller; the API server accepts 3 MiB of an object.
_MAX_BYTES: Final = 16 * 1024 * 1024
_CHUNK: Final = 64 * 1024
# Seconds: of one step without data, and of the whole transfer.
_STEP_S: Final = 10.0
_WHOLE_S: Final = 60.0


def is_url(path: str) -> bool:
    """Return whether a path is an http or https address."""
    return path.startswith(("http://", "https://"))


def read_url(url: str) -> bytes:
    """Return the content at an address, by the proxy of the environment. Raises BadInputError."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import urlopen

    end = monotonic() + _WHOLE_S
    content = bytearray()
    try:
        with urlopen(url, timeout=_STEP_S) as answer:  # noqa: S310 - is_url
            while chunk := answer.read1(_CHUNK):
                content += chunk
                if len(content) > _MAX_BYTES:
                    raise _unreadable(url, f"more than {_MAX_BYTES // 1024 // 1024} MiB")
                if monotonic() > end:
                    raise _unreadable(url, f"no end after {_WHOLE_S:.0f} seconds")
    except HTTPError as error:
        raise _unreadable(url, f"server reported {error.code} {error.reason}") from None
    except OSError as error:
        from webhook.cluster.connection_errors import network_error_text

        raise _unreadable(url, network_error_text(error, url)) from None
    except (HTTPException, ValueError) as error:
        raise _unreadable(url, str(error)) from None
    return bytes(content)


def _unreadable(url: str, why: str) -> BadInputError:
    return BadInputError(f'unable to read URL "{url}": {why}')
