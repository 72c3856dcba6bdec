#!/usr/bin/env bash
# Usage: entrypoint.sh [COMMAND...]
#
# An image starts this script. It starts the node's agent, or COMMAND where one is given (`docker run IMAGE bash`).
set -Eeuo pipefail
if [[ $# -gt 0 ]]; then
  exec "$@"
fi
common="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# Where the root file system is read-only, libraries still find a home for their caches, and in it what the image's has.
if [[ ! -w "${HOME:-}" ]]; then
  own="$(mktemp -d)"
  shopt -s dotglob nullglob
  for path in "${HOME:-/nonexistent}"/*; do
    ln -s "${path}" "${own}/"
  done
  export HOME="${own}"
fi
export PYTHONPATH="${common}${PYTHONPATH:+:${PYTHONPATH}}"
exec python -m oci_cluster agent
