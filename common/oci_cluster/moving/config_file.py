"""`config.env` as it would be with the settings of a conversion, and what that changes in one that is there."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from oci_cluster.contract.config import read_settings_file
from oci_cluster.errors import NotPermittedError, SettingsError
from oci_cluster.system.files import write_whole

NAME = "config.env"
# Nothing in it is a secret, and colleagues with other accounts may read it.
_MODE = 0o644


@dataclass(frozen=True)
class ConfigFile:
    """A file of settings: as it is, and as it would be."""

    path: Path
    before: str | None
    """None: there is none."""
    after: str
    kept: tuple[str, ...] = ()
    """Settings that have another value there, which stays."""

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to write."""
        return self.before != self.after

    def difference(self) -> str:
        """Return what would change, as `diff -u` shows it."""
        before = (self.before or "").splitlines()
        lines = difflib.unified_diff(before, self.after.splitlines(), self.path.name, "as it would be", lineterm="")
        return "\n".join(lines)

    def write(self) -> None:
        """Write it whole.

        Raises:
            NotPermittedError: it cannot be written.
        """
        try:
            write_whole(self.path.resolve(), self.after, mode=_MODE)
        except OSError as error:
            raise NotPermittedError(
                f"{self.path} cannot be written: {error.strerror}; allow it, or name another folder with --output"
            ) from error


def config_file(folder: Path, settings: Mapping[str, str], source: str, *, is_merged: bool) -> ConfigFile:
    """Return the file of settings in *folder* as it would be with *settings*.

    Args:
        folder: Of the checkout.
        settings: By their names.
        source: The YAML's name, for people.
        is_merged: Whether what is there stays, and lacks alone are added; else the file is made of *settings* alone.

    Raises:
        SettingsError: what is there cannot be read.
    """
    path = folder / NAME
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    if before is None or not is_merged:
        return ConfigFile(path, before, _text(settings, f"Made of {source} by from-ads.sh"))
    there = read_settings_file(path)
    lacking = {name: text for name, text in settings.items() if name not in there}
    kept = tuple(name for name, text in settings.items() if there.get(name, text) != text)
    if not lacking:
        return ConfigFile(path, before, before, kept)
    start = before if before.endswith("\n") or not before else f"{before}\n"
    blank = "\n" if start else ""
    return ConfigFile(path, before, f"{start}{blank}{_text(lacking, f'Added of {source} by from-ads.sh')}", kept)


def _text(settings: Mapping[str, str], title: str) -> str:
    lines = [f"# {title}; config.env.example explains each setting."]
    lines += [f"{name}={shlex.quote(text)}" for name, text in settings.items()]
    if settings.get("BACKEND") == "oci" and "TTL" not in settings:
        lines += [
            "",
            "# ADS had no limit: here a cluster on OCI ends after a day, unless this says otherwise.",
            "# TTL=1d",
        ]
    return "\n".join([*lines, ""])
