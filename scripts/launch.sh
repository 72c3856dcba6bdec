#!/usr/bin/env bash
# Usage: launch.sh <framework> <workers> [option...] [-- argument of the entry point...]
#
# Run a cluster of one main and <workers> workers: the framework's example, or your own script. Follows it to its end
# and exits with its code; Ctrl-C stops the cluster.
#
#   <framework>         a folder of this project with start scripts: dask, horovod, pytorch, tensorflow
#   <workers>           1 or more
#   --entry FILE        your script, instead of the example
#   --code DIR          folder of your code, if not the script's own; workers can import from it
#   --python PATH       your own Python environment, instead of one made from the framework's env.yaml
#   --env NAME=VALUE    set a variable on every node (repeatable)
#   --name NAME         the cluster's name; default: the framework's and a random part
#   --ps N              parameter servers besides the workers (tensorflow)
#   --ttl DURATION      longest life, such as 90s, 30m or 2h
#   --keep              no entry point: keep the cluster until its TTL is over or stop.sh ends it
#   --detach            do not follow: print the cluster's name and return
#   --dry-run           print exactly what would be run, and change nothing
#   --json              with --dry-run or --detach: print JSON
#   --backend NAME      where nodes run: local (default), docker or oci
#   -h, --help          this text
#
# Flags win over environment variables, those over config.env, that over defaults; config.env.example lists all settings.
#
# stdout: the nodes' logs, each line after its node's name; with --detach the cluster's name alone.
# Exit: the entry point's own code; 2 wrong usage; 69 backend unavailable; 75 timed out; 76 a needed node lost;
# 77 not permitted; 78 bad settings; 143 stopped.
set -Eeuo pipefail
root="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck source=common/lib.sh
source "${root}/common/lib.sh"

interrupted="" runner=""
# A signal is noted for the steps below, and passed on to the one that has a cluster to stop.
trap 'interrupted=1; [[ -z "${runner}" ]] || kill -TERM "${runner}" 2>/dev/null || :' INT TERM HUP

# give_up: end with the code of the step that failed; one that a signal has ended means stopped.
give_up() {
  local code=$?
  [[ -z "${interrupted}" ]] || code=143
  exit "${code}"
}

# run_and_follow PYTHON PLAN: start the cluster and show it to its end; return its exit code.
run_and_follow() {
  local code
  backend_run "$1" <<<"$2" &
  runner=$!
  [[ -z "${interrupted}" ]] || kill -TERM "${runner}" 2>/dev/null || :
  while :; do
    wait "${runner}" && code=0 || code=$?
    # A signal ends wait, not the runner: it first sees the cluster to its end.
    kill -0 "${runner}" 2>/dev/null || break
  done
  # A signal may have ended the last wait just before the runner's own end: then the code is that signal's.
  [[ -z "${interrupted}" || "${code}" -lt 128 ]] || code=143
  return "${code}"
}

main() {
  local backend python="" detach="" dry_run="" json=""
  local -a words=() options=()
  backend="$(setting BACKEND local)" || give_up
  while [[ $# -gt 0 ]]; do
    case "$1" in
      -h | --help) usage && exit 0 ;;
      --entry) need_value "$1" $# && options+=(--set "ENTRY_POINT=$2") && shift ;;
      --code) need_value "$1" $# && options+=(--set "CODE_DIR=$2") && shift ;;
      --name) need_value "$1" $# && options+=(--set "CLUSTER_NAME=$2") && shift ;;
      --ps) need_value "$1" $# && options+=(--set "PS_COUNT=$2") && shift ;;
      --ttl) need_value "$1" $# && options+=(--set "TTL=$2") && shift ;;
      --env) need_value "$1" $# && options+=("--env=$2") && shift ;;
      --python) need_value "$1" $# && python="$2" && shift ;;
      --backend) need_value "$1" $# && backend="$2" && shift ;;
      --keep) options+=(--set EPHEMERAL=0) ;;
      --detach) detach=1 ;;
      --dry-run) dry_run=1 ;;
      --json) json=1 ;;
      --)
        options+=(--arguments)
        shift
        break
        ;;
      -*[!0-9]*) usage_error "unknown option '$1'" ;;
      *) words+=("$1") ;;
    esac
    shift
  done
  [[ ${#words[@]} -eq 2 ]] || usage_error "expected <framework> <workers>, got ${#words[@]} of them"
  use_backend "${backend}"

  local plan checked interpreter name
  plan="$(cluster plan "${words[0]}" "${words[1]}" --backend "${backend}" --most-workers "$(backend_most_workers)" \
    "--python=${python}" ${options[@]+"${options[@]}"} "$@")" || give_up
  checked="$(backend_check ${json:+--json} <<<"${plan}")" || give_up
  [[ -z "${interrupted}" ]] || exit 143
  if [[ -n "${dry_run}" ]]; then
    printf '%s\n' "${checked}"
    exit 0
  fi
  interpreter="$(backend_prepare "${words[0]%/}" "${python}")" || give_up
  [[ -z "${interrupted}" ]] || exit 143
  if [[ -z "${detach}" ]]; then
    run_and_follow "${interpreter}" "${plan}"
    exit
  fi
  name="$(backend_submit "${interpreter}" <<<"${plan}")" || give_up
  if [[ -n "${interrupted}" ]]; then
    backend_stop "${name}" >/dev/null
    exit 143
  fi
  if [[ -n "${json}" ]]; then
    backend_status --json "${name}"
  else
    printf '%s\n' "${name}"
  fi
}
main "$@"
