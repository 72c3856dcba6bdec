#!/usr/bin/env bash
# Usage: scale.sh NAME WORKERS
#
# Add workers to a cluster that runs, or end some. A lost worker's rank is given to its replacement; those with the
# highest ranks are ended, in order. What a new worker means to the entry point is the framework's: its README says.
#
#   NAME            the cluster
#   WORKERS         +2 for two more, -1 for one less, or how many there shall be
#   --backend NAME  where it runs: local (default), docker or oci
#   -h, --help      this text
#
# stdout: how many workers there are now. Exit: 0; 2 wrong usage, a cluster that has ended included; 69 no room.
set -Eeuo pipefail
root="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck source=common/lib.sh
source "${root}/common/lib.sh"

main() {
  local backend
  local -a words=()
  backend="$(setting BACKEND local)"
  while [[ $# -gt 0 ]]; do
    case "$1" in
      -h | --help) usage && exit 0 ;;
      --backend) need_value "$1" $# && backend="$2" && shift ;;
      -*[!0-9]*) usage_error "unknown option '$1'" ;;
      *) words+=("$1") ;;
    esac
    shift
  done
  [[ ${#words[@]} -eq 2 ]] || usage_error "expected NAME WORKERS, got ${#words[@]} of them"
  use_backend "${backend}"
  backend_scale "${words[0]}" "${words[1]}"
}
main "$@"
