"""Images, with a stub for the engine's program: what it is asked, and what becomes of its answers."""

from __future__ import annotations

import json
import re
import shutil
import urllib.error
from collections import namedtuple
from email.message import Message
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from oci_cluster import image_records, images
from oci_cluster.errors import BackendError, ClusterError, NotPermittedError, SettingsError
from oci_cluster.images import Images, default_tag, has_credentials, pip_settings, read_choices, secrets_dir

# Notes its calls, and keeps of an image what STUB says: its id is that of the file `id`.
STUB = """#!/bin/sh
printf '%s\\n' "$*" >>"$STUB/calls"
for last; do :; done
case "$1 $2" in
  info*) cat "$STUB/info" || { echo 'Cannot connect to the engine' >&2; exit 1; } ;;
  build*)
    cp "$STUB/../checkout/dask/"extra-env-* "$STUB/" 2>/dev/null
    printf '%s' "$http_proxy" >"$STUB/proxy"
    cat "$STUB/build" && [ ! -e "$STUB/fails" ] || exit "$(cat "$STUB/fails")"
    while [ "$1" != --iidfile ]; do shift; done
    cp "$STUB/id" "$2" ;;
  push*)
    cat "$STUB/push" && [ ! -e "$STUB/fails" ] || exit "$(cat "$STUB/fails")"
    [ "$2" != --digestfile ] || printf 'sha256:%064d' 7 >"$3" ;;
  create*) echo a-container ;;
  cp*) echo 'dask==1.0' >"$last" ;;
  rm*) ;;
  "image inspect") case "$*" in *RepoDigests*) cat "$STUB/digests" ;; *) cat "$STUB/pulled" ;; esac ;;
  pull*) [ ! -e "$STUB/fails" ] || { echo 'manifest unknown' >&2; exit 1; } ;;
  run*) [ ! -e "$STUB/does-not-start" ] || { echo 'exec format error' >&2; exit 125; } ;;
  history*)
    case "$*" in
      *"--format json"*) cat "$STUB/history" ;;
      *) printf '2000000\\t/bin/sh -c apt # buildkit\\n0\\tENV\\n1500\\tCOPY a /code\\n' ;;
    esac ;;
  *) echo "stub: unknown call: $*" >&2; exit 64 ;;
esac
"""
DIGEST = "sha256:" + "7".rjust(64, "0")


class Checkout:
    """A checkout with two frameworks, and an engine that is a stub."""

    def __init__(self, place: Path, engine: str = "docker") -> None:
        self.root = place / "checkout"
        self.stub = place / "stub"
        self.said: list[str] = []
        self.stub.mkdir()
        for framework in ("dask", "pytorch"):
            (self.root / framework).mkdir(parents=True)
            (self.root / framework / "Dockerfile").touch()
        self.engine = self.stub / engine
        self.engine.write_text(STUB)
        self.engine.chmod(0o755)
        self.set(info=json.dumps({"DockerRootDir": str(place)}), id="sha256:1", build="", push="", pulled="sha256:1\n")
        self.set(digests=json.dumps([f"elsewhere/dask@sha256:{1:064}", f"r.example/team/dask@{DIGEST}"]))
        self.environ = {"STUB": str(self.stub), "PATH": "/usr/bin:/bin", "DOCKER": str(self.engine), "HOME": str(place)}
        self.environ |= {"PIP_CONFIG_FILE": "/dev/null", "TAG": "v1"}

    def set(self, **files: str) -> None:
        for name, text in files.items():
            (self.stub / name).write_text(text)

    def images(self, **environ: str) -> Images:
        self.environ |= environ
        return Images(read_choices(self.environ, self.root), self.root, self.environ, self.said.append)

    def calls(self) -> list[str]:
        text = (self.stub / "calls").read_text() if (self.stub / "calls").exists() else ""
        (self.stub / "calls").write_text("")
        return text.splitlines()

    def record(self, framework: str = "dask") -> dict[str, str] | None:
        return image_records.read(framework, self.root)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """Return a checkout; whoever asks the engine without an environment of its own finds the stub's."""
    found = Checkout(tmp_path)
    monkeypatch.setenv("STUB", str(found.stub))
    monkeypatch.chdir(found.root)
    return found


