"""Builds images with the engine's program, and runs ``make build push pin-base``.

Only the standard library is imported here: an unchanged ``make build push`` takes less than a second.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from oci_cluster.errors import BackendError, SettingsError, UsageError
from oci_cluster.images import contents, records, registry
from oci_cluster.images.client import Client
from oci_cluster.images.settings import ImageSettings, read_settings, revision, source, with_dockerfile
from oci_cluster.system.code_files import docker_lines
from oci_cluster.system.console import Say
from oci_cluster.system.envs.installer import pip_settings
from oci_cluster.system.envs.package_lists import entries_of, lock_beside
from oci_cluster.system.files import locked, not_writable, write_whole
from oci_cluster.system.text import now

ACTIONS = ("build", "push", "pin-base")

_PROXIES = [name for lower in ("http_proxy", "https_proxy", "no_proxy") for name in (lower, lower.upper())]
# The variables by which pip, requests and curl are told of certificates.
_CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_BASE = re.compile(r"^ARG BASE_IMAGE=(\S+)$", re.MULTILINE)
# BuildKit's line of the base, whatever its tag has been resolved to.
_FROM_DIGEST = re.compile(r"^#\d+ \[.*\] FROM (\S+@sha256:[0-9a-f]{64})", re.MULTILINE)
# Settings of pip that say where packages come from; what else it has is not for a build.
_PLACES = ("index-url", "extra-index-url", "find-links", "trusted-host")
# An image of torch or TensorFlow for CPUs, its build stage and the packages' cache took 3.5 GB here.
_DISK_BYTES = 4_000_000_000
_IGNORE_HEADER = "# For one build, and removed after it. Yours is .dockerignore.\n"


def run(
    action: str, frameworks: Sequence[str], *, to_push: bool, environ: Mapping[str, str], root: Path, say: Say
) -> int:
    """Build or push images, or name their base by its digest; return the exit code.

    Without *frameworks*, all that have a Dockerfile are built and pushed. A build that is *to_push* checks also what a
    push will need. The checkout *root* is the context of every build.
    """
    if action not in ACTIONS:
        msg = f"expected {', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}, got '{action or 'nothing'}'"
        raise UsageError(f"{msg} (images.sh --help says more)")
    settings = read_settings(environ, root)
    client = Client(settings.engine, root, environ, say)
    frameworks = list(dict.fromkeys(frameworks)) or with_dockerfile(root)
    check(client, settings, frameworks, build=action == "build", push=action == "push" or to_push)
    if action in {"build", "push"}:
        try:
            (build if action == "build" else registry.push)(client, settings, frameworks)
        except OSError as error:
            raise not_writable(Path(error.filename or records.records_dir(root)), error) from error
    else:
        base = settings.base_image or default_base(root / frameworks[0] / "Dockerfile")
        sys.stdout.write(f"{registry.pinned_base(client, base)}\n")
    return 0


def default_base(dockerfile: Path) -> str:
    """Return the base image that *dockerfile* names, as all do."""
    found = _BASE.search(dockerfile.read_text())
    if found is None:
        raise SettingsError(f"{dockerfile} has no line 'ARG BASE_IMAGE=...'; name the base: BASE_IMAGE=...")
    return found[1]


def check(client: Client, settings: ImageSettings, frameworks: Sequence[str], *, build: bool, push: bool) -> None:
    """Check all that would stop a *build*, or a *push*, later on."""
    there = with_dockerfile(client.root)
    if missing := [name for name in frameworks if name not in there]:
        raise SettingsError(f"there is no {missing[0]}/Dockerfile; there is one of: {', '.join(there) or 'none'}")
    if push and not settings.registry:
        raise SettingsError(
            "REGISTRY is not set: where are images pushed to? make build push "
            "REGISTRY=<region>.ocir.io/<namespace>/<folder>, or a line in config.env"
        )
    place = client.engine.place()
    if build and place and place.is_dir() and (free := shutil.disk_usage(place).free) < _DISK_BYTES:
        raise BackendError(
            f"{place}, where {client.program} keeps images, has {free / 1e9:.1f} GB free, "
            f"{_DISK_BYTES / 1e9:.0f} GB are needed; make room: {client.program} system prune"
        )


def build(client: Client, settings: ImageSettings, frameworks: Sequence[str]) -> None:
    """Build the images of *frameworks* at once; record each, with its packages."""
    records.records_dir(client.root).mkdir(exist_ok=True)
    arguments = _build_arguments(settings, client.root)
    with secrets_dir(client.environ, client.say) as secrets:
        client.for_each(frameworks, lambda framework: _build(client, settings, framework, arguments, secrets))


def _build(
    client: Client, settings: ImageSettings, framework: str, arguments: Mapping[str, str], secrets: Path
) -> None:
    name = settings.name(framework)
    directory = records.records_dir(client.root)
    packages, bill = (directory / f"{framework}.{name}" for name in ("packages.txt", "sbom.json"))
    with locked(directory / f".{framework}.lock"), tempfile.TemporaryDirectory() as scratch:
        id_file = Path(scratch, "id")
        started = time.monotonic()
        needed = [settings.env_file] if settings.env_file else []
        with (
            _extra_env(settings.extra_env, client.root / framework),
            ignore_file(client.root, framework, needed) as ignored,
        ):
            command = build_command(client, settings, framework, arguments=arguments, secrets=secrets, id_file=id_file)
            if client.engine.is_podman and ignored:  # the others look for it themselves
                command[1:1] = ["--ignorefile", str(ignored)]
            client.run(framework, *command)
        found = records.read(framework, client.root) or {}
        image_id = id_file.read_text().strip()
        if (found.get("id"), found.get("image")) == (image_id, name) and packages.exists() and bill.exists():
            client.say(f"{framework}: {name} is unchanged")
            return
        listed = contents.packages(client, image_id, Path(scratch))
        base = _FROM_DIGEST.search((directory / f"{framework}.log").read_text(errors="replace"))
        record = {"image": name, "id": image_id, "digest": "", "built": now(), "base": base[1] if base else ""}
        record["platform"] = client.ask("image", "inspect", "--format", "{{.Os}}/{{.Architecture}}", image_id)
        write_whole(packages, listed, mode=records.MODE)
        write_whole(bill, contents.sbom(framework, record, listed), mode=records.MODE)
        records.write(framework, client.root, record)
        client.say(f"{framework}: built {name} in {time.monotonic() - started:.0f} s")


def _build_arguments(settings: ImageSettings, root: Path) -> dict[str, str]:
    """Return the values of ``--build-arg``; nothing of what is empty."""
    arguments = {
        "BASE_IMAGE": settings.base_image,
        "ENV_FILE": settings.env_file,
        "CODE_DIR": settings.code_dir,
        "RUN_AS": settings.run_as,
        "TORCH": settings.torch,
        "SYSTEM_PACKAGES": settings.system_packages,
        "VERSION": settings.tag,
        "REVISION": revision(root),
        "SOURCE": source(root),
    }
    return {name: value for name, value in arguments.items() if value}


def build_command(
    client: Client,
    settings: ImageSettings,
    framework: str,
    *,
    arguments: Mapping[str, str],
    secrets: Path,
    id_file: Path,
) -> list[str]:
    """Return the command that builds *framework*'s image and writes its id to *id_file*."""
    command = ["build", "--platform", settings.platform, "--file", f"{framework}/Dockerfile"]
    command += ["--tag", settings.name(framework), "--iidfile", str(id_file)]
    command += [] if client.engine.is_podman else ["--progress", "plain"]
    for name, value in arguments.items():
        command += ["--build-arg", f"{name}={value}"]
    # Without their values, which may hold a password: the engine's program takes them from its environment.
    for name in _PROXIES:
        command += ["--build-arg", name] if client.environ.get(name) else []
    for path in sorted(secrets.iterdir()):
        command += ["--secret", f"id={path.name},src={path}"]
    return [*command, *settings.flags, "."]


