# shellcheck shell=bash
# Sourced by both start scripts: one launcher on each node starts the node's ranks.

# check_count NAME VALUE [LEAST]: a whole number of LEAST or more, 1 where it is not given.
check_count() {
  [[ "$2" =~ ^(0|[1-9][0-9]*)$ && "$2" -ge "${3:-1}" ]] || die 78 "$1: expected a whole number of ${3:-1} or more, got '$2'"
}

# check_settings: set nodes, min_nodes, max_nodes and max_restarts; end with 78 where settings do not fit.
check_settings() {
  require MODE NODE_RANK NODE_NAME NODE_ADDRESS MAIN_ADDRESS NODE_DIR CODE_DIR LAUNCH_ID TIMEOUT EPHEMERAL WORKER_COUNT \
    RENDEZVOUS_PORT LAUNCHER NPROC_PER_NODE LAST_CALL_TIMEOUT
  [[ "${EPHEMERAL}" == 1 ]] || die 78 "PyTorch has no service that could stay: launch without --keep"
  require ENTRY_POINT ENTRY_ARGS_FILE
  [[ "${PS_COUNT:-0}" == 0 ]] || die 78 "PyTorch has no parameter servers: launch without --ps"
  [[ "${LAUNCHER}" =~ ^(torchrun|accelerate|deepspeed)$ ]] ||
    die 78 "LAUNCHER: expected torchrun, accelerate or deepspeed, got '${LAUNCHER}'"
  check_count LAST_CALL_TIMEOUT "${LAST_CALL_TIMEOUT}"
  [[ "${NPROC_PER_NODE}" == auto ]] || check_count NPROC_PER_NODE "${NPROC_PER_NODE}"

  nodes=$((WORKER_COUNT + 1))
  max_nodes="${MAX_NODES:-${nodes}}"
  # MIN_NODES is this counted with main; the agent has translated it.
  check_count MIN_WORKERS "${MIN_WORKERS:-${WORKER_COUNT}}" 0
  min_nodes=$((${MIN_WORKERS:-${WORKER_COUNT}} + 1))
  check_count MAX_NODES "${max_nodes}"
  ((min_nodes <= max_nodes)) || die 78 "MIN_NODES is ${min_nodes}, more than MAX_NODES, ${max_nodes}"
  # A lost node fails the ranks of all others: without restarts nobody survives it. 3 is what torch's own API has.
  max_restarts="${MAX_RESTARTS:-$((min_nodes < max_nodes ? 3 : 0))}"
  check_count MAX_RESTARTS "${max_restarts}" 0
  [[ "${LAUNCHER}" == torchrun || "${min_nodes}" -eq "${max_nodes}" ]] ||
    die 78 "LAUNCHER=${LAUNCHER} has a fixed number of nodes: unset MIN_NODES and MAX_NODES, or take LAUNCHER=torchrun"
}

# configure_torch: what launcher and ranks read in their environment. What the user has set stays.
configure_torch() {
  local milliseconds
  # With sharing, torch 2.13 takes the store of the first attempt for later ones: ranks find what their predecessors
  # wrote, and hang in init_process_group after a rank was killed.
  export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
  if [[ -n "${NODE_INTERFACE:-}" ]]; then
    export GLOO_SOCKET_IFNAME="${GLOO_SOCKET_IFNAME:-${NODE_INTERFACE}}"
    # `=`: that interface alone. NCCL takes a plain ens3 for ens300 as well.
    export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-=${NODE_INTERFACE}}"
  fi
  # 7 s of the usual 10, whole seconds: ranks that do not listen to TERM are killed before the agent kills the launcher;
  # they are in sessions of their own.
  grace_share 70
  export TORCH_ELASTIC_SHUTDOWN_TIMEOUT="${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-$((milliseconds / 1000))}"
  # Shown where a node has several ranks; torchrun fills in the number.
  # shellcheck disable=SC2016
  [[ -n "${TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE:-}" ]] || export TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='[rank ${rank}] '
  # The log has at once what a rank prints.
  export PYTHONUNBUFFERED=1
}

# warn_of_spawn: processes that a rank starts find torchrun's variables; with a process group they wait, without a word, for
# a store that nobody has.
warn_of_spawn() {
  [[ "${MODE}" == MAIN && "${LAUNCHER}" != deepspeed && "${ENTRY_POINT}" == *.py ]] || return 0
  (cd "${CODE_DIR}" && grep -qE '^[^#]*(mp|multiprocessing)\.spawn\(' -- "${ENTRY_POINT}") 2>/dev/null || return 0
  log "'${ENTRY_POINT}' has mp.spawn(): under ${LAUNCHER} this may wait for ever, as the ranks run already; pytorch/README.md says what to do"
}

# run_launcher ROLE: become the launcher. ROLE is is_host=1 on main, where the rendezvous is, is_host=0 elsewhere.
run_launcher() {
  local nodes min_nodes max_nodes max_restarts rendezvous
  local -a options
  check_settings
  configure_torch
  warn_of_spawn
  # A node that is lost is given up after 5 x 2 s, not torch's 3 x 5 s: the others wait for that before they go on.
  rendezvous="$1,join_timeout=${TIMEOUT},last_call_timeout=${LAST_CALL_TIMEOUT},keep_alive_interval=2,keep_alive_max_attempt=5"
  case "${LAUNCHER}" in
    torchrun)
      options=(--nnodes="${min_nodes}:${max_nodes}" --max-restarts="${max_restarts}" --local-addr="${NODE_ADDRESS}"
        --rdzv-backend=c10d-ordered --rdzv-endpoint="${MAIN_ADDRESS}:${RENDEZVOUS_PORT}" --rdzv-id="${LAUNCH_ID}"
        --rdzv-conf="${rendezvous}" --log-dir="${NODE_DIR}/torchelastic" --no-python)
      ;;
    accelerate)
      # Options of torchrun that accelerate does not have: torchrun reads them here.
      export PET_LOCAL_ADDR="${NODE_ADDRESS}" PET_RDZV_ID="${LAUNCH_ID}" PET_RDZV_ENDPOINT="${MAIN_ADDRESS}:${RENDEZVOUS_PORT}"
      # c10d has no use for the machine's rank. On 0 accelerate fails where some program, our own main, has that port. On a
      # single node it would then make a rendezvous of its own, unless it may choose the port.
      options=(--num_machines "${nodes}" --machine_rank 1 --max_restarts "${max_restarts}"
        --main_process_ip "${MAIN_ADDRESS}" --main_process_port "$((nodes > 1 ? RENDEZVOUS_PORT : 0))"
        --rdzv_backend c10d-ordered --rdzv_conf "${rendezvous}" --log_dir "${NODE_DIR}/torchelastic" --no_python)
      ;;
    deepspeed)
      options=(--node_rank="${NODE_RANK}" --master_addr="${MAIN_ADDRESS}" --master_port="${RENDEZVOUS_PORT}"
        --no_local_rank --no_python)
      ;;
    *) die 70 "LAUNCHER ${LAUNCHER}" ;;
  esac
  exec python "${here:?}/launch/launcher.py" "${LAUNCHER}" "${options[@]}" "${here}/launch/rank.sh"
}