# --- What can be chosen ---------------------------------------------------------------------------------------------


def test_without_a_choice_an_image_is_for_this_machine(tmp_path: Path) -> None:
    """Its name is one that podman would give it, too; its platform is that of OCI's shapes."""
    choices = read_choices({}, tmp_path)
    assert choices.name("dask") == "localhost/oci-cluster/dask:dev"
    assert (choices.engine, choices.platform, choices.registry) == ("docker", "linux/amd64", "")


def test_everything_that_cannot_be_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message names every bad setting with its value."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "root").mkdir()
    environ = {"REGISTRY": "https://x", "TAG": "a b", "EXTRA_ENV": "no.yaml", "CODE_DIR": str(tmp_path)}
    with pytest.raises(SettingsError) as caught:
        read_choices({**environ, "BUILD_FLAGS": "'"}, tmp_path / "root")
    for part in (
        "REGISTRY: 'https://x'",
        "TAG: 'a b'",
        "no file no.yaml in",
        "which is all that a build sees",
        "BUILD_FLAGS: No closing",
    ):
        assert part in str(caught.value)


def test_config_env_chooses_where_the_environment_does_not(tmp_path: Path) -> None:
    """make and launch.sh read the same file."""
    (tmp_path / "config.env").write_text("REGISTRY=r.example/team/\nTAG=two\n")
    assert read_choices({"TAG": "one"}, tmp_path).name("dask") == "r.example/team/dask:one"


