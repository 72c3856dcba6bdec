"""pip's settings, read from its files and variables as pip reads them, and what uv calls them.

Read here: `pip config list` takes a third of a second, and an environment that uv has made has no pip to ask.
"""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from oci_cluster.errors import SettingsError
from oci_cluster.system.console import Say

# pip's options that decide where packages come from; uv's variables for them, and what stands there between two words.
# Source: https://docs.astral.sh/uv/reference/environment/
_UV_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
}
# Those that are one word, which may have a blank.
_SAME = {
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("HTTP_PROXY", "HTTPS_PROXY"),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),  # the same, as PIP_DEFAULT_TIMEOUT
}
_YES = {"1", "y", "yes", "t", "true", "on"}  # pip takes them all (distutils' strtobool)
_SECTIONS = ("global", "install")  # the later wins


def pip_settings(environ: Mapping[str, str], *, prefix: Path | None = None) -> dict[str, str]:
    """Return what pip's files and variables set for ``pip install``, by option name; variables win.

    *prefix* is the Python environment whose own ``pip.conf`` counts; None: that of this program.

    Raises:
        SettingsError: a file is none of pip's; pip refuses it, too.
    """
    values: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for path in _files(environ, prefix or Path(sys.prefix)):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")  # one that is not there counts as empty
        except (configparser.Error, UnicodeDecodeError) as error:
            # Not the error's own text: it quotes the line, in which a password may stand.
            raise SettingsError(
                f"pip's settings in {path} cannot be read ({type(error).__name__}); 'pip config list' tells more"
            ) from None
        for section in filter(parser.has_section, _SECTIONS):
            values[section] |= {_option(name): value or "" for name, value in parser.items(section)}
    variables = {_option(name[4:]): value for name, value in environ.items() if name.startswith("PIP_")}
    levels = [*values.values(), variables]
    return {name: value for level in levels for name, value in level.items() if value}  # pip ignores empty ones


def _files(environ: Mapping[str, str], prefix: Path) -> list[Path]:
    """Return the files that pip reads, the last wins (pip's documentation, "Configuration")."""
    own = environ.get("PIP_CONFIG_FILE", "")
    if own == os.devnull:
        return []
    home = Path(environ.get("HOME", "/"))
    users = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip"
    if sys.platform == "darwin":
        machines = [Path("/Library/Application Support/pip")]
        application = home / "Library" / "Application Support" / "pip"
        users = application if application.is_dir() else home / ".config" / "pip"
    else:
        shared = environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
        machines = [*(Path(folder, "pip") for folder in shared.split(os.pathsep)), Path("/etc")]
    # A file that the user names takes the place of the user's others.
    folders = [*machines, *([] if own and Path(own).exists() else [home / ".pip", users]), prefix]
    return [*(folder / "pip.conf" for folder in folders), *([Path(own)] if own else [])]


def _option(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def uv_options(settings: Mapping[str, str], say: Say) -> tuple[list[str], dict[str, str]]:
    """Return uv's options and environment for pip's *settings*: uv does not read pip's configuration.

    The URLs of indexes, which may hold a password, are in the environment: everybody on the machine sees arguments.
    Of a place in ``find-links`` that is not there pip warns; uv fails. It is left out here, and *say* is told.
    """
    variables: dict[str, str] = {}
    for name, (variable, between) in _UV_VARIABLES.items():
        words = []
        for word in map(os.path.expanduser, settings.get(name, "").split()):
            if name == "find-links" and not _is_there(word):
                say(f"pip's find-links names '{word}', which is not there: left out")
            else:
                words.append(_as_url(word) if between in word else word)
        if words:
            variables[variable] = between.join(words)
    if "extra-index-url" in settings:  # pip takes the best version of all indexes, uv that of the first that has any
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    for name in sorted(_SAME.keys() & settings.keys()):
        variables |= dict.fromkeys(_SAME[name], settings[name])
    has_no_index = settings.get("no-index", "").lower() in _YES
    return ["--no-index"] if has_no_index else [], variables  # there is no variable for it


def _as_url(place: str) -> str:
    """Return *place* with its commas written otherwise: of a list they would be the ends."""
    return place.replace(",", "%2C") if "://" in place else Path(place).absolute().as_uri().replace(",", "%2C")


def _is_there(place: str) -> bool:
    """Return whether a URL, or a path of this machine, can be looked at; of other machines nothing is known."""
    path = unquote(urlsplit(place).path) if place.startswith("file:") else place
    return ("://" in place and path is place) or os.path.exists(path)  # noqa: PTH110 - never raises
