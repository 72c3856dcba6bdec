#!/usr/bin/env bash
# Usage: list.sh [--all] [--json]
#
# List the clusters that run.
#
#   --all           those that have ended too, as long as their logs are kept
#   --json          print JSON
#   --backend NAME  where they run: local (default), docker or oci
#   -h, --help      this text
#
# stdout: the list, the oldest first. Exit: 0 shown, 2 wrong usage.
set -Eeuo pipefail
root="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck source=common/lib.sh
source "${root}/common/lib.sh"

parse_cluster_options '--all --json' "$@"
[[ -z "${name}" ]] || usage_error "unexpected '${name}'"
backend_list ${options[@]+"${options[@]}"}
