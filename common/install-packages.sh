#!/usr/bin/env bash
# Usage: install-packages.sh PACKAGE...
#
# Install system packages with apt-get while an image is built. A package is left out if the base already has a command
# of that name. A base without apt-get must already have the commands; libraries (lib*) cannot be checked there.
#
# Exit: 0 the packages are there; 2 wrong usage; 69 a package is not available; 78 a command is missing, and there is no
# apt-get.
set -Eeuo pipefail

main() {
  local package authority=/run/secrets/ca-bundle
  local -a missing=() options=(-qq -o Dpkg::Use-Pty=0)
  if [[ $# -eq 0 || "$1" == -* ]]; then
    echo "usage: ${0##*/} PACKAGE..." >&2
    exit 2
  fi
  for package in "$@"; do
    command -v "${package}" >/dev/null || missing+=("${package}")
  done
  [[ ${#missing[@]} -gt 0 ]] || exit 0
  if ! command -v apt-get >/dev/null; then
    echo "${0##*/}: no apt-get in this base image, so not installed: ${missing[*]}" >&2
    for package in ${missing[@]+"${missing[@]}"}; do
      if [[ "${package}" != lib* ]]; then
        echo "${0##*/}: error: choose a BASE_IMAGE of Debian or Ubuntu, or one that has the command ${package}" >&2
        exit 78
      fi
    done
    exit 0
  fi
  [[ ! -s "${authority}" ]] || options+=(-o "Acquire::https::CaInfo=${authority}")
  export DEBIAN_FRONTEND=noninteractive
  if ! { apt-get "${options[@]}" update &&
    apt-get "${options[@]}" install -y --no-install-recommends ${missing[@]+"${missing[@]}"} >/dev/null; }; then
    echo "${0##*/}: error: ${missing[*]} cannot be installed; see above" >&2
    exit 69
  fi
  rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt/* /var/log/dpkg.log
}
main "$@"
