"""Builds, with a stub for the engine's program: what it is asked, and what becomes of its answers."""

from __future__ import annotations

import json
import re
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
from unit.stub_engine import DIGEST, Checkout

from oci_cluster.errors import BackendError, ClusterError, NotPermittedError, SettingsError, UsageError
from oci_cluster.images import records as image_records
from oci_cluster.images import settings
from oci_cluster.images.build import secrets_dir
from oci_cluster.system.envs.package_lists import read_env_file

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
    checkout.images().check(["dask"], build=False, push=False)  # it may help to make room


def test_a_disk_that_is_full_meanwhile_is_told(checkout: Checkout) -> None:
    """As is a checkout where nobody may write: with what helps."""
    checkout.set(build="a line\n")
    image_records.records_dir(checkout.root).mkdir()
    (image_records.records_dir(checkout.root) / "dask.log").symlink_to("/dev/full")
    with pytest.raises(BackendError, match=r"/\.images cannot be written: No space left on device; make room there"):
        checkout.run("build", "dask")


def test_a_checkout_that_cannot_be_written_is_told(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_records, "records_dir", lambda _: Path("/sys/images"))
    with pytest.raises(NotPermittedError, match=r"/sys/images cannot be written: .*; allow writing there"):
        checkout.run("build", "dask")


def test_a_disk_of_another_machine_is_not_looked_at(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine elsewhere says a place that is not here."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: pytest.fail("looked"))
    checkout.set(info=json.dumps({"store": {"graphRoot": "/no/such/place"}}))
    checkout.images().check(["dask"], build=True, push=False)


# --- Build ----------------------------------------------------------------------------------------------------------


def test_the_command_is_what_can_be_typed_by_hand(checkout: Checkout) -> None:
    """Without settings an image is built as its Dockerfile says."""
    checkout.images().build(["dask"])
    build = re.sub(r"--iidfile \S+", "--iidfile FILE", checkout.calls()[0])
    assert build == (
        "build --platform linux/amd64 --file dask/Dockerfile --tag localhost/oci-cluster/dask:v1 --iidfile FILE "
        "--progress plain --build-arg VERSION=v1 ."
    )


def test_what_was_chosen_is_in_the_command(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each choice by the name that the Dockerfile has for it; flags come last."""
    monkeypatch.setattr(
        settings, "_git", lambda *args: "https://me:secret@git.example/x" if "remote" in args else "abc"
    )
    (checkout.root / "src").mkdir()
    (checkout.root / "gpu.yaml").touch()
    chosen = {
        "BASE_IMAGE": "cuda:1",
        "ENV_FILE": "gpu.yaml",
        "CODE_DIR": "src",
        "RUN_AS": "0",
        "SYSTEM_PACKAGES": "git",
        "TORCH": "cpu",
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
    for name in ("b.yaml", "a.yaml", "a-lock.txt"):
        (tmp_path / name).write_text(name)
    (checkout.root / "dask" / "extra-env-9-old.yaml").touch()
    checkout.images(EXTRA_ENV=f"{tmp_path}/b.yaml '{tmp_path}/a.yaml'").build(["dask"])
    during = sorted(path.name for path in checkout.stub.glob("extra-env*"))
    assert (during, [*checkout.root.rglob("extra-env*")]) == (
        ["extra-env-1-b.yaml", "extra-env-2-a-lock.txt", "extra-env-2-a.yaml"],
        [],
    )
    # In the image an environment file is read, which this becomes.
    (tmp_path / "requirements.txt").write_text("humanize  # numbers\n")
    checkout.images(EXTRA_ENV=f"{tmp_path}/requirements.txt").build(["dask"])
    assert read_env_file(checkout.stub / "extra-env-1-requirements.yaml").pip == ["humanize"]
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
        "base": "",
        "platform": "linux/amd64",
    }
    assert (checkout.root / ".images" / "dask.packages.txt").read_text() == "dask==1.0\n"
    assert "rm --force a-container" in checkout.calls()
    assert re.search(r"built localhost/oci-cluster/dask:v1 in \d+ s", checkout.said[-1])


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
        ("write /x: no space left on device", "the engine's disk is full"),
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


def test_pips_settings_are_lent(tmp_path: Path) -> None:
    """What says where packages come from, and nothing else; out of files and variables."""
    (tmp_path / ".config" / "pip").mkdir(parents=True)
    (tmp_path / ".config" / "pip" / "pip.conf").write_text(
        "[global]\nindex-url = https://a.example\ntimeout = 9\nno-index = 0\nproxy = p\n"
        "extra-index-url =\n  https://b.example\n  https://c.example\n[install]\nindex-url = https://i.example\n"
    )
    environ = {"HOME": str(tmp_path), "PIP_FIND_LINKS": "https://f.example", "PIP_TRUSTED_HOST": "h"}
    with secrets_dir(environ, print) as directory:
        assert (directory / "pip.conf").read_text() == (
            "[global]\nindex-url = https://i.example\nextra-index-url = https://b.example https://c.example\n"
            "find-links = https://f.example\ntrusted-host = h\n"
        )


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


# --- The verb ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["", "bild"])
def test_an_action_that_there_is_not_is_wrong_usage(checkout: Checkout, action: str) -> None:
    """Before anything is read or asked."""
    checkout.environ["TAG"] = "no tag"
    with pytest.raises(UsageError, match=rf"expected build, push or pin-base, got '{action or 'nothing'}'"):
        checkout.run(action)
    assert checkout.calls() == []


def test_the_verb_does_one_after_the_other(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    """All that have a Dockerfile are built and pushed, each once."""
    checkout.environ["REGISTRY"] = "localhost:5000/team"
    checkout.set(digests=json.dumps([f"localhost:5000/team/{name}@{DIGEST}" for name in ("dask", "pytorch")]))
    assert checkout.run("build", "dask", "dask", to_push=True) == 0
    assert [call.split()[0] for call in checkout.calls()] == ["info", "build", "create", "cp", "rm", "image"]
    assert checkout.run("build") == 0
    assert sorted(line.split(":")[0] for line in checkout.said) == ["dask", "dask", "pytorch"]
    assert checkout.run("push", "dask") == 0
    checkout.calls()
    assert capsys.readouterr().out == ""


def test_the_verb_checks_what_a_push_will_need(checkout: Checkout) -> None:
    """With a push, or with a build that one follows; not else."""
    for action, to_push in (("push", False), ("build", True)):
        with pytest.raises(SettingsError, match="REGISTRY is not set"):
            checkout.run(action, "dask", to_push=to_push)
    assert checkout.calls() == []
    assert checkout.run("build", "dask") == 0
