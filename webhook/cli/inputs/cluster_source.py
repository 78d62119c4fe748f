"""The cluster that a command reads, if its options or the program select one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import click
from msgspec import Struct
from msgspec.structs import replace

from rules.text.i18n import Message
from webhook.cli.terminal.console import BadInputError, ForbiddenError

if TYPE_CHECKING:
    from webhook.cluster.client import Cluster, ClusterApi

T = TypeVar("T")

# The name by which kubectl starts its plugin, and the command that a user types then.
PLUGIN: Final = "kubectl-gpugate"
PLUGIN_COMMAND: Final = "kubectl gpugate"


class ClusterSource(Struct, frozen=True):
    """The cluster that --kubeconfig and --context select.

    Attributes:
        current: whether to use the current context if both are unset.
        otherwise: the option that can be used instead of a cluster, for error messages.
    """

    kubeconfig: str | None = None
    context: str | None = None
    current: bool = False
    otherwise: str = ""

    @property
    def named(self) -> bool:
        """Whether the options select a cluster."""
        return bool(self.kubeconfig or self.context)

    @property
    def selected(self) -> bool:
        """Whether a cluster is selected, by options or as the current one."""
        return self.named or self.current

    def or_current(self, otherwise: str) -> ClusterSource:
        """Return this cluster; if none is selected, the cluster of the current context."""
        return self if self.selected else replace(self, current=True, otherwise=otherwise)

    def connect(self) -> ClusterApi:
        """Return a client of the cluster; by default of the cluster of this pod, else of the current context.

        Raises BadInputError.
        """
        from webhook.cluster.client import ClusterError, connect

        try:
            return connect(self.kubeconfig, self.context)
        except ClusterError as error:
            raise BadInputError(error.text) from None

    def query(self, query: Callable[[Cluster], T]) -> T:
        """Return the result of a query to the cluster.

        Raises BadInputError; ForbiddenError if the rights do not suffice.
        """
        # Imported here: the import takes 0.2 s, and most commands do not use a cluster.
        from webhook.cluster.client import Cluster, ClusterError, is_forbidden

        try:
            return query(Cluster(self.kubeconfig, self.context))
        except ClusterError as error:
            text = error.text
            if self.otherwise:
                text = Message("{error} (or use {option})", error=text, option=self.otherwise)
            raise (ForbiddenError if is_forbidden(error) else BadInputError)(text) from None


NO_CLUSTER: Final = ClusterSource()


def is_plugin() -> bool:
    """Return whether this is the kubectl plugin, which uses the current context."""
    return click.get_current_context().find_root().info_name in (PLUGIN, PLUGIN_COMMAND)
