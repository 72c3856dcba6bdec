#!/usr/bin/env bash
# Main of a Dask cluster: the scheduler, and the entry point as soon as every worker is there.
# common/README.md says what a start script is given and what it must do.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../common/start-lib.sh"
# shellcheck source=dask/dask-lib.sh
source "${here}/dask-lib.sh"

scheduler="" entry="" own_worker="" needed_worker=""

# end_all: the entry point first, then main's own worker, then the others, which the scheduler sends away when it is told
# to end, then itself.
end_all() {
  trap '' TERM INT
  end_child "${entry}"
  # No agent tells this one to leave, for which the scheduler would wait.
  end_child "${own_worker}"
  end_child "${scheduler}"
}

# die_of_hidden_modules PART: end with 78 where Dask's programs cannot begin beside the code, as a file of it hides a module.
die_of_hidden_modules() {
  local hiding module=distributed.cli.dask_scheduler
  # It imports its dashboard where it can.
  ! python -I -c 'import bokeh' >/dev/null 2>&1 || module=distributed.dashboard.scheduler
  hiding="$(hiding_modules "${module}" dask distributed tornado msgpack tblib zict \
    bokeh click cloudpickle fsspec jinja2 numpy pandas psutil toolz yaml)"
  [[ -z "${hiding}" ]] || die 78 "$1 cannot begin: your ${hiding} hides the module of that name; rename it"
}

# all_there: all_workers_there, while main's own worker lives; for wait_for_workers.
# shellcheck disable=SC2329 # called by it
all_there() {
  local code=0
  [[ -z "${needed_worker}" ]] || kill -0 "${needed_worker}" 2>/dev/null || {
    wait "${needed_worker}" || code=$?
    own_worker_lost "${code}"
  }
  all_workers_there
}

# scheduler_lost: it is gone before its time.
scheduler_lost() {
  local code=0
  wait "${scheduler}" 2>/dev/null || code=$?
  scheduler=""
  end_all
  die_of_hidden_modules "the scheduler"
  die 76 "the scheduler ended with ${1:-${code}} before the entry point did"
}

# own_worker_lost CODE: the tasks of a cluster without other workers would wait for ever.
own_worker_lost() {
  own_worker=""
  end_all
  die_of_hidden_modules "main's own worker"
  die 76 "main's own worker ended with $1 before the entry point did"
}

# first_end PID...: wait for the first of these to end, or the scheduler; leave its exit code in `first`. Main's own worker
# may end with 0, after client.shutdown() or client.retire_workers(); what comes next is waited for then.
first_end() {
  first=0
  # Without bash's own line about a process that a signal has ended: it quotes this script.
  wait -n "$@" "${scheduler}" ${needed_worker:+"${needed_worker}"} 2>/dev/null || first=$?
  [[ -n "${needed_worker}" ]] && ! kill -0 "${needed_worker}" 2>/dev/null || return 0
  local pid
  for pid in "$@" "${scheduler}"; do kill -0 "${pid}" 2>/dev/null || return 0; done
  [[ "${first}" -eq 0 ]] || own_worker_lost "${first}"
  own_worker="" needed_worker=""
  wait -n "$@" "${scheduler}" 2>/dev/null || first=$?
}

# entry_point_code: wait for the entry point or the scheduler; leave the entry point's own exit code in `code`.
entry_point_code() {
  local first
  first_end "${entry}"
  # The scheduler has ended. After client.shutdown() that is well, and the entry point goes on to its own end.
  if ! kill -0 "${scheduler}" 2>/dev/null && kill -0 "${entry}" 2>/dev/null; then
    [[ "${first}" -eq 0 ]] || scheduler_lost "${first}"
  fi
  # If the first was the entry point, there is nothing to wait for any more (127).
  wait "${entry}" 2>/dev/null && code=0 || code=$?
  [[ "${code}" -ne 127 ]] || code="${first}"
}

# write_client_config LINE...: replace what DASK_CONFIG of a client outside names, whole.
write_client_config() {
  printf '%s\n' "$@" >"${CLIENT_DIR}/client.yaml.new"
  mv "${CLIENT_DIR}/client.yaml.new" "${CLIENT_DIR}/client.yaml"
}

