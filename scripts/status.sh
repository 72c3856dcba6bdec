#!/usr/bin/env bash
# Usage: status.sh [--json] [NAME]
#
# Show a cluster's state, its nodes, and facts that main reports, such as the address of the dashboard. A cluster that
# has ended is SUCCEEDED, FAILED or STOPPED, or GONE if nobody knows any more how, and has a reason. A worker that
# scale.sh has ended is LEFT.
#
#   NAME            the cluster; you may leave it out while only one cluster runs
#   --json          print JSON
#   --backend NAME  where the cluster runs: local (default), docker, oci or kubernetes
#   --version       the release or the commit that this is
#   -h, --help      this text
#
# Examples:
#   status.sh
#   status.sh mine --backend kubernetes
#   status.sh mine --json >mine.json
#
# stdout: the report. Exit: 0 shown; 2 wrong usage, or no such cluster.
set -Eeuo pipefail
# A Ctrl-C ends this at once, until run_verb passes it on. No program is run before: a bash 5.2 that is interrupted just
# as it begins to wait for one may loop for ever.
trap 'echo "${0##*/}: stopped" >&2 || :; exit 143' INT TERM HUP
here="${BASH_SOURCE[0]}"
[[ ! -L "${here}" ]] || here="$(readlink -f "${here}")"
[[ "${here}" == */* ]] || here="./${here}"
# shellcheck source=common/lib.sh
source "${here%/*}/../common/lib.sh"

run_verb status "$@"
