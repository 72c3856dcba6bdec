"""The place of a cluster of the API: project, backend, settings."""

from __future__ import annotations

import filecmp
import importlib.metadata
import json
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from oci_cluster.api.auth import Auth
from oci_cluster.backends import open_backend
from oci_cluster.backends.base import Backend
from oci_cluster.contract.settings.settings_files import given_settings
from oci_cluster.errors import SettingsError, UsageError
from oci_cluster.launcher.args.command_line import check_backend
from oci_cluster.project.unpack import unpack
from oci_cluster.project.wheel import vendored
from oci_cluster.system.console import program, say_to_stderr
from oci_cluster.system.files import at_home

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
        """Return the place that these words name; raise UsageError or SettingsError."""
        root = find_project(project, Path.cwd(), os.environ)
        unpack(root, say_to_stderr(program()))
        check_same_contract(root)
        name = backend or settings.get("BACKEND") or given_settings(root, os.environ).get("BACKEND") or "local"
        check_backend(name)
        if auth is not None and auth.backend != name:
            raise UsageError(
                f"{type(auth).__name__} is for the backend {auth.backend}, and not for {name}; leave auth= out"
            )
        if missing := missing_here(_packages_of(name)):
            raise SettingsError(
                f"the backend {name} needs packages that are missing in this Python: {', '.join(missing)}; "
                f"install them: python -m pip install '{root}/common[{name}]'"
            )
        return cls(root, name, {**settings, **(auth.settings() if auth is not None else {})})

    @property
    def given(self) -> dict[str, str]:
        """All settings that hold here."""
        return {**given_settings(self.root, os.environ), **self.own}

    def open(self) -> Backend:
        """Return the backend; raise SettingsError where this process is somebody else for it already."""
        given = self.given
        if self.backend == "oci":
            _claim_identity({name: text for name, text in given.items() if name.startswith("OCI_CLI_")})
        return open_backend(self.backend, self.root, given)


def find_project(project: str | Path | None, cwd: Path, environ: Mapping[str, str]) -> Path:
    """Return the project that is named, else around *cwd*, else this package's own.

    Raise SettingsError where there is none.
    """
    if named := str(project or environ.get("OCI_CLUSTER_PROJECT", "")):
        root = (cwd / at_home(named)).resolve()
        if not _is_checkout(root):
            why = "common/oci_cluster or scripts is missing there; name one: project="
            raise SettingsError(f"{root} is not a checkout of this project: {why}")
        return root
    for path in (cwd.resolve(), *cwd.resolve().parents, _PACKAGE.parents[1], *_installed_from()):
        if _is_checkout(path):
            return path
    raise SettingsError(
        f"there is no checkout of this project around {cwd}, nor where this package was installed from; "
        "name one: Cluster(..., project=PATH), or OCI_CLUSTER_PROJECT=PATH"
    )


def _is_checkout(path: Path) -> bool:
    if (path / "common" / "lib.sh").is_file() and vendored(path):
        return True  # a project, whose wheel has the rest
    return (path / "common" / "oci_cluster" / "errors.py").is_file() and (path / "scripts" / "backends").is_dir()


def _installed_from() -> list[Path]:
    """Return where a checkout may be that this package was installed from (PEP 610)."""
    try:
        text = importlib.metadata.distribution("oci-cluster").read_text("direct_url.json") or "{}"
        url = urlsplit(str(json.loads(text).get("url", "")))
    except (importlib.metadata.PackageNotFoundError, ValueError, AttributeError):
        return []
    return [*Path(unquote(url.path)).parents[:2]] if url.scheme == "file" else []


def check_same_contract(root: Path) -> None:
    """Raise SettingsError where this package is of another version than *root*."""
    mine, theirs = _PACKAGE / "contract", root / "common" / "oci_cluster" / "contract"
    if mine == theirs:
        return
    names = sorted({path.name for place in (mine, theirs) for path in place.glob("*.py")})
    _, differing, missing = filecmp.cmpfiles(mine, theirs, names, shallow=False)
    if differing or missing:
        raise SettingsError(
            f"the package in {_PACKAGE} is of another version than {root}, whose nodes it would launch; "
            f"install it again: python -m pip install {root}/common"
        )


def _packages_of(backend: str) -> list[str]:
    """Return what *backend* imports besides: the extra of its name, as installed."""
    try:
        lines = importlib.metadata.requires("oci-cluster") or []
    except importlib.metadata.PackageNotFoundError:  # it runs in a checkout's own environment
        return []
    found = (re.fullmatch(rf"([\w.-]+).*extra\s*==\s*['\"]{backend}['\"].*", line) for line in lines)
    return [match[1] for match in found if match]


def missing_here(packages: Sequence[str]) -> list[str]:
    """Return those distributions of *packages* that this interpreter does not have."""
    return [name for name in packages if next(iter(importlib.metadata.distributions(name=name)), None) is None]


def _claim_identity(identity: dict[str, str]) -> None:
    with _identity_lock:
        if _identity and _identity[0] != identity:
            why = "a bucket is opened by one identity; use a process for each"
            raise SettingsError(f"this process asks OCI with other settings already (OCI_CLI_...), and {why}")
        _identity[:] = [identity]
