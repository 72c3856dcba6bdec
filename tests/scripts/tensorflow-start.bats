#!/usr/bin/env bats
# tensorflow/start-master.sh and start-worker.sh, run by hand with a stub for `python`; post-install.sh with one for pip.

load test_helper.bash
load project.bash

setup() {
  local name
  isolate
  make_project
  while IFS='=' read -r name _; do
    [[ ! "${name}" =~ ^[A-Z_]+$ ]] || unset "${name}"
  done <"${ROOT}/tensorflow/settings.env"
  unset TF_CONFIG BACKUP_DIR PYTHONUNBUFFERED NCCL_SOCKET_IFNAME no_proxy no_grpc_proxy TLS_CERT_FILE "${!TF_@}"
  cp -Rp "${ROOT}/tensorflow" "${PROJECT}"
  NODE_DIR="${BATS_TEST_TMPDIR}/node dir"
  export NODE_DIR WORKER_COUNT=2 PS_COUNT=0 CLUSTER_NAME=demo TIMEOUT=60 EPHEMERAL=1 TASK_PORT=12345 ATTEMPT=0
  export MODE=MAIN NODE_RANK=0 NODE_NAME=MAIN ROLE_INDEX=0 NODE_ADDRESS=10.0.0.1 MAIN_ADDRESS=10.0.0.1
  export WORKER_ADDRESSES=10.0.0.2,10.0.0.3 PS_ADDRESSES="" READY_FILE="${NODE_DIR}/ready"
  export CODE_DIR="${PWD}" ENTRY_POINT="my train.py" ENTRY_ARGS_FILE="${NODE_DIR}/args" OUTPUT_DIR="${PWD}/out puts"
  mkdir "${NODE_DIR}" bin
  printf '%s\0' --epochs 3 'a b' '' >"${ENTRY_ARGS_FILE}"
  PATH="${PWD}/bin:${PATH}"
  add_python_stub
}
teardown() { end_jobs; }

# The environment's Python: it finds every port free, and notes how the entry point was called and what it saw.
add_python_stub() {
  cat >bin/python <<'END'
#!/usr/bin/env bash
set -Eeuo pipefail
if [[ "$1" == -I && "$2" == */tensorflow/launch/tf_config.py ]]; then
  [[ -z "${STUB_CHECK:-}" ]] || exec "${STUB_CHECK}" "$@"
  exec "${PYTHON}" -I -c '
import io, os, runpy, socket, sys

def create_server(address):
    with open(os.environ["STUB_DIR"] + "/calls", "a") as calls:
        print("port", address[1], file=calls)
    return io.StringIO()

socket.create_server = create_server
runpy.run_path(sys.argv[1], run_name="__main__")' "$2"
fi
[[ "$1" == *.py ]] || exit 99
printf '%q ' "${0##*/}" "$@" >>"${STUB_DIR}/calls"
echo >>"${STUB_DIR}/calls"
env >"${STUB_DIR}/environment"
cp "${READY_FILE}" "${STUB_DIR}/entry.ready" 2>/dev/null || :
exit "${STUB_ENTRY:-0}"
END
  chmod +x bin/python
}

run_main() { run --separate-stderr "${PROJECT}/tensorflow/start-master.sh"; }

# Run a node that is not main: WORKER 1 10.0.0.3 is the second worker.
run_other() { # role, index, address
  MODE="$1" ROLE_INDEX="$2" NODE_ADDRESS="$3" NODE_NAME="$1_7" NODE_RANK=7 READY_FILE="" \
    run --separate-stderr "${PROJECT}/tensorflow/start-worker.sh"
}

# What the entry point saw in a variable, whether it was there or not.
seen() { sed -n "s/^$1=//p" "${STUB_DIR}/environment"; } # name

