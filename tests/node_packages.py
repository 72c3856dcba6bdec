"""What package-lock.json names, installed into node_modules where there is no npm: packages that need no building.

    python3 node_packages.py CHECKOUT

Run by scripts/dev-setup.sh, on the standard library of any Python from 3.10 on. The registry is that of npm's variable
or of an .npmrc; of other settings it knows `cafile` and the registry's `_authToken`.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import signal
import ssl
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

NPMJS = "https://registry.npmjs.org/"
TRIES = 3  # as npm's fetch-retries, 2
_TIMEOUT_S = 60.0
_NAME = r"node_modules/(?:@[\w-][\w.-]*/)?[\w-][\w.-]*"
_PLACE = re.compile(f"{_NAME}(?:/{_NAME})*")
_TARBALL = 64 << 20  # bytes; bats has 0.1 MB


class InstallError(Exception):
    """Says what cannot be installed, and what to do."""


def npm_settings(root: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return npm's settings; the user's .npmrc, the checkout's and variables, the later wins."""
    variables = {name.lower()[11:]: text for name, text in environ.items() if name.lower().startswith("npm_config_")}
    users = Path(variables.get("userconfig") or Path(environ.get("HOME", "/"), ".npmrc"))
    found: dict[str, str] = {}
    for path in (users, root / ".npmrc"):
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            name, is_setting, text = line.partition("=")
            if is_setting and not line.lstrip().startswith(("#", ";")):
                text = re.sub(r"\$\{(\w+)\}", lambda found: environ.get(found[1], found[0]), text.strip().strip("'\""))
                found[name.strip()] = text
    return {**found, **{name: text for name, text in variables.items() if text}}


def locked_packages(lock: Path) -> dict[str, tuple[str, str]]:
    """Return the URL of npm's registry and the SHA-512, in base64, of each package by its folder."""
    found = {}
    for place, package in json.loads(lock.read_text(encoding="utf-8"))["packages"].items():
        if not place:
            continue  # the checkout itself
        if not _PLACE.fullmatch(place):
            msg = f"{lock}: '{place}' is no folder of packages; make the lock again: npm install --package-lock-only"
            raise InstallError(msg)
        hashes = [text[7:] for text in package.get("integrity", "").split() if text.startswith("sha512-")]
        if not hashes:
            msg = f"{lock}: '{place}' has no sha512; make the lock again: npm install --package-lock-only"
            raise InstallError(msg)
        name = place.rpartition("node_modules/")[2]
        tarball = f"{NPMJS}{name}/-/{name.rpartition('/')[2]}-{package['version']}.tgz"
        found[place] = package.get("resolved", tarball), hashes[0]
    return found


def fetch(url: str, settings: Mapping[str, str]) -> bytes:
    """Return what is at a URL of npm's registry, or of the one in *settings* that stands for it."""
    registry = settings.get("registry", NPMJS).rstrip("/") + "/"
    if url.startswith(NPMJS):
        url = registry + url[len(NPMJS) :]
    if not url.startswith(("https://", "http://")):
        msg = f"'{url}' is no address; see npm's setting registry, in ~/.npmrc or npm_config_registry"
        raise InstallError(msg)
    request = urllib.request.Request(url)  # noqa: S310 - looked at above
    token = settings.get(f"{registry.partition(':')[2]}:_authToken", "")
    if token and url.startswith(registry):
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    context = ssl.create_default_context()
    if settings.get("cafile"):
        context.load_verify_locations(settings["cafile"])
    for left in reversed(range(TRIES)):
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context) as answer:  # noqa: S310
                return bytes(answer.read(_TARBALL))
        except OSError as error:  # of urllib, too
            is_final = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if is_final or not left:
                msg = f"{url} cannot be had: {error}; another registry: npm_config_registry=URL"
                raise InstallError(msg) from None
            time.sleep(1)
    raise AssertionError


def unpack(tarball: bytes, folder: Path) -> None:
    """Put the files of a package into *folder*, which is made. As with npm, the first folder's name does not count."""
    with tarfile.open(fileobj=io.BytesIO(tarball), mode="r:gz") as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
                msg = f"{folder.name} has '{member.name}', which is no plain file inside it; not installed"
                raise InstallError(msg)
            file = folder.joinpath(*path.parts[1:])
            if member.isdir():
                file.mkdir(parents=True, exist_ok=True)
                continue
            content = archive.extractfile(member)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.read() if content else b"")
            file.chmod(0o755 if member.mode & 0o100 else 0o644)


def install(root: Path, environ: Mapping[str, str]) -> None:
    """Make *root*/node_modules anew. It is there when all of it is; what was there before stays until then."""
    settings = npm_settings(root, environ)
    with tempfile.TemporaryDirectory(dir=root, prefix=".node_modules-") as scratch:
        (made := Path(scratch, "node_modules")).mkdir()
        for place, (url, wanted) in locked_packages(root / "package-lock.json").items():
            tarball = fetch(url, settings)
            seen = base64.b64encode(hashlib.sha512(tarball).digest()).decode()
            if seen != wanted:
                msg = f"{place}: the registry's file has sha512 {seen}, package-lock.json {wanted}; not installed"
                raise InstallError(msg)
            unpack(tarball, Path(scratch, place))
        there = root / "node_modules"
        if there.is_symlink() or there.exists():
            there.rename(Path(scratch, "before"))
        made.rename(there)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        install(Path(sys.argv[1]), os.environ)
    except InstallError as error:
        sys.exit(str(error))
