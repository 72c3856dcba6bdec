#!/usr/bin/env bash
# Usage: logs.sh [-f] [--node NODE] [--tail N] [NAME]
#
# Show what the nodes of a cluster have printed, each line after its node's name; also after the cluster's end. Lines are
# in the order in which the nodes printed them, by the clocks of their machines. With docker and -f, the older lines of a
# node that still runs are shown together.
#
#   NAME            the cluster; you may leave it out while only one cluster runs
#   -f, --follow    show new lines as they come, until the cluster ends; Ctrl-C ends logs.sh, not the cluster
#   --node NODE     show only this node: MAIN, WORKER_1...
#   --tail N        begin with the last N lines of each node
#   --backend NAME  where the cluster runs: local (default), docker, oci or kubernetes
#   --version       the release or the commit that this is
#   -h, --help      this text
#
# Examples:
#   logs.sh -f --node MAIN              what main prints, as it comes
#   logs.sh --tail 20 mine
#   logs.sh --backend oci mine >mine.log
#
# stdout: the logs. Exit: 0 shown; 2 wrong usage, or no such cluster or node.
set -Eeuo pipefail
# A Ctrl-C ends this at once, until run_verb passes it on. No program is run before: a bash 5.2 that is interrupted just
# as it begins to wait for one may loop for ever.
trap 'echo "${0##*/}: stopped" >&2 || :; exit 143' INT TERM HUP
here="${BASH_SOURCE[0]}"
[[ ! -L "${here}" ]] || here="$(readlink -f "${here}")"
[[ "${here}" == */* ]] || here="./${here}"
# shellcheck source=common/lib.sh
source "${here%/*}/../common/lib.sh"

run_verb logs "$@"
