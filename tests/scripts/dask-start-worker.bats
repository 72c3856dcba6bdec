#!/usr/bin/env bats
# dask/start-worker.sh, run by hand with a stub for `dask`.
# shellcheck disable=SC2154 # dask-start.bash sets what an environment is

load test_helper.bash
load project.bash
load dask-start.bash

setup() {
  isolate
  make_project
  make_dask_node
}
teardown() { end_jobs; }

run_worker() {
  export MODE=WORKER NODE_RANK=1 NODE_NAME=WORKER_1 NODE_ADDRESS=10.0.0.2
  begin "${PROJECT}/dask/start-worker.sh"
  finish
}

worker_line() { # protocol, threads, memory, processes
  printf '%s ' dask worker "$1://10.0.0.1:8786" --name WORKER_1 --host 10.0.0.2 --nworkers "$4" --nthreads "$2" \
    --memory-limit "$3" --worker-port 8700:8800 --nanny-port 3000:3100 --dashboard-address 10.0.0.2:0 --no-dashboard \
    --death-timeout 60
  printf '%s %q ' --local-directory "${NODE_DIR}" --preload "${PROJECT}/dask/preload/worker.py" --preload "${PROJECT}/dask/preload/own_names.py" \
    --preload "${PROJECT}/dask/preload/quick_exit.py" \
    --preload-nanny "${PROJECT}/dask/preload/quick_exit.py" --preload-nanny "${PROJECT}/dask/preload/nanny.py"
}

@test "dask worker: runs dask worker, and nothing else" {
  NODE_CPUS=4 NODE_MEMORY=8000000000 run_worker
  assert_success
  assert_output ""
  assert_stderr ""
  assert_calls "$(worker_line tcp 4 8000000000 1)"
  assert_equal "$(cat "${STUB_DIR}/environment")" "${plain_environment}"
}

@test "dask worker: with a certificate everything is encrypted" {
  use_tls
  NODE_CPUS=4 run_worker
  assert_success
  assert_calls "$(worker_line tls 4 auto 1)"
  assert_equal "$(cat "${STUB_DIR}/environment")" "$(tls_environment)"
}

@test "dask worker: the node's CPUs and memory are shared among its processes" {
  share() { # CPUs, memory, processes, NTHREAD, threads of each, memory of each
    rm -f "${STUB_DIR}/calls"
    NODE_CPUS="$1" NODE_MEMORY="$2" NPROCS="$3" NTHREAD="$4" run_worker
    assert_success
    assert_calls "$(worker_line tcp "$5" "$6" "$3")"
  }
  share 8 "" 1 auto 8 auto
  share 8 9000 2 auto 4 4500
  share 7 9001 2 auto 3 4500
  share 2 100 2 auto 1 50
  share 1 100 4 auto 1 25
  share 8 100 2 5 5 50
}

@test "dask worker: a node that is told nothing has the machine's CPUs" {
  mkdir bin
  printf '#!/bin/sh\necho 6\n' >bin/nproc
  chmod +x bin/nproc
  PATH="${PWD}/bin:${PATH}" NPROCS=2 run_worker
  assert_calls "$(worker_line tcp 3 auto 2)"
}

@test "dask worker: ports, time and name are as set" {
  NODE_CPUS=1 WORKER_PORTS=1:2 NANNY_PORTS=3:4 DEATH_TIMEOUT=5 SCHEDULER_PORT=9000 run_worker
  assert_success
  run cat "${STUB_DIR}/calls"
  assert_output --partial "dask worker tcp://10.0.0.1:9000 --name WORKER_1 "
  assert_output --partial " --worker-port 1:2 --nanny-port 3:4 "
  assert_output --partial " --death-timeout 5 "
}

@test "dask worker: on a loopback address it listens on the one that an interface has, if all workers find ports there" {
  listens() { # host, settings...
    rm -f "${STUB_DIR}/calls"
    export MODE=WORKER NODE_RANK=1 NODE_NAME=WORKER_1 NODE_CPUS=1
    run -0 env NODE_ADDRESS=127.0.0.3 "${@:2}" "${PROJECT}/dask/start-worker.sh"
    run cat "${STUB_DIR}/calls"
    assert_output --partial " --host $1 --nworkers "
    assert_output --partial " --dashboard-address $1:0 "
  }
  listens 127.0.0.1
  listens 127.0.0.1 WORKER_COUNT=50
  listens 127.0.0.3 WORKER_COUNT=51
  listens 127.0.0.3 WORKER_COUNT=26 NPROCS=2
  listens 127.0.0.1 WORKER_PORTS=1:4
  listens 127.0.0.3 WORKER_PORTS=1:3
  listens 127.0.0.3 NANNY_PORTS=1:3
  listens 127.0.0.3 WORKER_PORTS=9000
  listens 127.0.0.1 WORKER_PORTS=0 NANNY_PORTS=0
}

@test "dask worker: the script ends with dask's own exit code" {
  NODE_CPUS=1 STUB_WORKER_CODE=9 run_worker
  assert_failure 9
}

@test "dask worker: TERM ends dask, and the script with 143" {
  NODE_CPUS=1 STUB_WORKER_CODE=stays begin "${PROJECT}/dask/start-worker.sh"
  eventually is_there_or_ended "${STUB_DIR}/worker.reached"
  kill -TERM "${JOB}"
  finish
  assert_failure 143
  run -0 grep -x "worker told to end" "${STUB_DIR}/calls"
}

@test "dask worker: a nanny that does not listen within its share of GRACE_PERIOD is killed, and said to be" {
  local period
  for period in 1:0.3 3.4:1; do
    rm -f "${STUB_DIR}/worker.reached"
    GRACE_PERIOD="${period%:*}" NODE_CPUS=1 STUB_WORKER_CODE=deaf begin "${PROJECT}/dask/start-worker.sh"
    eventually is_there_or_ended "${STUB_DIR}/worker.reached"
    kill -TERM "${JOB}"
    finish
    assert_failure 143
    assert_stderr --partial "the nanny has not ended within ${period#*:} s; it was killed"
    run ! kill -0 "$(cat "${STUB_DIR}/worker.pid")"
  done
}

@test "dask worker: a GRACE_PERIOD that is not plain seconds is refused, and nothing is started" {
  GRACE_PERIOD=15s run_worker
  assert_died 78 start-worker.sh "GRACE_PERIOD: expected seconds, got '15s'"
  assert_calls ""
}

@test "dask worker: all missing variables are named, and nothing is started" {
  unset MAIN_ADDRESS NTHREAD DEATH_TIMEOUT
  run_worker
  assert_died 78 start-worker.sh "not set: MAIN_ADDRESS NTHREAD DEATH_TIMEOUT; common/README.md says what each is"
  assert_calls ""
}

@test "dask worker: each variable that it needs is missed" {
  assert_requires "${PROJECT}/dask/start-worker.sh" MAIN_ADDRESS NODE_ADDRESS NODE_NAME NODE_DIR WORKER_COUNT SCHEDULER_PORT \
    WORKER_PORTS NANNY_PORTS NPROCS NTHREAD DEATH_TIMEOUT LOG_LEVEL
}