@pytest.mark.parametrize(
    ("said", "tag"), [("v1.2-3-gabc-dirty", "v1.2-3-gabc-dirty"), ("", "dev"), ("feature/x", "dev")]
)
def test_the_tag_is_gits_description(said: str, tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where git has none, or one that no tag can be, it is dev."""
    monkeypatch.setattr(images, "_git", lambda *_: said)
    assert default_tag(tmp_path) == tag


# --- Checks before any work -----------------------------------------------------------------------------------------


def test_a_push_without_a_registry_stops_before_any_work(checkout: Checkout) -> None:
    """Not even the engine is asked."""
    with pytest.raises(SettingsError, match="REGISTRY is not set"):
        checkout.images().check(["dask"], build=True, push=True)
    assert checkout.calls() == []
    checkout.images().check(["dask"], build=True, push=False)


def test_a_framework_without_a_dockerfile_is_named(checkout: Checkout) -> None:
    """With those that there are."""
    with pytest.raises(SettingsError, match=r"no spark/Dockerfile; there is one of: dask, pytorch"):
        checkout.images().check(["dask", "spark"], build=True, push=False)


def test_an_engine_that_does_not_run_is_told(checkout: Checkout) -> None:
    """With the last of its own words."""
    (checkout.stub / "info").unlink()
    with pytest.raises(BackendError, match=r"does not answer: Cannot connect to the engine; start it"):
        checkout.images().check(["dask"], build=True, push=False)


def test_an_engine_that_is_not_there_is_told(checkout: Checkout) -> None:
    """With what else could be named."""
    with pytest.raises(BackendError, match=r"engine 'no-engine' cannot be run: .*DOCKER=podman"):
        checkout.images(DOCKER="no-engine").check(["dask"], build=True, push=False)


def test_a_full_disk_stops_before_any_work(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place that the engine keeps images at is looked at."""
    usage = namedtuple("usage", "total used free")
    asked: list[Path] = []
    monkeypatch.setattr(shutil, "disk_usage", lambda path: asked.append(path) or usage(9, 8, 1_000_000_000))
    with pytest.raises(BackendError, match=r"has 1.0 GB free, 4 GB are needed; make room: .* system prune"):
        checkout.images().check(["dask"], build=True, push=False)
    assert asked == [checkout.root.parent]
    checkout.images().check(["dask"], build=False, push=False)  # such as `make size`, which helps to make room


def test_a_disk_of_another_machine_is_not_looked_at(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine elsewhere says a place that is not here."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: pytest.fail("looked"))
    checkout.set(info=json.dumps({"store": {"graphRoot": "/no/such/place"}}))
    checkout.images().check(["dask"], build=True, push=False)


def refuse(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> list[str]:
    """Have a registry answer with *error*; return what is asked."""
    asked: list[str] = []

    def urlopen(url: str, timeout: float) -> BytesIO:
        asked.append(url)
        if error:
            raise error
        return BytesIO()

    monkeypatch.setattr(images.urllib.request, "urlopen", urlopen)
    return asked


def http_error(code: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("url", code, "no", Message(), BytesIO())


def test_a_registry_that_wants_a_login_stops_before_any_work(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked, and what to type is told (77)."""
    asked = refuse(monkeypatch, http_error(401))
    with pytest.raises(NotPermittedError, match=r"not logged in to r.example:444: .*docker login r.example:444"):
        checkout.images(REGISTRY="r.example:444/team").check(["dask"], build=True, push=True)
    assert asked == ["https://r.example:444/v2/"]


@pytest.mark.parametrize("error", [None, http_error(404), OSError("no route")])
def test_a_registry_that_does_not_want_one_is_pushed_to(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """So is one that only the engine can reach."""
    refuse(monkeypatch, error)
    checkout.images(REGISTRY="r.example/team").check(["dask"], build=True, push=True)


@pytest.mark.parametrize("registry", ["localhost:5000/team", "127.0.0.1:5000"])
def test_a_registry_of_this_machine_is_not_asked(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, registry: str
) -> None:
    """Engines speak plain HTTP with it."""
    refuse(monkeypatch, http_error(401))
    checkout.images(REGISTRY=registry).check(["dask"], build=True, push=True)


@pytest.mark.parametrize(
    ("config", "is_known"),
    [
        ({"auths": {"r.example": {}}}, True),
        ({"auths": {"https://r.example/v1/": {}}}, True),
        ({"auths": {"r.example.org": {}}}, False),
        ({"credHelpers": {"r.example": "x"}}, True),
        ({"credsStore": "desktop"}, True),
        ({}, False),
    ],
)
def test_a_login_is_found_where_the_engine_keeps_it(tmp_path: Path, config: dict[str, Any], *, is_known: bool) -> None:
    """In docker's file, wherever that is, and in podman's."""
    for place, environ in (
        (tmp_path / ".docker" / "config.json", {}),
        (tmp_path / "own" / "config.json", {"DOCKER_CONFIG": str(tmp_path / "own")}),
        (tmp_path / ".config" / "containers" / "auth.json", {}),
        (tmp_path / "run" / "containers" / "auth.json", {"XDG_RUNTIME_DIR": str(tmp_path / "run")}),
        (tmp_path / "auth.json", {"REGISTRY_AUTH_FILE": str(tmp_path / "auth.json")}),
    ):
        assert not has_credentials("r.example", {"HOME": str(tmp_path), **environ})
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(config))
        assert has_credentials("r.example", {"HOME": str(tmp_path), **environ}) is is_known
        place.write_text("not JSON")


# --- Build ----------------------------------------------------------------------------------------------------------


def test_the_command_is_what_can_be_typed_by_hand(checkout: Checkout) -> None:
    """Without choices an image is built as its Dockerfile says."""
    checkout.images().build(["dask"])
    build = re.sub(r"--iidfile \S+", "--iidfile FILE", checkout.calls()[0])
    assert build == (
        "build --platform linux/amd64 --file dask/Dockerfile --tag localhost/oci-cluster/dask:v1 --iidfile FILE "
        "--progress plain --build-arg VERSION=v1 ."
    )


def test_what_was_chosen_is_in_the_command(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each choice by the name that the Dockerfile has for it; flags come last."""
    monkeypatch.setattr(images, "_git", lambda *args: "https://me:secret@git.example/x" if "remote" in args else "abc")
    (checkout.root / "src").mkdir()
    (checkout.root / "gpu.yaml").touch()
    chosen = {
        "BASE_IMAGE": "cuda:1",
        "ENV_FILE": "gpu.yaml",
        "CODE_DIR": "src",
        "RUN_AS": "0",
        "SYSTEM_PACKAGES": "git",
    }
    checkout.images(**chosen, PLATFORM="linux/arm64", BUILD_FLAGS="--network host").build(["dask"])
    build = checkout.calls()[0]
    for name, value in {**chosen, "VERSION": "v1", "REVISION": "abc", "SOURCE": "https://git.example/x"}.items():
        assert f"--build-arg {name}={value} " in build
    assert "--platform linux/arm64" in build
    assert build.endswith(" --network host .")


def test_podman_is_not_asked_for_progress_it_cannot_show(tmp_path: Path) -> None:
    """It has no such option."""
    checkout = Checkout(tmp_path, "podman")
    checkout.images().build(["dask"])
    assert "--progress" not in checkout.calls()[0]


def test_a_proxy_is_passed_on_and_its_password_is_in_no_command(checkout: Checkout) -> None:
    """The engine's program takes it from its environment."""
    checkout.images(http_proxy="http://me:secret@proxy:80").build(["dask"])
    build = checkout.calls()[0]
    assert "--build-arg http_proxy " in build
    assert ("secret" in build, (checkout.stub / "proxy").read_text()) == (False, "http://me:secret@proxy:80")


def test_extra_environment_files_are_there_for_the_build_alone(checkout: Checkout, tmp_path: Path) -> None:
    """They are copied beside the Dockerfile, in their order, and removed, as is what a killed build has left."""
    for name in ("b.yaml", "a.yaml"):
        (tmp_path / name).write_text(name)
    (checkout.root / "dask" / "extra-env-9-old.yaml").touch()
    checkout.images(EXTRA_ENV=f"{tmp_path}/b.yaml '{tmp_path}/a.yaml'").build(["dask"])
    during = sorted(path.name for path in checkout.stub.glob("extra-env*"))
    assert (during, [*checkout.root.rglob("extra-env*")]) == (["extra-env-1-b.yaml", "extra-env-2-a.yaml"], [])
    checkout.set(fails="1")
    with pytest.raises(BackendError):
        checkout.images().build(["dask"])
    assert [*checkout.root.rglob("extra-env*")] == []


def test_a_build_is_recorded_with_the_list_of_what_is_in_it(checkout: Checkout) -> None:
    """The id is exactly what was built; the container that the list is taken from is removed."""
    checkout.images().build(["dask"])
    record = checkout.record()
    assert record is not None
    assert {**record, "built": ""} == {
        "image": "localhost/oci-cluster/dask:v1",
        "id": "sha256:1",
        "digest": "",
        "built": "",
    }
    assert (checkout.root / ".images" / "dask.packages.txt").read_text() == "dask==1.0\n"
    assert checkout.calls()[-1] == "rm --force a-container"
    assert "built localhost/oci-cluster/dask:v1 in 0 s" in checkout.said[-1]


def test_an_unchanged_image_keeps_its_record(checkout: Checkout) -> None:
    """The engine is asked to build and nothing else; a digest stays."""
    checkout.images().build(["dask"])
    record = checkout.record()
    assert record is not None
    image_records.write("dask", checkout.root, {**record, "digest": DIGEST})
    checkout.calls()
    checkout.images().build(["dask"])
    kept = checkout.record()
    assert (len(checkout.calls()), kept and kept["digest"], checkout.said[-1]) == (
        1,
        DIGEST,
        "dask: localhost/oci-cluster/dask:v1 is unchanged",
    )


@pytest.mark.parametrize("change", ["id", "tag", "packages"])
def test_another_image_is_not_the_one_that_was_pushed(checkout: Checkout, change: str) -> None:
    """What was pushed before is not what a launch is to run now."""
    checkout.images().build(["dask"])
    image_records.write("dask", checkout.root, {**(checkout.record() or {}), "digest": DIGEST})
    if change == "id":
        checkout.set(id="sha256:2")
    elif change == "tag":
        checkout.environ["TAG"] = "v2"
    else:
        (checkout.root / ".images" / "dask.packages.txt").unlink()
    checkout.images().build(["dask"])
    assert (checkout.record() or {})["digest"] == ""


BUILDKIT = """#1 DONE 0.0s
#2 [base 1/1] RUN apt
#2 1.0 Reading lists
#3 [environment 5/5] RUN install
#3 0.5 install-env.sh:   Downloading torch (200.0MiB)
#3 0.7 install-env.sh: error: uv failed with exit code 1: a==1 and a==2 cannot be
#3 ERROR: executor failed running [/bin/bash -c install]: exit code: CODE
------
 > [environment 5/5] RUN install:
------
executor failed running [/bin/bash -c install]: exit code: CODE
"""


@pytest.mark.parametrize(("code", "kind"), [(78, SettingsError), (69, BackendError), (1, BackendError)])
def test_a_failed_step_speaks_for_itself(checkout: Checkout, code: int, kind: type[ClusterError]) -> None:
    """Of all that BuildKit prints, the words of that step alone are shown; a step's 78 is a wrong setting."""
    checkout.set(build=BUILDKIT.replace("CODE", str(code)), fails="1")
    with pytest.raises(ClusterError) as caught:
        checkout.images().build(["dask"])
    assert (type(caught.value), str(caught.value).splitlines()[1:]) == (
        kind,
        [
            "  install-env.sh:   Downloading torch (200.0MiB)",
            "  install-env.sh: error: uv failed with exit code 1: a==1 and a==2 cannot be",
        ],
    )
    assert checkout.said == ["dask: install-env.sh:   Downloading torch (200.0MiB)"]
    assert "Reading lists" in (checkout.root / ".images" / "dask.log").read_text()


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("write /x: no space left on device", "its disk is full"),
        ("ERROR: BuildKit is enabled but the buildx component is missing or broken.", "docker-buildx-plugin"),
        ("network bridge not found", "BUILD_FLAGS='--network host'"),
    ],
)
def test_what_is_known_to_help_is_told(checkout: Checkout, said: str, advice: str) -> None:
    """Below the engine's own words."""
    checkout.set(build=f"{said}\n", fails="1")
    with pytest.raises(BackendError, match=re.escape(advice)) as caught:
        checkout.images().build(["dask"])
    assert said in str(caught.value)


def test_every_failure_is_told(checkout: Checkout) -> None:
    """Images are built at the same time: one that fails does not hide another."""
    checkout.set(fails="1", build="it is broken\n")
    with pytest.raises(BackendError, match="for dask failed"):
        checkout.images().build(["dask", "pytorch"])
    assert any("error: " in line and "for pytorch failed" in line for line in checkout.said)
    assert checkout.record() is None


# --- What a build is lent -------------------------------------------------------------------------------------------


def test_pips_settings_are_lent_with_variables_over_files(tmp_path: Path) -> None:
    """What says where packages come from, and nothing else; variables win, then the install section."""
    (tmp_path / ".config" / "pip").mkdir(parents=True)
    (tmp_path / ".config" / "pip" / "pip.conf").write_text(
        "[global]\nindex-url = https://a.example\ntimeout = 9\nextra-index-url =\n  https://b.example\n  https://c.example\n"
        "[install]\nindex-url = https://i.example\n"
    )
    environ = {"HOME": str(tmp_path), "PIP_FIND_LINKS": "https://f.example"}
    assert {name: value.split() for name, value in pip_settings(environ).items() if name != "cert"} == {
        "index-url": ["https://i.example"],
        "extra-index-url": ["https://b.example", "https://c.example"],
        "find-links": ["https://f.example"],
    }


def test_a_file_of_settings_can_be_named_or_done_without(tmp_path: Path) -> None:
    """As pip has it: PIP_CONFIG_FILE is read last, and /dev/null stands for none at all."""
    (tmp_path / "own.conf").write_text("[global]\nindex-url = https://own.example\n")
    assert pip_settings({"HOME": "/", "PIP_CONFIG_FILE": str(tmp_path / "own.conf")})["index-url"] == (
        "https://own.example"
    )
    assert pip_settings({"HOME": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}) == {}


def test_directories_of_this_machine_are_left_out_and_told(tmp_path: Path) -> None:
    """A build does not see them."""
    said: list[str] = []
    environ = {"PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": "/opt/wheels https://f.example file:///x"}
    with secrets_dir(environ, said.append) as directory:
        assert (directory / "pip.conf").read_text() == "[global]\nfind-links = https://f.example\n"
        assert directory.stat().st_mode & 0o077 == 0
    assert (len(said), directory.exists()) == (1, False)
    assert "pip's find-links names directories of this machine" in said[0]


@pytest.mark.parametrize("name", ["PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_bundle_of_certificates_is_lent(tmp_path: Path, name: str) -> None:
    """Whichever variable names it."""
    (tmp_path / "ca.pem").write_text("certificates")
    with secrets_dir({name: str(tmp_path / "ca.pem"), "PIP_CONFIG_FILE": "/dev/null"}, print) as directory:
        assert [(path.name, path.read_text()) for path in directory.iterdir()] == [("ca-bundle", "certificates")]


def test_what_is_lent_is_named_in_the_command_by_its_file(checkout: Checkout, tmp_path: Path) -> None:
    """Secrets of BuildKit: no layer keeps them, and the command holds no value of theirs."""
    (tmp_path / "ca.pem").write_text("certificates")
    checkout.images(PIP_CERT=str(tmp_path / "ca.pem"), PIP_INDEX_URL="https://me:secret@i.example").build(["dask"])
    build = checkout.calls()[0]
    assert re.search(r"--secret id=ca-bundle,src=\S+/ca-bundle --secret id=pip.conf,src=\S+/pip.conf \.$", build)
    assert "secret@" not in build


# --- Push, pull, size -----------------------------------------------------------------------------------------------


@pytest.fixture
def built(checkout: Checkout) -> Checkout:
    """Return a checkout whose image for a registry has been built."""
    checkout.images(REGISTRY="r.example/team").build(["dask"])
    checkout.calls()
    checkout.said.clear()
    return checkout


def test_a_push_records_the_digest_of_its_own_repository(built: Checkout) -> None:
    """The engine knows the image under others, too."""
    built.images().push(["dask"])
    assert (built.calls()[0], (built.record() or {})["digest"]) == ("push r.example/team/dask:v1", DIGEST)
    assert built.said == [f"dask: pushed r.example/team/dask:v1@{DIGEST}"]
    built.images().push(["dask"])
    assert built.said[1:] == [f"dask: r.example/team/dask:v1@{DIGEST} is in the registry"]


def test_podman_tells_the_digest_in_a_file(tmp_path: Path) -> None:
    """What it knows by itself may be another one, before compression."""
    checkout = Checkout(tmp_path, "podman")
    checkout.set(digests="[]")
    checkout.images(REGISTRY="r.example/team").build(["dask"])
    checkout.images().push(["dask"])
    assert (checkout.record() or {})["digest"] == DIGEST


def test_a_push_without_a_digest_is_no_success(built: Checkout) -> None:
    """A launch would run something else."""
    built.set(digests="null")
    with pytest.raises(BackendError, match="does not tell the digest"):
        built.images().push(["dask"])
    assert (built.record() or {})["digest"] == ""


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("denied: requested access to the resource is denied", NotPermittedError),
        ("unauthorized: authentication required", NotPermittedError),
        ("dial tcp: i/o timeout", BackendError),
    ],
)
def test_a_push_that_fails_says_why(built: Checkout, said: str, kind: type[ClusterError]) -> None:
    """Who may not write there is told to log in (77)."""
    built.set(push=f"{said}\n", fails="1")
    with pytest.raises(ClusterError, match=re.escape(said)) as caught:
        built.images().push(["dask"])
    assert (type(caught.value), "log in" in str(caught.value)) == (kind, kind is NotPermittedError)


@pytest.mark.parametrize("framework", ["dask", "pytorch"])
def test_what_was_not_built_is_not_pushed(built: Checkout, framework: str) -> None:
    """Neither under another name than it was built, nor at all; nothing is pushed of the others then."""
    with pytest.raises(SettingsError, match=rf"r.example/other/{framework}:v1 has not been built here.*make build-"):
        built.images(REGISTRY="r.example/other").push([framework])
    assert built.calls() == []


def test_a_pull_check_compares_what_comes_back(built: Checkout) -> None:
    """By the digest, and it is started."""
    with pytest.raises(SettingsError, match="has not been pushed; make push-dask"):
        built.images().pull_check(["dask"])
    built.images().push(["dask"])
    built.calls()
    built.images().pull_check(["dask"])
    reference = f"r.example/team/dask@{DIGEST}"
    assert built.calls() == [
        f"pull --quiet {reference}",
        f"image inspect --format {{{{.Id}}}} {reference}",
        f"run --rm --pull never --network none {reference} python -I -c import ocifs",
    ]


@pytest.mark.parametrize("wrong", ["another", "gone", "does-not-start"])
def test_a_pull_check_sees_what_is_wrong(built: Checkout, wrong: str) -> None:
    """An image that is another, that is not there, that does not start."""
    built.images().push(["dask"])
    if wrong == "another":
        built.set(pulled="sha256:2\n")
    built.set(**({"fails": "1"} if wrong == "gone" else {"does-not-start": ""} if wrong == "does-not-start" else {}))
    said = {
        "another": "is sha256:2, built here was sha256:1",
        "gone": "manifest unknown",
        "does-not-start": "exec format",
    }
    with pytest.raises(BackendError, match=said[wrong]):
        built.images().pull_check(["dask"])


SIZES = ["localhost/oci-cluster/dask:v1  2.0 MB", "     2.000 MB  apt", "     0.002 MB  COPY a /code"]


def test_sizes_show_the_layers_that_have_files(checkout: Checkout) -> None:
    """Of an image that is there, whatever the tag is now; else how to build it."""
    checkout.images().build(["dask"])
    assert checkout.images(TAG="v2").sizes(["dask"]).splitlines() == SIZES
    with pytest.raises(SettingsError, match="make build-pytorch"):
        checkout.images().sizes(["dask", "pytorch"])


def test_podman_tells_exact_sizes_as_json(tmp_path: Path) -> None:
    """Its templates have rounded ones."""
    checkout = Checkout(tmp_path, "podman")
    layers = [{"size": 2_000_000, "CreatedBy": "/bin/sh -c apt"}, {"size": 0, "CreatedBy": "ENV"}]
    checkout.set(history=json.dumps([*layers, {"size": 1500, "createdBy": "COPY a /code"}]))
    checkout.images().build(["dask"])
    assert checkout.images().sizes(["dask"]).splitlines() == SIZES


def test_without_a_name_what_there_is_is_taken(checkout: Checkout) -> None:
    """What was built, or pushed: of the others there is nothing to tell."""
    checkout.images(REGISTRY="r.example/team").build(["dask", "pytorch"])
    checkout.images().push(["dask"])
    assert images.recorded(checkout.root, pushed=False) == ["dask", "pytorch"]
    assert images.recorded(checkout.root, pushed=True) == ["dask"]


# --- What a launch runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "image"),
    [
        ("", f"r.example/team/dask:v1@{DIGEST}"),
        ("r.example/team/dask:v1", f"r.example/team/dask:v1@{DIGEST}"),
        ("r.example/team/dask:v2", "r.example/team/dask:v2"),
        (f"r.example/team/dask:v1@sha256:{1:064}", f"r.example/team/dask:v1@sha256:{1:064}"),
    ],
)
def test_a_launch_runs_exactly_what_was_pushed(built: Checkout, name: str, image: str) -> None:
    """The last push's digest goes with its own name, and with no name at all; never with another."""
    assert image_records.pushed_image(name, "dask", built.root) == name
    built.images().push(["dask"])
    assert image_records.pushed_image(name, "dask", built.root) == image
    assert image_records.pushed_image("", "pytorch", built.root) == ""


@pytest.mark.parametrize("text", ["", "[]", '{"image": 3, "id": "", "digest": "", "built": ""}', '{"image": "x"}'])
def test_a_record_that_is_none_counts_as_none(tmp_path: Path, text: str) -> None:
    """A build that was killed may leave anything."""
    (tmp_path / ".images").mkdir()
    (tmp_path / ".images" / "dask.json").write_text(text)
    assert image_records.read("dask", tmp_path) is None
