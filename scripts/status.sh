#!/usr/bin/env bash
# Usage: status.sh [--json] [NAME]
#
# Show a cluster: its state, its nodes, and what main says of itself, such as the address of the dashboard.
#
#   NAME            the cluster; may be left out while only one runs
#   --json          print JSON
#   --backend NAME  where it runs: local (default), docker or oci
#   -h, --help      this text
#
# stdout: the report. Exit: 0 shown, 2 wrong usage, no such cluster included.
set -Eeuo pipefail
root="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck source=common/lib.sh
source "${root}/common/lib.sh"

parse_cluster_options '--json' "$@"
backend_status ${options[@]+"${options[@]}"} "${name}"
