#!/usr/bin/env bash
# Usage: queue.sh [TEAM] [--json]
#
# Show who waits on Kubernetes with Kueue: for what, since when, in which place, and why; and who runs. Without TEAM, all
# teams that you may see, or your own namespace. It cannot predict when a cluster will start.
#
#   --json          print JSON
#   --backend NAME  kubernetes, which is the only one with queues
#   --version       the release or the commit that this is
#   -h, --help      this text
#
# Examples:
#   queue.sh
#   queue.sh vision --json
#
# Settings: KUBECONFIG and KUBE_CONTEXT say which Kubernetes cluster, NAMESPACE where your clusters are.
#
# stdout: the clusters, those that run first. Exit: 0 shown; 2 wrong usage; 69 Kubernetes did not answer, or has no Kueue;
# 77 you may not; 78 a setting is wrong.
set -Eeuo pipefail
# A Ctrl-C ends this at once, until run_verb passes it on. No program is run before: a bash 5.2 that is interrupted just
# as it begins to wait for one may loop for ever.
trap 'echo "${0##*/}: stopped" >&2 || :; exit 143' INT TERM HUP
here="${BASH_SOURCE[0]}"
[[ ! -L "${here}" ]] || here="$(readlink -f "${here}")"
[[ "${here}" == */* ]] || here="./${here}"
# shellcheck source=common/lib.sh
source "${here%/*}/../common/lib.sh"

run_verb queue "$@"
