"""The launcher's own environment, and how launches take turns at all of them."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from unit.system.fake_checkout import LOCKED, Checkout

from oci_cluster.errors import BackendError, NotPermittedError, SettingsError
from oci_cluster.system.envs import python_env as environment
from oci_cluster.system.envs.python_env import ensure_framework, ensure_tools, tools_python

# --- The launcher's own environment ---------------------------------------------------------------------------------


def test_the_launchers_environment_is_made_with_uv(checkout: Checkout) -> None:
    """Where uv is found it makes .venv, and installs exactly the locked packages, compiled, with hashes required."""
    python = checkout.tools()
    assert (python, checkout.calls()) == (
        checkout.root / ".venv" / "bin" / "python",
        [
            "BIN/uv venv --quiet --allow-existing --python BIN/host-python ROOT/.venv",
            f"BIN/uv pip install --python ROOT/.venv/bin/python {LOCKED}",
        ],
    )
    assert checkout.compiled == ["ROOT/.venv/bin/python"]


PIP = "ROOT/.venv/bin/python -I -m pip --disable-pip-version-check --no-input"
OWN_UV = f"{PIP} install --require-hashes --requirement ROOT/common/requirements-install.txt"


def test_uv_is_installed_where_there_is_none(without_uv: Checkout) -> None:
    """Into .venv, by its hash, with the pip that the interpreter's venv brings; once."""
    without_uv.tools()
    assert without_uv.calls() == [
        "BIN/host-python -m venv ROOT/.venv",
        f"{PIP} --version",
        OWN_UV,
        f"ROOT/.venv/bin/uv pip install --python ROOT/.venv/bin/python {LOCKED}",
    ]
    without_uv.framework()
    assert not [call for call in without_uv.calls() if " -m pip " in call]


@pytest.mark.parametrize(("version", "is_taken"), [("0.8.0", True), ("1.0.0", True), ("0.7.22", False), ("?", False)])
def test_a_uv_on_path_is_taken_that_is_new_enough(checkout: Checkout, version: str, *, is_taken: bool) -> None:
    """Another does not know all that is asked of it: then the locked one does it."""
    checkout.set(STUB_UV=version)
    checkout.tools()
    calls = checkout.calls()
    assert (OWN_UV in calls, calls[-1].startswith("BIN/uv ")) == (not is_taken, is_taken)


def test_where_uv_cannot_be_installed_the_way_out_is_named(without_uv: Checkout) -> None:
    """As on a machine whose folder of wheels has none."""
    without_uv.set(STUB_PIP_FAILS="1")
    with pytest.raises(BackendError, match=r"put uv 0\.8 or newer on PATH"):
        without_uv.tools()


def test_pip_is_added_to_a_venv_that_has_none(without_uv: Checkout) -> None:
    """A .venv that uv once made has no pip: where uv is gone, ensurepip adds it."""
    without_uv.set(STUB_NO_PIP="1")
    without_uv.tools()
    assert without_uv.calls()[2] == "ROOT/.venv/bin/python -m ensurepip"


