#!/usr/bin/env bats
# scripts/stop.sh: with a backend that starts nothing; then what the backend `local` does.
# bats file_tags=slow

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
}

stop() { "${PROJECT}/scripts/stop.sh" "$@"; }

@test "stop: options and name count in any order" {
  for words in "demo --delete" "--delete demo" "--backend stub demo --delete"; do
    rm -f "${STUB_DIR}/calls"
    add_ended_cluster demo stub
    # shellcheck disable=SC2086 # words
    run -0 --separate-stderr stop ${words}
    assert_output demo
    assert_stderr ""
    assert_calls "\
find
remove"
    assert [ ! -e "${PROJECT}/.clusters/demo-id-of-demo" ]
  done
  add_ended_cluster demo stub
  run -0 --separate-stderr stop demo
  assert_equal "$(tail -n 1 "${STUB_DIR}/calls")" finish
  assert [ -e "${PROJECT}/.clusters/demo-id-of-demo/cluster.json" ]
}

@test "stop: a cluster that is not there is named, and those that are stay" {
  use_local
  assert_refused 2 "stop.sh: error: there is no cluster 'demo'; known: none" stop demo
  add_ended_cluster gone
  assert_error 2 "stop.sh: error: there is no cluster 'demo'; known: gone" stop --delete demo
  assert_error 2 "stop.sh: error: which cluster? running: none; scripts/list.sh --all shows" stop --delete
  assert [ -e "${PROJECT}/.clusters/gone-id-of-gone/cluster.json" ]
}

@test "stop: without a name, several that run are a question and stay" {
  use_local
  add_running_cluster one 7
  add_running_cluster two 8
  assert_error 2 "stop.sh: error: which cluster? running: one, two; scripts/list.sh --all shows" stop
  assert [ ! -e "${PROJECT}/.clusters/one-id-of-one/stop" ]
  assert [ ! -e "${PROJECT}/.clusters/two-id-of-two/stop" ]
}

@test "stop: one that has ended is as good as stopped, and keeps its files (needs .venv)" {
  use_tools
  use_local
  add_ended_cluster gone
  run -0 --separate-stderr stop gone
  assert_output gone
  assert_stderr ""
  assert [ -e "${PROJECT}/.clusters/gone-id-of-gone/logs/MAIN.log" ]
}

@test "stop: --delete removes the files of that cluster, and of no other (needs .venv)" {
  use_tools
  use_local
  add_ended_cluster gone
  add_ended_cluster other
  run -0 --separate-stderr stop --delete gone
  assert_output gone
  assert [ ! -e "${PROJECT}/.clusters/gone-id-of-gone" ]
  assert [ -e "${PROJECT}/.clusters/other-id-of-other/logs/MAIN.log" ]
}
