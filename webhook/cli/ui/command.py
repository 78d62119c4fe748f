"""`gpugate ui`: a local page to try rules on pods."""

from __future__ import annotations

import errno
import os
import socket
import sys
import webbrowser
from typing import Final

import click

from rules.text.i18n import Message, os_error_reason
from rules.text.yaml_document import SourceError
from webhook.cli.inputs.completers import FILE
from webhook.cli.inputs.files import BAD_INPUT, BUILT_IN, is_built_in, read_path
from webhook.cli.inputs.options import (
    decision_options,
    object_namespace_option,
    port_option,
    workloads_option,
)
from webhook.cli.inputs.session import Session, with_session
from webhook.cli.terminal.console import BadInputError, print_summary
from webhook.cli.terminal.vocabulary import CTRL_C_STOPS
from webhook.cli.ui.cases import is_case, read_case
from webhook.cli.ui.page import GIVEN, Nodes, Page, Rules

# Characters of node files that a case file may contain; a page and its file stay easy to send.
_MAX_SHARED: Final = 512 * 1024
_NO_PORT: Final = Message("127.0.0.1:{port}: {why}; {fix}")
_OTHER_PORT: Final = Message("set another --port")
_HIGHER_PORT: Final = Message("set --port to 1024 or higher")


@click.command()
@click.option(
    "-f",
    "--filename",
    type=FILE,
    metavar="FILE",
    help="Begin with this file: objects, or a saved case.",
)
@object_namespace_option
@port_option(0, "Port on 127.0.0.1; 0: any that is free.")
@click.option("--no-browser", is_flag=True, help="Only print the address of the page.")
@decision_options
@workloads_option
@with_session
def command(filename: str | None, namespace: str, port: int, no_browser: bool, session: Session) -> None:
    """Open a local page that shows the admission result while you edit a pod.

    The page shows violations at their lines, the patch, the rules, the nodes and the CUDA matrix. It is
    served on 127.0.0.1 only, to whoever has the token in its address. It sends nothing to other hosts, and
    writes neither to the cluster nor to files.

    \b
    Examples:
      gpugate ui
      gpugate ui -f pod.yaml --nodes nodes.yaml
      gpugate ui --rules my-rules/ --context production
      gpugate ui --no-browser --port 8080
    """
    from webhook.cli.ui.server import page_server

    page = _page(session, filename, namespace)
    _check_port(port)
    server, address = page_server(page, port)
    click.echo(address)
    sys.stdout.flush()
    print_summary(CTRL_C_STOPS)
    if not no_browser and _has_display():
        webbrowser.open(address)
    with server:
        server.serve_forever()
    raise click.Abort  # werkzeug returns after Ctrl-C


def _page(session: Session, filename: str | None, namespace: str) -> Page:
    """Return the page that the options select. Raises BadInputError; exits with 2 if a rule has an error."""
    session.load()
    if session.failed:
        sys.exit(BAD_INPUT)
    cluster, paths = session.cluster, session.rule_paths
    rules = {BUILT_IN: Rules(BUILT_IN, session.with_facts(session.read_rules([BUILT_IN]).rules), (BUILT_IN,))}
    cluster_name = cluster.context or cluster.kubeconfig or "current context"
    if not all(map(is_built_in, paths)):
        rules = {GIVEN: Rules(", ".join(paths), session.rules, paths), **rules}
    elif cluster.selected and not paths:
        rules = {GIVEN: Rules(cluster_name, session.rules), **rules}
    page = Page(rules, session.workloads, namespace=namespace, language=session.language, cluster=cluster)
    if session.nodes_given:
        page.nodes = _nodes(session, cluster_name)
    if filename:
        _open(page, filename)
    return page


def _nodes(session: Session, cluster_name: str) -> Nodes:
    """Return the nodes of the options, with the text of files that are not too long and not stdin."""
    paths = session.node_paths
    if not paths:
        return Nodes(cluster_name, session.inventory)
    text: str | None = None
    if "-" not in paths:
        texts = [text for path in paths for _, text in read_path(path)]
        text = "---\n".join(f"{content.rstrip()}\n" for content in texts)
        text = text if len(text) <= _MAX_SHARED else None
    return Nodes(", ".join(paths), session.inventory, text)


def _open(page: Page, filename: str) -> None:
    """Begin with a file: its objects, or its case. Raises BadInputError."""
    text = "---\n".join(f"{text.rstrip()}\n" for _, text in read_path(filename))
    if not is_case(text):
        page.pod = text
        return
    try:
        case = read_case(text, filename)
    except SourceError as error:
        raise BadInputError(error.text) from None
    page.pod, page.namespace = case.pod, case.namespace
    page.node_text = case.nodes


def _check_port(port: int) -> None:
    """Raise BadInputError if the port cannot be used; werkzeug would print a longer text."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            fix = _OTHER_PORT if error.errno == errno.EADDRINUSE else _HIGHER_PORT
            reason = os_error_reason(error)
            raise BadInputError(_NO_PORT.having(port=port, why=reason, fix=fix)) from None


def _has_display() -> bool:
    """Return whether a browser can show a page; on Linux, a text browser would take the terminal."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
