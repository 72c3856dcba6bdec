#!/usr/bin/env bats
# The scripts of ray/, run by hand with stubs for `ray` and `python`: what Ray is told, and what becomes of its ends.

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
  [[ -e "${PROJECT}/ray" ]] || cp -Rp "${ROOT}/ray" "${PROJECT}"
  unset NODE_CPUS NODE_MEMORY OWN_NETWORK SESSION PYTHONUNBUFFERED RAY_ADDRESS "${!RAY_AUTH@}"
  mkdir bin
  make_stubs
  PATH="${PWD}/bin:${PATH}"
  NODE_DIR="${BATS_TEST_TMPDIR}/node"
  export NODE_DIR MODE=MAIN NODE_RANK=0 NODE_NAME=MAIN WORKER_COUNT=2 TIMEOUT=60 EPHEMERAL=1 GRACE_PERIOD=10
  export NODE_ADDRESS=10.0.0.1 MAIN_ADDRESS=10.0.0.1 READY_FILE="${NODE_DIR}/ready" OUTPUT_DIR="${NODE_DIR}/outputs"
  export CODE_DIR="${PWD}" ENTRY_POINT=train.py ENTRY_ARGS_FILE="${NODE_DIR}/args" CLIENT_TOKEN=1 CLUSTER_TLS=0
  export GCS_PORT=6379 DASHBOARD_PORT=8265 RAY_CLIENT_PORT=10001 RAYLET_PORTS=6380:6387 WORKER_PORTS=10002:10999
  export HEAD_CPUS=auto OBJECT_STORE_MEMORY=100000000
  mkdir -p "${NODE_DIR}"
  printf 'a token' >"${NODE_DIR}/client-token"
  printf '%s\0' --epochs 3 'a b' >"${ENTRY_ARGS_FILE}"
}
teardown() { end_jobs; }

