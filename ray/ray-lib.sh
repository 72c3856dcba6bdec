# shellcheck shell=bash
# Sourced by both start scripts: what the head, the workers and the entry point's driver have in common.

ray="" raylet="" gcs=""

# configure_ray: address and token, in the variables that Ray itself reads, so that a plain ray.init() connects.
configure_ray() {
  [[ -s "${NODE_DIR}/client-token" ]] || die 78 "CLIENT_TOKEN=${CLIENT_TOKEN-}: Ray needs the token of the launch; leave it at 1"
  export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="${NODE_DIR}/client-token"
  ray_address="$(address_for_ray "${NODE_ADDRESS}")"
  RAY_ADDRESS="$(address_for_ray "${MAIN_ADDRESS}"):${GCS_PORT}"
  export RAY_ADDRESS
  export RAY_USAGE_STATS_ENABLED=0
  # The log has at once what a task or the entry point prints.
  export PYTHONUNBUFFERED=1
  wait_longer
  encrypt
  # A node that is told to leave first finishes its tasks, in a part of the time that it has.
  local milliseconds=""
  grace_share 60
  export RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S="$((milliseconds / 1000)).$((milliseconds % 1000 / 100))"
  export RAY_GRACEFUL_SHUTDOWN_POLL_INTERVAL_S=0.05
}

# encrypt: where the launch has a certificate, Ray's own connections are encrypted, and nobody without one that is signed
# with it gets as far as a call. That is more than the token gives: without one, a call ends a raylet or the GCS
# (RaySyncer/StartSync without a node id, ray_syncer_server.cc), and who reads packets reads the token.
encrypt() {
  [[ -n "${TLS_CERT_FILE:-}" ]] || return 0
  python "${BASH_SOURCE[0]%/*}/tls/node_certificate.py" "${ray_address}" ||
    die 78 "CLUSTER_TLS=1: this node has no certificate of its own; its Python needs the package cryptography, or set CLUSTER_TLS=0"
  export RAY_USE_TLS=1 RAY_TLS_CA_CERT="${TLS_CERT_FILE}"
  export RAY_TLS_SERVER_CERT="${NODE_DIR}/node-cert.pem" RAY_TLS_SERVER_KEY="${NODE_DIR}/node-key.pem"
}

# wait_longer: on a busy machine Ray's own parts take longer to find each other than its limits allow, and a node that is
# too slow is ended. All of these bound a start; that of a node is TIMEOUT.
wait_longer() {
  export RAY_NUM_REDIS_GET_RETRIES=120           # times 1 s: a worker's `ray start` waits for the head (20)
  export RAY_DASHBOARD_STARTUP_TIMEOUT_S=300     # 60
  export RAY_agent_register_timeout_ms=300000    # 30 s: a raylet waits for its agents
  export RAY_raylet_start_wait_time_s=120        # 10
  export RAY_worker_register_timeout_seconds=600 # 60
  export RAY_py_gcs_connect_timeout_s=120        # 30
  export RAY_gcs_rpc_server_connect_timeout_s=30 # 5
}

# address_for_ray ADDRESS: print the address by which Ray is to know a node. It replaces 127.0.0.1 by an address of the
# machine that others can reach (resolve_ip_for_localhost), and keeps any other one of loopback.
address_for_ray() {
  if [[ "$1" == 127.0.0.1 ]]; then echo 127.1.0.1; else printf '%s\n' "$1"; fi
}