# One line on stderr, as die of start-lib.sh writes it, and no entry point.
assert_died() { # code, script, text
  assert_equal "${status}" "$1"
  assert_equal "${stderr_lines[${#stderr_lines[@]} - 1]#* }" "$2: error: $3"
  assert_equal "$(cat "${NODE_DIR}/reason")" "$3"
  assert [ ! -e "${STUB_DIR}/environment" ]
}

# --- TF_CONFIG --------------------------------------------------------------------------------------------------------

@test "tensorflow: main is the first worker, and every task has its address, in order" {
  run_main
  assert_success
  assert_output ""
  assert_stderr ""
  assert_equal "$(seen TF_CONFIG)" '{"cluster": {"worker": ["10.0.0.1:12345", "10.0.0.2:12345", "10.0.0.3:12345"]}, "task": {"type": "worker", "index": 0}}'
  assert_calls "\
port 12345
python my\\ train.py --epochs 3 a\\ b '' "
}

@test "tensorflow: a TF_CONFIG of the user's is refused and shown" {
  export TF_CONFIG='{"cluster": {}}'
  run_main
  assert_died 78 start-master.sh "TF_CONFIG is made from the nodes' addresses; unset yours: '{\"cluster\": {}}'"
  run_other WORKER 0 10.0.0.2
  assert_failure 78
  assert_calls ""
}

# --- Ports ------------------------------------------------------------------------------------------------------------

@test "tensorflow: a port that another program has is named, with the way to another" {
  local port
  mkfifo told
  # shellcheck disable=SC2016 # the text of a program
  help_in_background "${PYTHON}" -c '
import socket, time
listener = socket.create_server(("127.0.0.1", 0))
open("told", "w").write(str(listener.getsockname()[1]))
time.sleep(100)'
  read -r port <told || true
  STUB_CHECK="${PYTHON}" TASK_PORT="${port}" run_main
  assert_died 78 start-master.sh \
    "port ${port} of MAIN: Address already in use; end what has it, or choose another: --env TASK_PORT=$((port + 100))"
}

# --- What the entry point is given ------------------------------------------------------------------------------------

@test "tensorflow: the entry point's exit code is its own, on every node" {
  local code
  for code in 1 7 143; do
    STUB_ENTRY="${code}" run_main
    assert_equal "${status}" "${code}"
    STUB_ENTRY="${code}" run_other WORKER 0 10.0.0.2
    assert_equal "${status}" "${code}"
  done
  assert_stderr ""
}

@test "tensorflow: main is ready, with what there is, before the entry point begins" {
  PS_COUNT=1 PS_ADDRESSES=10.0.0.4 run_main
  assert_success
  assert_equal "$(cat "${STUB_DIR}/entry.ready")" "\
chief=10.0.0.1:12345
tasks=1 chief, 2 worker, 1 ps
backup=${OUTPUT_DIR}/backup"
  assert [ ! -e "${READY_FILE}.new" ]
}

@test "tensorflow: connections between tasks go through no proxy, and the user's exceptions stay" {
  PS_COUNT=1 PS_ADDRESSES=10.0.0.4 run_main
  assert_equal "$(seen no_grpc_proxy)" 10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4
  no_proxy=.example.com run_main
  assert_equal "$(seen no_grpc_proxy)" .example.com,10.0.0.1,10.0.0.2,10.0.0.3
  no_proxy=.example.com no_grpc_proxy=.grpc.example WORKER_ADDRESSES="" run_main
  assert_equal "$(seen no_grpc_proxy)" .grpc.example,10.0.0.1
  assert_equal "$(seen no_proxy)" .example.com
}

