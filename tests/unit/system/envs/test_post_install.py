"""What a framework does when all else of its environment is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.system.fake_checkout import Checkout

from oci_cluster.errors import BackendError

# Notes its calls among those of the stubs, and says what it is told to.
HOOK = """#!/bin/sh
printf '%s' "$0" >>"$STUB_CALLS"
printf ' %s' "$@" >>"$STUB_CALLS"
for name in UV_DEFAULT_INDEX UV_COMPILE_BYTECODE SSL_CERT_FILE; do
  eval "value=\\${$name:-}"
  [ -z "$value" ] || printf ' %s=%s' "$name" "$value" >>"$STUB_CALLS"
done
echo >>"$STUB_CALLS"
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
    prepared.set(PIP_INDEX_URL="https://index.example/simple", PIP_CERT="/my ca")
    prepared.framework()
    install = "BIN/uv pip install --python ROOT/.venv/envs/dask/bin/python"
    environ = "UV_DEFAULT_INDEX=https://index.example/simple SSL_CERT_FILE=/my ca"
    hook = "ROOT/dask/post-install.sh ROOT/.venv/envs/dask/bin/python KEPT/oci-cluster/dask"
    assert prepared.calls()[-2:] == [
        f"{install} --requirement wanted {environ} <dask==1.0 bokeh==2.0 >",
        f"{hook} {install} {environ.replace(' ', ' UV_COMPILE_BYTECODE=0 ', 1)}",
    ]
    assert (prepared.root.parent / "kept" / "oci-cluster" / "dask").is_dir()


@pytest.mark.parametrize("home", ["", "/dev/null", "a-folder"])
def test_what_a_user_without_a_home_has_built_is_kept_in_the_checkout(prepared: Checkout, home: str) -> None:
    """As in containers; and a relative path means another folder each time."""
    post_install(prepared)
    prepared.set(XDG_CACHE_HOME=home, HOME="/dev/null")
    prepared.framework()
    assert "/dask/bin/python ROOT/.venv/cache/dask " in prepared.calls()[-1]


def test_a_post_install_script_can_install(prepared: Checkout) -> None:
    """What follows its first two arguments is a command that takes packages."""
    post_install(prepared, '#!/bin/sh\nshift 2\nexec "$@" extra==1\n')
    prepared.framework()
    install = "BIN/uv pip install --python ROOT/.venv/envs/dask/bin/python"
    assert prepared.calls()[-1] == f"{install} extra==1"


def test_a_framework_without_a_post_install_script_has_no_cache(prepared: Checkout) -> None:
    """Nothing is made that nobody asked for."""
    prepared.framework()
    assert not (prepared.root.parent / "kept").exists()


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
    assert prepared.said[2:-1] == [
        "  building, about 3 minutes",
        "  Downloading torch",
        f"  {'x' * 100}",
        "  to stderr",
    ]


def test_only_a_post_install_script_is_shown_by_blanks(prepared: Checkout) -> None:
    """Installers indent what nobody wants to read."""
    prepared.set(STUB_OUTPUT="  + dask==1.0\\nResolved 3 packages\\n")
    prepared.framework()
    assert prepared.said[2:-1] == ["  Resolved 3 packages"]


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
    wheel = prepared.root.parent / "kept" / "oci-cluster" / "dask" / "x.whl"
    wheel.parent.mkdir(parents=True, exist_ok=True)
    wheel.touch()
    if change == "removed":
        hook.unlink()
    else:
        post_install(prepared, HOOK + "# another\n")
    prepared.framework()
    assert (leftover.exists(), wheel.exists()) == (False, True)
