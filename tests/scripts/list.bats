#!/usr/bin/env bats
# scripts/list.sh: with a backend that starts nothing; then what the backend `local` answers.
# bats file_tags=slow

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
}

list() { "${PROJECT}/scripts/list.sh" "$@"; }

@test "list: options count in any order (needs .venv)" {
  use_tools
  add_ended_cluster demo stub
  run -0 --separate-stderr list
  assert_output "NAME  FRAMEWORK  BACKEND  STATE  EXIT  NODES  AGE"
  for words in "--json --all" "--all --json" "--all --backend stub --json"; do
    # shellcheck disable=SC2086 # words
    run -0 --separate-stderr list ${words}
    assert_stderr ""
    run -0 from_json '[(cluster["name"], cluster["exit_code"]) for cluster in found]' <<<"${output}"
    assert_output "[('demo', 0)]"
  done
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
  assert_line --index 1 --regexp '^gone  dask       local    FAILED       7     2      [0-9]+d$'
  assert_stderr ""
  run -0 --separate-stderr list --all --json
  run -0 from_json '[(cluster["name"], cluster["exit_code"]) for cluster in found]' <<<"${output}"
  assert_output "[('gone', 7), ('here', None)]"
}
