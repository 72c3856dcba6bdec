#!/usr/bin/env bats
# scripts/stop.sh: its command line, with a backend that starts nothing; then what the backend `local` does.

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
}

stop() { "${PROJECT}/scripts/stop.sh" "$@"; }

@test "stop: the header comment is the help" {
  assert_help stop.sh
}

@test "stop: a wrong command line stops nothing" {
  assert_usage_error "unknown option '--all'" stop.sh --all
  assert_usage_error "unknown option '--delete=yes'" stop.sh demo --delete=yes
  assert_usage_error "--backend needs a value" stop.sh demo --backend
  assert_usage_error "one name at a time, got 'demo' and 'other'" stop.sh demo other
  assert_usage_error "unknown backend 'cloud'; there is: docker local oci stub " stop.sh --backend cloud demo
}

@test "stop: options and name reach the backend" {
  run -0 --separate-stderr stop
  assert_output "stopped "
  run -0 --separate-stderr stop demo --delete
  assert_output "stopped --delete demo"
  assert_stderr ""
  assert_calls "\
stop ''
stop --delete demo"
}

@test "stop: what the backend ends with is what it ends with" {
  STUB_CODES=stop=77 run -77 --separate-stderr stop demo
  assert_output ""
}

@test "stop: works from anywhere, through bash, and with a CDPATH" {
  assert_found_from_anywhere "stop demo" stop.sh demo
}

@test "stop: no Python, or one that is too old, is named" {
  BACKEND=local assert_needs_python stop.sh demo
}

@test "stop: a cluster that is not there is named, and those that are stay" {
  use_local
  assert_refused 2 "stop.sh: error: there is no cluster 'demo'; known: none" stop demo
  add_ended_cluster gone
  assert_error 2 "stop.sh: error: there is no cluster 'demo'; known: gone" stop --delete demo
  assert_error 2 "stop.sh: error: which cluster? running: none; scripts/list.sh --all shows" stop --delete
  assert [ -e "${PROJECT}/.clusters/gone-id/cluster.json" ]
}

@test "stop: without a name, several that run are a question and stay" {
  use_local
  add_running_cluster one 7
  add_running_cluster two 8
  assert_error 2 "stop.sh: error: which cluster? running: one, two; scripts/list.sh --all shows" stop
  assert [ ! -e "${PROJECT}/.clusters/one-id/stop" ]
  assert [ ! -e "${PROJECT}/.clusters/two-id/stop" ]
}

@test "stop: one that has ended is as good as stopped, and keeps its files (needs .venv)" {
  use_tools
  use_local
  add_ended_cluster gone
  run -0 --separate-stderr stop gone
  assert_output gone
  assert_stderr ""
  assert [ -e "${PROJECT}/.clusters/gone-id/logs/MAIN.log" ]
}

@test "stop: --delete removes the files of that cluster, and of no other (needs .venv)" {
  use_tools
  use_local
  add_ended_cluster gone
  add_ended_cluster other
  run -0 --separate-stderr stop --delete gone
  assert_output gone
  assert [ ! -e "${PROJECT}/.clusters/gone-id" ]
  assert [ -e "${PROJECT}/.clusters/other-id/logs/MAIN.log" ]
}
