#!/usr/bin/env bash
# Usage: list.sh [--all] [--json]
#
# List the clusters that run, the oldest first. Those that have ended are SUCCEEDED, FAILED or STOPPED;
# GONE if nobody knows any more how.
#
#   --all           list clusters that have ended too, as long as their logs are kept
#   --json          print JSON
#   --backend NAME  where the clusters run: local (default), docker, oci or kubernetes
#   --version       the release or the commit that this is
#   -h, --help      this text
#
# Examples:
#   list.sh
#   list.sh --all --backend oci
#   list.sh --json >clusters.json
#
# stdout: the list. Exit: 0 shown, 2 wrong usage.
set -Eeuo pipefail
# A Ctrl-C ends this at once, until run_verb passes it on. No program is run before: a bash 5.2 that is interrupted just
# as it begins to wait for one may loop for ever.
trap 'echo "${0##*/}: stopped" >&2 || :; exit 143' INT TERM HUP
here="${BASH_SOURCE[0]}"
[[ ! -L "${here}" ]] || here="$(readlink -f "${here}")"
[[ "${here}" == */* ]] || here="./${here}"
# shellcheck source=common/lib.sh
source "${here%/*}/../common/lib.sh"

run_verb list "$@"
