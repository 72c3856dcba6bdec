"""pip's settings: the same as the real pip reads out of the same files and variables."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from oci_cluster.errors import SettingsError
from oci_cluster.system.envs.installer import pip_settings, uv_options


def silent(text: str) -> None:
    pytest.fail(f"said: {text}")


# --- What uv is told ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pip", "options", "environ"),
    [
        ({}, [], {}),
        ({"index-url": "https://ada:secret@a/simple"}, [], {"UV_DEFAULT_INDEX": "https://ada:secret@a/simple"}),
        (
            {"extra-index-url": "https://a https://b"},
            [],
            {"UV_INDEX": "https://a https://b", "UV_INDEX_STRATEGY": "unsafe-best-match"},
        ),
        ({"find-links": "\n/tmp\nhttps://b/x,y\n"}, [], {"UV_FIND_LINKS": "/tmp,https://b/x%2Cy"}),
        ({"trusted-host": "a b"}, [], {"UV_INSECURE_HOST": "a b"}),
        *(({"no-index": word}, ["--no-index"], {}) for word in ("1", "true", "True", "yes")),
        *(({"no-index": word}, [], {}) for word in ("0", "false", "no", "")),
        ({"cert": "/etc/my ca.pem"}, [], {"SSL_CERT_FILE": "/etc/my ca.pem"}),
        (
            {"client-cert": "/my key.pem", "timeout": "60"},
            [],
            {"SSL_CLIENT_CERT": "/my key.pem", "UV_HTTP_TIMEOUT": "60"},
        ),
        ({"default-timeout": "60"}, [], {"UV_HTTP_TIMEOUT": "60"}),
        ({"proxy": "http://p:1"}, [], {"HTTP_PROXY": "http://p:1", "HTTPS_PROXY": "http://p:1"}),
        ({"user": "true", "retries": "3"}, [], {}),
        (
            {"no-index": "1", "find-links": "/tmp", "index-url": "https://i", "cert": "/c"},
            ["--no-index"],
            {"UV_DEFAULT_INDEX": "https://i", "UV_FIND_LINKS": "/tmp", "SSL_CERT_FILE": "/c"},
        ),
    ],
)
def test_uv_is_told_what_pip_is_told(pip: dict[str, str], options: list[str], environ: dict[str, str]) -> None:
    """Each of pip's settings that decides where packages come from has its word in uv; others have none."""
    assert uv_options(pip, silent) == (options, environ)


@pytest.mark.parametrize("word", ["on", "t", "y"])
def test_every_word_that_pip_takes_for_yes_is_one(word: str) -> None:
    """Who forbids pip the index has forbidden it to uv too."""
    assert uv_options({"no-index": word}, silent) == (["--no-index"], {})


@pytest.mark.parametrize("gone", ["/no/such/wheels", "wheels", "file:///no/such%20wheels", "~/wheels", "\0"])
def test_a_place_that_is_not_there_is_told_and_left_out(tmp_path: Path, gone: str) -> None:
    """pip warns of it, uv would fail; the others stay."""
    said: list[str] = []
    (tmp_path / "a b").mkdir()
    there = [str(tmp_path), f"file://{tmp_path}/a%20b", "https://nobody.example/wheels"]
    _, environ = uv_options({"find-links": " ".join([*there, gone])}, said.append)
    assert environ["UV_FIND_LINKS"].split(",") == there
    named = os.path.expanduser(gone)  # noqa: PTH111 - as pip does
    assert said == [f"pip's find-links names '{named}', which is not there: left out"]


def test_a_place_in_ones_home_is_found_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with pip; uv does not know the sign."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "wheels").mkdir()
    assert uv_options({"find-links": "~/wheels"}, silent)[1] == {"UV_FIND_LINKS": f"{tmp_path}/wheels"}


# --- What pip reads -------------------------------------------------------------------------------------------------


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


# Imports pip once, and answers each environment, a line of JSON, as `pip config list` in a process of its own would.
PIPS = """
import json, os, sys
from pip._internal.cli.main import main
from pip._internal.commands import configuration
for line in sys.stdin:
    read, write = os.pipe()
    if not os.fork():
        os.dup2(write, 1)
        os.environ.clear()
        os.environ.update(json.loads(line))
        code = main(["config", "list"])
        sys.stdout.flush()
        os._exit(code)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    assert os.wait()[1] == 0
    print(json.dumps(text), flush=True)
"""


