#!/usr/bin/env bash
# Usage: from-ads.sh train.yaml [--code DIR] [--merge | --force | --dry-run]
#
# Move over from ADS: read the YAML of `ads opctl run`, or of a job of PyTorchDistributedRuntime, write its settings to
# config.env, and print the command that launches the same cluster. Nothing is launched and no service is contacted. docs/from-ads.md says what differs.
#
# Each field that is not simply taken is named with its line: what means something else here, what is not needed here,
# what has no counterpart and why, and what ADS does not read either.
#
#   --code DIR      the folder of your code; default: what config.ini of ADS's build-image says, if it is beside
#                   train.yaml, or the folder of train.yaml
#   --merge         add missing settings to an existing config.env; those that it has stay, and what this
#                   YAML has instead stands before the printed command
#   --force         replace an existing config.env by these settings
#   --dry-run       write nothing; print config.env as it would be, and the command
#   --output DIR    write config.env of another checkout, or of a project that has copied this one
#   --backend NAME  where the cluster will run: oci (default), local, docker or kubernetes
#   --version       the release or the commit that this is
#   -h, --help      this text
#
# A config.env that is there is never changed unless you say so: what would change is shown.
#
# Examples:
#   from-ads.sh train.yaml
#   from-ads.sh train.yaml --code src --merge
#   from-ads.sh train.yaml --backend local --dry-run
#
# stdout: the command. Exit: 0 all of it is taken; 2 wrong usage; 3 written, and some fields have no counterpart or are
# not known: look at them first; 77 config.env cannot be written; 78 the YAML is none of ADS's, or config.env is there.
set -Eeuo pipefail
# A Ctrl-C ends this at once, until run_verb passes it on. No program is run before: a bash 5.2 that is interrupted just
# as it begins to wait for one may loop for ever.
trap 'echo "${0##*/}: stopped" >&2 || :; exit 143' INT TERM HUP
here="${BASH_SOURCE[0]}"
[[ ! -L "${here}" ]] || here="$(readlink -f "${here}")"
[[ "${here}" == */* ]] || here="./${here}"
# shellcheck source=common/lib.sh
source "${here%/*}/../common/lib.sh"

run_verb from-ads "$@"
