#!/usr/bin/env bash
# Usage: entrypoint.sh [COMMAND...]
#
# What an image starts: the agent of this node, or COMMAND where one is given (`docker run IMAGE bash`).
set -Eeuo pipefail
if [[ $# -gt 0 ]]; then
  exec "$@"
fi
common="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export PYTHONPATH="${common}${PYTHONPATH:+:${PYTHONPATH}}"
exec python -m oci_cluster agent
