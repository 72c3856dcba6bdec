"""A cluster as an object: launched, waited for, ended; and a Dask cluster as ``distributed`` knows them."""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oci_cluster.api.environment import in_environment
from oci_cluster.api.handle import Handle
from oci_cluster.api.launching import launched
from oci_cluster.api.place import Place
from oci_cluster.api.request import Wanted
from oci_cluster.api.table import LiveTable, table_html
from oci_cluster.api.waiting import wait_for_end, wait_for_ready
from oci_cluster.errors import ClusterError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self, Unpack

    from oci_cluster.api.dask import DaskCluster
    from oci_cluster.api.options import Options, PlaceOptions
    from oci_cluster.api.running import Running

# Between two looks for a live table: while it comes up, and where a look costs nothing; else.
_SOON_S, _LATER_S = 1.0, 10.0
# What a client of distributed asks of a cluster.
_DASK = ("scheduler_address", "security", "dashboard_link", "loop")


class Cluster(Handle):
    """One cluster: with an entry point it ends with that; without one it stays until it is ended.

    It is launched by :meth:`up`, or by ``with``, which also ends it. One that this process has launched ends with this
    process, whatever ends that, unless it is to be kept.
    """

    def __init__(self, framework: str, workers: int, **options: Unpack[Options]) -> None:
        """Note what is to be launched; nothing happens yet.

        Args:
            framework: A folder of the project: ``dask``, ``pytorch``, ``tensorflow``, ``horovod``, or your own.
            workers: How many, beside main; 0: main alone, which computes.
            options: See :class:`oci_cluster.api.options.Options`, which has each with its meaning.

        Raises:
            ClusterError: there is no such place.
            TypeError: there is no such option.
        """
        place, asked = _split(options)
        self._keep = bool(asked.pop("keep", False))
        self._wanted = Wanted.of(framework, workers, asked)
        self._table: LiveTable | None = None
        self._seen: dict[str, Any] | None = None
        self._seen_at = 0.0
        self._dask: DaskCluster | None = None
        super().__init__(_place(place), framework, self._wanted.name, place.get("auth"), place.get("say"))

    @classmethod
    def find(cls, name: str = "", **options: Unpack[PlaceOptions]) -> Self:
        """Return the cluster called *name*, whoever has launched it: the running one, else the latest.

        This process does not end it, unless it is told to.

        Args:
            name: Empty: the only one that runs.
            options: See :class:`oci_cluster.api.options.PlaceOptions`.

        Raises:
            UsageError: there is none, or several fit.
        """
        found = cls("", 0, keep=True, **options)
        found._cluster = found._open()[1].choose(name)
        found.framework = found._cluster.framework
        return found

    def up(self) -> Self:
        """Launch it, and return when its nodes have been started; on any failure nothing of it is left.

        Raises:
            UsageError: it is launched already, or a cluster of that name runs.
            ClusterError: it cannot be launched.
        """
        with self._lock:
            if self._cluster is not None:
                msg = f"{self.name} has been launched already; make another {type(self).__name__}(...)"
                raise UsageError(msg)
            self._table = LiveTable()
            self._cluster, self._running = launched(
                self._wanted, self._place, keep=self._keep, say=self._say, on_round=self._look
            )
        return self

    def wait_ready(self, timeout: float | None = None) -> Self:
        """Return when all its nodes work together.

        Args:
            timeout: The longest wait, in seconds; None: as long as the cluster's own limits let it take.

        Raises:
            ClusterFailedError: it has ended instead.
            StoppedError: it was ended on purpose.
            TimedOutError: it is not ready yet, and goes on.
        """
        cluster = self._launched()
        if not wait_for_ready(self._open(), cluster, self._running, timeout, self._say):
            self.wait()
        return self

    def wait(self, timeout: float | None = None) -> int:
        """Return 0 when it has ended with success.

        Args:
            timeout: The longest wait, in seconds.

        Raises:
            ClusterFailedError: it has ended with another code; it has that, the reason, and the node that failed.
            StoppedError: it was ended on purpose.
            TimedOutError: it goes on.
        """
        cluster = self._launched()
        return wait_for_end(self._open(), cluster, self._running, timeout, self.details)

    def down(self, *, delete: bool = False) -> None:
        """End it; see :meth:`Handle.down`."""
        if self._dask is not None:
            self._dask.disconnect()
        super().down(delete=delete)

    def __enter__(self) -> Self:
        """Launch it, unless that is done."""
        return self if self._cluster is not None else self.up()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End it; one that is to be kept only where something was raised."""
        if kind is not None or not self._keep:
            self.down()

    # --- Programs here that take part ----------------------------------------------------------------------

    @contextlib.contextmanager
    def client_environment(self) -> Iterator[dict[str, str]]:
        """Let this process, and what it starts, take part; yield the variables that say how, which it has until then.

        Raises:
            UsageError: no program outside connects to clusters of this framework.
            BackendError: there is no way from here.
        """
        self.wait_ready()
        with tempfile.TemporaryDirectory(prefix="oci-cluster-client-") as target:
            variables = self.client_files(Path(target))
            with in_environment(variables, self.project / self.framework / "client"):
                yield variables

    # --- Dask ----------------------------------------------------------------------------------------------

    @property
    def dask(self) -> DaskCluster:
        """It as ``distributed`` knows clusters: a :class:`distributed.deploy.Cluster`; waits until it is ready.

        Raises:
            UsageError: it is none of Dask's, or ``distributed`` is not here.
        """
        from oci_cluster.api import dask  # noqa: PLC0415 - distributed need not be there

        if self._dask is None:
            self._dask = dask.connected(self)
        return self._dask

    def client(self) -> Any:
        """Return a ``distributed.Client`` of it; waits until it is ready."""
        return self.dask.get_client()

    def adapt(self, minimum: int, maximum: int, **options: Any) -> Any:
        """Have Dask decide how many workers there are, as long as this process lives.

        Args:
            minimum: 1 or more.
            maximum: At most so many.
            options: Those of ``distributed.deploy.Adaptive``.
        """
        return self.dask.adapt(minimum=minimum, maximum=maximum, **options)

    def __getattr__(self, name: str) -> Any:
        """Return what ``Client(cluster)`` asks of a cluster."""
        if name in _DASK and self.__dict__.get("framework") == "dask":
            return getattr(self.dask, name)
        msg = f"'{type(self).__name__}' object has no attribute '{name}'"
        raise AttributeError(msg)

    def __await__(self) -> Any:
        """Be awaited by ``Client(cluster)``, which is what it does first."""
        return self.dask.__await__()

    async def close(self) -> None:
        """End it: what ``client.shutdown()`` does."""
        await self.dask.close_all()

    # --- Notebook ------------------------------------------------------------------------------------------

    def _look(self, running: Running) -> None:
        """Look at it for the live table, from time to time; called by the thread that follows it."""
        if self._table is None or not self._table.is_there:
            return
        pause_s = _SOON_S if running.is_free_to_ask or not running.is_ready else _LATER_S
        if time.monotonic() - self._seen_at < pause_s and not running.is_over:
            return
        self._seen_at = time.monotonic()
        with contextlib.suppress(ClusterError):  # a table shows what it can
            self._seen = running.overview()
            self._show()

    def _show(self) -> None:
        if self._table is None:
            return
        found = self._seen or {
            "name": self.name or self.framework,
            "framework": self.framework,
            "backend": self.backend,
            "state": "ACCEPTED",
            "nodes": [],
        }
        self._table.show(table_html(found, self._say.last))


def _split(options: Options) -> tuple[PlaceOptions, dict[str, Any]]:
    """Return the options that say where a cluster is, and the others."""
    names = ("backend", "settings", "auth", "project", "say")
    place: Any = {name: value for name, value in options.items() if name in names}
    return place, {name: value for name, value in options.items() if name not in {*names} - {"settings"}}


def _place(options: PlaceOptions) -> Place:
    settings = {name: str(value) for name, value in (options.get("settings") or {}).items()}
    return Place.of(options.get("backend", ""), options.get("project"), settings, options.get("auth"))
