"""Images: built, pushed, pulled back and measured with the engine's own program; what ``make build push`` runs.

Only the standard library is imported here: an unchanged ``make build push`` takes less than a second.
"""

from __future__ import annotations

import configparser
import contextlib
import fcntl
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from oci_cluster import image_records
from oci_cluster.engine import Engine, EngineError
from oci_cluster.errors import BackendError, ClusterError, ExitCode, NotPermittedError, SettingsError
from oci_cluster.exchange import now
from oci_cluster.settings import SettingsReader, read_config

Say = Callable[[str], None]

# Where an image goes that is for this machine alone: podman puts `localhost/` before such names anyway.
_LOCAL_REGISTRY = "localhost/oci-cluster"
_PROXIES = [name for lower in ("http_proxy", "https_proxy", "no_proxy") for name in (lower, lower.upper())]
# The variables by which pip, requests and curl are told of certificates.
_CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
# An image of torch or TensorFlow for CPUs, its build stage and the packages' cache took 3.5 GB here.
_DISK_BYTES = 4_000_000_000
_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9.-]*(:\d{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# BuildKit's plain output: the step's number, then seconds, then what the step prints.
_STEP_OUTPUT = re.compile(r"^#\d+ \d+\.\d+ ")
_SHOWN = re.compile(r"install-env\.sh:   ")
# What BuildKit, and buildah, say of a step that failed; the step's own words come before.
_FRAME = re.compile(r"#|------| > \[|executor failed running|ERROR: |Error: building at STEP")
_STEP_CODE = re.compile(r"exit (?:code|status):? (\d+)")
_LAST_LINES = 25


@dataclass(frozen=True)
class Choices:
    """What can be chosen for images; ``config.env.example`` explains each."""

    engine: str
    registry: str
    tag: str
    platform: str
    base_image: str
    env_file: str
    extra_env: Sequence[Path]
    code_dir: str
    run_as: str
    system_packages: str
    flags: Sequence[str]

    def name(self, framework: str) -> str:
        """Return the name of *framework*'s image."""
        return f"{self.registry or _LOCAL_REGISTRY}/{framework}:{self.tag}"


def read_choices(environ: Mapping[str, str], root: Path) -> Choices:
    """Return what environment and ``config.env`` choose.

    Raises:
        SettingsError: names everything that cannot be.
    """
    read = SettingsReader(environ, read_config(root))

    def files(text: str) -> list[Path]:
        found = [Path(word).expanduser() for word in shlex.split(text)]
        if missing := [str(path) for path in found if not path.is_file()]:
            msg = f"there is no file {', '.join(missing)} in {Path.cwd()}"
            raise ValueError(msg)
        return found

    def inside(text: str) -> str:
        path = Path(text).expanduser().resolve()
        if not path.exists() or not path.is_relative_to(root.resolve()):
            msg = f"'{text}' is not in {root}, which is all that a build sees; copy it there, or name a folder of it"
            raise ValueError(msg)
        return str(path.relative_to(root.resolve()))

    choices = Choices(
        engine=read.text("DOCKER", "docker"),
        registry=read.value("REGISTRY", _registry, ""),
        tag=read.value("TAG", _tag, "") or default_tag(root),
        platform=read.text("PLATFORM", "linux/amd64"),
        base_image=read.text("BASE_IMAGE"),
        env_file=read.value("ENV_FILE", inside, ""),
        extra_env=read.value("EXTRA_ENV", files, list[Path]()),
        code_dir=read.value("CODE_DIR", inside, ""),
        run_as=read.text("RUN_AS"),
        system_packages=read.text("SYSTEM_PACKAGES"),
        flags=read.value("BUILD_FLAGS", shlex.split, list[str]()),
    )
    if read.problems:
        msg = f"bad settings: {'; '.join(read.problems)} (config.env.example explains each)"
        raise SettingsError(msg)
    return choices


def default_tag(root: Path) -> str:
    """Return the tag where none is chosen: git's own description of what is checked out, `dev` without git."""
    described = _git(root, "describe", "--tags", "--always", "--dirty")
    return described if _TAG.fullmatch(described) else "dev"


class Images:
    """The images of one checkout, as one engine has them."""

    def __init__(self, choices: Choices, root: Path, environ: Mapping[str, str], say: Say) -> None:
        """Prepare to work.

        Args:
            choices: What was chosen.
            root: The checkout, which is the context of every build.
            environ: The environment, for the engine's own settings, proxies and pip's settings.
            say: Shows a line of progress.
        """
        self._choices = choices
        self._engine = Engine(choices.engine, environ)
        self._root = root
        self._records = image_records.records_dir(root)
        self._environ = environ
        self._say = say
        self._revision = _git(root, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty")
        self._source = _without_password(_git(root, "remote", "get-url", "origin"))

    # --- Checks before any work ------------------------------------------------------------------------

    def check(self, frameworks: Sequence[str], *, build: bool, push: bool) -> None:
        """Check all that would stop the work of *frameworks* later on: what a *build* needs, and what a *push* does.

        Raises:
            SettingsError: there is no such Dockerfile, or no REGISTRY to push to.
            BackendError: the engine does not answer, or its disk is full.
            NotPermittedError: the registry wants a login.
        """
        there = with_dockerfile(self._root)
        if missing := [name for name in frameworks if name not in there]:
            msg = f"there is no {missing[0]}/Dockerfile; there is one of: {', '.join(there) or 'none'}"
            raise SettingsError(msg)
        if push and not self._choices.registry:
            msg = (
                "REGISTRY is not set: where are images pushed to? make build push "
                "REGISTRY=<region>.ocir.io/<namespace>/<folder>, or a line in config.env"
            )
            raise SettingsError(msg)
        place = self._engine.place()
        if build and place and place.is_dir() and (free := shutil.disk_usage(place).free) < _DISK_BYTES:
            msg = (
                f"{place}, where {self._choices.engine} keeps images, has {free / 1e9:.1f} GB free, "
                f"{_DISK_BYTES / 1e9:.0f} GB are needed; make room: {self._choices.engine} system prune"
            )
            raise BackendError(msg)
        if push:
            self._check_login()

    def _check_login(self) -> None:
        """Check that a registry which wants to know who pushes will be told."""
        host = self._choices.registry.partition("/")[0]
        name = host.partition(":")[0]
        if name == "localhost" or name.startswith("127.") or has_credentials(host, self._environ):
            return
        try:
            urllib.request.urlopen(f"https://{host}/v2/", timeout=10).close()
        except urllib.error.HTTPError as error:
            if error.code in {401, 403}:
                msg = (
                    f"not logged in to {host}: {self._choices.engine} login {host} "
                    "(OCI: the password is an auth token, docs/images.md)"
                )
                raise NotPermittedError(msg) from error
        except OSError:
            return  # the engine may reach it where this machine does not: the push itself will tell

    # --- Build -----------------------------------------------------------------------------------------

    def build(self, frameworks: Sequence[str]) -> None:
        """Build the images of *frameworks*, at the same time; record each, with the exact list of what it holds.

        Raises:
            SettingsError: the environment files of one contradict each other, or ask for what its base cannot give.
            BackendError: one could not be built. All that the engine said is in ``.images/<framework>.log``.
        """
        self._records.mkdir(exist_ok=True)
        with secrets_dir(self._environ, self._say) as secrets:
            self._each(frameworks, lambda framework: self._build(framework, secrets))

    def _build(self, framework: str, secrets: Path) -> None:
        name = self._choices.name(framework)
        packages = self._records / f"{framework}.packages.txt"
        with _one_at_a_time(self._records / f".{framework}.lock"), tempfile.TemporaryDirectory() as scratch:
            id_file = Path(scratch, "id")
            started = time.monotonic()
            with _extra_env(self._choices.extra_env, self._root / framework):
                self._run(framework, self.build_command(framework, secrets, id_file))
            found = image_records.read(framework, self._root) or {}
            image_id = id_file.read_text().strip()
            if (found.get("id"), found.get("image")) == (image_id, name) and packages.exists():
                self._say(f"{framework}: {name} is unchanged")
                return
            packages.write_text(self._packages(image_id, Path(scratch)))
            record = {"image": name, "id": image_id, "digest": "", "built": now()}
            image_records.write(framework, self._root, record)
            self._say(f"{framework}: built {name} in {time.monotonic() - started:.0f} s")

    def build_command(self, framework: str, secrets: Path, id_file: Path) -> list[str]:
        """Return the command that builds *framework*'s image, is lent *secrets* and writes the id to *id_file*."""
        choices = self._choices
        arguments = {
            "BASE_IMAGE": choices.base_image,
            "ENV_FILE": choices.env_file,
            "CODE_DIR": choices.code_dir,
            "RUN_AS": choices.run_as,
            "SYSTEM_PACKAGES": choices.system_packages,
            "VERSION": choices.tag,
            "REVISION": self._revision,
            "SOURCE": self._source,
        }
        command = [choices.engine, "build", "--platform", choices.platform, "--file", f"{framework}/Dockerfile"]
        command += ["--tag", choices.name(framework), "--iidfile", str(id_file)]
        command += [] if self._engine.is_podman else ["--progress", "plain"]
        for name, value in arguments.items():
            command += ["--build-arg", f"{name}={value}"] if value else []
        # Without their values, which may hold a password: the engine's program takes them from its environment.
        for name in _PROXIES:
            command += ["--build-arg", name] if self._environ.get(name) else []
        for path in sorted(secrets.iterdir()):
            command += ["--secret", f"id={path.name},src={path}"]
        return [*command, *choices.flags, "."]

    def _packages(self, image_id: str, scratch: Path) -> str:
        """Return the list of what the image holds, out of a container that is never started."""
        container = self._ask("create", image_id)
        try:
            self._ask("cp", f"{container}:/opt/env/packages.txt", str(scratch / "packages.txt"))
        finally:
            self._ask("rm", "--force", container)
        return (scratch / "packages.txt").read_text()

    # --- Push, pull, size ------------------------------------------------------------------------------

    def push(self, frameworks: Sequence[str]) -> None:
        """Push the images of *frameworks* that were built last, and record their digests.

        Raises:
            SettingsError: one has not been built.
            NotPermittedError: the registry refused.
            BackendError: it did not answer, or failed.
        """
        records = {framework: self._built(framework) for framework in frameworks}
        self._each(frameworks, lambda framework: self._push(framework, records[framework]))

    def _push(self, framework: str, record: Mapping[str, str]) -> None:
        image = record["image"]
        with tempfile.TemporaryDirectory() as scratch:
            digest_file = Path(scratch, "digest")
            own = ["--digestfile", str(digest_file)] if self._engine.is_podman else []
            self._run(framework, [self._choices.engine, "push", *own, image])
            digest = digest_file.read_text().strip() if self._engine.is_podman else self._repo_digest(image)
        if digest == record["digest"]:
            self._say(f"{framework}: {image}@{digest} is in the registry")
            return
        image_records.write(framework, self._root, {**record, "digest": digest})
        self._say(f"{framework}: pushed {image}@{digest}")

    def _built(self, framework: str) -> dict[str, str]:
        record, name = image_records.read(framework, self._root), self._choices.name(framework)
        if record is None or record["image"] != name:
            last = f"; the last one was {record['image']}" if record else ""
            msg = f"{name} has not been built here{last}; make build-{framework}"
            raise SettingsError(msg)
        return record

    def _repo_digest(self, image: str) -> str:
        repository = image.rpartition(":")[0]
        listed = json.loads(self._ask("image", "inspect", "--format", "{{json .RepoDigests}}", image))
        for reference in listed or []:
            name, _, digest = str(reference).partition("@")
            if name == repository and _DIGEST.fullmatch(digest):
                return digest
        msg = f"{self._choices.engine} does not tell the digest of {image}, which was pushed; it has {listed}"
        raise BackendError(msg)

    def pull_check(self, frameworks: Sequence[str]) -> None:
        """Pull what was pushed, by its digest, and see that it is what was built and that it starts.

        Raises:
            SettingsError: one has not been pushed.
            BackendError: the registry does not have it, or it is another, or it does not start.
        """
        self._each(frameworks, self._pull_check)

    def _pull_check(self, framework: str) -> None:
        record = self._recorded(framework)
        if not record["digest"]:
            msg = f"{record['image']} has not been pushed; make push-{framework}"
            raise SettingsError(msg)
        reference = f"{record['image'].rpartition(':')[0]}@{record['digest']}"
        self._ask("pull", "--quiet", reference)
        pulled = self._ask("image", "inspect", "--format", "{{.Id}}", reference)
        if pulled.removeprefix("sha256:") != record["id"].removeprefix("sha256:"):
            msg = f"{reference} is {pulled}, built here was {record['id']}; make push-{framework}"
            raise BackendError(msg)
        proof = ["python", "-I", "-c", "import ocifs"]
        self._ask("run", "--rm", "--pull", "never", "--network", "none", reference, *proof)
        self._say(f"{framework}: {reference} can be pulled, and starts")

    def sizes(self, frameworks: Sequence[str]) -> str:
        """Return a table of the layers of each image, the last first; layers without files are left out.

        Raises:
            SettingsError: one has not been built.
            BackendError: the engine does not have one any more.
        """
        tables = []
        for framework in frameworks:
            record = self._recorded(framework)
            layers = self._layers(record["id"])
            tables.append(f"{record['image']}  {sum(size for size, _ in layers) / 1e6:.1f} MB")
            tables += [f"{size / 1e6:10.3f} MB  {_layer(made)}" for size, made in layers if size]
        return "\n".join(tables)

    def _layers(self, image_id: str) -> list[tuple[int, str]]:
        """Return bytes and maker of each layer of an image."""
        if self._engine.is_podman:  # whose templates know rounded sizes only
            found = json.loads(self._ask("history", "--no-trunc", "--format", "json", image_id))
            return [(int(layer["size"]), str(layer.get("CreatedBy") or layer.get("createdBy"))) for layer in found]
        form = ["--no-trunc", "--human=false", "--format", "{{.Size}}\t{{.CreatedBy}}"]
        lines = self._ask("history", *form, image_id).splitlines()
        return [(int(size), made) for size, _, made in (line.partition("\t") for line in lines)]

    def _recorded(self, framework: str) -> dict[str, str]:
        if record := image_records.read(framework, self._root):
            return record
        msg = f"no image of {framework} has been built here; make build-{framework}"
        raise SettingsError(msg)

    # --- The engine's program --------------------------------------------------------------------------

    def _ask(self, *arguments: str) -> str:
        try:
            return self._engine.call(*arguments, timeout_s=None).strip()  # a pull takes as long as it takes
        except EngineError as error:
            raise BackendError(_advised(str(error))) from error

    def _run(self, framework: str, command: Sequence[str]) -> None:
        """Run *command*, keep all that it prints in a log of *framework*, and show what tells of progress."""
        log = self._records / f"{framework}{'' if command[1] == 'build' else f'.{command[1]}'}.log"
        with (
            log.open("w") as kept,
            subprocess.Popen(  # noqa: S603 - an argument list, no shell
                command,
                env={**self._environ, "DOCKER_BUILDKIT": "1"},
                cwd=self._root,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            ) as process,
        ):
            for line in process.stdout or ():
                kept.write(line)
                kept.flush()
                if _SHOWN.search(line):
                    self._say(f"{framework}: {_STEP_OUTPUT.sub('', line).strip()[:150]}")
        if process.returncode:
            raise _failure(framework, command, process.returncode, log)

    def _each(self, frameworks: Sequence[str], work: Callable[[str], None]) -> None:
        """Do *work* for all *frameworks* at the same time; all failures are told, the first is raised."""
        with ThreadPoolExecutor(len(frameworks)) as pool:
            futures = [pool.submit(work, framework) for framework in frameworks]
            failed = [error for future in futures if (error := future.exception())]
        for error in failed[1:]:
            self._say(f"error: {error}")
        if failed:
            raise failed[0]


def _failure(framework: str, command: Sequence[str], code: int, log: Path) -> ClusterError:
    """Return what is to be said of a *command* that failed: the last words of its *log*, and what helps."""
    lines = log.read_text(errors="replace").splitlines()
    failed = [step[1] for line in lines if (step := re.match(r"#(\d+) ERROR", line))]
    said = [line for line in lines if line.startswith(f"#{failed[-1]} ")] if failed else lines
    told = [line for line in (_STEP_OUTPUT.sub("", line) for line in said) if line.strip() and not _FRAME.match(line)]
    last = "\n".join(f"  {line[:300]}" for line in (told or lines)[-_LAST_LINES:])
    what = f"'{Path(command[0]).name} {command[1]} ...' for {framework} failed with exit code {code}"
    text = _advised(f"{what}; all that it printed is in {log}. Its last lines:\n{last}")
    if command[1] == "push" and any(word in last for word in _REFUSED):
        return NotPermittedError(text)
    codes = _STEP_CODE.findall("\n".join(lines[-_LAST_LINES:]))
    return SettingsError(text) if codes and int(codes[-1]) == ExitCode.SETTINGS else BackendError(text)


_REFUSED = ("denied", "unauthorized", "no basic auth", "authentication required")
_ADVICE = {
    "no space left on device": "its disk is full; make room there: docker system prune",
    "buildx component is missing": "BuildKit is missing: install docker-buildx-plugin, or name a docker that has it",
    "network bridge not found": "builds have no network of this engine: BUILD_FLAGS='--network host'",
    **dict.fromkeys(_REFUSED, "log in to the registry, as one who may write there: docs/images.md"),
}


def _advised(text: str) -> str:
    advice = next((advice for sign, advice in _ADVICE.items() if sign in text), "")
    return f"{text}\n{advice}" if advice else text


def recorded(root: Path, *, pushed: bool) -> list[str]:
    """Return the frameworks whose images were built in the checkout *root*, or *pushed* from it."""
    records = {name: image_records.read(name, root) for name in with_dockerfile(root)}
    return [name for name, record in records.items() if record and (record["digest"] or not pushed)]


def with_dockerfile(root: Path) -> list[str]:
    """Return the frameworks of the checkout *root* that images can be built of."""
    return sorted(path.parent.name for path in root.glob("*/Dockerfile"))


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


@contextmanager
def secrets_dir(environ: Mapping[str, str], say: Say) -> Iterator[Path]:
    """Yield a private directory with what builds are lent and no layer keeps: pip's settings, and certificates."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        settings = pip_settings(environ)
        bundle = next((environ[name] for name in _CA_VARIABLES if environ.get(name)), settings.pop("cert", ""))
        if bundle and Path(bundle).is_file():
            shutil.copyfile(bundle, directory / "ca-bundle")
        lines = []
        for name, value in settings.items():
            kept = [word for word in value.split() if name not in _PLACES or not _is_local(word)]
            if len(kept) < len(value.split()):
                say(f"pip's {name} names directories of this machine, which a build does not see: {value}")
            if kept:
                lines.append(f"{name} = {' '.join(kept)}")
        if lines:
            (directory / "pip.conf").write_text("\n".join(["[global]", *lines, ""]))
        yield directory


# Settings of pip that say where packages come from; what else it has is not for a build.
_PLACES = ("index-url", "extra-index-url", "find-links", "trusted-host")


def pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what pip's files and variables say of where packages come from; variables win.

    Read here, as `pip config list` would take a third of a second.
    """
    home = Path(environ.get("HOME", "/"))
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path("/etc/pip.conf"), home / ".pip" / "pip.conf", config / "pip" / "pip.conf"]
    if sys.platform == "darwin":
        files.append(home / "Library" / "Application Support" / "pip" / "pip.conf")
    if own := environ.get("PIP_CONFIG_FILE"):
        files = [] if own == os.devnull else [*files, Path(own)]
    parser = configparser.RawConfigParser()
    parser.read(files, encoding="utf-8")
    found: dict[str, str] = {}
    for name in (*_PLACES, "cert"):
        for section in ("global", "install"):
            if value := parser.get(section, name, fallback=""):
                found[name] = value
        if value := environ.get(f"PIP_{name.upper().replace('-', '_')}", ""):
            found[name] = value
    return found


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
            shutil.copyfile(path, folder / f"extra-env-{number}-{path.stem}.yaml")
        yield
    finally:
        remove()


def _layer(made: str) -> str:
    """Return what made a layer, short: without what the engine puts around it."""
    text = re.sub(r"^(RUN )?(\|\d+ (\S+=\S* )*)?(/bin/\w+ (-\S+ |pipefail )*-c )?", "", made).removesuffix(
        " # buildkit"
    )
    return text[:90] or "the base image"


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _git(root: Path, *arguments: str) -> str:
    with contextlib.suppress(OSError):
        done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False)  # noqa: S603, S607
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""


def _without_password(url: str) -> str:
    return re.sub(r"(?<=://)[^/@]*@", "", url)


def _registry(text: str) -> str:
    if not _REPOSITORY.fullmatch(text.rstrip("/")):
        msg = f"'{text}' is not a registry such as iad.ocir.io/mynamespace/training"
        raise ValueError(msg)
    return text.rstrip("/")


def _tag(text: str) -> str:
    if not _TAG.fullmatch(text):
        msg = f"'{text}' is not a tag: letters, digits, _ . - and 128 of them at most"
        raise ValueError(msg)
    return text