# make_temporary: set `temporary` to the private directory of this node's Ray, by a path that is short enough: a Unix
# socket's has 107 bytes at most, of which Ray's own names take 66.
make_temporary() {
  mkdir -m 700 "${NODE_DIR}/ray" "${NODE_DIR}/spilled"
  temporary="${SHORT_NODE_DIR:-${NODE_DIR}}/ray"
  [[ ${#temporary} -le 41 ]] ||
    die 78 "NODE_DIR has ${#NODE_DIR} bytes, and Ray's sockets take 37 at most: TMPDIR is too long, and /tmp has no room for a link"
}

# bytes_free FOLDER: print how many bytes its file system has room for.
bytes_free() {
  local blocks
  blocks="$(df -Pk "$1" | awk 'END { print $4 }')"
  printf '%s\n' "$((blocks * 1024))"
}

# store_options: add to `options` how large the object store is, and where: in shared memory, or where that has no room in
# the node's private directory. The kernel keeps what lies there in memory while there is room, too.
store_options() {
  local wanted="${OBJECT_STORE_MEMORY}" folder=/dev/shm free=0
  [[ ! -d "${folder}" ]] || free="$(bytes_free "${folder}")"
  if [[ "${wanted}" == auto ]]; then
    [[ -n "${NODE_MEMORY:-}" ]] || return 0
    # Ray's own 30 %, of what this node has; and of shared memory Ray's own 95 %, where that is not less than the smallest
    # store, of 75 MiB (ray_constants.py). A container without SHM_SIZE has 64.
    wanted=$((NODE_MEMORY * 3 / 10))
    ((free * 95 / 100 < 75 * 1024 * 1024 || wanted < free * 95 / 100)) || wanted=$((free * 95 / 100))
  fi
  if ((wanted > free)); then
    log "the object store of ${wanted} bytes has no room in ${folder}, which has ${free}; it is in ${NODE_DIR}"
    folder="${NODE_DIR}"
  fi
  options+=(--object-store-memory "${wanted}" --plasma-directory "${folder}")
}

# port_options: add to `options` the ports of this node: those of the settings, or any where nodes share a machine's.
port_options() {
  local first last name
  if [[ "${NODE_ADDRESS}" == 127.* ]]; then
    # Those that Ray does not choose by itself.
    options+=(--dashboard-agent-listen-port 0 --min-worker-port 0 --max-worker-port 0)
    export AUTOSCALER_METRIC_PORT=0 DASHBOARD_METRIC_PORT=0
    return 0
  fi
  IFS=: read -r first last <<<"${RAYLET_PORTS}"
  ((last - first >= 7)) || die 78 "RAYLET_PORTS=${RAYLET_PORTS}: expected eight ports at least, such as 6380:6387"
  for name in node-manager-port object-manager-port runtime-env-agent-port dashboard-agent-grpc-port \
    dashboard-agent-listen-port metrics-export-port; do
    options+=("--${name}" "$((first++))")
  done
  # Ray has no options for these.
  export AUTOSCALER_METRIC_PORT="$((first++))" DASHBOARD_METRIC_PORT="${first}"
  IFS=: read -r first last <<<"${WORKER_PORTS}"
  options+=(--min-worker-port "${first}" --max-worker-port "${last}")
}

# start_ray OPTION...: start this node's Ray; return when it runs, with the pid of `ray start` in `ray` and that of the
# raylet in `raylet`. Where that fails, as it does on a machine that is too busy for the limits in Ray, it is tried twice
# more.
start_ray() {
  local -a options=("$@" --block --node-ip-address "${ray_address}" --node-name "${NODE_NAME}" --disable-usage-stats)
  make_temporary
  options+=(--temp-dir "${temporary}" --object-spilling-directory "${NODE_DIR}/spilled")
  store_options
  port_options
  local try
  for try in 1 2 3; do
    : >"${NODE_DIR}/ray.log"
    raylet="" gcs=""
    # Files that its processes and tasks make by the way go with the node.
    TMPDIR="${temporary}" ray start "${options[@]}" >>"${NODE_DIR}/ray.log" 2>&1 </dev/null &
    ray=$!
    until ray_is_up "$1"; do
      kill -0 "${ray}" 2>/dev/null || break
      sleep 0.05
    done
    ! ray_is_up "$1" || return 0
    end_of_ray
    log "Ray has not started: ${end} (${try} of 3 tries)"
    kill_ray
  done
  tail -n 40 "${NODE_DIR}/ray.log" >&2 || :
  keep_logs
  die 69 "Ray has not started on this node: ${end}"
}

# ray_is_up OPTION: whether `ray start` has started all; sets the pids of what the node lives with: `raylet`, and with
# --head `gcs`. A process that has just been started has its parent's name for a moment.
ray_is_up() {
  [[ "$(<"${NODE_DIR}/ray.log")" == *"Ray runtime started."* ]] || return 1
  local part name
  local -a parts=()
  read -ra parts <"/proc/${ray}/task/${ray}/children" || :
  for part in ${parts[@]+"${parts[@]}"}; do
    { read -r name <"/proc/${part}/comm"; } 2>/dev/null || continue
    case "${name}" in
      raylet) raylet="${part}" ;;
      gcs_server) gcs="${part}" ;;
      *) ;; # Python's
    esac
  done
  [[ -n "${raylet}" && ("$1" != --head || -n "${gcs}") ]]
}

# is_alive PID: whether that process does anything: one that has ended is there until its parent has seen it (Z).
is_alive() {
  local stat
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  stat="${stat##*) }"
  [[ "${stat%% *}" != [ZX] ]]
}

# ray_runs: whether `ray start` does, and the raylet, with which all of a node's Ray lives.
ray_runs() { [[ -n "${raylet}" ]] && is_alive "${ray}" && is_alive "${raylet}"; }

# head_is_whole: whether all processes of the head are there with which the cluster lives.
head_is_whole() { [[ -n "${gcs}" ]] && is_alive "${gcs}" && ray_runs; }

# end_of_ray: set `end` to how `ray start` has ended: which of its processes did, or the last thing that it has said,
# without colours, time and place.
end_of_ray() {
  local code=0 said
  wait "${ray}" 2>/dev/null || code=$?
  said="$(cat "${NODE_DIR}/ray.log" "${temporary}/session_latest/logs/ray_process_exit.log" 2>/dev/null |
    sed -e $'s/\e\\[[0-9;]*m//g' -e 's/^[[:space:]]*//' \
      -e 's/^[0-9-]* [0-9:,]*[[:space:]]*[A-Z]* [a-z_]*\.py:[0-9]* -- //' | awk 'NF { last = $0 } END { print last }' || :)"
  end="ray start ended with ${code}${said:+: ${said}}"
}

# kill_ray: end what is left of this node's Ray, which has nothing that the cluster still needs. `ray start` has made a
# process group of its own; what it has started has not left it. Told to end, its parts do so together, and in half a
# second; `ray start` would end them one after the other.
kill_ray() {
  [[ -n "${ray}" ]] || return 0
  local looks
  kill -KILL "${ray}" 2>/dev/null || :
  for ((looks = 0; looks < 40; looks++)); do
    kill -TERM -- "-${ray}" 2>/dev/null || break
    sleep 0.05
  done
  kill -KILL -- "-${ray}" 2>/dev/null || :
  wait "${ray}" 2>/dev/null || :
}

# keep_logs: keep what Ray's own processes have logged among the outputs, the last 10 MB of each file.
keep_logs() {
  local logs="${temporary}/session_latest/logs" target="${OUTPUT_DIR}/ray-logs/${NODE_NAME}" file
  mkdir -p "${target}" || return 0
  for file in "${NODE_DIR}/ray.log" "${logs}"/*; do
    [[ ! -s "${file}" || -d "${file}" ]] || tail -c 10485760 "${file}" >"${target}/${file##*/}" || :
  done
  log "what Ray's processes have logged is in the outputs, in ray-logs/${NODE_NAME}"
}
