#!/usr/bin/env bash
# Worker of a Dask cluster: a nanny and NPROCS worker processes.
# common/README.md says what a start script is given and what it must do.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../common/start-lib.sh"
# shellcheck source=dask/dask-lib.sh
source "${here}/dask-lib.sh"

require MAIN_ADDRESS NODE_ADDRESS NODE_NAME NODE_DIR SCHEDULER_PORT WORKER_PORTS NANNY_PORTS NPROCS NTHREAD DEATH_TIMEOUT LOG_LEVEL
configure_dask

threads="${NTHREAD}"
if [[ "${threads}" == auto ]]; then
  cpus="${NODE_CPUS:-$(nproc)}"
  threads=$((cpus > NPROCS ? cpus / NPROCS : 1))
fi
memory=auto
[[ -z "${NODE_MEMORY:-}" ]] || memory=$((NODE_MEMORY / NPROCS))

# end_worker: a nanny has its worker leave in tenths of a second, or is stuck: one whose worker is just starting waits 8 s
# for a scheduler that is gone. Nothing is lost by not waiting with it.
end_worker() {
  local looks
  kill -TERM "${nanny}" 2>/dev/null || :
  for ((looks = 0; looks < 60; looks++)); do
    kill -0 "${nanny}" 2>/dev/null || exit 143
    sleep 0.05
  done
  log "the nanny has not ended within 3 s; killing it"
  kill -KILL "${nanny}" 2>/dev/null || :
  exit 143
}

dask worker "${DASK_SCHEDULER_ADDRESS}" --name "${NODE_NAME}" --host "${NODE_ADDRESS}" \
  --nworkers "${NPROCS}" --nthreads "${threads}" --memory-limit "${memory}" \
  --worker-port "${WORKER_PORTS}" --nanny-port "${NANNY_PORTS}" --dashboard-address "${NODE_ADDRESS}:0" --no-dashboard \
  --death-timeout "${DEATH_TIMEOUT}" --local-directory "${NODE_DIR}" \
  --preload "${here}/preload/quick_exit.py" --preload-nanny "${here}/preload/quick_exit.py" &
nanny=$!
trap end_worker TERM INT
wait "${nanny}"
