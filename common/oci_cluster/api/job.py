"""A script that is run on a cluster of its own, as an object."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from oci_cluster.api.cluster import Cluster
from oci_cluster.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from oci_cluster.api.options import Options


class Job:
    """A script and the cluster that is made for it, and ends with it."""

    def __init__(self, framework: str, workers: int, **options: Unpack[Options]) -> None:
        """Note what is to be run; nothing happens yet.

        Args:
            framework: See :class:`Cluster`.
            workers: Likewise.
            options: Likewise; ``entry`` or ``module`` must be among them.

        Raises:
            UsageError: nothing would be run.
        """
        if not (options.get("entry") or options.get("module")):
            msg = "a Job runs a script; name it: entry='train.py', or module='package.train'"
            raise UsageError(msg)
        self.cluster = Cluster(framework, workers, **options)

    @property
    def name(self) -> str:
        """Its cluster's name."""
        return self.cluster.name

    def submit(self) -> Self:
        """Launch it, and return when its nodes have been started."""
        self.cluster.up()
        return self

    def status(self) -> str:
        """Return its state; see :meth:`Cluster.status`."""
        return self.cluster.status()

    def details(self) -> dict[str, Any]:
        """Return all that is known of it."""
        return self.cluster.details()

    def logs(self, node: str = "", *, tail: int | None = None) -> str:
        """Return what it has printed; see :meth:`Cluster.logs`."""
        return self.cluster.logs(node, tail=tail)

    def follow(self, node: str = "") -> None:
        """Print what it prints, to its end; see :meth:`Cluster.follow`."""
        self.cluster.follow(node)

    def wait(self, timeout: float | None = None) -> int:
        """Return 0 when it has ended with success, and raise where it has not; see :meth:`Cluster.wait`."""
        return self.cluster.wait(timeout)

    @property
    def outputs(self) -> Path | str:
        """Where what it has written is; see :meth:`Cluster.outputs`."""
        return self.cluster.outputs

    def cancel(self) -> None:
        """End it, and return when nothing of it runs."""
        self.cluster.down()

    def __repr__(self) -> str:
        """Return what it is, without asking anybody."""
        return f"<Job in {self.cluster!r}>"

    def _repr_html_(self) -> str:
        """Return a table of its nodes."""
        return self.cluster._repr_html_()
