#!/usr/bin/env bats
# scripts/session.sh: its command line, and what it asks of a backend. The backend `stub` starts nothing.
# shellcheck disable=SC2030,SC2031 # tests run in shells of their own
# bats file_tags=slow

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
}

session() { "${PROJECT}/scripts/session.sh" "$@"; }

@test "session: the header comment is the help" {
  assert_help session.sh
}

@test "session: a wrong command line starts nothing" {
  assert_usage_error "expected KIND [NAME], got 0 of them" session.sh
  assert_usage_error "unknown option '--keep'" session.sh jupyter --keep
  assert_usage_error "unknown backend 'cloud'; there is: docker kubernetes local oci stub" session.sh jupyter --backend cloud
  assert_refused 2 "session.sh: error: unknown kind of session 'jupiter'; this checkout has: jupyter, ssh, tensorboard" \
    session jupiter
}

@test "session: what the policy does not allow is refused before anything is asked (needs .venv)" {
  use_tools
  printf 'MAX_TTL=4h\nASK=ops@example.com\n' >"${PROJECT}/scripts/sessions/policy.env"
  assert_error 77 "session.sh: error: the policy of sessions does not allow this: TTL=8h is more than 4h; for more ask ops@example.com" \
    session jupyter
  assert_calls ""
}

@test "session: a detached one is a cluster of main alone, and says how it is reached (needs .venv)" {
  use_tools
  run -0 --separate-stderr session jupyter mine --detach
  assert_output mine
  assert_stderr --partial "session.sh: connect.sh mine prints how to reach it; it ends after 8h, or after 1h without use"
  run -0 tail -n 1 "${STUB_DIR}/calls"
  assert_output "start MAIN"
}
