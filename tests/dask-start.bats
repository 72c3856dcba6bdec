#!/usr/bin/env bats
# dask/start-master.sh and start-worker.sh, run by hand with stubs for `dask` and `python`.

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
  unset PYTHONUNBUFFERED "${!DASK_@}"
  NODE_DIR="${BATS_TEST_TMPDIR}/node dir"
  export NODE_DIR MODE=MAIN NODE_RANK=0 NODE_NAME=MAIN WORKER_COUNT=2 PS_COUNT=0 CLUSTER_NAME=demo TIMEOUT=60 EPHEMERAL=1
  export NODE_ADDRESS=10.0.0.1 MAIN_ADDRESS=10.0.0.1 READY_FILE="${NODE_DIR}/ready"
  export CODE_DIR="${PWD}" ENTRY_POINT="my train.py" ENTRY_ARGS_FILE="${NODE_DIR}/args" OUTPUT_DIR="${PWD}"
  export SCHEDULER_PORT=8786 DASHBOARD_PORT=8787 WORKER_PORTS=8700:8800 NANNY_PORTS=3000:3100
  export NPROCS=1 NTHREAD=auto DEATH_TIMEOUT=60 LOG_LEVEL=warning
  mkdir "${NODE_DIR}"
  printf '%s\0' --folds 3 'a b' '' >"${ENTRY_ARGS_FILE}"
}
teardown() { end_jobs; }

use_tls() { export TLS_CERT_FILE="${NODE_DIR}/cert.pem" TLS_KEY_FILE="${NODE_DIR}/key.pem"; }

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

run_worker() {
  export MODE=WORKER NODE_RANK=1 NODE_NAME=WORKER_1 NODE_ADDRESS=10.0.0.2
  begin "${PROJECT}/dask/start-worker.sh"
  finish
}

scheduler_line() { # protocol
  printf '%s ' dask scheduler --host 10.0.0.1 --port 8786 --protocol "$1" --dashboard-address 10.0.0.1:8787
  printf '%s %q ' --preload "${PROJECT}/dask/preload/scheduler.py" --preload "${PROJECT}/dask/preload/quick_exit.py"
}
entry_line="python my\\ train.py --folds 3 a\\ b '' "

plain_environment="\
DASK_DISTRIBUTED__LOGGING={'distributed': 'warning'}
DASK_SCHEDULER_ADDRESS=tcp://10.0.0.1:8786
PYTHONUNBUFFERED=1"

tls_environment() {
  printf '%s\n' "\
DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=True
DASK_DISTRIBUTED__COMM__TLS__CA_FILE=${NODE_DIR}/cert.pem
DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT=${NODE_DIR}/cert.pem
DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY=${NODE_DIR}/key.pem
DASK_DISTRIBUTED__COMM__TLS__SCHEDULER__CERT=${NODE_DIR}/cert.pem
DASK_DISTRIBUTED__COMM__TLS__SCHEDULER__KEY=${NODE_DIR}/key.pem
DASK_DISTRIBUTED__COMM__TLS__WORKER__CERT=${NODE_DIR}/cert.pem
DASK_DISTRIBUTED__COMM__TLS__WORKER__KEY=${NODE_DIR}/key.pem
DASK_DISTRIBUTED__LOGGING={'distributed': 'warning'}
DASK_SCHEDULER_ADDRESS=tls://10.0.0.1:8786
PYTHONUNBUFFERED=1"
}

# One line on stderr, as die of start-lib.sh writes it.
assert_died() { # code, script, text
  assert_equal "${status}" "$1"
  assert_equal "${stderr_lines[${#stderr_lines[@]} - 1]#* }" "$2: error: $3"
}

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
  assert_equal "$(cat "${NODE_DIR}/client.yaml")" "scheduler-address: 'tcp://10.0.0.1:8786'"
  assert [ ! -e "${READY_FILE}.new" ]
}

@test "dask main: a client of one's own is handed address and certificate" {
  use_tls
  run_main
  assert_success
  assert_equal "$(cat "${NODE_DIR}/client.yaml")" "\
scheduler-address: 'tls://10.0.0.1:8786'
distributed: {comm: {require-encryption: true, tls: {ca-file: '${NODE_DIR}/cert.pem', client: {cert: '${NODE_DIR}/cert.pem', key: '${NODE_DIR}/key.pem'}}}}"
}

