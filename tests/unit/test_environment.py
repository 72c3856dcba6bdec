from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from oci_cluster import environment
from oci_cluster.environment import (
    ensure_framework,
    ensure_tools,
    missing_packages,
    pip_configuration,
    requirements,
    tools_python,
    uv_options,
)
from oci_cluster.errors import BackendError, SettingsError

# Stands in for uv and for every interpreter: notes its calls, makes environments of itself, installs nothing.
STUB = """#!/bin/sh
printf '%s' "$0" >>"$STUB_CALLS"
printf ' %s' "$@" >>"$STUB_CALLS"
printf '%s\\n' "${SSL_CERT_FILE:+ cert=$SSL_CERT_FILE}" >>"$STUB_CALLS"
for last; do :; done
case " $*" in
  *" venv "*) mkdir -p "$last/bin" && cp "$STUB" "$last/bin/python" ;;
  " -m pip config list") printf '%b' "$STUB_CONFIG" ;;
  " -m pip "*" --version") exit "${STUB_NO_PIP:-0}" ;;
  " -m ensurepip") ;;
  *" install "*) printf '%b' "$STUB_OUTPUT" && exit "${STUB_FAILS:-0}" ;;
  " -m oci_cluster requirements "*) exec "$STUB_PYTHON" "$@" ;;
  *) echo "stub: unknown call: $*" >&2 && exit 64 ;;
esac
"""
LOCKED = "--require-hashes --requirement ROOT/common/requirements.txt"
ENV_YAML = "dependencies:\n  - python>=3.10\n  - pip\n  - pip:\n      - dask==1.0\n      - bokeh==2.0\n"


class Checkout:
    """A fresh checkout whose interpreter and installer are stubs."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch, *, uv: bool) -> None:
        self.root = place / "my checkout"
        self.env_file = self.root / "dask" / "env.yaml"
        self.said: list[str] = []
        self._calls = place / "calls"
        self._monkeypatch = monkeypatch
        package = self.root / "common" / "oci_cluster"
        package.parent.mkdir(parents=True)
        package.symlink_to(Path(environment.__file__).parent)
        self.requirements = self.root / "common" / "requirements.txt"
        self.requirements.write_text("fsspec==1.0\n")
        self.env_file.parent.mkdir()
        self.env_file.write_text(ENV_YAML)
        bin_dir = place / "bin"
        bin_dir.mkdir()
        for name in ("host-python", *(["uv"] if uv else [])):
            (bin_dir / name).write_text(STUB)
            (bin_dir / name).chmod(0o755)
        self.set(STUB=str(bin_dir / "host-python"), STUB_CALLS=str(self._calls), STUB_PYTHON=sys.executable)
        self.set(PATH=f"{bin_dir}:/usr/bin:/bin")
        monkeypatch.setattr(sys, "executable", str(bin_dir / "host-python"))

    def set(self, **variables: str) -> None:
        for name, value in variables.items():
            self._monkeypatch.setenv(name, value)

    def calls(self) -> list[str]:
        """Return the calls since the last time, with the checkout as ROOT and the stubs' folder as BIN."""
        if not self._calls.exists():
            return []
        text = self._calls.read_text().replace(str(self.root), "ROOT").replace(str(self.root.parent / "bin"), "BIN")
        self._calls.unlink()
        return text.splitlines()

    def make_tools(self) -> None:
        """Be a checkout whose .venv is there; its interpreter knows env.yaml by heart."""
        python = tools_python(self.root)
        python.parent.mkdir(parents=True)
        shutil.copy(os.environ["STUB"], python)
        (self.root / ".venv" / f".tools-{environment._digest(self.requirements.read_bytes())}").touch()
        knows = self.root.parent / "knows"
        knows.write_text("#!/bin/sh\nprintf 'dask==1.0\\nbokeh==2.0\\n'\n")
        knows.chmod(0o755)
        self.set(STUB_PYTHON=str(knows))

    def tools(self) -> Path:
        return ensure_tools(self.root, self.said.append)

    def framework(self) -> Path:
        return ensure_framework(self.root, self.env_file, self.said.append)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """Return a fresh checkout on a machine that has uv."""
    return Checkout(tmp_path, monkeypatch, uv=True)


