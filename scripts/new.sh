#!/usr/bin/env bash
# Usage: new.sh <framework...> <dir> [--code DIR --entry FILE] [--backend NAME] [--from SOURCE] [--dry-run]
#
# Put oci-cluster into a project of yours, which may be new: the folders of the frameworks, scripts/, a Makefile, settings,
# a README, and everything else as one file, vendor/oci_cluster-VERSION.whl, which scripts unpack into files that git ignores. There
# `make build push` and ./scripts/launch.sh work as here, on your own code.
#
# What is there already is never overwritten. A Makefile of yours gets one line, `include scripts/clusters.mk`; if it has
# a target of the same name as one of ours, yours counts, and ours is clusters-build, clusters-push. Lines are added to a
# .gitignore and a .gitattributes, and to a config.env without what you name here. What is added is shown. If a file
# of ours would take the place of another one, nothing is changed, and all such files are named; but what you have edited in
# a framework's folder stays.
#
# ./scripts/update.sh there takes a newer version and keeps your changes. To add a framework later, run this again with the
# same folder.
#
#   <framework>     folders with start scripts: dask, horovod, pytorch, ray, tensorflow
#   <dir>           the project's folder; made if it is missing
#   --code DIR      the folder of your code in the project, such as src: written into its config.env
#   --entry FILE    the script in it that a launch runs, such as train.py: written there, too
#   --backend NAME  where nodes run, written there too: local (default), docker, oci or kubernetes
#   --from SOURCE   oci-cluster: a checkout, or a wheel that a checkout has made. Default: what this script belongs to
#   --dry-run       show what would be put there, and change nothing
#   --version       the release or the commit that this is
#   -h, --help      this text
#
# Examples:
#   new.sh dask pytorch ~/digits
#   new.sh dask ~/digits --code src --entry train.py
#   new.sh ray ~/digits                          adds a framework
#   new.sh ray . --from ~/oci-cluster       the same, in the project
#
# An interrupted run is completed by the next one.
#
# stdout: what is put where. Exit: 0 done; 2 wrong usage; 77 not permitted; 78 something is in the way.
set -Eeuo pipefail
# A Ctrl-C ends this at once, until run_verb passes it on. No program is run before: a bash 5.2 that is interrupted just
# as it begins to wait for one may loop for ever.
trap 'echo "${0##*/}: stopped" >&2 || :; exit 143' INT TERM HUP
here="${BASH_SOURCE[0]}"
[[ ! -L "${here}" ]] || here="$(readlink -f "${here}")"
[[ "${here}" == */* ]] || here="./${here}"
# shellcheck source=common/lib.sh
source "${here%/*}/../common/lib.sh"

run_verb new "$@"
