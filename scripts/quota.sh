#!/usr/bin/env bash
# Usage: quota.sh show [--json]
#        quota.sh apply teams.yaml [--dry-run] [--prune] [--force]
#        quota.sh hold TEAM [--drain]
#        quota.sh resume TEAM
#
# Teams and their quotas on Kubernetes with Kueue, for its administrator; docs/kueue.md explains teams.yaml.
#
# show prints what each team has, uses, borrows and lends. apply makes the teams as the file says: it prints what changes,
# and changes nothing when any of it cannot be done. hold keeps a team's clusters from starting: those that run go on, and
# those that wait keep their places. resume ends that.
#
#   --dry-run       print what would change, and change nothing
#   --prune         remove what an earlier file of the same name made and this file does not name; never a namespace
#   --force         take over what somebody else manages
#   --drain         end the clusters that run, too: they wait again at their old places
#   --json          print JSON
#   --backend NAME  kubernetes, which is the only one with teams
#   --version       the release or the commit that this is
#   -h, --help      this text
#
# Examples:
#   quota.sh show
#   quota.sh apply teams.yaml --dry-run
#   quota.sh hold vision --drain
#   quota.sh resume vision
#
# Settings: KUBECONFIG and KUBE_CONTEXT say which Kubernetes.
#
# stdout: what is shown, or changes. Exit: 0 done; 2 wrong usage; 69 Kubernetes did not answer, or refused; 77 you may not;
# 78 the file or a setting is wrong.
set -Eeuo pipefail
# A Ctrl-C ends this at once, until run_verb passes it on. No program is run before: a bash 5.2 that is interrupted just
# as it begins to wait for one may loop for ever.
trap 'echo "${0##*/}: stopped" >&2 || :; exit 143' INT TERM HUP
here="${BASH_SOURCE[0]}"
[[ ! -L "${here}" ]] || here="$(readlink -f "${here}")"
[[ "${here}" == */* ]] || here="./${here}"
# shellcheck source=common/lib.sh
source "${here%/*}/../common/lib.sh"

run_verb quota "$@"