class RealPip:
    """The real pip of an interpreter, which takes half a second to begin."""

    def __init__(self, python: Path) -> None:
        self.python = python
        self._process = subprocess.Popen(
            [python, "-I", "-c", PIPS], env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def settings(self, environ: dict[str, str]) -> dict[str, str]:
        """Return what it says of itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(environ) + "\n")
        self._process.stdin.flush()
        found: dict[str, str] = {}
        lines = json.loads(self._process.stdout.readline()).splitlines()
        for line in sorted(lines, key=lambda line: line.startswith(":env:")):
            key, _, value = line.partition("=")
            section, _, option = key.rpartition(".")
            if section in {"global", "install", ":env:"}:
                found[option] = str(ast.literal_eval(value))
        return found

    def close(self) -> None:
        self._process.communicate(timeout=240)
        assert self._process.returncode == 0


@pytest.fixture(scope="module")
def real_pip(python_with_pip: Path) -> Iterator[RealPip]:
    found = RealPip(python_with_pip)
    yield found
    found.close()


class Home:
    """A user's home, and an environment in which nothing else counts but what this machine has for all its users."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.environ = {"HOME": str(place), "XDG_CONFIG_DIRS": f"{place}/xdg:{place}/xdg2"}

    def file(self, name: str, text: str) -> Path:
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


FULL = (
    "[global]\nindex-url = https://file/simple\nextra-index-url = https://a/'x'\n    https://b/\"y\"\n"
    "cert = /etc/my ca.pem\nno-index = true\ntimeout = 9\n[install]\ntrusted-host = h1\n    h2\n"
    "find_links = /file\n[download]\nindex-url = https://other\n[freeze]\nuser = x\n"
)


@pytest.mark.parametrize(
    ("files", "variables"),
    [
        ({}, {}),
        ({"own.conf": FULL}, {"PIP_CONFIG_FILE": "own.conf"}),
        ({"own.conf": FULL}, {"PIP_CONFIG_FILE": "own.conf", "PIP_INDEX_URL": "https://env", "PIP_FIND_LINKS": "/w"}),
        ({".config/pip/pip.conf": FULL, ".pip/pip.conf": "[global]\nindex-url = https://old\nproxy = p\n"}, {}),
        ({".config/pip/pip.conf": FULL, "own.conf": "[global]\nproxy = p\n"}, {"PIP_CONFIG_FILE": "own.conf"}),
        ({".config/pip/pip.conf": FULL}, {"PIP_CONFIG_FILE": "none.conf"}),
        ({".config/pip/pip.conf": FULL}, {"PIP_CONFIG_FILE": "/dev/null"}),
        ({"c/pip/pip.conf": FULL, ".config/pip/pip.conf": "[global]\nproxy = p\n"}, {"XDG_CONFIG_HOME": "c"}),
        (
            {
                "xdg/pip/pip.conf": "[global]\nindex-url = https://one\nfind-links = /one\n",
                "xdg2/pip/pip.conf": "[global]\nindex-url = https://two\n",
                ".pip/pip.conf": "[global]\nindex-url = https://user\n",
            },
            {},
        ),
        ({".pip/pip.conf": "[DEFAULT]\nproxy = p\n[install]\nIndex_URL = https://caf\u00e9\n--trusted-host = h\n"}, {}),
        ({".pip/pip.conf": "[install]\nindex-url = https://i\n", ".config/pip/pip.conf": FULL}, {}),
    ],
)
def test_it_is_what_the_real_pip_reads(
    home: Home, real_pip: RealPip, files: dict[str, str], variables: dict[str, str]
) -> None:
    """Out of every place, in the same order; later files win, then the section for install, then variables."""
    for name, text in files.items():
        home.file(name, text)
    for name, value in variables.items():
        is_path = name in {"PIP_CONFIG_FILE", "XDG_CONFIG_HOME"}
        home.environ[name] = str(home.place / value) if is_path else value
    wanted = real_pip.settings(home.environ)
    assert pip_settings(home.environ, prefix=real_pip.python.parents[1]) == wanted
    if files and variables.get("PIP_CONFIG_FILE") != "/dev/null":
        assert wanted


def test_an_environments_own_file_counts_after_the_users(home: Home) -> None:
    """pip calls it the site's; a file that the environment names comes after it."""
    home.file(".pip/pip.conf", "[global]\nindex-url = https://user\nproxy = p\nno-index = 1\n")
    home.file("venv/pip.conf", "[global]\nindex-url = https://venv\nno-index = 2\n")
    found = pip_settings(home.environ, prefix=home.place / "venv")
    assert [found[name] for name in ("index-url", "proxy", "no-index")] == ["https://venv", "p", "2"]
    home.environ["PIP_CONFIG_FILE"] = str(home.file("own.conf", "[global]\nindex-url = https://own\n"))
    found = pip_settings(home.environ, prefix=home.place / "venv")
    assert [found.get(name) for name in ("index-url", "proxy", "no-index")] == ["https://own", None, "2"]


def test_an_empty_setting_is_none(home: Home) -> None:
    """As for pip, which then takes what is set at the level below."""
    home.file(".pip/pip.conf", "[global]\nindex-url = https://user\ncert =\n[install]\nindex-url =\n")
    home.environ["PIP_INDEX_URL"] = ""
    found = pip_settings(home.environ, prefix=home.place)
    assert (found["index-url"], "cert" in found) == ("https://user", False)


@pytest.mark.parametrize("body", [b"x = hunter2\n", b"[global]\nx = hunter2 caf\xe9\n", b"[global]\nhunter2\n"])
def test_a_file_that_is_none_is_named(home: Home, body: bytes) -> None:
    """pip refuses it too; to go on would be to fetch from another place than the user has chosen. No line is quoted."""
    path = home.file(".pip/pip.conf", "")
    path.write_bytes(body)
    with pytest.raises(
        SettingsError, match=r"pip's settings in .*/\.pip/pip\.conf cannot be read \(\w+Error\);"
    ) as caught:
        pip_settings(home.environ)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
