#!/usr/bin/env bash
# One rank: the entry point, with what the launcher has put into the environment. Ranks are started when all are there.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../../common/start-lib.sh"

if [[ "${MODE}" == MAIN && "${LOCAL_RANK}" == 0 ]]; then
  write_ready printf '%s\n' "rendezvous=${MAIN_ADDRESS}:${RENDEZVOUS_PORT}" \
    "nodes=${GROUP_WORLD_SIZE:-$((WORKER_COUNT + 1))}" "world_size=${WORLD_SIZE}"
fi
# For the rank alone: it waits for torch's threads at its end, and notes that it has come to it.
PYTHONPATH="$(changed_imports "${here%/*}")"
export PYTHONPATH RANK_PID="$$"
run_entry_point
