#!/usr/bin/env bats
# dask/start-master.sh, run by hand with stubs for `dask` and `python`; and what holds for both scripts.
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

begin_main() { begin "${PROJECT}/dask/start-master.sh"; }

# Begin main and wait for a stub: scheduler or entry.
begin_main_until() {
  begin_main
  eventually is_there_or_ended "${STUB_DIR}/$1.reached"
  assert [ -e "${STUB_DIR}/$1.reached" ]
}

run_main() {
  begin_main
  finish
}

scheduler_line() { # protocol
  printf '%s ' dask scheduler --host 10.0.0.1 --port 8786 --protocol "$1" --dashboard-address 10.0.0.1:8787
  printf '%s %q ' --preload "${PROJECT}/dask/preload/scheduler.py" --preload "${PROJECT}/dask/preload/own_names.py" \
    --preload "${PROJECT}/dask/preload/quick_exit.py"
}
entry_line="python my\\ train.py --folds 3 a\\ b '' "

assert_told() { # lines of the calls that tell who was told to end, and when
  assert_equal "$(grep ' told to end' "${STUB_DIR}/calls")" "$1"
}

# --- Main -------------------------------------------------------------------------------------------------------------

@test "dask main: runs the scheduler, then the entry point, then ends the scheduler" {
  run_main
  assert_success
  assert_stderr ""
  assert_calls "\
$(scheduler_line tcp)
${entry_line}
scheduler told to end"
  assert_equal "$(cat "${STUB_DIR}/entry.directory")" "$(pwd -P)"
}

@test "dask main: in a network of its own the scheduler is told to listen on loopback, too" {
  export OWN_NETWORK=1
  run_main
  assert_success
  local added
  printf -v added -- '--preload %q --preload ' "${PROJECT}/dask/preload/loopback.py"
  [[ "$(cat "${STUB_DIR}/calls")" == *" ${added}"* ]]
}

@test "dask main: with a certificate everything is encrypted, the entry point's client included" {
  use_tls
  run_main
  assert_success
  assert_calls "\
$(scheduler_line tls)
${entry_line}
scheduler told to end"
  assert_equal "$(cat "${STUB_DIR}/environment")" "$(tls_environment)"
  assert_equal "$(cat "${STUB_DIR}/entry.environment")" "$(tls_environment)"
}

@test "dask main: the entry point's Client() with a local cluster's arguments takes this cluster; workers know nothing of it" {
  PYTHONPATH=/mine run_main
  assert_success
  assert_equal "$(cat "${STUB_DIR}/entry.python-path")" "${PROJECT}/common/entry:${PROJECT}/dask/entry:/mine"
  run_main
  assert_success
  assert_equal "$(cat "${STUB_DIR}/entry.python-path")" "${PROJECT}/common/entry:${PROJECT}/dask/entry"
  assert [ -e "${PROJECT}/common/entry/sitecustomize.py" ]
  assert [ -e "${PROJECT}/dask/entry/on_import.py" ]
}

@test "dask main: without a certificate no variable speaks of encryption" {
  run_main
  assert_success
  assert_equal "$(cat "${STUB_DIR}/environment")" "${plain_environment}"
  assert_equal "$(cat "${STUB_DIR}/entry.environment")" "${plain_environment}"
}

@test "dask main: ports and log level are as set" {
  SCHEDULER_PORT=9000 DASHBOARD_PORT=9001 LOG_LEVEL=debug run_main
  assert_success
  run head -n 1 "${STUB_DIR}/calls"
  assert_output --partial "--port 9000 --protocol tcp --dashboard-address 10.0.0.1:9001 "
  run grep -E 'LOGGING|ADDRESS' "${STUB_DIR}/entry.environment"
  assert_output "\
DASK_DISTRIBUTED__LOGGING={'distributed': 'debug'}
DASK_SCHEDULER_ADDRESS=tcp://10.0.0.1:9000"
}

@test "dask main: who has a disk for what Dask spills keeps it" {
  DASK_TEMPORARY_DIRECTORY="/big disk" run_main
  assert_success
  run grep TEMPORARY "${STUB_DIR}/environment"
  assert_output "DASK_TEMPORARY_DIRECTORY=/big disk"
}

