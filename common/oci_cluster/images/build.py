"""Images: built, pushed, pulled back and measured with the engine's own program; what ``make build push`` runs.

Only the standard library is imported here: an unchanged ``make build push`` takes less than a second.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from oci_cluster.errors import BackendError, SettingsError, UsageError
from oci_cluster.images import records, registry
from oci_cluster.images.choices import Choices, read_choices, revision, source, with_dockerfile
from oci_cluster.images.client import Client
from oci_cluster.images.ignored import ignore_file
from oci_cluster.images.layers import size_table
from oci_cluster.images.sbom import sbom
from oci_cluster.system.console import Say
from oci_cluster.system.files import locked, write_whole
from oci_cluster.system.pip_config import pip_settings
from oci_cluster.system.requirements_file import entries_of
from oci_cluster.system.screen import screen_of
from oci_cluster.system.text import now

ACTIONS = ("build", "push", "pull-check", "pin-base", "size")

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


def run(
    action: str, frameworks: Sequence[str], *, to_push: bool, environ: Mapping[str, str], root: Path, say: Say
) -> int:
    """Build, push, pull back or measure images; return the exit code.

    Args:
        action: One of `ACTIONS`.
        frameworks: Whose images. Without any: to build and push all that have a Dockerfile, else what there is.
        to_push: Check also what a push will need.
        environ: The environment: choices, the engine's own settings, proxies, pip's settings.
        root: The checkout, which is the context of every build.
        say: Shows a line of progress.

    Raises:
        UsageError: there is no such action.
        SettingsError: something was chosen that cannot be, or has not been built or pushed.
        NotPermittedError: engine or registry refused.
        BackendError: engine or registry failed, or did not answer.
    """
    if action not in ACTIONS:
        msg = f"expected {', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}, got '{action or 'nothing'}'"
        raise UsageError(f"{msg} (images.sh --help tells more)")
    choices = read_choices(environ, root)
    client = Client(choices.engine, root, environ, say)
    frameworks = list(dict.fromkeys(frameworks))
    if not frameworks and action in {"pull-check", "size"}:
        frameworks = recorded(root, pushed=action == "pull-check")
    frameworks = frameworks or with_dockerfile(root)
    check(client, choices, frameworks, build=action == "build", push=action == "push" or to_push)
    if action == "build":
        build(client, choices, frameworks)
    elif action == "push":
        registry.push(client, choices, frameworks)
    elif action == "pull-check":
        registry.pull_check(client, frameworks)
    elif action == "pin-base":
        base = choices.base_image or default_base(root / frameworks[0] / "Dockerfile")
        sys.stdout.write(f"{registry.pinned_base(client, base)}\n")
    else:
        sys.stdout.write(f"{size_table(client, frameworks, screen_of(sys.stdout, environ))}\n")
    return 0


def default_base(dockerfile: Path) -> str:
    """Return the base image that *dockerfile* names, as all do."""
    found = _BASE.search(dockerfile.read_text())
    if found is None:
        raise SettingsError(f"{dockerfile} has no line 'ARG BASE_IMAGE=...'; name the base: BASE_IMAGE=...")
    return found[1]


def recorded(root: Path, *, pushed: bool) -> list[str]:
    """Return the frameworks whose images were built in the checkout *root*, or *pushed* from it."""
    found = {name: records.read(name, root) for name in with_dockerfile(root)}
    return [name for name, record in found.items() if record and (record["digest"] or not pushed)]


def check(client: Client, choices: Choices, frameworks: Sequence[str], *, build: bool, push: bool) -> None:
    """Check all that would stop the work of *frameworks* later on: what a *build* needs, and what a *push* does.

    Raises:
        SettingsError: there is no such Dockerfile, or no REGISTRY to push to.
        BackendError: the engine does not answer, or its disk is full.
        NotPermittedError: the registry wants a login.
    """
    there = with_dockerfile(client.root)
    if missing := [name for name in frameworks if name not in there]:
        raise SettingsError(f"there is no {missing[0]}/Dockerfile; there is one of: {', '.join(there) or 'none'}")
    if push and not choices.registry:
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
    if push:
        registry.check_login(choices, client.environ)


def build(client: Client, choices: Choices, frameworks: Sequence[str]) -> None:
    """Build the images of *frameworks*, at the same time; record each, with the exact list of what it holds.

    Raises:
        SettingsError: the environment files of one contradict each other, or ask for what its base cannot give.
        BackendError: one could not be built. All that the engine said is in ``.images/<framework>.log``.
    """
    records.records_dir(client.root).mkdir(exist_ok=True)
    arguments = _build_arguments(choices, client.root)
    with secrets_dir(client.environ, client.say) as secrets:
        client.for_each(frameworks, lambda framework: _build(client, choices, framework, arguments, secrets))


def _build(client: Client, choices: Choices, framework: str, arguments: Mapping[str, str], secrets: Path) -> None:
    name = choices.name(framework)
    directory = records.records_dir(client.root)
    packages, bill = (directory / f"{framework}.{name}" for name in ("packages.txt", "sbom.json"))
    with locked(directory / f".{framework}.lock"), tempfile.TemporaryDirectory() as scratch:
        id_file = Path(scratch, "id")
        started = time.monotonic()
        needed = [choices.env_file] if choices.env_file else []
        with (
            _extra_env(choices.extra_env, client.root / framework),
            ignore_file(client.root, framework, needed) as ignored,
        ):
            command = build_command(client, choices, framework, arguments=arguments, secrets=secrets, id_file=id_file)
            if client.engine.is_podman and ignored:  # the others look for it themselves
                command[1:1] = ["--ignorefile", str(ignored)]
            client.run(framework, *command)
        found = records.read(framework, client.root) or {}
        image_id = id_file.read_text().strip()
        if (found.get("id"), found.get("image")) == (image_id, name) and packages.exists() and bill.exists():
            if not records.platform_of(found):  # a record of an earlier version
                records.write(framework, client.root, {**found, "platform": _platform(client, image_id)})
            client.say(f"{framework}: {name} is unchanged")
            return
        listed = _packages(client, image_id, Path(scratch))
        base = _base_of((directory / f"{framework}.log").read_text(errors="replace"))
        record = {"image": name, "id": image_id, "digest": "", "built": now(), "base": base}
        record["platform"] = _platform(client, image_id)
        write_whole(packages, listed, mode=records.MODE)
        write_whole(bill, sbom(framework, record, listed), mode=records.MODE)
        records.write(framework, client.root, record)
        client.say(f"{framework}: built {name} in {time.monotonic() - started:.0f} s")


def _build_arguments(choices: Choices, root: Path) -> dict[str, str]:
    """Return what the Dockerfiles of the checkout *root* are told by ``--build-arg``; nothing of what is empty."""
    arguments = {
        "BASE_IMAGE": choices.base_image,
        "ENV_FILE": choices.env_file,
        "CODE_DIR": choices.code_dir,
        "RUN_AS": choices.run_as,
        "TORCH": choices.torch,
        "SYSTEM_PACKAGES": choices.system_packages,
        "VERSION": choices.tag,
        "REVISION": revision(root),
        "SOURCE": source(root),
    }
    return {name: value for name, value in arguments.items() if value}


def build_command(
    client: Client, choices: Choices, framework: str, *, arguments: Mapping[str, str], secrets: Path, id_file: Path
) -> list[str]:
    """Return the engine's command that builds *framework*'s image, is lent *secrets* and writes its id to *id_file*."""
    command = ["build", "--platform", choices.platform, "--file", f"{framework}/Dockerfile"]
    command += ["--tag", choices.name(framework), "--iidfile", str(id_file)]
    command += [] if client.engine.is_podman else ["--progress", "plain"]
    for name, value in arguments.items():
        command += ["--build-arg", f"{name}={value}"]
    # Without their values, which may hold a password: the engine's program takes them from its environment.
    for name in _PROXIES:
        command += ["--build-arg", name] if client.environ.get(name) else []
    for path in sorted(secrets.iterdir()):
        command += ["--secret", f"id={path.name},src={path}"]
    return [*command, *choices.flags, "."]


def _packages(client: Client, image_id: str, scratch: Path) -> str:
    """Return the list of what the image holds, out of a container that is never started."""
    container = client.ask("create", image_id)
    try:
        client.ask("cp", f"{container}:/opt/env/packages.txt", str(scratch / "packages.txt"))
    finally:
        client.ask("rm", "--force", container)
    return (scratch / "packages.txt").read_text()


def _platform(client: Client, image_id: str) -> str:
    """Return what the image runs on, such as ``linux/amd64``, as the engine has it; empty where it does not tell."""
    told = client.ask("image", "inspect", "--format", "{{.Os}}/{{.Architecture}}", image_id)
    return records.platform_of({"platform": told})


def _base_of(log: str) -> str:
    """Return the base image that a build's *log* names with its digest; empty where no registry gave it one."""
    found = _FROM_DIGEST.search(log)
    return found[1] if found else ""


@contextmanager
def secrets_dir(environ: Mapping[str, str], say: Say) -> Iterator[Path]:
    """Yield a private directory with what builds are lent and no layer keeps: pip's settings, and certificates."""
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
    """Have copies of *files* in *folder*, where the Dockerfile takes them from, until the build is over."""

    def remove() -> None:
        for path in folder.glob("extra-env-*.yaml"):
            path.unlink()

    remove()  # a build that was killed leaves them
    try:
        for number, path in enumerate(files, start=1):
            copy = folder / f"extra-env-{number}-{path.stem}.yaml"
            if path.suffix == ".txt":
                copy.write_text(json.dumps({"dependencies": [{"pip": entries_of(path)}]}))  # which is YAML, too
            else:
                shutil.copyfile(path, copy)
        yield
    finally:
        remove()