def test_what_takes_time_is_said(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first launch says what it makes, the installer's progress (100 characters of a line), and how long it took."""
    monkeypatch.setattr(environment, "time", SimpleNamespace(monotonic=iter((100.0, 112.4)).__next__))
    small = "Downloading numpy (17.1MiB)\\nDownloading tiny (1.2KiB)\\nDownloading torch (788.3MiB)"
    checkout.set(STUB_OUTPUT=f"Resolved 3 packages\\n  Downloading fsspec\\nnoise\\n{small}\\nInstalled {'x' * 200}\\n")
    checkout.tools()
    assert checkout.said == [
        "making .venv for the launcher (first time only)",
        "  Resolved 3 packages",
        "  Downloading fsspec",
        "  Downloading torch (788.3MiB)",
        f"  Installed {'x' * 90}",
        "  done in 12 s",
    ]


def test_an_environment_is_made_once(checkout: Checkout) -> None:
    """The second launch takes what is there: nothing is called, nothing said."""
    checkout.tools()
    checkout.calls()
    checkout.said.clear()
    assert (checkout.tools(), checkout.calls(), checkout.said) == (tools_python(checkout.root), [], [])


def test_other_requirements_are_installed(checkout: Checkout) -> None:
    """A changed requirements.txt is installed into the .venv that is there."""
    checkout.tools()
    checkout.calls()
    checkout.requirements.write_text("fsspec==2.0\n")
    checkout.tools()
    assert [call.split()[1] for call in checkout.calls()] == ["pip"]


def test_an_interpreter_that_is_gone_is_made_again(checkout: Checkout) -> None:
    """A stamp without its interpreter is worth nothing."""
    checkout.tools().unlink()
    checkout.calls()
    checkout.tools()
    assert checkout.calls()[0].startswith("BIN/uv venv ")


@pytest.mark.parametrize("framework", [False, True])
def test_an_interpreter_that_may_not_be_run_is_named(checkout: Checkout, *, framework: bool) -> None:
    """With what to do: it is no bug of ours, and nothing is made over it."""
    python = checkout.framework() if framework else checkout.tools()
    python.chmod(0)
    checkout.calls()
    with pytest.raises(NotPermittedError) as caught:
        checkout.framework() if framework else checkout.tools()
    assert str(caught.value) == (
        f"{python} cannot be run: Permission denied; allow that (chmod u+rx), or remove {python.parents[1]}: the next"
        " launch makes it anew"
    )
    assert checkout.calls() == []


def test_a_link_to_an_interpreter_that_is_gone_is_no_hindrance(checkout: Checkout) -> None:
    """As after an upgrade of the system's: neither venv nor uv would take its place."""
    python = checkout.tools()
    python.unlink()
    python.symlink_to("/nonexistent/python3")
    assert checkout.tools() == python
    assert not python.is_symlink()


def test_a_failure_has_the_installers_last_words(checkout: Checkout) -> None:
    """A failed installation is told with command, code and the last 15 lines (69)."""
    checkout.set(STUB_FAILS="3", STUB_OUTPUT="".join(f"line {number}\\n" for number in range(20)))
    with pytest.raises(BackendError) as caught:
        checkout.tools()
    uv = checkout.root.parent / "bin" / "uv"
    assert str(caught.value).splitlines() == [
        f"'{uv} pip install --python ...' failed with exit code 3:",
        *(f"line {number}" for number in range(5, 20)),
    ]


def test_a_failed_installation_is_tried_again(checkout: Checkout) -> None:
    """After a failure there is no stamp: the next launch installs."""
    checkout.set(STUB_FAILS="1")
    with pytest.raises(BackendError):
        checkout.tools()
    checkout.set(STUB_FAILS="0")
    checkout.calls()
    checkout.tools()
    assert checkout.calls()[-1].startswith("BIN/uv pip install ")


def test_an_installer_may_print_any_bytes(checkout: Checkout) -> None:
    """A file name in another encoding in the installer's output is no reason to fail."""
    checkout.set(STUB_OUTPUT="Downloading caf\\0351\\n")
    assert checkout.tools() == tools_python(checkout.root)


def test_a_checkout_that_cannot_be_written_is_named(checkout: Checkout) -> None:
    """Where neither .venv nor the one beside it can be made, one line says so."""
    for name in (".venv", ".venv-clusters"):
        (checkout.root / name).touch()
    with pytest.raises((BackendError, SettingsError)):
        checkout.tools()


# --- What the backend `oci` needs -----------------------------------------------------------------------------------


@pytest.fixture
def oci_requirements(checkout: Checkout) -> Path:
    path = checkout.root / "common" / "requirements-oci.txt"
    path.write_text("oci-cli==1.0\n")
    return path


LOCKED_OCI = "--require-hashes --requirement ROOT/common/requirements-oci.txt"


def test_the_packages_for_oci_are_added_once(checkout: Checkout, oci_requirements: Path) -> None:
    """To the launcher's environment, exactly those that are locked; said once, as it takes a while."""
    checkout.tools()
    checkout.calls()
    checkout.said.clear()
    python = environment.ensure_backend_tools(checkout.root, "oci", checkout.said.append)
    assert python == tools_python(checkout.root)
    assert checkout.calls()[-1] == f"BIN/uv pip install --python ROOT/.venv/bin/python {LOCKED_OCI}"
    assert checkout.said[0] == "installing what the backend oci needs (first time only)"
    checkout.said.clear()
    assert environment.ensure_backend_tools(checkout.root, "oci", checkout.said.append) == python
    assert (checkout.calls(), checkout.said) == ([], [])


def test_a_preview_needs_a_part_of_them(checkout: Checkout, oci_requirements: Path) -> None:
    """Unless all are there; a launch adds the others."""
    oci_requirements.with_name("requirements-oci-preview.txt").write_text("jinja2==1.0\n")
    checkout.tools()
    for _ in range(2):
        python = environment.ensure_backend_tools(checkout.root, "oci", checkout.said.append, is_preview=True)
        assert python == tools_python(checkout.root)
    installed = [call.rpartition("/")[2] for call in checkout.calls() if "install" in call]
    assert installed[1:] == ["requirements-oci-preview.txt"]
    assert "installing what the backend oci needs for a dry run (first time only)" in checkout.said
    environment.ensure_backend_tools(checkout.root, "oci", checkout.said.append)
    assert checkout.calls()[-1].endswith(LOCKED_OCI)
    oci_requirements.with_name("requirements-oci-preview.txt").write_text("jinja2==2.0\n")
    environment.ensure_backend_tools(checkout.root, "oci", checkout.said.append, is_preview=True)
    assert checkout.calls() == []


def test_other_locked_packages_for_oci_are_installed_anew(checkout: Checkout, oci_requirements: Path) -> None:
    """After an update of this project."""
    environment.ensure_backend_tools(checkout.root, "oci", checkout.said.append)
    checkout.calls()
    oci_requirements.write_text("oci-cli==2.0\n")
    environment.ensure_backend_tools(checkout.root, "oci", checkout.said.append)
    assert checkout.calls()[-1].endswith(LOCKED_OCI)


def test_packages_for_oci_that_could_not_be_installed_are_tried_again(
    checkout: Checkout, oci_requirements: Path
) -> None:
    """A failure leaves nothing that passes for done."""
    checkout.tools()
    checkout.set(STUB_FAILS="1", STUB_OUTPUT="no network\\n")
    with pytest.raises(BackendError, match="no network"):
        environment.ensure_backend_tools(checkout.root, "oci", checkout.said.append)
    checkout.set(STUB_FAILS="0")
    checkout.calls()
    environment.ensure_backend_tools(checkout.root, "oci", checkout.said.append)
    assert checkout.calls()[-1].endswith(LOCKED_OCI)


def test_another_launcher_may_have_installed_them_meanwhile(
    checkout: Checkout, oci_requirements: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has waited for the lock looks again."""
    checkout.tools()
    checkout.calls()
    stamp = checkout.root / ".venv" / f".oci-tools-{environment._digest(oci_requirements.read_bytes())}"

    @contextmanager
    def wait(_: Path, waiting: Callable[[], None]) -> Iterator[None]:
        waiting()
        stamp.touch()
        yield

    monkeypatch.setattr(environment, "locked", wait)
    environment.ensure_backend_tools(checkout.root, "oci", checkout.said.append)
    assert checkout.calls() == []


def test_a_backend_that_needs_nothing_installs_nothing(checkout: Checkout) -> None:
    """No requirements of its own: not even .venv is made."""
    assert environment.ensure_backend_tools(checkout.root, "local", checkout.said.append) is None
    assert (checkout.said, (checkout.root / ".venv").exists()) == ([], False)


# --- One at a time --------------------------------------------------------------------------------------------------


def is_locked(root: Path, name: str = "launcher") -> bool:
    with (root / ".venv" / f".{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_two_launches_do_not_install_over_each_other(checkout: Checkout) -> None:
    """While an environment is being made its lock is held, and afterwards no more."""
    during: list[bool] = []
    ensure_tools(checkout.root, lambda _: during.append(is_locked(checkout.root)))
    assert (during, is_locked(checkout.root)) == ([True, True], False)


def test_a_failure_gives_the_lock_back(checkout: Checkout) -> None:
    """A failed launch does not block the next."""
    checkout.set(STUB_FAILS="1")
    with pytest.raises(BackendError):
        checkout.tools()
    assert not is_locked(checkout.root)


def test_who_waited_takes_what_the_other_made(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that had to wait for the lock looks again: the other one has made both environments meanwhile."""
    checkout.framework()
    stamps = [next((checkout.root / ".venv").glob(pattern)) for pattern in (".tools-*", "envs/dask/.made-*")]
    for stamp in stamps:
        stamp.unlink()
    checkout.calls()
    checkout.said.clear()

    @contextmanager
    def other_launch(_: Path, waiting: Callable[[], None]) -> Iterator[None]:
        waiting()
        for stamp in stamps:
            stamp.touch()
        yield

    monkeypatch.setattr(environment, "locked", other_launch)
    checkout.tools()
    for stamp in stamps[1:]:
        stamp.unlink()
    checkout.framework()
    waited = [
        f"waiting: another launch is making the Python environment of {name}" for name in ("the launcher", "dask")
    ]
    assert (checkout.calls(), checkout.said) == ([], waited)


def test_nobody_waits_for_an_environment_that_is_not_theirs(checkout: Checkout) -> None:
    """Horovod's takes minutes to compile; a launch of another framework installs what it needs beside it."""
    checkout.tools()
    during: set[tuple[bool, bool]] = set()
    ensure_framework(
        checkout.root,
        checkout.env_file,
        lambda _: during.add((is_locked(checkout.root, "dask"), is_locked(checkout.root))),
    )
    assert during == {(True, False)}
