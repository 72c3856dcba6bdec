#!/usr/bin/env bash
# Usage: update.sh [VERSION [REF]] [--base VERSION] [--dry-run]
#
# Bring this project to a newer version of the templates that new.sh put here, and keep your changes. A file that you have
# edited is merged, line by line, with git. Where you and the newer version have changed the same lines, both are in the
# file between marks: <<<<<<< and >>>>>>>. Where lines cannot be merged, yours stays, and the newer file is beside it: NAME.new.
#
#   VERSION         a folder with a checkout of the templates, which needs no network; a tar file of one; or an URL of git.
#                   Default: where the last version came from
#   REF             a branch, a tag or a commit of it; URL#REF means the same. Without, a folder is taken as it is
#   --base VERSION  the version that this project came from, where new.sh did not put it here or its copy is lost
#   --dry-run       show what would change, with the lines of your files that would, and change nothing
#   --version       the commit that this project is at
#   -h, --help      this text
#
# Examples:
#   update.sh ~/launch-templates
#   update.sh https://example.com/launch-templates.git v1.2
#   update.sh ~/Downloads/launch-templates-1.2.tar.gz --dry-run
#
# What the newer version has removed goes, unless you have edited it. What you have removed stays removed. A file that
# you have edited and that has another name now is merged under that name. An interrupted run is completed by the next one.
#
# stdout: what becomes of which file. Exit: 0 done, or nothing to do; 1 a file needs you: CONFLICT, or marks of an earlier
# one; 2 wrong usage; 69 git failed; 77 not permitted; 78 something is in the way, or nobody knows the version of before.
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
