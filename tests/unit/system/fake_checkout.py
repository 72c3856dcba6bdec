"""A fresh checkout whose interpreter and installers a test plays."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from oci_cluster.system.envs import python_env as environment
from oci_cluster.system.envs.python_env import ensure_framework, ensure_tools, tools_python

# Stands in for uv and for every interpreter: notes its calls, makes environments of itself, installs nothing.
STUB = """#!/bin/sh
printf '%s' "$0" >>"$STUB_CALLS"
printf ' %s' "$@" >>"$STUB_CALLS"
for name in UV_DEFAULT_INDEX UV_INDEX UV_INDEX_STRATEGY UV_TORCH_BACKEND SSL_CERT_FILE; do
  eval "value=\\${$name:-}"
  [ -z "$value" ] || printf ' %s=%s' "$name" "$value" >>"$STUB_CALLS"
done
for word; do
  case "$word" in */wanted.txt | */versions.txt) printf ' <%s>' "$(tr '\\n' ' ' <"$word")" >>"$STUB_CALLS" ;; esac
done
echo >>"$STUB_CALLS"
for last; do :; done
case " $*" in
  *" venv "*) mkdir -p "$last/bin" && cp "$STUB" "$last/bin/python" && echo "${STUB_VERSION:-3}" >"$last/pyvenv.cfg" ;;
  " --version") echo "uv ${STUB_UV:-0.8.1} (of a test)" ;;
  " -I -m pip "*" --version") exit "${STUB_NO_PIP:-0}" ;;
  *requirements-install.txt) cp "$STUB" "${0%/*}/uv" && exit "${STUB_PIP_FAILS:-0}" ;;
  " -m ensurepip") ;;
  *"/bytecode.py checkout") ;;
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
        self.compiled: list[str] = []
        self._calls = place / "calls"
        self._monkeypatch = monkeypatch
        package = self.root / "common" / "oci_cluster"
        package.parent.mkdir(parents=True)
        package.symlink_to(Path(environment.__file__).parents[2])
        self.requirements = self.root / "common" / "requirements.txt"
        self.requirements.write_text("fsspec==1.0\n")
        self.requirements.with_name("requirements-install.txt").write_text("uv==0.8.1\n")
        self.env_file.parent.mkdir()
        self.env_file.write_text(ENV_YAML)
        bin_dir = place / "bin"
        bin_dir.mkdir()
        for name in ("host-python", *(["uv"] if uv else [])):
            (bin_dir / name).write_text(STUB)
            (bin_dir / name).chmod(0o755)
        self.set(STUB=str(bin_dir / "host-python"), STUB_CALLS=str(self._calls), STUB_PYTHON=sys.executable)
        # None of this machine's files of pip's settings counts.
        self.set(PATH=f"{bin_dir}:/usr/bin:/bin", PIP_CONFIG_FILE=os.devnull, XDG_CACHE_HOME=str(place / "kept"))
        monkeypatch.setattr(sys, "executable", str(bin_dir / "host-python"))
        monkeypatch.setattr(sys, "prefix", str(self.root / ".venv"))  # as where all verbs go on

    def set(self, **variables: str) -> None:
        for name, value in variables.items():
            self._monkeypatch.setenv(name, value)

    def calls(self) -> list[str]:
        """Return the calls since the last time, with the checkout as ROOT and the stubs' folder as BIN.

        Without those that ask for a version, or compile what was installed.
        """
        if not self._calls.exists():
            return []
        text = self._calls.read_text()
        for path, name in ((self.root, "ROOT"), (self.root.parent / "bin", "BIN"), (self.root.parent / "kept", "KEPT")):
            text = text.replace(str(path), name)
        self._calls.unlink()
        text = re.sub(r"\S*/(wanted|versions)\.txt", r"\1", text)
        self.compiled = re.findall(r"^(.*) -I .*/bytecode\.py checkout$", text, re.MULTILINE)
        unasked = re.compile(r"/uv --version$|/bytecode\.py checkout$")
        return [line for line in text.splitlines() if not unasked.search(line)]

    def make_tools(self) -> None:
        """Be a checkout whose .venv is there; its interpreter knows env.yaml by heart."""
        python = tools_python(self.root)
        python.parent.mkdir(parents=True)
        shutil.copy(os.environ["STUB"], python)
        (self.root / ".venv" / "pyvenv.cfg").touch()
        (self.root / ".venv" / f".tools-{environment._digest(self.requirements.read_bytes())}").touch()
        knows = self.root.parent / "knows"
        knows.write_text("#!/bin/sh\nprintf 'dask==1.0\\nbokeh==2.0\\n'\n")
        knows.chmod(0o755)
        self.set(STUB_PYTHON=str(knows))

    def tools(self) -> Path:
        return ensure_tools(self.root, self.said.append)

    def framework(self) -> Path:
        return ensure_framework(self.root, self.env_file, self.said.append)
