#!/usr/bin/env bash
# Worker of a Ray cluster: a raylet and its worker processes.
# common/README.md says what a start script is given and what it must do.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../common/start-lib.sh"
# shellcheck source=ray/ray-lib.sh
source "${here}/ray-lib.sh"

# head_answers: whether there is a head of which this node could take leave.
# shellcheck disable=SC2016,SC2329 # the inner bash expands it; called by leave
head_answers() { timeout 1 bash -c ': >"/dev/tcp/${RAY_ADDRESS%:*}/${RAY_ADDRESS##*:}"' 2>/dev/null; }

# leave: take no more work, finish what runs here in 60 % of GRACE_PERIOD, and end. Tasks that were not finished, and
# objects that only this node has had, are computed again elsewhere.
# shellcheck disable=SC2329 # called by a trap
leave() {
  trap '' TERM INT
  if ray_runs && head_answers; then
    kill -TERM "${ray}" 2>/dev/null || :
    while ray_runs; do sleep 0.05; done
  fi
  kill_ray
  exit 143
}

# pause: half a second, less where a signal comes.
pause() {
  sleep 0.5 &
  wait $! || :
}

main() {
  require MAIN_ADDRESS NODE_ADDRESS NODE_NAME NODE_DIR OUTPUT_DIR GCS_PORT RAYLET_PORTS WORKER_PORTS OBJECT_STORE_MEMORY
  configure_ray
  trap leave TERM INT
  start_ray --address "${RAY_ADDRESS}" ${NODE_CPUS:+--num-cpus "${NODE_CPUS}"}
  while ray_runs; do pause; done
  # Main sends workers away when the cluster ends, and their raylets end with 0, which `ray start` does not notice. This
  # node's agent is told at most so much later. A raylet that was killed ends `ray start`, which looks every second.
  local deadline=$((SECONDS + 60))
  while is_alive "${ray}" && ((SECONDS < deadline)); do pause; done
  end="its raylet has left the cluster"
  is_alive "${ray}" || end_of_ray
  kill_ray
  keep_logs
  die 1 "Ray ended on this node: ${end}"
}
main "$@"
