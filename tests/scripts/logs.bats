#!/usr/bin/env bats
# scripts/logs.sh: with a backend that starts nothing; then what the backend `local` shows.
# bats file_tags=slow

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
}
teardown() { end_jobs; }

logs() { "${PROJECT}/scripts/logs.sh" "$@"; }

@test "logs: options and name count in any order" {
  add_ended_cluster demo stub
  for words in "--node WORKER_1 -f demo" "demo --follow --node WORKER_1" "--backend stub -f --node WORKER_1 demo"; do
    rm -f "${STUB_DIR}/calls"
    # shellcheck disable=SC2086 # words
    run -0 --separate-stderr logs ${words}
    assert_output "WORKER_1 | worker one"
    assert_stderr ""
    assert_calls "\
find
logs follow"
  done
  run -0 --separate-stderr logs demo
  assert_line "MAIN     | main one"
}

@test "logs: a cluster or a node that is not there is named, with those that are" {
  use_local
  assert_refused 2 "logs.sh: error: there is no cluster 'demo'; known: none" logs demo
  add_ended_cluster gone
  assert_error 2 "logs.sh: error: there is no cluster 'demo'; known: gone" logs demo
  assert_error 2 "logs.sh: error: gone has no node 'WORKER_2'; it has MAIN, WORKER_1" logs gone --node WORKER_2
  assert_error 2 "logs.sh: error: which cluster? running: none; scripts/list.sh --all shows" logs
}

@test "logs: each line stands after its node's name" {
  use_local
  add_ended_cluster gone
  run -0 --separate-stderr logs gone
  assert_output "\
MAIN     | main one
MAIN     | main two
WORKER_1 | worker one"
  assert_stderr ""
  run -0 --separate-stderr logs --node WORKER_1 gone
  assert_output "WORKER_1 | worker one"
}

@test "logs: without a name, the only one that runs is shown" {
  use_local
  add_ended_cluster gone
  add_running_cluster here
  echo "I run" >"${PROJECT}/.clusters/here-id-of-here/logs/MAIN.log"
  run -0 --separate-stderr logs --node MAIN
  assert_output "MAIN | I run"
}

@test "logs: -f goes on until the cluster has ended" {
  use_local
  add_running_cluster here
  begin "${PROJECT}/scripts/logs.sh" -f here
  eventually grep -q 'main two' "${BATS_TEST_TMPDIR}/job.out"
  echo "main three" >>"${PROJECT}/.clusters/here-id-of-here/logs/MAIN.log"
  eventually grep -q 'main three' "${BATS_TEST_TMPDIR}/job.out"
  exec 8>&- # the lock is gone: nothing of it runs
  finish
  assert_success
  assert_line --index 3 "MAIN     | main three"
  assert_stderr ""
}

@test "logs: Ctrl-C ends -f, and not the cluster" {
  use_local
  add_running_cluster here
  begin "${PROJECT}/scripts/logs.sh" -f here
  eventually grep -q 'main two' "${BATS_TEST_TMPDIR}/job.out"
  kill -INT -- "-${JOB}"
  finish
  assert_success
  assert_stderr ""
  assert [ ! -e "${PROJECT}/.clusters/here-id-of-here/stop" ]
}

@test "logs: a reader that has seen enough is no error" {
  use_local
  add_ended_cluster gone
  seq 100000 >"${PROJECT}/.clusters/gone-id-of-gone/logs/MAIN.log"
  # shellcheck disable=SC2016 # bash is to expand it
  run -0 --separate-stderr bash -o pipefail -c '"$0" gone | head -n 1' "${PROJECT}/scripts/logs.sh"
  assert_output "MAIN     | 1"
  assert_stderr ""
}