@test "dask main: the entry point's exit code is its own" {
  local code
  for code in 1 7 143; do
    STUB_ENTRY="${code}" run_main
    assert_equal "${status}" "${code}"
  done
  assert_stderr ""
}

@test "dask main: an entry point that is not Python runs by itself" {
  # shellcheck disable=SC2016 # the text of a script
  printf '%s\n' '#!/bin/sh' 'echo "I got $# arguments from ${DASK_SCHEDULER_ADDRESS}"' 'exit 3' >"run me"
  chmod +x "run me"
  ENTRY_POINT="run me" run_main
  assert_failure 3
  assert_output "I got 4 arguments from tcp://10.0.0.1:8786"
}

@test "dask main: is ready, with its addresses, before the entry point begins" {
  run_main
  assert_success
  assert_equal "$(cat "${STUB_DIR}/entry.ready")" "\
dashboard=http://10.0.0.1:8787/status
scheduler=tcp://10.0.0.1:8786"
  assert_equal "$(ls "${CLIENT_DIR}")" "" # it has its client already
  assert [ ! -e "${READY_FILE}.new" ]
}

@test "dask main: a client of one's own is handed address and certificate" {
  use_tls
  EPHEMERAL=0 begin_main
  eventually is_there_or_ended "${READY_FILE}"
  assert_equal "$(cat "${CLIENT_DIR}/client.yaml")" "\
scheduler-address: 'tls://10.0.0.1:8786'
distributed: {comm: {default-scheme: tls, require-encryption: true, tls: {ca-file: '${NODE_DIR}/cert.pem', client: {cert: '${NODE_DIR}/cert.pem', key: '${NODE_DIR}/key.pem'}}}}"
  kill -TERM "${JOB}"
  finish
}

# A client that is handed that file fails at once, with these words.
assert_client_is_told() {
  assert_equal "$(cat "${CLIENT_DIR}/client.yaml")" "scheduler-address: cluster-demo-has-ended://launch-it-again"
}

@test "dask main: a cluster that stays says how to connect, runs no entry point, and ends when told to" {
  unset ENTRY_POINT ENTRY_ARGS_FILE
  EPHEMERAL=0 begin_main
  eventually is_there_or_ended "${READY_FILE}"
  assert_equal "$(cat "${READY_FILE}")" "\
dashboard=http://10.0.0.1:8787/status
scheduler=tcp://10.0.0.1:8786
connect=DASK_CONFIG=$(printf %q "${CLIENT_DIR}")/client.yaml"
  eventually is_there_or_ended "${STUB_DIR}/scheduler.reached"
  kill -TERM "${JOB}"
  finish
  assert_failure 143
  assert_calls "\
$(scheduler_line tcp)
scheduler told to end"
  assert_client_is_told
}

@test "dask main: a cluster that stays ends with its scheduler, with its code" {
  EPHEMERAL=0 begin_main
  eventually is_there_or_ended "${READY_FILE}"
  kill -USR1 "$(cat "${STUB_DIR}/scheduler.pid")"
  finish
  assert_died 137 start-master.sh "the scheduler ended"
  assert_client_is_told
}

@test "dask main: a scheduler that ends before the workers are there is lost" {
  STUB_SCHEDULER=3 run_main
  assert_died 76 start-master.sh "the scheduler ended with 3 before the entry point did"
  assert_equal "$(grep '^dask' "${STUB_DIR}/calls")" "$(scheduler_line tcp)"
  assert [ ! -e "${READY_FILE}" ]
}

@test "dask main: a file of the code that the scheduler takes for another module is named" {
  mkdir bin
  # Of one that begins without the scheduler's modules; -I leaves out the code.
  # shellcheck disable=SC2016 # the text of a script
  printf '#!/bin/sh\n[ "$1" = -I ] || exit 1\necho work/random.py\n' >bin/python
  chmod +x bin/python
  PATH="${PWD}/bin:${PATH}" STUB_SCHEDULER=1 run_main
  assert_died 78 start-master.sh "the scheduler cannot begin: your work/random.py hides the module of that name; rename it"
}

@test "dask main: a scheduler that ended for another reason is lost, whatever files the code has" {
  mkdir bin
  printf '#!/bin/sh\necho work/random.py\n' >bin/python
  chmod +x bin/python
  PATH="${PWD}/bin:${PATH}" STUB_SCHEDULER=1 run_main
  assert_died 76 start-master.sh "the scheduler ended with 1 before the entry point did"
}

