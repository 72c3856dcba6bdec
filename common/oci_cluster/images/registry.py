"""Logs in to, pushes to, and pulls from registries."""

from __future__ import annotations

import json
import os
import re
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from oci_cluster.errors import BackendError, NotPermittedError, SettingsError
from oci_cluster.images import records
from oci_cluster.images.choices import Choices
from oci_cluster.images.client import Client
from oci_cluster.system.text import now

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def check_login(choices: Choices, environ: Mapping[str, str]) -> None:
    """Check that there is a login for a registry which needs one."""
    host = choices.registry.partition("/")[0]
    name = host.partition(":")[0]
    if name == "localhost" or name.startswith("127.") or has_credentials(host, environ):
        return
    try:
        urllib.request.urlopen(f"https://{host}/v2/", timeout=10).close()
    except urllib.error.HTTPError as error:
        if error.code in {401, 403}:
            raise NotPermittedError(
                f"not logged in to {host}: {choices.engine} login {host} "
                "(OCI: the password is an auth token, docs/images.md)"
            ) from error
    except OSError:
        return  # the engine may reach it where this machine does not: the push itself will tell


def has_credentials(host: str, environ: Mapping[str, str]) -> bool:
    """Return whether docker's or podman's own files say how to log in to *host*."""
    home = Path(environ.get("HOME", "/"))
    files = [Path(environ.get("DOCKER_CONFIG") or home / ".docker", "config.json")]
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        files.append(Path(runtime, "containers", "auth.json"))
    files += [home / ".config" / "containers" / "auth.json", Path(environ.get("REGISTRY_AUTH_FILE") or os.devnull)]
    for path in files:
        try:
            config = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        # A store for all registries is asked by the engine alone.
        if config.get("credsStore") or host in config.get("credHelpers", {}):
            return True
        if any(key == host or key.startswith((f"{host}/", f"https://{host}")) for key in config.get("auths", {})):
            return True
    return False


def push(client: Client, choices: Choices, frameworks: Sequence[str]) -> None:
    """Push the images of *frameworks* that were built last, and record their digests."""
    found = {framework: _built(framework, choices.name(framework), client.root) for framework in frameworks}
    client.for_each(frameworks, lambda framework: _push(client, framework, found[framework]))


def _built(framework: str, name: str, root: Path) -> dict[str, str]:
    record = records.read(framework, root)
    if record is None or record["image"] != name:
        last = f"; the last one was {record['image']}" if record else ""
        raise SettingsError(f"{name} has not been built here{last}; make build-{framework}")
    return record


def _push(client: Client, framework: str, record: Mapping[str, str]) -> None:
    image = record["image"]
    with tempfile.TemporaryDirectory() as scratch:
        digest_file = Path(scratch, "digest")
        own = ["--digestfile", str(digest_file)] if client.engine.is_podman else []
        client.run(framework, "push", *own, image)
        told = digest_file.read_text() if client.engine.is_podman else _reference(client, image, "pushed")
        digest = told.strip().rpartition("@")[2]
    if digest == record["digest"]:
        client.say(f"{framework}: {image}@{digest} is in the registry")
        return
    records.write(framework, client.root, {**record, "digest": digest})
    client.say(f"{framework}: pushed {image}@{digest}")


def _reference(client: Client, image: str, done: str) -> str:
    """Return *image* by its digest in its own repository."""
    repository = image.rpartition(":")[0] if ":" in image.rpartition("/")[2] else image
    listed = json.loads(client.ask("image", "inspect", "--format", "{{json .RepoDigests}}", image))
    for reference in listed or []:
        name, _, digest = str(reference).partition("@")
        # podman writes a name of Docker Hub out: docker.io/library/python.
        if repository in {name, name.removeprefix("docker.io/library/")} and _DIGEST.fullmatch(digest):
            return str(reference)
    raise BackendError(f"{client.program} does not tell the digest of {image}, which was {done}; it has {listed}")


def pinned_base(client: Client, base: str) -> str:
    """Return lines for ``config.env`` that name *base* by its digest."""
    if "@" in base:
        raise SettingsError(
            f"BASE_IMAGE={base} names a digest already; to renew it, make pin-base BASE_IMAGE=<name>:<tag>"
        )
    client.ask("pull", "--quiet", base)
    return f"# {base}, as its registry had it at {now()}\nBASE_IMAGE={_reference(client, base, 'pulled')}"
