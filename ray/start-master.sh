#!/usr/bin/env bash
# Main of a Ray cluster: the head, and the entry point as soon as every worker is there.
# common/README.md says what a start script is given and what it must do.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../common/start-lib.sh"
# shellcheck source=ray/ray-lib.sh
source "${here}/ray-lib.sh"

entry="" nodes=""

# end_all: the entry point first, then the workers, then the head.
end_all() {
  trap '' TERM INT
  end_child "${entry}" 40 || : # a driver whose head has gone may wait for it
  if [[ -n "${nodes}" ]]; then
    kill -TERM "${nodes}" 2>/dev/null || :
    # Without a head nobody can be asked.
    while is_alive "${nodes}" && head_is_whole; do sleep 0.02; done
    kill -KILL "${nodes}" 2>/dev/null || :
    wait "${nodes}" 2>/dev/null || :
  fi
  kill_ray
}

# head_lost: it is gone before its time.
head_lost() {
  local looks end="one of its processes was killed"
  # It looks every second after its parts.
  for ((looks = 0; looks < 60; looks++)); do
    is_alive "${ray}" || break
    sleep 0.05
  done
  is_alive "${ray}" || end_of_ray
  end_all
  keep_logs
  die 76 "the head ended before the entry point did: ${end}"
}

# entry_point_code: wait for the entry point or the head; leave the entry point's own exit code in `code`.
entry_point_code() {
  local first=0
  wait -n "${entry}" "${ray}" 2>/dev/null || first=$? # without bash's own line about one that a signal has ended
  ! is_alive "${entry}" || head_lost
  # If the first was the entry point, there is nothing to wait for any more (127).
  wait "${entry}" 2>/dev/null && code=0 || code=$?
  [[ "${code}" -ne 127 ]] || code="${first}"
  # A driver ends with its raylet, and before `ray start` has seen that.
  [[ "${code}" -eq 0 ]] || head_is_whole || head_lost
}

# client_variables: print what a program of one's own has in its environment to take part, as a line of READY_FILE.
# shellcheck disable=SC2329 # called by ready_facts
client_variables() {
  local name
  printf 'connect=RAY_ADDRESS=ray://%s:%s' "${RAY_ADDRESS%:*}" "${RAY_CLIENT_PORT}"
  for name in RAY_AUTH_MODE RAY_AUTH_TOKEN_PATH RAY_USE_TLS RAY_TLS_CA_CERT RAY_TLS_SERVER_CERT RAY_TLS_SERVER_KEY; do
    [[ -z "${!name:-}" ]] || printf ' %s=%q' "${name}" "${!name}"
  done
  printf '\n'
}

# ready_facts: print what `status` shows.
# shellcheck disable=SC2329 # called by write_ready
ready_facts() {
  printf '%s\n' "dashboard=http://${NODE_ADDRESS}:${DASHBOARD_PORT}" "address=${RAY_ADDRESS}"
  # A cluster that stays is there to be connected to; one with an entry point has its driver already.
  [[ "${EPHEMERAL}" == 1 ]] || client_variables
  session_facts
}

main() {
  [[ "${SESSION_ALONE:-}" != 1 ]] || run_session_alone
  require MAIN_ADDRESS NODE_ADDRESS NODE_NAME NODE_DIR OUTPUT_DIR READY_FILE TIMEOUT EPHEMERAL WORKER_COUNT \
    GCS_PORT DASHBOARD_PORT RAY_CLIENT_PORT RAYLET_PORTS WORKER_PORTS HEAD_CPUS OBJECT_STORE_MEMORY
  if [[ "${EPHEMERAL}" == 1 ]]; then require ENTRY_POINT ENTRY_ARGS_FILE CODE_DIR; fi
  [[ "${HEAD_CPUS}" != 0 || "${WORKER_COUNT}" != 0 || "${EPHEMERAL}" != 1 ]] ||
    die 78 "HEAD_CPUS=0 leaves tasks to the workers, and there are none; launch 1 worker or more, or leave HEAD_CPUS at auto"
  configure_ray
  trap 'end_all; exit 143' TERM INT
  python "${here}/head/nodes.py" "${RAY_ADDRESS}" &
  nodes=$!
  trap 'kill -KILL "${nodes}" 2>/dev/null || :' EXIT
  local cpus="${HEAD_CPUS}" dashboard_host="${NODE_ADDRESS}"
  [[ "${cpus}" != auto ]] || cpus="${NODE_CPUS:-}"
  # A port of a pod is forwarded to its loopback address alone. All addresses of a network of its own are the node's.
  [[ "${OWN_NETWORK:-0}" != 1 ]] || dashboard_host=0.0.0.0
  start_ray --head --port "${GCS_PORT}" ${cpus:+--num-cpus "${cpus}"} \
    --dashboard-host "${dashboard_host}" --dashboard-port "${DASHBOARD_PORT}" \
    --ray-client-server-port "${RAY_CLIENT_PORT}"
  wait_for_workers "${nodes}" head_lost
  write_ready ready_facts
  if [[ "${EPHEMERAL}" == 0 ]]; then
    while head_is_whole; do
      sleep 0.5 &
      wait $! || :
    done
    head_lost
  fi
  PYTHONPATH="$(changed_imports "${here}")" run_entry_point &
  entry=$!
  local code=0
  entry_point_code
  entry=""
  end_all
  [[ "${code}" -eq 0 ]] || keep_logs
  exit "${code}"
}
main "$@"
