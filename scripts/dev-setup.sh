#!/usr/bin/env bash
# Usage: dev-setup.sh [python|node|go ...]
#
# Install the tools of `make lint test`, in the checkout only. Without an argument, install the first two parts.
#
#   python  install the packages of requirements-dev.txt into .venv; with uv when it is on PATH, else with pip
#   node    install the packages of package-lock.json into node_modules, with npm
#   go      install Go into .venv/go, to build the Kubernetes of tests with; a Go on PATH that is new enough will do
#
# Examples:
#   dev-setup.sh
#   PYTHON=python3.12 dev-setup.sh python
#   dev-setup.sh go
#
# PYTHON (default: python3) makes .venv where it does not exist. `make` runs this script when a lock file has changed.
# Exit: 0 installed, 2 wrong usage, 69 a tool or a package is not available, 78 PYTHON is too old.
set -Eeuo pipefail
root="$(CDPATH='' cd -P "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)"
# shellcheck source=common/lib.sh
source "${root}/common/lib.sh"

make_venv() { # interpreter
  command -v "$1" >/dev/null || die 69 "'$1' is not on PATH; install Python 3.10 or newer, or set PYTHON"
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    die 78 "$("$1" --version 2>&1) is too old; set PYTHON to 3.10 or newer"
  log "making .venv with $("$1" --version 2>&1)"
  mkdir -p "${root}/.venv"
  : >"${root}/.venv/.launcher.lock" # launches take it for theirs, too
  "$1" -m venv "${root}/.venv" || die 69 "'$1 -m venv' failed; on Debian: apt-get install python3-venv"
}

setup_python() {
  local python="${root}/.venv/bin/python"
  local locked=(--require-hashes --requirement "${root}/requirements-dev.txt")
  [[ -x "${python}" ]] || make_venv "${PYTHON:-python3}"
  # Compiled now, also where PYTHONDONTWRITEBYTECODE is set: else every start of a tool compiles again.
  if command -v uv >/dev/null; then
    log "installing requirements-dev.txt into .venv with uv"
    uv pip install --quiet --python "${python}" --compile-bytecode "${locked[@]}" && return
    log "uv failed; trying pip, which knows the index and the certificate of your pip configuration"
  fi
  log "installing requirements-dev.txt into .venv with pip"
  # A .venv that uv made holds no pip.
  "${python}" -m pip --version >/dev/null 2>&1 || "${python}" -m ensurepip >/dev/null
  "${python}" -m pip install --quiet --disable-pip-version-check --compile "${locked[@]}" ||
    die 69 "pip could not install requirements-dev.txt; see above"
}

setup_node() {
  command -v npm >/dev/null || die 69 "npm is not on PATH; install Node.js with npm to test the scripts"
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
