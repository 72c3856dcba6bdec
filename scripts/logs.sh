#!/usr/bin/env bash
# Usage: logs.sh [-f] [--node NODE] [NAME]
#
# Show what the nodes of a cluster have printed, each line after its node's name. Works after the cluster's end too.
#
#   NAME            the cluster; may be left out while only one runs
#   -f, --follow    go on with what is added, until the cluster ends; Ctrl-C ends the showing, not the cluster
#   --node NODE     only this node: MAIN, WORKER_1...
#   --backend NAME  where it runs: local (default), docker or oci
#   -h, --help      this text
#
# stdout: the logs. Exit: 0 shown, 2 wrong usage, no such cluster or node included.
set -Eeuo pipefail
root="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck source=common/lib.sh
source "${root}/common/lib.sh"

parse_cluster_options '-f --follow --node=' "$@"
backend_logs ${options[@]+"${options[@]}"} "${name}"