# make_stubs: a `ray` that notes its arguments and what it is told by the environment, and starts what `ray start` does; a
# `python` that is the entry point, or says that all workers are there.
make_stubs() {
  cp "$(command -v sleep)" bin/raylet
  cp "$(command -v sleep)" bin/gcs_server
  cat >bin/ray <<'STUB'
#!/usr/bin/env python3
import os, subprocess, sys
os.setpgrp()
folder = os.environ["STUB_DIR"]
with open(f"{folder}/ray-calls", "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\n")
with open(f"{folder}/ray-environment", "w") as told:
    told.writelines(f"{name}={text}\n" for name, text in sorted(os.environ.items()) if name.startswith(("RAY_", "TMPDIR")))
if os.environ.get("STUB_RAY_FAILS"):
    sys.exit("2026-01-01 00:00:00,000\tERR scripts.py:1 -- \x1b[31mThe current node timed out during startup.\x1b[39m")
parts = [subprocess.Popen(["raylet", "1000"])]
if "--head" in sys.argv:
    parts.append(subprocess.Popen(["sh", "-c", f"sleep {os.environ.get('STUB_UNNAMED_S', '0')}; exec gcs_server 1000"]))
print("Ray runtime started.", flush=True)
with open(f"{folder}/raylet.new", "w") as told:
    told.write(str(parts[0].pid))
os.rename(f"{folder}/raylet.new", f"{folder}/raylet")
sys.exit(max(part.wait() != 0 for part in parts))
STUB
  cat >bin/python <<'STUB'
#!/bin/bash
if [[ "$1" == */nodes.py ]]; then
  : >"${NODE_DIR}/missing-workers"
  exec sleep 1000
fi
printf '%s\n' "$*" >"${STUB_DIR}/entry"
env | grep '^RAY_A' | sort >"${STUB_DIR}/entry-environment"
exit "${STUB_CODE:-0}"
STUB
  chmod +x bin/*
}

@test "ray: the head is told its name, its ports and where its files go, and the entry point where the head is" {
  STUB_CODE=7 run -7 "${PROJECT}/ray/start-master.sh"
  assert_equal "$(cat "${STUB_DIR}/ray-calls")" "start --head --port 6379 --dashboard-host 10.0.0.1 --dashboard-port 8265\
 --ray-client-server-port 10001 --block --node-ip-address 10.0.0.1 --node-name MAIN --disable-usage-stats\
 --temp-dir $(grep -o 'temp-dir [^ ]*' "${STUB_DIR}/ray-calls" | cut -d ' ' -f 2)\
 --object-spilling-directory ${NODE_DIR}/spilled --object-store-memory 100000000 --plasma-directory /dev/shm\
 --node-manager-port 6380 --object-manager-port 6381 --runtime-env-agent-port 6382 --dashboard-agent-grpc-port 6383\
 --dashboard-agent-listen-port 6384 --metrics-export-port 6385 --min-worker-port 10002 --max-worker-port 10999"
  assert_equal "$(cat "${STUB_DIR}/entry")" "train.py --epochs 3 a b"
  assert_equal "$(cat "${STUB_DIR}/entry-environment")" "RAY_ADDRESS=10.0.0.1:6379
RAY_AUTH_MODE=token
RAY_AUTH_TOKEN_PATH=${NODE_DIR}/client-token"
  assert_equal "$(cat "${READY_FILE}")" "dashboard=http://10.0.0.1:8265
address=10.0.0.1:6379"
}

@test "ray: a head whose process has its name late is waited for" {
  STUB_CODE=7 STUB_UNNAMED_S=0.5 run -7 "${PROJECT}/ray/start-master.sh"
}

@test "ray: on loopback all ports of nodes are any, and 127.0.0.1 has another name, which Ray keeps" {
  NODE_ADDRESS=127.0.0.1 MAIN_ADDRESS=127.0.0.1 NODE_CPUS=3 run -0 "${PROJECT}/ray/start-master.sh"
  run -0 cat "${STUB_DIR}/ray-calls"
  assert_output --partial "--node-ip-address 127.1.0.1 "
  assert_output --partial "--num-cpus 3 "
  assert_output --partial "--dashboard-host 127.0.0.1 "
  assert_output --partial "--dashboard-agent-listen-port 0 --min-worker-port 0 --max-worker-port 0"
  refute_output --partial "--node-manager-port"
}

@test "ray: where the network is the node's own, the dashboard is on its loopback, too" {
  OWN_NETWORK=1 HEAD_CPUS=0 run -0 "${PROJECT}/ray/start-master.sh"
  run -0 cat "${STUB_DIR}/ray-calls"
  assert_output --partial "--num-cpus 0 --dashboard-host 0.0.0.0 "
}

@test "ray: a start that fails is tried again, twice, and its end is the reason" {
  STUB_RAY_FAILS=1 run -69 "${PROJECT}/ray/start-master.sh"
  assert_equal "$(wc -l <"${STUB_DIR}/ray-calls")" 3
  assert_equal "$(cat "${NODE_DIR}/reason")" \
    "Ray has not started on this node: ray start ended with 1: The current node timed out during startup."
  assert [ -s "${OUTPUT_DIR}/ray-logs/MAIN/ray.log" ]
  refute [ -e "${STUB_DIR}/entry" ]
}

@test "ray: a head without one of its processes is lost, whatever the entry point says" {
  # shellcheck disable=SC2016 # the text of a script
  printf '%s\n' '#!/bin/bash' '[[ "$1" != */nodes.py ]] || { : >"${NODE_DIR}/missing-workers"; exec sleep 1000; }' \
    'for stat in /proc/[0-9]*/stat; do' \
    '  read -r pid name _ <"${stat}" && [[ "${name}" == "(gcs_server)" ]] && grep -qz "^NODE_DIR=${NODE_DIR}$" "${stat%stat}environ" && kill -KILL "${pid}" && break' \
    'done 2>/dev/null' 'until [[ ! -e "${stat}" || "$(<"${stat}")" == *") Z "* ]]; do sleep 0.01; done' 'exit 9' >bin/python
  run -76 "${PROJECT}/ray/start-master.sh"
  assert_output --partial "error: the head ended before the entry point did: "
}

