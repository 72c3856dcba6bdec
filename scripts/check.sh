#!/usr/bin/env bash
# Usage: check.sh [FRAMEWORK [WORKERS]] [OPTION...] [-- ARGUMENT...]
#
# Find what would fail of a launch, before it costs anything. Takes what launch.sh takes, and starts nothing: settings,
# entry point, ports, and what the backend needs. On OCI that is the tenancy: network, policies, bucket, image, limits.
# Shows a line for each item: fine, fails, unknown or advice; below it the fix. docs/check.md lists the
# items. Without FRAMEWORK the first of this checkout is checked, without WORKERS 2 workers.
#
#   --entry FILE        run your script, instead of the example
#   --module NAME       run a module instead, as python -m does: package.train
#   --code DIR          the folder of your code
#   --python PATH       use your own Python environment
#   --with PACKAGES     add packages to the framework's environment (repeatable)
#   --env NAME=VALUE    set a variable on every node (repeatable)
#   --env-plain NAME=VALUE
#                       the same for what looks like a secret and is none. With ARGS alone: the script's arguments
#   --env-file FILE     the same for each line NAME=VALUE of a file (repeatable)
#   --outputs FOLDERS   keep what your script writes to these folders of its code
#   --name NAME         the cluster's name
#   --ps N              add N parameter servers to the workers (tensorflow)
#   --ttl DURATION      end the cluster after this time
#   --keep              run no script
#   --queue NAME        wait in this queue of Kueue's (kubernetes)
#   --priority NAME     wait there with this priority, a WorkloadPriorityClass (kubernetes)
#   --wait-for-quota DURATION
#                       do not wait there for longer (kubernetes)
#   --live              then start two nodes, which prove from inside that they reach each other's ports and the work
#                       dir, and are removed. This costs: what at most, is said first
#   --json              print JSON: the items, and a summary
#   --backend NAME      where the cluster would run: local (default), docker, oci or kubernetes
#   --version           the release or the commit that this is
#   -h, --help          this text
#
# Examples:
#   check.sh dask 3                              would this launch work here?
#   check.sh pytorch 8 --backend oci --entry train.py -- --epochs 10
#   check.sh --json | jq '.findings[] | select(.verdict != "fine")'
#
# stdout: the report. Exit: 0 nothing fails; 1 something will fail; 2 wrong usage; 3 nothing fails that could be seen, and
# something could not be seen; 78 config.env cannot be read.
set -Eeuo pipefail
# A Ctrl-C ends this at once, until run_verb passes it on. No program is run before: a bash 5.2 that is interrupted just
# as it begins to wait for one may loop for ever.
trap 'echo "${0##*/}: stopped" >&2 || :; exit 143' INT TERM HUP
here="${BASH_SOURCE[0]}"
[[ ! -L "${here}" ]] || here="$(readlink -f "${here}")"
[[ "${here}" == */* ]] || here="./${here}"
# shellcheck source=common/lib.sh
source "${here%/*}/../common/lib.sh"

run_verb check "$@"
