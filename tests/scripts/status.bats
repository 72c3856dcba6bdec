#!/usr/bin/env bats
# scripts/status.sh: with a backend that starts nothing; then what the backend `local` answers.
# bats file_tags=slow

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
}

status() { "${PROJECT}/scripts/status.sh" "$@"; }

@test "status: options and name count in any order (needs .venv)" {
  use_tools
  add_ended_cluster demo stub
  for words in "demo --json" "--json demo" "demo --backend stub --json" "--backend stub --json demo"; do
    # shellcheck disable=SC2086 # words
    BACKEND=local run -0 --separate-stderr status --backend stub ${words}
    assert_stderr ""
    run -0 from_json '[found["name"], found["backend"], found["exit_code"]]' <<<"${output}"
    assert_output "['demo', 'stub', 0]"
  done
}

@test "status: a cluster that is not there is named, with those that are" {
  use_local
  assert_refused 2 "status.sh: error: there is no cluster 'demo'; known: none" status demo
  add_ended_cluster one
  add_ended_cluster two
  assert_error 2 "status.sh: error: there is no cluster 'demo'; known: one, two" status demo
}

@test "status: without a name, none or several that run are a question" {
  use_local
  add_ended_cluster gone
  assert_error 2 "status.sh: error: which cluster? running: none; scripts/list.sh --all shows" status
  add_running_cluster one 7
  add_running_cluster two 8
  assert_error 2 "status.sh: error: which cluster? running: one, two; scripts/list.sh --all shows" status
}

@test "status: without a name, the only one that runs is shown (needs .venv)" {
  use_tools
  use_local
  add_ended_cluster gone
  add_running_cluster here
  run -0 --separate-stderr status
  assert_line --index 0 --regexp '^here  dask on local, IN_PROGRESS, started [0-9]+d ago$'
  assert_stderr ""
}

@test "status: a cluster that has ended is shown with its nodes, as a table and as JSON (needs .venv)" {
  use_tools
  use_local
  add_ended_cluster gone
  run -0 --separate-stderr status gone
  assert_line --index 0 --regexp '^gone  dask on local, FAILED with 7, started [0-9]+d ago$'
  assert_line "NODE      ADDRESS    STATE   EXIT  PHASE"
  assert_line "MAIN      127.0.0.1  FAILED  7     ended"
  assert_line "WORKER_1  127.0.0.2  FAILED  7     ended"
  assert_stderr ""
  run -0 --separate-stderr status --json gone
  run -0 from_json '[found["name"], found["exit_code"], len(found["nodes"])]' <<<"${output}"
  assert_output "['gone', 7, 2]"
}
