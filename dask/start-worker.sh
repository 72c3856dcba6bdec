#!/usr/bin/env bash
# Worker of a Dask cluster: a nanny and NPROCS worker processes.
# common/README.md says what a start script is given and what it must do.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../common/start-lib.sh"
# shellcheck source=dask/dask-lib.sh
source "${here}/dask-lib.sh"

require MAIN_ADDRESS NODE_ADDRESS NODE_NAME NODE_DIR WORKER_COUNT SCHEDULER_PORT WORKER_PORTS NANNY_PORTS NPROCS NTHREAD \
  DEATH_TIMEOUT LOG_LEVEL
configure_dask

# room_for_two RANGE: whether it has ports for all workers of two clusters of this size; 0 stands for any port.
room_for_two() {
  [[ "$1" != 0 ]] || return 0
  [[ "$1" =~ ^([0-9]{1,5}):([0-9]{1,5})$ ]] &&
    ((10#${BASH_REMATCH[2]} - 10#${BASH_REMATCH[1]} + 1 >= 2 * WORKER_COUNT * NPROCS))
}

# Of all loopback addresses, only 127.0.0.1 is on an interface. LightGBM looks for its worker's address there, and ends
# where it does not find it. Workers that share the address need ports of one range.
host="${NODE_ADDRESS}"
if [[ "${host}" == 127.* ]] && room_for_two "${WORKER_PORTS}" && room_for_two "${NANNY_PORTS}"; then
  host=127.0.0.1
fi

threads="${NTHREAD}"
if [[ "${threads}" == auto ]]; then
  cpus="${NODE_CPUS:-$(nproc)}"
  threads=$((cpus > NPROCS ? cpus / NPROCS : 1))
fi
memory=auto
[[ -z "${NODE_MEMORY:-}" ]] || memory=$((NODE_MEMORY / NPROCS))

# 3 s of the usual 10: a nanny has its worker leave in tenths of a second, or is stuck. One whose worker is just starting
# waits 8 s for a scheduler that is gone; nothing is lost by not waiting with it.
grace_share 30
end_worker() {
  local seconds="$((milliseconds / 1000)).$((milliseconds % 1000 / 100))"
  end_child "${nanny}" 30 || log "the nanny has not ended within ${seconds%.0} s; it was killed"
  exit 143
}

dask worker "${DASK_SCHEDULER_ADDRESS}" --name "${NODE_NAME}" --host "${host}" \
  --nworkers "${NPROCS}" --nthreads "${threads}" --memory-limit "${memory}" \
  --worker-port "${WORKER_PORTS}" --nanny-port "${NANNY_PORTS}" --dashboard-address "${host}:0" --no-dashboard \
  --death-timeout "${DEATH_TIMEOUT}" --local-directory "${NODE_DIR}" \
  --preload "${here}/preload/worker.py" --preload "${here}/preload/own_names.py" \
  --preload "${here}/preload/quick_exit.py" \
  --preload-nanny "${here}/preload/quick_exit.py" --preload-nanny "${here}/preload/nanny.py" &
nanny=$!
trap end_worker TERM INT
wait "${nanny}"
