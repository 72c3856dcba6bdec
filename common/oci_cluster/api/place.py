"""Where a cluster of the door is: which project, which backend, whose settings."""

from __future__ import annotations

import filecmp
import importlib.metadata
import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from oci_cluster.api.auth import Auth
from oci_cluster.backends import known_backends, open_backend
from oci_cluster.backends.base import Backend
from oci_cluster.contract.config import given_settings
from oci_cluster.errors import SettingsError, UsageError

# What each backend imports beyond the dependencies of the package; the extras of pyproject.toml, by their names there.
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "oci": ("jinja2", "oci", "ocifs", "pathspec"),
    "kubernetes": ("jinja2", "lightkube", "ocifs", "pathspec"),
}
_PACKAGE = Path(__file__).resolve().parents[1]
# oci:// URLs of a process are opened by one identity: that which was given first.
_identity: list[dict[str, str]] = []
_identity_lock = threading.Lock()


@dataclass(frozen=True)
class Place:
    """One backend, as one project and one person's settings name it."""

    root: Path
    backend: str
    own: Mapping[str, str] = field(repr=False)
    """Settings that were given here; they win over environment and ``config.env``, and may be secrets."""

    @classmethod
    def of(cls, backend: str, project: str | Path | None, settings: Mapping[str, str], auth: Auth | None) -> Place:
        """Return the place that these words name.

        Args:
            backend: Its name; empty: the setting ``BACKEND``, else ``local``.
            project: The checkout; None: see :func:`find_project`.
            settings: As ``config.env`` has them.
            auth: Who asks.

        Raises:
            UsageError: there is no such backend, or *auth* is none for it.
            SettingsError: there is no project, or packages are missing.
        """
        root = find_project(project, Path.cwd(), os.environ)
        check_same_contract(root)
        name = backend or settings.get("BACKEND") or given_settings(root, os.environ).get("BACKEND") or "local"
        if name not in (known := known_backends()):
            msg = f"unknown backend '{name}'; there is: {' '.join(known)}"
            raise UsageError(msg)
        if auth is not None and auth.backend != name:
            msg = f"{type(auth).__name__} is for the backend {auth.backend}, and not for {name}; leave auth= out"
            raise UsageError(msg)
        check_packages(name, root)
        return cls(root, name, {**settings, **(auth.settings() if auth is not None else {})})

    @property
    def given(self) -> dict[str, str]:
        """All settings that hold here."""
        return {**given_settings(self.root, os.environ), **self.own}

    def open(self, is_stopped: Callable[[], bool] = lambda: False) -> Backend:
        """Return the backend.

        Raises:
            SettingsError: a setting that it needs is wrong, or this process is somebody else for it already.
        """
        given = self.given
        if self.backend == "oci":
            _claim_identity({name: text for name, text in given.items() if name.startswith("OCI_CLI_")})
        return open_backend(self.backend, self.root, given, is_stopped)


def find_project(project: str | Path | None, cwd: Path, environ: Mapping[str, str]) -> Path:
    """Return the checkout that has frameworks, scripts and templates.

    Args:
        project: As it was named, if it was; else ``OCI_CLUSTER_PROJECT``, else the checkout that *cwd* is in, else that
            which this package is in, or was installed from.
        cwd: The current folder.
        environ: The environment.

    Raises:
        SettingsError: there is none.
    """
    named = str(project or environ.get("OCI_CLUSTER_PROJECT", ""))
    if named:
        root = (cwd / Path(named).expanduser()).resolve()
        if not _is_checkout(root):
            msg = (
                f"{root} is not a checkout of this project: it lacks common/oci_cluster or scripts; name one: project="
            )
            raise SettingsError(msg)
        return root
    around = [cwd.resolve(), *cwd.resolve().parents]
    for path in [*around, _PACKAGE.parents[1], *_installed_from()]:
        if _is_checkout(path):
            return path
    msg = (
        f"there is no checkout of this project around {cwd}, nor where this package was installed from; "
        "name one: Cluster(..., project=PATH), or OCI_CLUSTER_PROJECT=PATH"
    )
    raise SettingsError(msg)


def _is_checkout(path: Path) -> bool:
    return (path / "common" / "oci_cluster" / "errors.py").is_file() and (path / "scripts" / "backends").is_dir()


def _installed_from() -> list[Path]:
    """Return the checkout whose ``common`` this package was installed from, as installers record it (PEP 610)."""
    try:
        text = importlib.metadata.distribution("oci-cluster").read_text("direct_url.json") or "{}"
        url = urlsplit(str(json.loads(text).get("url", "")))
    except (importlib.metadata.PackageNotFoundError, ValueError, AttributeError):
        return []
    return [Path(unquote(url.path)).parent] if url.scheme == "file" else []


def check_same_contract(root: Path) -> None:
    """Check that this package says what the nodes of *root* say: they run the checkout's own.

    Raises:
        SettingsError: it is of another version.
    """
    mine, theirs = _PACKAGE / "contract", root / "common" / "oci_cluster" / "contract"
    if mine == theirs:
        return
    names = sorted({path.name for place in (mine, theirs) for path in place.glob("*.py")})
    _, differing, missing = filecmp.cmpfiles(mine, theirs, names, shallow=False)
    if differing or missing:
        msg = (
            f"the package in {_PACKAGE} is of another version than {root}, whose nodes it would launch; "
            f"install it again: python -m pip install {root}/common"
        )
        raise SettingsError(msg)


def check_packages(backend: str, root: Path) -> None:
    """Check that what *backend* imports is here.

    Raises:
        SettingsError: it is not.
    """
    if missing := missing_here(PACKAGES.get(backend, ())):
        msg = (
            f"the backend {backend} needs packages that this Python lacks: {', '.join(missing)}; "
            f"install them: python -m pip install '{root}/common[{backend}]'"
        )
        raise SettingsError(msg)


def missing_here(packages: tuple[str, ...] | list[str]) -> list[str]:
    """Return those of *packages* that this interpreter does not have; asks for distributions, not modules."""

    def is_missing(package: str) -> bool:
        try:
            importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError:
            return True
        return False

    return [package for package in packages if is_missing(package)]


def _claim_identity(identity: dict[str, str]) -> None:
    with _identity_lock:
        if _identity and _identity[0] != identity:
            msg = (
                "this process asks OCI with other settings already (OCI_CLI_...), and a bucket is opened by one "
                "identity; use a process for each"
            )
            raise SettingsError(msg)
        _identity[:] = [identity]
