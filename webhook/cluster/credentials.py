"""Credentials: client configuration from a kubeconfig, or from the service account of this pod.

Source: https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/#directly-accessing-the-rest-api
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kubernetes.client import Configuration
from kubernetes.config import ConfigException, kube_config, load_kube_config
from kubernetes.config.incluster_config import InClusterConfigLoader
from urllib3 import disable_warnings
from urllib3.exceptions import InsecureRequestWarning
from yaml import YAMLError

if TYPE_CHECKING:
    from collections.abc import Mapping


# Exceptions of the library for a file that is not a kubeconfig: it does not check types.
_OTHER_TYPES: Final = (AttributeError, LookupError, RecursionError, TypeError, UnicodeError)

# Messages of the library, and what kubectl says instead.
_WORDS_OF_KUBECTL: Final = {
    re.compile(r"Expected object with name (.*) in .*/contexts list"): (
        r"context was not found for specified context: \1"
    ),
    re.compile(r"Expected object with name (.*) in .*/clusters list"): r'cluster "\1" does not exist',
    re.compile(r"Expected key current-context in "): "current-context is not set",
    re.compile(r"No configuration found"): "no configuration found",
}


def by_kubeconfig(kubeconfig: str | None, context: str | None) -> Configuration:
    """Return the configuration of a context, or the current one, of the given or the default kubeconfig.

    Raises ConfigException, in one line that names the file.
    """
    configuration = Configuration()
    where = kubeconfig or kube_config.KUBE_CONFIG_DEFAULT_LOCATION
    try:
        if kubeconfig:
            Path(kubeconfig).expanduser().stat()  # the library skips a missing file
        load_kube_config(  # type: ignore[no-untyped-call]
            where, context, configuration, persist_config=False
        )
        if not configuration.verify_ssl:  # insecure-skip-tls-verify: the user's choice, as for kubectl
            disable_warnings(InsecureRequestWarning)
        proxy = str(configuration.proxy or "http:")
        if proxy.lower().startswith(("http:", "https:")):
            return configuration
        reason = f"{where}: proxy-url: expected http:// or https://, got {proxy!r}"
    except OSError as error:
        reason = f"{error.filename or where}: {error.strerror}"
    except _OTHER_TYPES:
        reason = f"{where}: not a kubeconfig"
    except (ConfigException, ValueError, YAMLError) as error:
        message = _in_words_of_kubectl(" ".join(str(error).split()).removesuffix("."))
        reason = message if where in message else f"{where}: {message}"
    raise ConfigException(reason)


def _in_words_of_kubectl(message: str) -> str:
    """Return a message of the library about names in a kubeconfig as kubectl words it."""
    for pattern, words in _WORDS_OF_KUBECTL.items():
        if match := pattern.search(message):
            return match.expand(words)
    return message


def by_service_account(folder: Path, environ: Mapping[str, str]) -> Configuration | None:
    """Return the configuration of a pod's service account; None if the folder has none.

    Raises ConfigException, OSError if it exists and cannot be used.
    """
    token, authority = folder / "token", folder / "ca.crt"
    if not (token.is_file() and authority.is_file()):
        return None
    configuration = Configuration()
    loader = InClusterConfigLoader(  # type: ignore[no-untyped-call]
        str(token), str(authority), environ=environ
    )
    loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
    # The loader's own hook uses the clock: if the clock is set back, it keeps a token that expires.
    configuration.refresh_api_key_hook = partial(_read_token, token)  # type: ignore[assignment]
    return configuration


def _read_token(token: Path, configuration: Configuration) -> None:
    if not (content := token.read_text("utf-8")):
        raise ConfigException("the token file is empty")
    configuration.api_key["BearerToken"] = f"bearer {content}"