@test "ray: without the token, too few ports, or a setting, nothing is started" {
  RAYLET_PORTS=6380:6386 run -78 "${PROJECT}/ray/start-worker.sh"
  assert_output --partial "error: RAYLET_PORTS=6380:6386: expected eight ports at least"
  : >"${NODE_DIR}/client-token"
  CLIENT_TOKEN=0 run -78 "${PROJECT}/ray/start-worker.sh"
  assert_output --partial "error: CLIENT_TOKEN=0: Ray needs the token of the launch"
  assert_requires "${PROJECT}/ray/start-worker.sh" MAIN_ADDRESS NODE_ADDRESS NODE_NAME NODE_DIR OUTPUT_DIR GCS_PORT RAYLET_PORTS \
    WORKER_PORTS OBJECT_STORE_MEMORY
  refute [ -e "${STUB_DIR}/ray-calls" ]
}

@test "ray: a store that shared memory has no room for is in the node's folder; 30 % of the node's memory by default" {
  OBJECT_STORE_MEMORY=99000000000000 run -0 "${PROJECT}/ray/start-master.sh"
  assert_output --partial "the object store of 99000000000000 bytes has no room in /dev/shm"
  run -0 cat "${STUB_DIR}/ray-calls"
  assert_output --partial "--object-store-memory 99000000000000 --plasma-directory ${NODE_DIR}"
  rm -r "${STUB_DIR}/ray-calls" "${NODE_DIR}/ray" "${NODE_DIR}/spilled"
  OBJECT_STORE_MEMORY=auto NODE_MEMORY=500000000 run -0 "${PROJECT}/ray/start-master.sh"
  run -0 cat "${STUB_DIR}/ray-calls"
  assert_output --partial "--object-store-memory 150000000 "
}

@test "ray: its files have the short path; a path that is too long for its sockets is refused" {
  ln -s "${NODE_DIR}" "${BATS_TEST_TMPDIR}/short"
  SHORT_NODE_DIR="${BATS_TEST_TMPDIR}/short" run -0 "${PROJECT}/ray/start-master.sh"
  run -0 cat "${STUB_DIR}/ray-calls"
  assert_output --partial "--temp-dir ${BATS_TEST_TMPDIR}/short/ray "
  rm -r "${STUB_DIR}/ray-calls" "${NODE_DIR}/ray" "${NODE_DIR}/spilled"
  SHORT_NODE_DIR="/tmp/$(printf 'x%.0s' {1..40})" run -78 "${PROJECT}/ray/start-master.sh"
  assert_output --partial "Ray's sockets take 37 at most"
  refute [ -e "${STUB_DIR}/ray-calls" ]
}

# begin_worker: start a worker, and wait until its Ray runs; set `raylet` to the pid of its raylet.
begin_worker() {
  export MODE=WORKER NODE_NAME=WORKER_1 NODE_RANK=1 NODE_ADDRESS=127.0.0.2 MAIN_ADDRESS=127.0.0.3 GCS_PORT=1
  begin "${PROJECT}/ray/start-worker.sh"
  eventually is_there_or_ended "${STUB_DIR}/raylet"
  raylet="$(cat "${STUB_DIR}/raylet")"
  eventually watches_or_ended
}
# watches_or_ended: whether the start script looks after what it has started, once in half a second.
watches_or_ended() {
  local child
  local -a children=()
  ! has_ended "${JOB}" || return 0
  read -ra children <"/proc/${JOB}/task/${JOB}/children" || :
  for child in ${children[@]+"${children[@]}"}; do
    ! grep -qsz '^0\.5$' "/proc/${child}/cmdline" || return 0
  done
  return 1
}

@test "ray worker: TERM ends its Ray, and the script with 143, though no head answers" {
  begin_worker
  kill -TERM "${JOB}"
  finish
  assert_failure 143
  run ! kill -0 "${raylet}"
}

@test "ray worker: a raylet that was killed is the reason" {
  begin_worker
  kill -KILL "${raylet}"
  finish
  assert_failure 1
  assert_equal "$(cat "${NODE_DIR}/reason")" "Ray ended on this node: ray start ended with 1: Ray runtime started."
  assert [ -d "${OUTPUT_DIR}/ray-logs/WORKER_1" ]
}
