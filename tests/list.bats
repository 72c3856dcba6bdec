#!/usr/bin/env bats
# scripts/list.sh: its command line, with a backend that starts nothing; then what the backend `local` answers.

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
}

list() { "${PROJECT}/scripts/list.sh" "$@"; }

@test "list: the header comment is the help" {
  assert_help list.sh
}

@test "list: a wrong command line asks nobody for anything" {
  assert_usage_error "unknown option '-a'" list.sh -a
  assert_usage_error "--backend needs a value" list.sh --backend
  assert_usage_error "unexpected 'demo'" list.sh demo
  assert_usage_error "unexpected 'demo'" list.sh --all demo
  assert_usage_error "one name at a time, got 'demo' and 'other'" list.sh demo other
  assert_usage_error "unknown backend 'cloud'; there is: docker local oci stub " list.sh --backend cloud
}

@test "list: options reach the backend" {
  run -0 --separate-stderr list
  assert_output "list "
  run -0 --separate-stderr list --json --all
  assert_output "list --json --all"
  assert_stderr ""
  assert_calls "\
list
list --json --all"
}

@test "list: what the backend ends with is what it ends with" {
  STUB_CODES=list=69 run -69 --separate-stderr list
  assert_output ""
}

@test "list: works from anywhere, through bash, and with a CDPATH" {
  assert_found_from_anywhere "list --all" list.sh --all
}

@test "list: no Python, or one that is too old, is named" {
  BACKEND=local assert_needs_python list.sh
}

@test "list: where nothing was launched there is nothing, and nothing is made" {
  use_local
  run -0 --separate-stderr list
  assert_output "NAME  FRAMEWORK  BACKEND  STATE  EXIT  NODES  AGE"
  assert_stderr ""
  run -0 --separate-stderr list --json --all
  assert_output "[]"
  assert_nothing_started
}

@test "list: shows those that run, and with --all those that have ended too (needs .venv)" {
  use_tools
  use_local
  add_ended_cluster gone
  add_running_cluster here
  run -0 --separate-stderr list
  assert_equal "${#lines[@]}" 2
  assert_line --index 1 --regexp '^here  dask       local    IN_PROGRESS        2      [0-9]+d$'
  run -0 --separate-stderr list --all
  assert_equal "${#lines[@]}" 3
  assert_line --index 1 --regexp '^gone  dask       local    ENDED        7     2      [0-9]+d$'
  assert_stderr ""
  run -0 --separate-stderr list --all --json
  run -0 from_json '[(cluster["name"], cluster["exit_code"]) for cluster in found]' <<<"${output}"
  assert_output "[('gone', 7), ('here', None)]"
}
