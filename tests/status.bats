#!/usr/bin/env bats
# scripts/status.sh: its command line, with a backend that starts nothing; then what the backend `local` answers.

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
}

status() { "${PROJECT}/scripts/status.sh" "$@"; }

@test "status: the header comment is the help" {
  assert_help status.sh
}

@test "status: a wrong command line asks nobody for anything" {
  assert_usage_error "unknown option '--nodes'" status.sh --nodes
  assert_usage_error "unknown option '-f'" status.sh demo -f
  assert_usage_error "--backend needs a value" status.sh demo --backend
  assert_usage_error "one name at a time, got 'demo' and 'other'" status.sh demo other
  assert_usage_error "unknown backend 'cloud'; there is: docker local oci stub " status.sh --backend cloud demo
  BACKEND=../local assert_usage_error "unknown backend '../local'; there is: docker local oci stub " status.sh
}

@test "status: options and name reach the backend, in any order" {
  run -0 --separate-stderr status
  assert_output "status of "
  run -0 --separate-stderr status 'my demo' --json
  assert_output "status of --json my demo"
  assert_stderr ""
  BACKEND=local run -0 --separate-stderr status --json --backend stub demo
  assert_calls "\
status ''
status --json my\\ demo
status --json demo"
}

@test "status: what the backend ends with is what it ends with" {
  STUB_CODES=status=69 run -69 --separate-stderr status demo
  assert_output ""
}

@test "status: works from anywhere, through bash, and with a CDPATH" {
  assert_found_from_anywhere "status demo" status.sh demo
}

@test "status: no Python, or one that is too old, is named" {
  BACKEND=local assert_needs_python status.sh demo
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
  assert_line --index 0 --regexp '^gone  dask on local, ENDED with 7, started [0-9]+d ago$'
  assert_line "NODE      ADDRESS    STATE   EXIT  PHASE"
  assert_line "MAIN      127.0.0.1  FAILED  7     ended"
  assert_line "WORKER_1  127.0.0.2  FAILED  7     ended"
  assert_stderr ""
  run -0 --separate-stderr status --json gone
  run -0 from_json '[found["name"], found["exit_code"], len(found["nodes"])]' <<<"${output}"
  assert_output "['gone', 7, 2]"
}