# offer_connection: a client of one's own needs address and certificate: DASK_CONFIG hands it both. When the cluster has
# ended, Client() must not start workers on its user's machine as if none had been asked for: the address that is left
# is one that Dask refuses at once, with the address in its message.
offer_connection() {
  local -a lines=("scheduler-address: '${DASK_SCHEDULER_ADDRESS}'")
  if [[ -n "${TLS_CERT_FILE:-}" ]]; then
    lines+=("distributed: {comm: {default-scheme: tls, require-encryption: true, tls: {ca-file: '${TLS_CERT_FILE}', client: {cert: '${TLS_CERT_FILE}', key: '${TLS_KEY_FILE}'}}}}")
  fi
  trap 'write_client_config "scheduler-address: cluster-${CLUSTER_NAME}-has-ended://launch-it-again" || :' EXIT
  write_client_config "${lines[@]}"
}

# ready_facts: print what `status` shows.
# shellcheck disable=SC2329 # called by write_ready
ready_facts() {
  printf '%s\n' "dashboard=http://${NODE_ADDRESS}:${DASHBOARD_PORT}/status" "scheduler=${DASK_SCHEDULER_ADDRESS}"
  [[ "${EPHEMERAL}" == 1 ]] || printf 'connect=DASK_CONFIG=%q\n' "${CLIENT_DIR}/client.yaml"
  session_facts
}

# work_too: start main's own worker, where main computes.
work_too() {
  [[ -n "${main_works}" ]] || return 0
  "${here}/start-worker.sh" &
  own_worker=$!
  [[ "${main_works}" != needed ]] || needed_worker="${own_worker}"
}

main() {
  [[ "${SESSION_ALONE:-}" != 1 ]] || run_session_alone
  require MAIN_ADDRESS NODE_ADDRESS NODE_DIR READY_FILE TIMEOUT EPHEMERAL WORKER_COUNT \
    NPROCS SCHEDULER_PORT DASHBOARD_PORT LOG_LEVEL
  if [[ "${EPHEMERAL}" == 1 ]]; then require ENTRY_POINT ENTRY_ARGS_FILE CODE_DIR; else require CLIENT_DIR CLUSTER_NAME; fi
  configure_dask
  # The agents of the workers end these now; the scheduler is to wait for that, not to do it once more.
  trap ': >"${NODE_DIR}/workers-are-told"; end_all; exit 143' TERM INT
  local -a preloads=(--preload "${here}/preload/scheduler.py" --preload "${here}/preload/own_names.py")
  [[ "${OWN_NETWORK:-0}" != 1 ]] || preloads+=(--preload "${here}/preload/loopback.py")
  [[ -z "${ADAPT:-}" ]] || preloads+=(--preload "${here}/preload/adapting.py")
  # Without workers main computes, and scale.sh adds workers later; a cluster that adapts adds its own. A session goes on
  # when that worker is lost: who sits there sees it.
  local main_works=""
  if [[ "${WORKER_COUNT}" == 0 ]]; then
    if [[ -n "${SESSION:-}" ]]; then main_works=yes; elif [[ -z "${ADAPT:-}" ]]; then main_works=needed; fi
  fi
  # Its scratch files and their locks, which others could hold in the machine's own temporary directory.
  MAIN_WORKS="${main_works}" DASK_TEMPORARY_DIRECTORY="${DASK_TEMPORARY_DIRECTORY:-${NODE_DIR}}" dask scheduler \
    --host "${NODE_ADDRESS}" --port "${SCHEDULER_PORT}" --protocol "${DASK_SCHEDULER_ADDRESS%%:*}" \
    --dashboard-address "${NODE_ADDRESS}:${DASHBOARD_PORT}" \
    "${preloads[@]}" --preload "${here}/preload/quick_exit.py" &
  scheduler=$!
  work_too
  wait_for_workers "${scheduler}" scheduler_lost all_there
  # A cluster that stays is there to be connected to; one with an entry point has its client already.
  [[ "${EPHEMERAL}" == 1 ]] || offer_connection
  write_ready ready_facts
  local code first
  if [[ "${EPHEMERAL}" == 0 ]]; then
    first_end
    scheduler=""
    die "${first}" "the scheduler ended"
  fi
  # For the entry point alone: Client(n_workers=4) is to take this cluster.
  PYTHONPATH="$(changed_imports "${here}")" run_entry_point &
  entry=$!
  entry_point_code
  entry=""
  end_all
  exit "${code}"
}
main "$@"
