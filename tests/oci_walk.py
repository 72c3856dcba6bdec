"""The pages about OCI as somebody reads them: commands, policies, settings; and who follows them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import warm
from harness import PATIENCE_S
from oci_service.handle import Service
from oci_service.signatures import fingerprint, new_key, write_key

DOCS = Path(__file__).resolve().parents[1] / "docs"
# As one text: who wants ports of nodes has followed the first page.
TEXT = "\n".join((DOCS / name).read_text(encoding="utf-8") for name in ("oci.md", "oci-bastion.md"))
CLI = Path(sys.executable).parent
PEOPLE = ("administrator", "you")
# docker and make are tested with real engines elsewhere; here they do nothing.
_IDLE = ("docker", "make")


class Page:
    """The page's blocks, by what they are."""

    def __init__(self, text: str = "") -> None:
        text = text or TEXT
        blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        scripts = [block.partition("\n") for language, block in blocks if language == "sh"]
        #: What each person runs, block by block.
        self.scripts = {person: [block for first, _, block in scripts if first == f"# {person}"] for person in PEOPLE}
        self.statements = [
            line for language, block in blocks if language == "text" for line in block.splitlines() if line
        ]
        #: For those who reach ports of nodes.
        self.bastion_statements = re.findall(r'"(allow group [^"]* bastion[^"]*)"', text)
        (self.config,) = [f"{first}\n{block}" for first, _, block in scripts if first == "BACKEND=oci"]


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return *text* with a value in each place that is the reader's to fill in."""

    def value(match: re.Match[str]) -> str:
        assert match[1] in values, f"nobody has told the reader what <{match[1]}> is; known are {', '.join(values)}"
        return values[match[1]]

    return re.sub(r"<(\w[^<>\n]*)>", value, text)


class Person:
    """Somebody with an API key of the tenancy, and a bash with oci-cli."""

    def __init__(self, service: Service, directory: Path, config: Path | None = None) -> None:
        directory.mkdir()
        self.directory = directory
        self.environ = dict(service.environ)
        if config is not None:
            names = ("OCI_CLI_CONFIG_FILE", "OCI_CONFIG_FILE", "OCIFS_CONFIG_LOCATION")
            self.environ |= dict.fromkeys(names, str(config))
        idle = directory / "bin"
        idle.mkdir()
        (idle / "oci").write_text(f'#!/bin/sh\nexec {shlex.join(warm.command("oci"))} "$@"\n')
        (idle / "oci").chmod(0o755)
        for name in _IDLE:
            (idle / name).write_text(f'#!/bin/sh\necho "{name} $*"\n')
            (idle / name).chmod(0o755)

    def bash(self, *blocks: str) -> str:
        """Run *blocks* as one script; return what it prints."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "\n".join(blocks)],
            env={**self.environ, "PATH": f"{self.directory / 'bin'}:{CLI}:{os.environ['PATH']}", "HOME": "/nowhere"},
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def new_person(service: Service, administrator: Person, directory: Path, name: str) -> tuple[str, Person]:
    """Have the administrator make a user with an API key; return the user's OCID, and who has it."""
    key = new_key()
    keys = directory.with_name(f"{directory.name}-keys")
    keys.mkdir()
    write_key(key, keys / "api.pem")
    (keys / "public.pem").write_bytes(_public(key))
    tenancy = service.settings["TENANCY_OCID"]
    user = administrator.bash(
        f"user=$(oci iam user create --name {name} --description 'a data scientist' --query data.id --raw-output)",
        f'oci iam user api-key upload --user-id "$user" --key-file {keys}/public.pem >&2',
        'echo "$user"',
    ).strip()
    config = keys / "config"
    config.touch(mode=0o600)
    config.write_text(
        f"[DEFAULT]\nuser={user}\nfingerprint={fingerprint(key.public_key())}\nkey_file={keys}/api.pem\n"
        f"tenancy={tenancy}\nregion={service.settings['region']}\n"
    )
    return user, Person(service, directory, config)


def _public(key: object) -> bytes:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - as the keys, of the SDK's environment
    from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415

    assert isinstance(key, rsa.RSAPrivateKey)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form)
