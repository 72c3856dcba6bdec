#!/usr/bin/env bash
# Usage: update.sh SOURCE [--dry-run]
#
# Bring this project to a newer version of what new.sh put here, and keep your changes. A file that you have
# edited is merged, line by line, with git. If you and the newer version have changed the same lines, both are in the
# file between marks: <<<<<<< and >>>>>>>. If lines cannot be merged, yours stays, and the newer file is beside it:
# NAME.new. What came is known from vendor/oci_cluster-*.whl, which is replaced last.
#
#   SOURCE          a folder with a checkout of oci-cluster, as it is, or a wheel that was made there
#   --dry-run       show what would change, with the lines of your files that would, and change nothing
#   --version       version and build that this project is at
#   -h, --help      this text
#
# Examples:
#   update.sh ~/oci-cluster
#   update.sh ~/Downloads/oci_cluster-1.2.0-0_8f3c5a7be210-py3-none-any.whl --dry-run
#
# What the newer version has removed goes, unless you have edited it. What you have removed stays removed. An interrupted
# run is completed by the next one.
#
# stdout: what becomes of which file. Exit: 0 done, or nothing to do; 1 a file needs you: CONFLICT, or marks of an earlier
# one; 2 wrong usage; 69 git failed; 77 not permitted; 78 something is in the way, or there is no wheel.
set -Eeuo pipefail
# A Ctrl-C ends this at once, until run_verb passes it on. No program is run before: a bash 5.2 that is interrupted just
# as it begins to wait for one may loop for ever.
trap 'echo "${0##*/}: stopped" >&2 || :; exit 143' INT TERM HUP
here="${BASH_SOURCE[0]}"
[[ ! -L "${here}" ]] || here="$(readlink -f "${here}")"
[[ "${here}" == */* ]] || here="./${here}"
# shellcheck source=common/lib.sh
source "${here%/*}/../common/lib.sh"

run_verb update "$@"
