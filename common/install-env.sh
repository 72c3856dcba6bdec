#!/usr/bin/env bash
# Usage: install-env.sh DIRECTORY ENV_FILE...
#
# Make the Python environment of an image in DIRECTORY, with everything that the conda environment files ask for. If
# the base has mamba, micromamba or conda, that program makes the environment. Else the environment is a venv with the
# files' `pip:` lists, and a file that asks for conda packages is refused.
#
# Writes DIRECTORY/packages.txt, the exact list of the installed packages. Nothing else is left behind.
#
# Uses pip's configuration in /run/secrets/pip.conf, certificates in /run/secrets/ca-bundle, and proxy variables.
# INSTALL_CACHE is a directory that is kept from one build to the next.
#
# Exit: 0 made; 2 wrong usage; 69 a package is not available; 78 the files do not fit together, or do not fit this base.
set -Eeuo pipefail
common="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

fail() { # code, text...
  echo "${0##*/}: error: ${*:2}" >&2
  exit "$1"
}

# A Python for the installer's own use, in a directory that is removed afterwards.
make_tools() { # directory
  local conda
  if command -v python3 >/dev/null; then
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
      fail 78 "this base image has $(python3 --version), 3.10 or newer is needed; choose another BASE_IMAGE"
    python3 -m venv "$1" || fail 78 "python3 -m venv failed; on Debian and Ubuntu the base needs python3-venv"
    return
  fi
  for conda in mamba micromamba conda; do
    if command -v "${conda}" >/dev/null; then
      "${conda}" create --quiet --yes --prefix "$1" --channel conda-forge python pip || fail 69 "${conda} failed; see above"
      return
    fi
  done
  fail 78 "this base image has neither python3 nor conda, mamba, micromamba; choose another BASE_IMAGE"
}

scratch=""
trap 'rm -rf "${scratch}"' EXIT

main() {
  [[ $# -ge 2 && "$1" != -* ]] || fail 2 "expected a directory and environment files, got: $*"
  [[ ! -e "$1" ]] || fail 2 "$1 is there already"
  if [[ -s /run/secrets/pip.conf ]]; then
    export PIP_CONFIG_FILE=/run/secrets/pip.conf
  fi
  if [[ -s /run/secrets/ca-bundle ]]; then
    export PIP_CERT=/run/secrets/ca-bundle SSL_CERT_FILE=/run/secrets/ca-bundle
    export REQUESTS_CA_BUNDLE=/run/secrets/ca-bundle CURL_CA_BUNDLE=/run/secrets/ca-bundle
  fi
  export INSTALL_CACHE="${INSTALL_CACHE:-/var/cache/oci-cluster}"
  export UV_CACHE_DIR="${INSTALL_CACHE}/uv" UV_LINK_MODE=copy PIP_CACHE_DIR="${INSTALL_CACHE}/pip"
  mkdir -p "${INSTALL_CACHE}"
  scratch="$(mktemp -d)"
  make_tools "${scratch}/tools"
  "${scratch}/tools/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
    --requirement "${common}/requirements-install.txt" || fail 69 "pip cannot install what the installer needs; see above"
  # Not `exec`: what was made for it is removed.
  PYTHONPATH="${common}" "${scratch}/tools/bin/python" -m oci_cluster.images.install "$@"
}
main "$@"
