# shellcheck shell=bash
# Sourced by both start scripts: every node is one task of TensorFlow's cluster, and runs the entry point.

# configure_tensorflow: what TensorFlow and the entry point read in their environment; set `facts`, for READY_FILE.
# What the user has set stays.
configure_tensorflow() {
  local text code=0 addresses="${MAIN_ADDRESS}"
  # One of another cluster would have the nodes wait for tasks that are not there, for ever.
  [[ -z "${TF_CONFIG:-}" ]] || die 78 "TF_CONFIG is made from the nodes' addresses; unset yours: '${TF_CONFIG}'"
  text="$(python -I "${here:?}/launch/tf_config.py")" || code=$?
  [[ "${code}" -ne 78 ]] || die 78 "${text}"
  [[ "${code}" -eq 0 ]] || exit "${code}" # no Python: the shell has said so
  mapfile -t facts <<<"${text}"
  export TF_CONFIG="${facts[0]}"
  unset 'facts[0]'

  # gRPC takes http_proxy for connections between tasks too, and they would wait for each other for ever.
  addresses+="${WORKER_ADDRESSES:+,${WORKER_ADDRESSES}}${PS_ADDRESSES:+,${PS_ADDRESSES}}"
  no_grpc_proxy="${no_grpc_proxy:-${no_proxy:-}}"
  export no_grpc_proxy="${no_grpc_proxy:+${no_grpc_proxy},}${addresses}"
  # Nodes that share a machine would each start a thread for every CPU of it.
  [[ -z "${NODE_CPUS:-}" ]] || export TF_NUM_INTRAOP_THREADS="${TF_NUM_INTRAOP_THREADS:-${NODE_CPUS}}"
  # `=`: that interface alone. NCCL takes a plain ens3 for ens300 as well.
  [[ -z "${NODE_INTERFACE:-}" ]] || export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-=${NODE_INTERFACE}}"
  export BACKUP_DIR="${BACKUP_DIR:-${OUTPUT_DIR}/backup}"
  # A task that is killed leaves the files that TensorFlow has its own functions in; there they go with the node.
  export TMPDIR="${NODE_DIR}"
  # The log has at once what a task prints.
  export PYTHONUNBUFFERED=1
  # For the entry point alone: main says at its end where no task has met another.
  PYTHONPATH="$(changed_imports "${here}")"
  export PYTHONPATH
}

# run_task: become this node's task.
run_task() {
  local -a facts
  require MODE NODE_NAME NODE_ADDRESS NODE_DIR MAIN_ADDRESS ROLE_INDEX PS_COUNT EPHEMERAL OUTPUT_DIR TASK_PORT
  [[ "${EPHEMERAL}" == 1 ]] || die 78 "TensorFlow has no service that could stay: launch without --keep"
  [[ -z "${TLS_CERT_FILE:-}" ]] || die 78 "TensorFlow's servers know no encryption: launch without CLUSTER_TLS=1"
  require CODE_DIR ENTRY_POINT ENTRY_ARGS_FILE
  [[ -v WORKER_ADDRESSES ]] || require WORKER_ADDRESSES # empty: no worker is left, and main trains alone
  [[ "${PS_COUNT}" == 0 ]] || require PS_ADDRESSES      # without, the strategy would be the other one
  configure_tensorflow
  if [[ "${MODE}" == MAIN ]]; then
    # Ready: every node has come. TensorFlow's own servers are the entry point's, and wait for each other.
    write_ready printf '%s\n' "${facts[@]}" "backup=${BACKUP_DIR}"
  fi
  run_entry_point
}
