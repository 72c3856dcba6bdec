#!/usr/bin/env bats
# scripts/session.sh: what it asks of a backend. The backend `stub` starts nothing.
# shellcheck disable=SC2030,SC2031 # tests run in shells of their own
# bats file_tags=slow

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
}

session() { "${PROJECT}/scripts/session.sh" "$@"; }

@test "session: what the policy does not allow is refused before anything is asked (needs .venv)" {
  use_tools
  own "${PROJECT}/scripts/sessions/policy.env"
  printf 'MAX_TTL=4h\nASK=ops@example.com\n' >"${PROJECT}/scripts/sessions/policy.env"
  assert_error 77 "session.sh: error: the policy of sessions does not allow this: TTL=8h " \
    session jupyter
  assert_calls ""
}

@test "session: a detached one is a cluster of main alone, and says how it is reached (needs .venv)" {
  use_tools
  run -0 --separate-stderr session jupyter mine --detach
  assert_output mine
  assert_stderr --partial "session.sh: connect.sh mine "
  run -0 tail -n 1 "${STUB_DIR}/calls"
  assert_output "start MAIN"
}
