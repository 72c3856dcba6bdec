# shellcheck shell=bash
# Sourced by both start scripts: every node is one task of TensorFlow's cluster, and runs the entry point.

# loopback_number ADDRESS: set `number` to 1 for 127.0.0.1, 2 for 127.0.0.2, 257 for 127.0.1.1.
loopback_number() {
  local -a parts
  IFS=. read -r -a parts <<<"$1"
  number=$((parts[1] * 65536 + parts[2] * 256 + parts[3]))
}

# add_job NAME ADDRESS...: add a job with one task for each address to `cluster`, JSON, and the tasks' ports to `ports`.
#
# TensorFlow binds a task's port on all addresses of its machine, so tasks that share one need a port each. Tasks on
# loopback addresses do: a port is as far from main's as the address is, so that it stays the node's own when the gang
# starts again with others. Tasks that share an address have one port after the other.
add_job() {
  local job="$1" address host port number main tasks=""
  shift
  for address in "$@"; do
    port=$((TASK_PORT + ${at_address[${address}]:-0}))
    at_address[${address}]=$((${at_address[${address}]:-0} + 1))
    if [[ "${address}" == 127.* && "${MAIN_ADDRESS}" == 127.* ]]; then
      loopback_number "${MAIN_ADDRESS}"
      main="${number}"
      loopback_number "${address}"
      port=$((port + number - main))
    fi
    host="${address}"
    [[ "${host}" != *:* ]] || host="[${host}]" # IPv6
    tasks+="${tasks:+, }\"${host}:${port}\""
    ports+=("${port}")
  done
  [[ -z "${tasks}" ]] || cluster+="${cluster:+, }\"${job}\": [${tasks}]"
}

# check_port PORT: end with 78 where this node cannot have it. TensorFlow would say so seconds later, without its number.
check_port() {
  local why
  (($1 >= 1 && $1 <= 65535)) ||
    die 78 "TASK_PORT ${TASK_PORT} leaves no port for ${NODE_NAME}: $1 is none; choose another: --env TASK_PORT=12345"
  why="$(python -I -c '
import os, socket, sys
try:
    socket.create_server(("", int(sys.argv[1])))
except OSError as error:
    print(os.strerror(error.errno))' "$1")" || return 0 # no Python: the entry point will say so
  [[ -z "${why}" ]] ||
    die 78 "port $1 of ${NODE_NAME}: ${why}; end what has it, or choose another: --env TASK_PORT=$((TASK_PORT + 100))"
}

# configure_tensorflow: what TensorFlow and the entry point read in their environment; set `facts`, for READY_FILE.
# What the user has set stays.
configure_tensorflow() {
  local type place cluster="" addresses="${MAIN_ADDRESS}"
  local -a workers servers nodes ports=()
  local -A at_address=()
  [[ "${TASK_PORT}" =~ ^[1-9][0-9]*$ ]] || die 78 "TASK_PORT: expected a port, got '${TASK_PORT}'"
  # One of another cluster would have the nodes wait for tasks that are not there, for ever.
  [[ -z "${TF_CONFIG:-}" ]] || die 78 "TF_CONFIG is made from the nodes' addresses; unset yours: '${TF_CONFIG}'"

  IFS=, read -r -a workers <<<"${WORKER_ADDRESSES}"
  IFS=, read -r -a servers <<<"${PS_ADDRESSES:-}"
  addresses+="${WORKER_ADDRESSES:+,${WORKER_ADDRESSES}}${PS_ADDRESSES:+,${PS_ADDRESSES}}"
  IFS=, read -r -a nodes <<<"${addresses}"
  add_job chief "${MAIN_ADDRESS}"
  add_job worker ${workers[@]+"${workers[@]}"}
  add_job ps ${servers[@]+"${servers[@]}"}
  case "${MODE}" in
    MAIN) type=chief place=0 ;;
    WORKER) type=worker place=$((1 + ROLE_INDEX)) ;;
    PS) type=ps place=$((1 + ${#workers[@]} + ROLE_INDEX)) ;;
    *) die 78 "MODE: expected MAIN, WORKER or PS, got '${MODE}'" ;;
  esac
  [[ "${nodes[place]:-}" == "${NODE_ADDRESS}" ]] ||
    die 78 "${type} ${ROLE_INDEX} (ROLE_INDEX) has address '${nodes[place]:-}', this node has ${NODE_ADDRESS}"
  check_port "${ports[place]}"
  export TF_CONFIG="{\"cluster\": {${cluster}}, \"task\": {\"type\": \"${type}\", \"index\": ${ROLE_INDEX}}}"
  facts=("chief=${MAIN_ADDRESS}:${ports[0]}" "tasks=1 chief, ${#workers[@]} worker, ${#servers[@]} ps")

  # gRPC takes http_proxy for connections between tasks too, and they would wait for each other for ever.
  no_grpc_proxy="${no_grpc_proxy:-${no_proxy:-}}"
  export no_grpc_proxy="${no_grpc_proxy:+${no_grpc_proxy},}${addresses}"
  # Nodes that share a machine would each start a thread for every CPU of it.
  [[ -z "${NODE_CPUS:-}" ]] || export TF_NUM_INTRAOP_THREADS="${TF_NUM_INTRAOP_THREADS:-${NODE_CPUS}}"
  # `=`: that interface alone. NCCL takes a plain ens3 for ens300 as well.
  [[ -z "${NODE_INTERFACE:-}" ]] || export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-=${NODE_INTERFACE}}"
  export BACKUP_DIR="${BACKUP_DIR:-${OUTPUT_DIR}/backup}"
  # A task that is killed leaves the files that TensorFlow has its own functions in; there they go with the node.
  export TMPDIR="${NODE_DIR}"
  # What a task prints is in the log at once.
  export PYTHONUNBUFFERED=1
}

# run_task: become this node's task.
run_task() {
  local -a facts
  require MODE NODE_NAME NODE_ADDRESS NODE_DIR MAIN_ADDRESS ROLE_INDEX PS_COUNT EPHEMERAL OUTPUT_DIR TASK_PORT
  [[ "${EPHEMERAL}" == 1 ]] || die 78 "TensorFlow has no service that could stay: launch without --keep"
  [[ -z "${TLS_CERT_FILE:-}" ]] || die 78 "TensorFlow's servers know no encryption: launch without CLUSTER_TLS=1"
  require CODE_DIR ENTRY_POINT ENTRY_ARGS_FILE
  [[ -v WORKER_ADDRESSES ]] || require WORKER_ADDRESSES # empty: no worker is left, and the chief trains alone
  [[ "${PS_COUNT}" == 0 ]] || require PS_ADDRESSES      # without, the strategy would be the other one
  configure_tensorflow
  if [[ "${MODE}" == MAIN ]]; then
    # Ready: every node has come. TensorFlow's own servers are the entry point's, and wait for each other.
    printf '%s\n' "${facts[@]}" "backup=${BACKUP_DIR}" >"${READY_FILE}.new"
    mv "${READY_FILE}.new" "${READY_FILE}"
  fi
  run_entry_point
}