# --- Files that are there for one build alone -------------------------------------------------------------------------


@contextmanager
def secrets_dir(environ: Mapping[str, str], say: Say) -> Iterator[Path]:
    """Yield a private directory with pip's settings and certificates, which no layer keeps."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        settings = pip_settings(environ)
        bundle = next((environ[name] for name in _CA_VARIABLES if environ.get(name)), settings.get("cert", ""))
        if bundle and Path(bundle).is_file():
            shutil.copyfile(bundle, directory / "ca-bundle")
        lines = []
        for name in _PLACES:
            words = settings.get(name, "").split()
            kept = [word for word in words if not _is_local(word)]
            if len(kept) < len(words):
                say(f"pip's {name} names directories of this machine, which a build does not see: {settings[name]}")
            if kept:
                lines.append(f"{name} = {' '.join(kept)}")
        if lines:
            (directory / "pip.conf").write_text("\n".join(["[global]", *lines, ""]))
        yield directory


def _is_local(word: str) -> bool:
    return word.startswith("file:") or ("://" not in word and "/" in word)


@contextmanager
def _extra_env(files: Sequence[Path], folder: Path) -> Iterator[None]:
    """Have copies of *files* and their locks in *folder*, for the Dockerfile."""

    def remove() -> None:
        for path in folder.glob("extra-env-*"):
            path.unlink()

    remove()  # a build that was killed leaves them
    try:
        for number, path in enumerate(files, start=1):
            copy = folder / f"extra-env-{number}-{path.stem}.yaml"
            if path.suffix == ".txt":
                copy.write_text(json.dumps({"dependencies": [{"pip": entries_of(path)}]}))  # which is YAML, too
            else:
                shutil.copyfile(path, copy)
            if lock_beside(path).is_file():
                shutil.copyfile(lock_beside(path), lock_beside(copy))
        yield
    finally:
        remove()


@contextmanager
def ignore_file(root: Path, framework: str, needed: Sequence[str]) -> Iterator[Path | None]:
    """Yield a file of names that this build leaves out; None where ``.dockerignore`` says all.

    The lines of the project's own ``.dockerignore`` count. But what every image is made of is not left out, as with a
    line ``*``, nor are the files *needed*; and keys and settings are, as with no file at all. Engines read such lines
    from a file beside the Dockerfile, in the place of ``.dockerignore``. One of the user's own there is left alone.
    """
    path, own = root / framework / "Dockerfile.dockerignore", root / ".dockerignore"
    theirs = os.fsdecode(own.read_bytes()).splitlines() if own.is_file() else []
    never = docker_lines()
    is_own = path.exists() and not path.read_text(errors="replace").startswith(_IGNORE_HEADER)
    if is_own or [line for line in theirs if line and not line.startswith("#")] == never:
        yield None
        return
    ours = [f"!{name}" for name in ("common", "scripts/sessions", framework, *needed)]
    write_whole(path, _IGNORE_HEADER + "\n".join([*theirs, *ours, *never, ""]), mode=0o644)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