@pytest.fixture
def without_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """Return a fresh checkout on a machine that has pip only."""
    return Checkout(tmp_path, monkeypatch, uv=False)


# --- The launcher's own environment ---------------------------------------------------------------------------------


def test_the_launchers_environment_is_made_with_uv(checkout: Checkout) -> None:
    """Where uv is found it makes .venv, and installs exactly the locked packages, compiled, with hashes required."""
    python = checkout.tools()
    assert (python, checkout.calls()) == (
        checkout.root / ".venv" / "bin" / "python",
        [
            "BIN/uv venv --quiet --allow-existing --python BIN/host-python ROOT/.venv",
            "ROOT/.venv/bin/python -m pip config list",
            f"BIN/uv pip install --python ROOT/.venv/bin/python --compile-bytecode {LOCKED}",
        ],
    )


def test_the_launchers_environment_is_made_without_uv(without_uv: Checkout) -> None:
    """Without uv the interpreter's venv and pip do the same."""
    without_uv.tools()
    pip = "ROOT/.venv/bin/python -m pip --disable-pip-version-check --no-input"
    assert without_uv.calls() == [
        "BIN/host-python -m venv ROOT/.venv",
        f"{pip} --version",
        f"{pip} --python ROOT/.venv/bin/python install --compile {LOCKED}",
    ]


def test_pip_is_added_to_a_venv_that_has_none(without_uv: Checkout) -> None:
    """A .venv that uv once made has no pip: where uv is gone, ensurepip adds it."""
    without_uv.set(STUB_NO_PIP="1")
    without_uv.tools()
    assert without_uv.calls()[2] == "ROOT/.venv/bin/python -m ensurepip"