@test "dask main: a cluster that stays says how to connect, runs no entry point, and ends when told to" {
  unset ENTRY_POINT ENTRY_ARGS_FILE
  EPHEMERAL=0 begin_main
  eventually is_there_or_ended "${READY_FILE}"
  assert_equal "$(cat "${READY_FILE}")" "\
dashboard=http://10.0.0.1:8787/status
scheduler=tcp://10.0.0.1:8786
connect=DASK_CONFIG=${NODE_DIR}/client.yaml"
  eventually is_there_or_ended "${STUB_DIR}/scheduler.reached"
  kill -TERM "${JOB}"
  finish
  assert_failure 143
  assert_calls "\
$(scheduler_line tcp)
scheduler told to end"
}

@test "dask main: a cluster that stays ends with its scheduler, with its code" {
  EPHEMERAL=0 begin_main
  eventually is_there_or_ended "${READY_FILE}"
  kill -USR1 "$(cat "${STUB_DIR}/scheduler.pid")"
  finish
  assert_died 137 start-master.sh "the scheduler ended"
}

@test "dask main: a scheduler that ends before the workers are there is lost" {
  STUB_SCHEDULER=3 run_main
  assert_died 76 start-master.sh "the scheduler ended with 3 before the entry point did"
  assert_calls "$(scheduler_line tcp)"
  assert [ ! -e "${READY_FILE}" ]
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

@test "dask main: each variable that it needs is missed" {
  local name
  for name in MAIN_ADDRESS NODE_ADDRESS NODE_DIR READY_FILE TIMEOUT EPHEMERAL WORKER_COUNT NPROCS SCHEDULER_PORT DASHBOARD_PORT LOG_LEVEL; do
    run -78 env -u "${name}" "${PROJECT}/dask/start-master.sh"
    assert_line --partial "error: not set: ${name};"
  done
  assert_calls ""
}

@test "dask main: what only the entry point needs is missed where there is one" {
  local name
  for name in ENTRY_POINT ENTRY_ARGS_FILE CODE_DIR; do
    run -78 env -u "${name}" "${PROJECT}/dask/start-master.sh"
    assert_line --partial "error: not set: ${name};"
  done
  assert_calls ""
}

# --- Worker -----------------------------------------------------------------------------------------------------------

worker_line() { # protocol, threads, memory, processes
  printf '%s ' dask worker "$1://10.0.0.1:8786" --name WORKER_1 --host 10.0.0.2 --nworkers "$4" --nthreads "$2" \
    --memory-limit "$3" --worker-port 8700:8800 --nanny-port 3000:3100 --dashboard-address 10.0.0.2:0 --no-dashboard \
    --death-timeout 60
  printf '%s %q ' --local-directory "${NODE_DIR}" --preload "${PROJECT}/dask/preload/quick_exit.py" \
    --preload-nanny "${PROJECT}/dask/preload/quick_exit.py"
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

@test "dask worker: a nanny that does not listen is killed, and said to be" {
  NODE_CPUS=1 STUB_WORKER_CODE=deaf begin "${PROJECT}/dask/start-worker.sh"
  eventually is_there_or_ended "${STUB_DIR}/worker.reached"
  kill -TERM "${JOB}"
  finish
  assert_failure 143
  assert_stderr --partial "the nanny has not ended within 3 s; killing it"
  run ! kill -0 "$(cat "${STUB_DIR}/worker.pid")"
}

@test "dask worker: all missing variables are named, and nothing is started" {
  unset MAIN_ADDRESS NTHREAD DEATH_TIMEOUT
  run_worker
  assert_died 78 start-worker.sh "not set: MAIN_ADDRESS NTHREAD DEATH_TIMEOUT; common/README.md says what each is"
  assert_calls ""
}

@test "dask worker: each variable that it needs is missed" {
  local name
  for name in MAIN_ADDRESS NODE_ADDRESS NODE_NAME NODE_DIR SCHEDULER_PORT WORKER_PORTS NANNY_PORTS NPROCS NTHREAD DEATH_TIMEOUT LOG_LEVEL; do
    run -78 env -u "${name}" "${PROJECT}/dask/start-worker.sh"
    assert_line --partial "error: not set: ${name};"
  done
  assert_calls ""
}

# --- Place ------------------------------------------------------------------------------------------------------------

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
