#!/usr/bin/env bash
# Usage: scale.sh NAME WORKERS
#
# Add workers to a cluster that runs, or end some of its workers. A new worker first takes the rank of a lost one. The
# workers with the highest ranks are ended first. The framework's README says what a new worker means to your script.
#
#   NAME            the cluster
#   WORKERS         +2 for two more, -1 for one less, or the new number of workers
#   --backend NAME  where the cluster runs: local (default), docker, oci or kubernetes
#   --version       the release or the commit that this is
#   -h, --help      this text
#
# Examples:
#   scale.sh mine +1                    one more, or one in the place of a lost one
#   scale.sh mine 8 --backend oci
#
# stdout: the new number of workers. Exit: 0 done; 2 wrong usage, or the cluster has ended; 69 no room.
set -Eeuo pipefail
# A Ctrl-C ends this at once, until run_verb passes it on. No program is run before: a bash 5.2 that is interrupted just
# as it begins to wait for one may loop for ever.
trap 'echo "${0##*/}: stopped" >&2 || :; exit 143' INT TERM HUP
here="${BASH_SOURCE[0]}"
[[ ! -L "${here}" ]] || here="$(readlink -f "${here}")"
[[ "${here}" == */* ]] || here="./${here}"
# shellcheck source=common/lib.sh
source "${here%/*}/../common/lib.sh"

run_verb scale "$@"
