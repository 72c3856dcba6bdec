#!/usr/bin/env bash
# Usage: smoke.sh [framework...]
#
# Does a cluster run here? Start one with one worker on this machine, for each framework, with a script that has all nodes
# compute something together. That takes ten seconds at most if the framework's Python environment is there; the first
# launch makes it, which takes minutes. Your own code is not run.
#
#   framework       dask, horovod, pytorch, ray, tensorflow; default: all that this project has
#   --version       the release or the commit that this is
#   -h, --help      this text
#
# Examples:
#   smoke.sh
#   smoke.sh dask
#
# stdout: a line for each framework. Exit: 0 clusters run; 143 stopped; otherwise the code of the launch that failed, whose logs
# are on stderr.
set -Eeuo pipefail
trap 'echo "${0##*/}: stopped" >&2 || :; exit 143' INT TERM HUP
root="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck source=common/lib.sh
source "${root}/common/lib.sh"

frameworks=()
for word in "$@"; do
  case "${word}" in
    -h | --help)
      usage
      exit
      ;;
    --version)
      version
      exit
      ;;
    -*) usage_error "unknown option '${word}'" ;;
    *)
      [[ -f "${root}/${word}/start-master.sh" ]] || usage_error "'${word}' is no framework of this project"
      frameworks+=("${word}")
      ;;
  esac
done
if [[ ${#frameworks[@]} -eq 0 ]]; then
  for file in "${root}"/*/start-master.sh; do
    [[ -f "${file}" ]] || die 78 "${root} has no framework: no folder with a start-master.sh; new.sh puts one here"
    file="${file%/start-master.sh}"
    frameworks+=("${file##*/}")
  done
fi
unpack_wheel "${root}"
for framework in ${frameworks[@]+"${frameworks[@]}"}; do
  [[ -f "${root}/scripts/templates/smoke/with_${framework}.py" ]] ||
    usage_error "there is no scripts/templates/smoke/with_${framework}.py; write one, or name other frameworks"
done

scratch="$(mktemp -d)"
trap 'rm -rf "${scratch}"' EXIT
# Whoever stops this stops the cluster that it has launched, in order.
child=""
stopped() {
  trap '' INT TERM HUP
  [[ -z "${child}" ]] || kill -TERM "${child}" 2>/dev/null || :
  [[ -z "${child}" ]] || wait "${child}" || :
  log "stopped"
  exit 143
}
trap stopped INT TERM HUP
for framework in ${frameworks[@]+"${frameworks[@]}"}; do
  began="${SECONDS}"
  log "${framework}: a cluster with one worker"
  code=0
  # The options win over what config.env says of your own clusters. On CPUs, as two nodes cannot share one GPU.
  "${root}/scripts/launch.sh" "${framework}" 1 --backend local --code "${root}/scripts/templates/smoke" \
    --entry "with_${framework}.py" --ttl 10m --env CUDA_VISIBLE_DEVICES= >"${scratch}/log" 2>&1 </dev/null &
  child=$!
  wait "${child}" || code=$?
  child=""
  [[ "${code}" -ne 0 ]] || grep -q 'smoke: all nodes take part' "${scratch}/log" || code=1
  if [[ "${code}" -ne 0 ]]; then
    cat "${scratch}/log" >&2
    die "${code}" "${framework}: the cluster ended with ${code}; its logs are above"
  fi
  printf '%s: clusters run here; %d s\n' "${framework}" "$((SECONDS - began))"
done
