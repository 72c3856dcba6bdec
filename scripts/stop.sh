#!/usr/bin/env bash
# Usage: stop.sh [--delete] [NAME...]
#        stop.sh [--delete] [--ended] [--older-than DURATION]
#
# Stop clusters in order: first the script, then the workers, then main. stop.sh returns when nothing of them runs.
# stop.sh also succeeds for a cluster that has already ended.
#
#   NAME                   a cluster; you may leave it out while only one cluster runs
#   --delete               remove the logs and outputs too; on OCI also code that no other Job names
#   --ended                all clusters that have ended; with --delete, this frees their disk space
#   --older-than DURATION  all clusters that were launched longer ago, such as 12h or 7d: those that run, or with
#                          --ended those that have ended
#   --backend NAME         where the clusters run: local (default), docker, oci or kubernetes
#   --version              the release or the commit that this is
#   -h, --help             this text
#
# Examples:
#   stop.sh                             the only cluster that runs
#   stop.sh --delete mine other
#   stop.sh --delete --ended --older-than 7d
#
# stdout: the clusters' names. Exit: 0 stopped; 2 wrong usage, or no such cluster: then none is stopped.
set -Eeuo pipefail
# A Ctrl-C ends this at once, until run_verb passes it on. No program is run before: a bash 5.2 that is interrupted just
# as it begins to wait for one may loop for ever.
trap 'echo "${0##*/}: stopped" >&2 || :; exit 143' INT TERM HUP
here="${BASH_SOURCE[0]}"
[[ ! -L "${here}" ]] || here="$(readlink -f "${here}")"
[[ "${here}" == */* ]] || here="./${here}"
# shellcheck source=common/lib.sh
source "${here%/*}/../common/lib.sh"

run_verb stop "$@"
