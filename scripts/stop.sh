#!/usr/bin/env bash
# Usage: stop.sh [--delete] [NAME]
#
# Stop a cluster in order - entry point, workers, main - and return when nothing of it runs. Stopping one that has ended
# already is no error.
#
#   NAME            the cluster; may be left out while only one runs
#   --delete        remove its logs and outputs as well
#   --backend NAME  where it runs: local (default), docker or oci
#   -h, --help      this text
#
# stdout: the cluster's name. Exit: 0 stopped, 2 wrong usage, no such cluster included.
set -Eeuo pipefail
root="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck source=common/lib.sh
source "${root}/common/lib.sh"

parse_cluster_options '--delete' "$@"
backend_stop ${options[@]+"${options[@]}"} "${name}"
