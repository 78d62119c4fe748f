"""Texts of input files: in files, folders, URLs and stdin; and the folder of the built-in rules."""

from __future__ import annotations

import os
import sys
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Final, NoReturn

import rules
from rules.schema.errors import did_you_mean
from rules.text.i18n import Message, Text, os_error_reason, os_error_text
from rules.text.yaml_document import NOT_UTF8
from webhook.cli.terminal.console import BadInputError

# A manifest is far smaller; the API server accepts 3 MiB of an object.
_MAX_BYTES: Final = 16 * 1024 * 1024
_CHUNK: Final = 64 * 1024
# Seconds: of one step without data, and of the whole transfer.
_STEP_S: Final = 10.0
_WHOLE_S: Final = 60.0
_NO_FILES: Final = Message("{path}: no YAML or JSON file in this folder")
_NO_TESTS: Final = Message(
    "{path}: no *.test.yaml file in this folder; `gpugate test --help` shows an example"
)


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
                    raise _unreadable(url, Message("more than {most} MiB", most=_MAX_BYTES // 1024 // 1024))
                if monotonic() > end:
                    raise _unreadable(url, Message("no end after {seconds:.0f} seconds", seconds=_WHOLE_S))
    except HTTPError as error:
        status = f"{error.code} {error.reason}"
        raise _unreadable(url, Message("server reported {status}", status=status)) from None
    except OSError as error:
        from webhook.cluster.connection_errors import network_error_text

        raise _unreadable(url, Text(network_error_text(error, url))) from None
    except (HTTPException, ValueError) as error:
        raise _unreadable(url, Text(str(error))) from None
    return bytes(content)


def _unreadable(url: str, why: Message) -> BadInputError:
    return BadInputError(Message('unable to read URL "{url}": {why}', url=url, why=why))


BAD_INPUT: Final = 2
# Names the built-in rules where a rule file or folder is expected; a folder of this name is `./builtin`.
BUILT_IN: Final = "builtin"
# The name of stdin in messages.
STDIN: Final = "stdin"
_SUFFIXES: Final = (".yaml", ".yml", ".json")
# Unit tests of the rules in the same folder: neither rules nor manifests.
_TESTS: Final = (".test.yaml", ".test.yml")
_KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
# Number of names in a folder that the name of a missing file is compared with.
_COMPARED: Final = 1_000


def catalog_path() -> Path:
    """Return the folder of the built-in rules, relative to the working directory if it is below that."""
    path = Path(rules.__path__[0]) / "catalog"
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def rule_folder(path: str) -> str:
    """Return the path of rules: of the built-in ones for their name."""
    return str(catalog_path()) if path == BUILT_IN else path


def is_built_in(path: str) -> bool:
    """Return whether a path is that of the built-in rules."""
    return Path(rule_folder(path)).resolve() == catalog_path().resolve()


def read_path(path: str, *, tests: bool = False, lenient: bool = False) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of a file or URL, of each YAML and JSON file below a folder, or of stdin for `-`.

    tests: read only the rule tests (`*.test.yaml`) of a folder, which are otherwise skipped. lenient: bytes
    that are not UTF-8 become lone surrogates, which the YAML reader reports with their position, so that
    other files are still read. Raises BadInputError if a path cannot be read.
    """
    if not path:
        raise BadInputError(Message("the name of a file or folder is empty; check that its variable is set"))
    if path == "-":
        if sys.stdin is None:
            raise BadInputError(Message("stdin is closed"))
        yield STDIN, _decode(sys.stdin.buffer.read(), STDIN, lenient=lenient)
        return
    if is_url(path):
        yield path, _decode(read_url(path), path, lenient=lenient)
        return
    root = Path(path)
    if os.path.isdir(path):  # noqa: PTH112 - false for a name that is too long, without an exception
        names = [
            file
            for file in sorted(_files(root))
            if file.suffix in _SUFFIXES
            and file.name not in _KUSTOMIZATIONS
            and file.name.endswith(_TESTS) is tests
            and file.is_file()
        ]
        if not names:
            raise BadInputError((_NO_TESTS if tests else _NO_FILES).having(path=path))
    else:
        names = [root]
    for file in names:
        yield str(file), _decode(read_file(file), str(file), lenient=lenient)


def without_empty_folders(paths: Iterable[str]) -> tuple[str, ...]:
    """Return paths except folders that contain nothing, which are an error elsewhere."""
    return tuple(path for path in paths if not Path(path).is_dir() or any(Path(path).iterdir()))


def _files(root: Path) -> Iterator[Path]:
    """Yield the files below a folder, except names that start with a dot: `..data` of a mounted ConfigMap.

    Raises BadInputError if a folder cannot be listed.
    """

    def fail(error: OSError) -> NoReturn:
        raise BadInputError(os_error_text(error))

    for folder, below, names in os.walk(root, onerror=fail):
        below[:] = (name for name in below if not name.startswith("."))
        yield from (Path(folder, name) for name in names if not name.startswith("."))


def read_file(file: Path) -> bytes:
    """Return the content of a file. Raises BadInputError with its name."""
    try:
        return file.read_bytes()
    except OSError as error:
        fix = _path_hint(file) if isinstance(error, FileNotFoundError) else Message()
        reason = os_error_reason(error)
        raise BadInputError(Message("{file}: {why}{fix}", file=file, why=reason, fix=fix)) from None


def write_text(name: str, text: str) -> None:
    """Replace the content of a file that `read_path` has read, whose byte order mark stays.

    Raises BadInputError, also for a URL.
    """
    if is_url(name):
        raise BadInputError(Message("{name}: a URL cannot be written", name=name))
    file = Path(name)
    mark = BOM_UTF8 if read_file(file).startswith(BOM_UTF8) else b""
    try:
        file.write_bytes(mark + text.encode())
    except OSError as error:
        raise BadInputError(os_error_text(error)) from None


def _path_hint(missing: Path) -> Message:
    """Return a similar name in the folder of a missing file, or the folder that its path starts in."""
    try:
        names = [path.name for path in islice(missing.parent.iterdir(), _COMPARED)]
    except OSError:
        names = []
    if similar := get_close_matches(missing.name, names, n=1):
        return did_you_mean(similar[0])
    return (
        Message()
        if missing.is_absolute()
        else Message("; the path is relative to {folder}", folder=Path.cwd())
    )


def _decode(content: bytes, name: str, *, lenient: bool) -> str:
    try:
        return content.decode("utf-8-sig", "surrogateescape" if lenient else "strict")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInputError(Message("{place}: {problem}", place=f"{name}:{line}", problem=NOT_UTF8)) from None