@test "dask main: a scheduler that ends before the entry point is lost, and the entry point is ended" {
  STUB_ENTRY=stay begin_main_until entry
  kill -USR1 "$(cat "${STUB_DIR}/scheduler.pid")"
  finish
  assert_died 76 start-master.sh "the scheduler ended with 137 before the entry point did"
  assert_told "entry point told to end"
}

@test "dask main: workers that do not come in time are named" {
  echo WORKER_2 >"${NODE_DIR}/missing-workers" # there before the only look
  STUB_SCHEDULER=missing TIMEOUT=0 run_main
  assert_died 75 start-master.sh "not ready after 0 s: missing WORKER_2 "
  run ! grep python "${STUB_DIR}/calls"
  assert [ ! -e "${READY_FILE}" ]
}

@test "dask main: a worker that has left is not waited for" {
  echo WORKER_2 >"${NODE_DIR}/missing-workers"
  printf '%s\n' WORKER_1 WORKER_22 >"${NODE_DIR}/members"
  STUB_SCHEDULER=missing run_main
  assert_success
  assert [ -e "${READY_FILE}" ]
}

@test "dask main: where nothing is known of the workers in time, all are missing" {
  STUB_SCHEDULER=silent TIMEOUT=0 run_main
  assert_died 75 start-master.sh "not ready after 0 s: missing all workers"
}

@test "dask main: TERM ends the entry point, then the scheduler, and gives 143" {
  STUB_ENTRY=stay begin_main_until entry
  kill -TERM "${JOB}"
  finish
  assert_failure 143
  assert_stderr ""
  assert_told "\
entry point told to end
scheduler told to end"
  assert [ -e "${NODE_DIR}/workers-are-told" ]
}

@test "dask main: INT does the same" {
  STUB_ENTRY=stay begin_main_until entry
  kill -INT "${JOB}"
  finish
  assert_failure 143
  assert_told "\
entry point told to end
scheduler told to end"
}

@test "dask main: TERM while workers are missing ends the scheduler and gives 143" {
  STUB_SCHEDULER=missing begin_main_until scheduler
  kill -TERM "${JOB}"
  finish
  assert_failure 143
  assert_told "scheduler told to end"
  run ! grep python "${STUB_DIR}/calls"
}

@test "dask main: workers are not told to end where the entry point ended by itself" {
  run_main
  assert_success
  assert [ ! -e "${NODE_DIR}/workers-are-told" ] # the scheduler does it
}

@test "dask main: all missing variables are named, and nothing is started" {
  unset MAIN_ADDRESS NODE_DIR NPROCS LOG_LEVEL
  run_main
  assert_died 78 start-master.sh "not set: MAIN_ADDRESS NODE_DIR NPROCS LOG_LEVEL; common/README.md says what each is"
  assert_calls ""
}

@test "dask main: each variable that it needs is missed, those of what stays or runs where it does" {
  local script="${PROJECT}/dask/start-master.sh"
  assert_requires "${script}" MAIN_ADDRESS NODE_ADDRESS NODE_DIR READY_FILE TIMEOUT EPHEMERAL WORKER_COUNT NPROCS SCHEDULER_PORT \
    DASHBOARD_PORT LOG_LEVEL
  assert_requires "${script}" ENTRY_POINT ENTRY_ARGS_FILE CODE_DIR
  EPHEMERAL=0 assert_requires "${script}" CLIENT_DIR CLUSTER_NAME
}

# --- Both -------------------------------------------------------------------------------------------------------------

@test "dask: the start scripts find their libraries from anywhere, and with a CDPATH" {
  mkdir -p elsewhere/dask elsewhere/common
  export CDPATH="${PWD}/elsewhere" NODE_CPUS=1
  cd "${PROJECT}"
  run -0 --separate-stderr dask/start-worker.sh
  assert_output ""
  run -0 --separate-stderr bash dask/start-worker.sh
  assert_output ""
  CODE_DIR="${OLDPWD}" run -0 --separate-stderr dask/start-master.sh
  assert_output ""
  assert_stderr ""
}

@test "dask: a stub that gets a call it does not know fails" {
  run -99 dask sheduler
  run -99 python -c 'print()'
}