def test_what_takes_time_is_said(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first launch says what it makes, the installer's progress (100 characters of a line), and how long it took."""
    monkeypatch.setattr(environment, "time", SimpleNamespace(monotonic=iter((100.0, 112.4)).__next__))
    checkout.set(STUB_OUTPUT=f"Resolved 3 packages\\n  Downloading fsspec\\nnoise\\nInstalled {'x' * 200}\\n")
    checkout.tools()
    assert checkout.said == [
        "making .venv for the launcher (first time only)",
        "  Resolved 3 packages",
        "  Downloading fsspec",
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
    assert [call.split()[1] for call in checkout.calls()] == ["-m", "pip"]


def test_an_interpreter_that_is_gone_is_made_again(checkout: Checkout) -> None:
    """A stamp without its interpreter is worth nothing."""
    checkout.tools().unlink()
    checkout.calls()
    checkout.tools()
    assert checkout.calls()[0].startswith("BIN/uv venv ")


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
    """Where .venv cannot be made, one line says so."""
    (checkout.root / ".venv").touch()
    with pytest.raises((BackendError, SettingsError)):
        checkout.tools()


# --- One at a time --------------------------------------------------------------------------------------------------


def is_locked(root: Path) -> bool:
    with (root / ".venv" / ".launcher.lock").open("w") as lock:
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
    def other_launch(_: Path) -> Iterator[None]:
        for stamp in stamps:
            stamp.touch()
        yield

    monkeypatch.setattr(environment, "_one_at_a_time", other_launch)
    checkout.tools()
    for stamp in stamps[1:]:
        stamp.unlink()
    checkout.framework()
    assert (checkout.calls(), checkout.said) == ([], [])


# --- A framework's environment --------------------------------------------------------------------------------------


def test_a_frameworks_environment_is_made_with_uv(checkout: Checkout) -> None:
    """It has the pip packages of env.yaml, beside the launcher's own environment, which is made first."""
    python = checkout.framework()
    assert (python, checkout.calls()[3:]) == (
        checkout.root / ".venv" / "envs" / "dask" / "bin" / "python",
        [
            "ROOT/.venv/bin/python -m oci_cluster requirements ROOT/dask/env.yaml",
            "BIN/uv venv --quiet --allow-existing --python BIN/host-python ROOT/.venv/envs/dask",
            "ROOT/.venv/bin/python -m pip config list",
            "BIN/uv pip install --python ROOT/.venv/envs/dask/bin/python --compile-bytecode dask==1.0 bokeh==2.0",
        ],
    )


def test_a_frameworks_environment_is_made_without_uv(without_uv: Checkout) -> None:
    """It needs no pip of its own: the launcher's installs into it."""
    without_uv.framework()
    pip = "ROOT/.venv/bin/python -m pip --disable-pip-version-check --no-input"
    assert without_uv.calls()[4:] == [
        "BIN/host-python -m venv --without-pip ROOT/.venv/envs/dask",
        f"{pip} --version",
        f"{pip} --python ROOT/.venv/envs/dask/bin/python install --compile dask==1.0 bokeh==2.0",
    ]


def test_a_frameworks_environment_names_its_real_place(checkout: Checkout, tmp_path: Path) -> None:
    """Where .venv is a link, what is installed does not name the link, which may go before it does."""
    (tmp_path / "real").mkdir()
    (checkout.root / ".venv").symlink_to(tmp_path / "real")
    assert checkout.framework() == (tmp_path / "real").resolve() / "envs" / "dask" / "bin" / "python"


def test_a_frameworks_environment_is_made_once(checkout: Checkout) -> None:
    """The second launch takes the cached one."""
    first = checkout.framework()
    checkout.calls()
    assert (checkout.framework(), checkout.calls()) == (first, [])


def test_another_env_file_makes_the_environment_anew(checkout: Checkout) -> None:
    """When env.yaml changes nothing of the old environment is left."""
    leftover = checkout.framework().parent.parent / "leftover"
    leftover.touch()
    checkout.env_file.write_text(ENV_YAML.replace("dask==1.0", "dask==2.0"))
    checkout.calls()
    checkout.framework()
    assert (leftover.exists(), checkout.calls()[-1].split()[-2:]) == (False, ["dask==2.0", "bokeh==2.0"])


def test_another_python_makes_the_environment_anew(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of one Python are of no use to another."""
    leftover = checkout.framework().parent.parent / "leftover"
    leftover.touch()
    monkeypatch.setattr(sys, "version", "4.0")
    checkout.framework()
    assert not leftover.exists()


def test_a_half_made_environment_is_made_anew(checkout: Checkout) -> None:
    """An installation that was broken off leaves no stamp: the next launch begins with an empty folder."""
    checkout.tools()
    checkout.set(STUB_FAILS="1")
    with pytest.raises(BackendError):
        checkout.framework()
    leftover = checkout.root / ".venv" / "envs" / "dask" / "leftover"
    leftover.touch()
    checkout.set(STUB_FAILS="0")
    assert (checkout.framework().exists(), leftover.exists()) == (True, False)


def test_an_env_file_that_cannot_be_used_leaves_the_old_environment(checkout: Checkout) -> None:
    """A wrong env.yaml is a wrong setting (78), found before anything is removed."""
    old = checkout.framework()
    checkout.env_file.write_text("dependencies:\n  - numpy\n")
    with pytest.raises(SettingsError, match=r"asks for conda packages \(numpy\)"):
        checkout.framework()
    assert old.exists()


def test_an_env_file_that_cannot_be_used_is_told_once(checkout: Checkout) -> None:
    """The verb's message is told without its program's name: who calls adds that."""
    checkout.env_file.write_text("dependencies:\n  - numpy\n")
    with pytest.raises(SettingsError) as caught:
        checkout.framework()
    assert str(caught.value).startswith(str(checkout.env_file))


# --- post-install.sh ------------------------------------------------------------------------------------------------

# Notes its calls among those of the stubs, and says what it is told to.
HOOK = """#!/bin/sh
printf '%s' "$0" >>"$STUB_CALLS"
printf ' %s' "$@" >>"$STUB_CALLS"
printf '%s\\n' "${SSL_CERT_FILE:+ cert=$SSL_CERT_FILE}" >>"$STUB_CALLS"
printf '%b' "$HOOK_SAYS" && printf '%b' "$HOOK_ERRORS" >&2
exit "${HOOK_FAILS:-0}"
"""


@pytest.fixture
def prepared(checkout: Checkout) -> Checkout:
    """Return a checkout whose launcher has its environment; reading env.yaml takes no Python of its own here."""
    checkout.make_tools()
    return checkout


def post_install(checkout: Checkout, text: str = HOOK) -> Path:
    """Put a post-install.sh beside env.yaml."""
    path = checkout.env_file.with_name("post-install.sh")
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_post_install_script_is_run_when_all_else_is_installed(prepared: Checkout) -> None:
    """With the interpreter, a directory that outlives the environment, and the command that installs into it."""
    post_install(prepared)
    prepared.set(STUB_CONFIG="global.index-url='https://index.example/simple'\\nglobal.cert='/my ca'\\n")
    prepared.framework()
    install = "BIN/uv pip install --python ROOT/.venv/envs/dask/bin/python"
    options = "--default-index https://index.example/simple --compile-bytecode"
    hook = "ROOT/dask/post-install.sh ROOT/.venv/envs/dask/bin/python ROOT/.venv/cache/dask"
    assert prepared.calls()[-2:] == [
        f"{install} {options} dask==1.0 bokeh==2.0 cert=/my ca",
        f"{hook} {install} {options} cert=/my ca",
    ]
    assert (prepared.root / ".venv" / "cache" / "dask").is_dir()


def test_a_post_install_script_gets_pip_where_there_is_no_uv(without_uv: Checkout) -> None:
    """The command is the one that has just installed the list."""
    without_uv.make_tools()
    post_install(without_uv)
    without_uv.framework()
    pip = "ROOT/.venv/bin/python -m pip --disable-pip-version-check --no-input"
    assert without_uv.calls()[-1] == (
        "ROOT/dask/post-install.sh ROOT/.venv/envs/dask/bin/python ROOT/.venv/cache/dask"
        f" {pip} --python ROOT/.venv/envs/dask/bin/python install --compile"
    )


def test_a_post_install_script_can_install(prepared: Checkout) -> None:
    """What follows its first two arguments is a command that takes packages."""
    post_install(prepared, '#!/bin/sh\nshift 2\nexec "$@" extra==1\n')
    prepared.framework()
    install = "BIN/uv pip install --python ROOT/.venv/envs/dask/bin/python --compile-bytecode"
    assert prepared.calls()[-1] == f"{install} extra==1"


def test_a_framework_without_a_post_install_script_has_no_cache(prepared: Checkout) -> None:
    """Nothing is made that nobody asked for."""
    prepared.framework()
    assert not (prepared.root / ".venv" / "cache").exists()


def test_the_launchers_own_environment_has_no_post_install_script(checkout: Checkout) -> None:
    """It is the framework's."""
    post_install(checkout, "#!/bin/sh\nexit 9\n")
    assert checkout.tools().exists()


def test_what_a_post_install_script_means_to_show_is_shown(prepared: Checkout) -> None:
    """Lines that begin with two blanks, and an installer's progress, from both streams; the rest is kept back."""
    post_install(prepared)
    prepared.set(
        HOOK_SAYS=f"  building, about 3 minutes\\n-- cmake noise\\nDownloading torch\\n  {'x' * 200}\\n   three\\n\\n",
        HOOK_ERRORS="  to stderr\\nwarning: noise\\n",
    )
    prepared.framework()
    assert prepared.said[1:-1] == [
        "  building, about 3 minutes",
        "  Downloading torch",
        f"  {'x' * 100}",
        "  to stderr",
    ]


def test_only_a_post_install_script_is_shown_by_blanks(prepared: Checkout) -> None:
    """Installers indent what nobody wants to read."""
    prepared.set(STUB_OUTPUT="  + dask==1.0\\nResolved 3 packages\\n")
    prepared.framework()
    assert prepared.said[1:-1] == ["  Resolved 3 packages"]


def test_a_post_install_script_that_fails_has_its_last_words(prepared: Checkout) -> None:
    """69: the call, its code, 15 lines of what it said; the environment counts as not made."""
    hook = post_install(prepared)
    prepared.set(HOOK_FAILS="3", HOOK_SAYS="".join(f"line {number}\\n" for number in range(20)))
    with pytest.raises(BackendError) as caught:
        prepared.framework()
    head, *rest = str(caught.value).splitlines()
    assert head.startswith(f"'{hook} {prepared.root}/.venv/envs/dask/bin/python ")
    assert (head.endswith(" ...' failed with exit code 3:"), rest) == (True, [f"line {n}" for n in range(5, 20)])
    assert list((prepared.root / ".venv" / "envs" / "dask").glob(".made-*")) == []
    prepared.set(HOOK_FAILS="0")
    prepared.calls()
    prepared.framework()
    assert prepared.calls()[-1].startswith("ROOT/dask/post-install.sh ")


def test_an_environment_is_made_once_with_its_post_install_script(prepared: Checkout) -> None:
    """The second launch runs nothing."""
    post_install(prepared)
    prepared.framework()
    prepared.calls()
    prepared.framework()
    assert prepared.calls() == []


def test_other_helpers_of_a_post_install_script_make_the_environment_anew(prepared: Checkout) -> None:
    """What it builds with is in post-install/: a file that is changed or added there counts, a folder does not."""
    helpers = post_install(prepared).with_suffix("")
    helpers.mkdir()
    (helpers / "build.py").write_text("one")

    def is_made_anew() -> bool:
        prepared.calls()
        prepared.framework()
        return prepared.calls() != []

    made = [is_made_anew(), is_made_anew()]
    (helpers / "build.py").write_text("two")
    made += [is_made_anew(), is_made_anew()]
    (helpers / "fix.patch").write_text("new")
    (helpers / "folder").mkdir()
    made += [is_made_anew(), is_made_anew()]
    assert made == [True, False] * 3


@pytest.mark.parametrize("change", ["added", "changed", "removed"])
def test_another_post_install_script_makes_the_environment_anew(prepared: Checkout, change: str) -> None:
    """Nothing of the old environment is left, and what was compiled for it is: the cache outlives it."""
    hook = post_install(prepared)
    if change == "added":
        hook.unlink()
    leftover = prepared.framework().parent.parent / "leftover"
    leftover.touch()
    wheel = prepared.root / ".venv" / "cache" / "dask" / "x.whl"
    wheel.parent.mkdir(parents=True, exist_ok=True)
    wheel.touch()
    if change == "removed":
        hook.unlink()
    else:
        post_install(prepared, HOOK + "# another\n")
    prepared.framework()
    assert (leftover.exists(), wheel.exists()) == (False, True)


# --- env.yaml -------------------------------------------------------------------------------------------------------


def needs(tmp_path: Path, text: str | bytes) -> list[str]:
    path = tmp_path / "env.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return requirements(path)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        needs(tmp_path, text)
    return str(caught.value).removeprefix(f"{tmp_path / 'env.yaml'} ")


def test_the_pip_list_is_what_is_needed(tmp_path: Path) -> None:
    """Python and pip themselves are there; everything in the pip list is needed, in its order."""
    assert needs(tmp_path, "name: x\n" + ENV_YAML) == ["dask==1.0", "bokeh==2.0"]


@pytest.mark.parametrize("python", ["python", "python=3.11", "python >=3.10", "pip", "pip==24"])
def test_python_and_pip_are_there_already(tmp_path: Path, python: str) -> None:
    """Any way of asking for python or pip is met by the venv."""
    assert needs(tmp_path, f"dependencies: ['{python}', {{pip: [a]}}]") == ["a"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "dependencies: [python, numpy, cudatoolkit=11, {pip: [a]}]",
            "asks for conda packages (numpy, cudatoolkit=11)",
        ),
        ("dependencies: [pythonnet, {pip: [a]}]", "asks for conda packages (pythonnet)"),
        ("dependencies: [python]", "has no 'pip:' list"),
        ("dependencies: [{pip: }]", "has no 'pip:' list"),
        ("dependencies: []", "has no 'pip:' list"),
    ],
)
def test_what_a_venv_cannot_have_is_named(tmp_path: Path, text: str, why: str) -> None:
    """Conda packages, and a file without pip packages, are refused with the two ways out."""
    assert refusal(tmp_path, text) == (
        f"{why}; a local cluster has pip packages only: list them under 'pip:', or use --python"
    )


@pytest.mark.parametrize("package", ["python-dateutil", "pip-tools=7", "python.app"])
def test_a_package_whose_name_begins_with_python_is_a_package(tmp_path: Path, package: str) -> None:
    """python-dateutil is not python: a conda package of such a name is refused, not left out silently."""
    assert refusal(tmp_path, f"dependencies: [{package}, {{pip: [a]}}]").startswith("asks for conda packages")


@pytest.mark.parametrize("text", ["", "[]", "dependencies:", "dependencies: 7", "name: x", "a: b: c", "\t"])
def test_what_is_no_conda_environment_is_named(tmp_path: Path, text: str) -> None:
    """A file of another shape, or no YAML at all, is refused by name."""
    assert refusal(tmp_path, text).startswith("is not a conda environment file with a 'dependencies' list: ")


def test_an_env_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A missing file is refused by name."""
    with pytest.raises(SettingsError, match="is not a conda environment file"):
        requirements(tmp_path / "none.yaml")


def test_an_env_file_is_never_run(tmp_path: Path) -> None:
    """YAML can name Python objects: they are refused, not made."""
    witness = tmp_path / "witness"
    text = f"dependencies: !!python/object/apply:os.mkdir ['{witness}']"
    assert refusal(tmp_path, text).startswith("is not a conda environment file")
    assert not witness.exists()


def test_an_env_file_in_another_encoding_is_named(tmp_path: Path) -> None:
    """A file that is no UTF-8 is a wrong setting, not a crash."""
    with pytest.raises(SettingsError):
        needs(tmp_path, b"dependencies: [{pip: [a]}] # caf\xe9\n")


def test_a_pip_entry_that_is_no_list_is_refused(tmp_path: Path) -> None:
    """`pip: numpy` is a slip for a list of one, and no list of letters."""
    with pytest.raises(SettingsError):
        needs(tmp_path, "dependencies: [{pip: numpy}]")


# --- The user's own interpreter -------------------------------------------------------------------------------------


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_packages_that_are_there_are_not_missing() -> None:
    """Names are compared as pip compares them: case and underscores do not count."""
    wanted = ["fsspec", "PYTEST", "pytest_timeout", "no-such-distribution", "nor_this"]
    assert missing_packages(Path(sys.executable), wanted) == ["no-such-distribution", "nor_this"]


def test_nothing_wanted_is_nothing_missing() -> None:
    """A framework may ask for no package."""
    assert missing_packages(Path(sys.executable), []) == []


def test_a_folder_of_a_packages_name_is_not_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder here, on PYTHONPATH even, does not pass for a distribution."""
    for name in ("horovod", "horovod.dist-info", "horovod-1.0.dist-info"):
        (tmp_path / name).mkdir()
    (tmp_path / "horovod-1.0.dist-info" / "METADATA").write_text("Name: horovod\nVersion: 1.0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert missing_packages(Path(sys.executable), ["horovod"]) == ["horovod"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo first >&2; echo 'unknown option -I' >&2; exit 2", "unknown option -I"),
        ("exit 3", "returned non-zero exit status 3."),
        ("echo Python 2.7", "Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_what_is_no_python_is_named(tmp_path: Path, text: str, why: str) -> None:
    """A program that fails, or answers something else, is named with its last words (78)."""
    python = script(tmp_path / "python", text)
    with pytest.raises(SettingsError) as caught:
        missing_packages(python, ["dask"])
    said = str(caught.value)
    assert (said.startswith(f"--python {python} is not a Python that can be run: "), said.endswith(why)) == (True, True)


def test_an_interpreter_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A path that leads nowhere is named."""
    with pytest.raises(SettingsError, match=r"is not a Python that can be run: .*No such file or directory"):
        missing_packages(tmp_path / "python", ["dask"])


# --- pip's configuration --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pip", "options", "extra"),
    [
        ({}, [], {}),
        ({"index-url": "https://a/simple"}, ["--default-index", "https://a/simple"], {}),
        (
            {"extra-index-url": "https://a https://b"},
            ["--index", "https://a", "--index", "https://b", "--index-strategy", "unsafe-best-match"],
            {},
        ),
        ({"find-links": "\n/a\nhttps://b\n"}, ["--find-links", "/a", "--find-links", "https://b"], {}),
        ({"trusted-host": "a b"}, ["--allow-insecure-host", "a", "--allow-insecure-host", "b"], {}),
        *(({"no-index": word}, ["--no-index"], {}) for word in ("1", "true", "True", "yes")),
        *(({"no-index": word}, [], {}) for word in ("0", "false", "no", "")),
        ({"cert": "/etc/my ca.pem"}, [], {"SSL_CERT_FILE": "/etc/my ca.pem"}),
        ({"timeout": "60", "user": "true", "client-cert": "x"}, [], {}),
        (
            {"no-index": "1", "find-links": "/a", "index-url": "https://i", "cert": "/c"},
            ["--default-index", "https://i", "--find-links", "/a", "--no-index"],
            {"SSL_CERT_FILE": "/c"},
        ),
    ],
)
def test_uv_is_told_what_pip_is_told(pip: dict[str, str], options: list[str], extra: dict[str, str]) -> None:
    """Each of pip's settings that decides where packages come from has its word in uv; others have none."""
    assert uv_options(pip) == (options, extra)


@pytest.mark.parametrize("word", ["on", "t", "y"])
def test_every_word_that_pip_takes_for_yes_is_one(word: str) -> None:
    """Who forbids pip the index has forbidden it to uv too."""
    assert uv_options({"no-index": word}) == (["--no-index"], {})


def test_the_installer_is_given_pips_configuration(checkout: Checkout) -> None:
    """A user's index and certificate hold for uv's installation too."""
    checkout.set(STUB_CONFIG="global.index-url='https://a/simple'\\nglobal.cert='/ca.pem'\\n")
    checkout.tools()
    assert checkout.calls()[-1] == (
        "BIN/uv pip install --python ROOT/.venv/bin/python --default-index https://a/simple --compile-bytecode"
        f" {LOCKED} cert=/ca.pem"
    )


def test_the_environment_wins_over_pips_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip lists the environment first though it wins; other sections, and lines that are no setting, do not count."""
    lines = (
        ":env:.index-url='https://env'",
        "global.index-url='https://file'",
        "global.find-links='\\\\n/a\\\\n/b=c'",
        "install.trusted-host='h'",
        "download.index-url='https://other'",
        "freeze.cert='/x'",
        "nonsense",
    )
    monkeypatch.setenv("STUB_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("STUB_CONFIG", "\\n".join(lines))
    assert pip_configuration(script(tmp_path / "python", STUB)) == {
        "index-url": "https://env",
        "find-links": "\n/a\n/b=c",
        "trusted-host": "h",
    }


def test_the_hosts_pip_is_asked_where_the_venv_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A .venv that uv made has no pip: the interpreter that made it knows the user's configuration."""
    host = script(tmp_path / "host", "echo \"global.index-url='https://host'\"")
    monkeypatch.setattr(sys, "executable", str(host))
    assert pip_configuration(script(tmp_path / "python", "exit 1")) == {"index-url": "https://host"}


def test_without_any_pip_there_is_no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody has pip, nobody has configured it."""
    monkeypatch.setattr(sys, "executable", str(script(tmp_path / "host", "exit 1")))
    assert pip_configuration(script(tmp_path / "python", "echo \"global.index-url='x'\"; exit 1")) == {}


@pytest.fixture(scope="module")
def python_with_pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an interpreter that has pip: uv makes environments without."""
    for python in (Path(sys.executable), Path(sys.base_prefix) / "bin" / "python3"):
        if (
            python.exists()
            and not subprocess.run([python, "-m", "pip", "-V"], capture_output=True, check=False).returncode
        ):
            return python
    place = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", place], capture_output=True, check=True)
    return place / "bin" / "python"


def test_pips_own_configuration_is_understood(
    python_with_pip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real pip.conf, with a section for install and a list of several lines, and PIP_* variables that win over it."""
    path = tmp_path / "pip.conf"
    path.write_text(
        "[global]\nindex-url = https://file/simple\nextra-index-url = https://a/'x'\n    https://b/\"y\"\n"
        "cert = /etc/my ca.pem\nno-index = true\n[install]\ntrusted-host = h1\n    h2\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(path))
    monkeypatch.setenv("PIP_INDEX_URL", "https://env/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    found = pip_configuration(python_with_pip)
    # /etc/pip.conf of this machine, if it has one, counts too: only what is set here is known.
    wanted = {
        "index-url": "https://env/simple",
        "extra-index-url": "https://a/'x'\nhttps://b/\"y\"",
        "cert": "/etc/my ca.pem",
        "no-index": "true",
        "trusted-host": "h1\nh2",
        "find-links": "/wheels",
    }
    assert {name: found.get(name) for name in wanted} == wanted


def test_nothing_of_this_changes_the_environment(checkout: Checkout) -> None:
    """What is set for the installer is set for it alone."""
    checkout.set(STUB_CONFIG="global.cert='/ca.pem'\\n")
    before = dict(os.environ)
    checkout.tools()
    assert dict(os.environ) == before


def test_a_post_install_script_that_cannot_be_run_is_no_bug_of_ours(tmp_path: Path) -> None:
    """Without its executable bit: as a start script, a matter of set-up (69 or 78), not 70 with a traceback."""
    hook = tmp_path / "post-install.sh"
    hook.touch(mode=0o644)
    with pytest.raises(BackendError, match="cannot be run: Permission denied"):
        environment.run_installer([hook], lambda _: None)


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
    python = environment.ensure_oci_tools(checkout.root, checkout.said.append)
    assert python == tools_python(checkout.root)
    assert checkout.calls()[-1] == f"BIN/uv pip install --python ROOT/.venv/bin/python --compile-bytecode {LOCKED_OCI}"
    assert checkout.said[0] == "installing oci-cli and ocifs (first time only)"
    checkout.said.clear()
    assert environment.ensure_oci_tools(checkout.root, checkout.said.append) == python
    assert (checkout.calls(), checkout.said) == ([], [])


def test_other_locked_packages_for_oci_are_installed_anew(checkout: Checkout, oci_requirements: Path) -> None:
    """After an update of this project."""
    environment.ensure_oci_tools(checkout.root, checkout.said.append)
    checkout.calls()
    oci_requirements.write_text("oci-cli==2.0\n")
    environment.ensure_oci_tools(checkout.root, checkout.said.append)
    assert checkout.calls()[-1].endswith(LOCKED_OCI)


def test_packages_for_oci_that_could_not_be_installed_are_tried_again(
    checkout: Checkout, oci_requirements: Path
) -> None:
    """A failure leaves nothing that passes for done."""
    checkout.tools()
    checkout.set(STUB_FAILS="1", STUB_OUTPUT="no network\\n")
    with pytest.raises(BackendError, match="no network"):
        environment.ensure_oci_tools(checkout.root, checkout.said.append)
    checkout.set(STUB_FAILS="0")
    checkout.calls()
    environment.ensure_oci_tools(checkout.root, checkout.said.append)
    assert checkout.calls()[-1].endswith(LOCKED_OCI)


def test_another_launcher_may_have_installed_them_meanwhile(
    checkout: Checkout, oci_requirements: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has waited for the lock looks again."""
    checkout.tools()
    checkout.calls()
    stamp = checkout.root / ".venv" / f".oci-tools-{environment._digest(oci_requirements.read_bytes())}"

    @contextmanager
    def wait(_: Path) -> Iterator[None]:
        stamp.touch()
        yield

    monkeypatch.setattr(environment, "_one_at_a_time", wait)
    environment.ensure_oci_tools(checkout.root, checkout.said.append)
    assert checkout.calls() == []