@test "tensorflow: threads, interface and backups follow the node, unless the user has set them" {
  NODE_CPUS=4 NODE_INTERFACE=ens3 run_main
  assert_equal "$(seen TF_NUM_INTRAOP_THREADS)" 4
  assert_equal "$(seen NCCL_SOCKET_IFNAME)" =ens3
  assert_equal "$(seen BACKUP_DIR)" "${OUTPUT_DIR}/backup"
  assert_equal "$(seen PYTHONUNBUFFERED)" 1
  assert_equal "$(seen TMPDIR)" "${NODE_DIR}" # what a killed task leaves there is removed with the node
  NODE_CPUS=4 NODE_INTERFACE=ens3 TF_NUM_INTRAOP_THREADS=2 NCCL_SOCKET_IFNAME=eth BACKUP_DIR=/mnt run_main
  assert_equal "$(seen TF_NUM_INTRAOP_THREADS)" 2
  assert_equal "$(seen NCCL_SOCKET_IFNAME)" eth
  assert_equal "$(seen BACKUP_DIR)" /mnt
  run_main
  refute grep -E '^(TF_NUM_INTRAOP_THREADS|NCCL_SOCKET_IFNAME)=' "${STUB_DIR}/environment"
}

# --- Refused ----------------------------------------------------------------------------------------------------------

@test "tensorflow: a cluster that is kept has nothing to run" {
  EPHEMERAL=0 run_main
  assert_died 78 start-master.sh "TensorFlow has no service that could stay: launch without --keep"
}

@test "tensorflow: encryption that TensorFlow does not have is refused, not promised" {
  TLS_CERT_FILE="${NODE_DIR}/cert.pem" run_main
  assert_died 78 start-master.sh "TensorFlow's servers know no encryption: launch without CLUSTER_TLS=1"
}

@test "tensorflow: each variable that a node needs is missed" {
  local script
  for script in start-master.sh start-worker.sh; do
    assert_requires "${PROJECT}/tensorflow/${script}" MODE NODE_NAME NODE_ADDRESS NODE_DIR MAIN_ADDRESS ROLE_INDEX PS_COUNT \
      EPHEMERAL OUTPUT_DIR TASK_PORT
    assert_requires "${PROJECT}/tensorflow/${script}" CODE_DIR ENTRY_POINT ENTRY_ARGS_FILE
    assert_requires "${PROJECT}/tensorflow/${script}" WORKER_ADDRESSES
  done
  assert_requires "${PROJECT}/tensorflow/start-master.sh" READY_FILE
  PS_COUNT=1 assert_requires "${PROJECT}/tensorflow/start-master.sh" PS_ADDRESSES
}

# --- Installation -----------------------------------------------------------------------------------------------------

@test "tensorflow: post-install.sh installs tf-keras of TensorFlow's version, and nothing that it depends on" {
  printf '%s\n' '#!/bin/sh' 'printf "[%s]\n" "$@"' 'exit 3' >"bin/my pip"
  chmod +x "bin/my pip"
  run -3 "${PROJECT}/tensorflow/post-install.sh" /env/bin/python /cache "my pip" install --index "a b"
  version="$(sed -nE 's/ *- tensorflow-cpu==([0-9.]+);.*/\1/p' "${PROJECT}/tensorflow/env.yaml")"
  assert_output "\
[install]
[--index]
[a b]
[--no-deps]
[tf-keras==${version}]"
}

@test "tensorflow: post-install.sh without an install command is wrong usage" {
  run -2 "${PROJECT}/tensorflow/post-install.sh" /env/bin/python /cache
  assert_output "usage: post-install.sh PYTHON CACHE_DIR INSTALL_COMMAND..."
}

# --- Place ------------------------------------------------------------------------------------------------------------

@test "tensorflow: the start scripts find their libraries from anywhere, and with a CDPATH" {
  mkdir -p elsewhere/tensorflow elsewhere/common
  export CDPATH="${PWD}/elsewhere"
  cd "${PROJECT}"
  run -0 --separate-stderr tensorflow/start-master.sh
  assert_output ""
  assert_stderr ""
  MODE=WORKER NODE_ADDRESS=10.0.0.2 run -0 --separate-stderr bash tensorflow/start-worker.sh
  assert_output ""
  assert_stderr ""
}
