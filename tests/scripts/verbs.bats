#!/usr/bin/env bats
# What all scripts that people run have in common: their help, wrong command lines, no Python, and where they are run from.
# All that run a verb are the same lines, which tests/unit/launcher/args/test_command_line.py sees; what can be wrong with the
# words of each is in tests/unit/launcher. Where a test fails, the last line `asked:` is the command that did.
# shellcheck disable=SC2030,SC2031 # tests run in shells of their own

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
}

@test "every script: the header comment is the help" {
  local script count=0
  for script in "${PROJECT}"/scripts/*.sh; do
    [[ ! "${script##*/}" =~ ^(images|dev-setup).sh$ ]] || continue # make runs these
    assert_help "${script##*/}"
    count=$((count + 1))
  done
  assert [ "${count}" -ge 17 ]
}

@test "every script: no Python, or one that is too old, is named" {
  local script count=0
  for script in "${PROJECT}"/scripts/*.sh; do
    [[ ! "${script##*/}" =~ ^(images|dev-setup|completion|smoke).sh$ ]] || continue
    assert_needs_python "${script##*/}" demo 3
    count=$((count + 1))
  done
  assert [ "${count}" -ge 15 ]
}

@test "completion, smoke: a wrong command line starts nothing" {
  assert_usage_error "expected nothing, got 'zsh'" completion.sh zsh
  assert_usage_error "'spark' is no framework of this project" smoke.sh spark
  assert_usage_error "unknown option '--force'" smoke.sh --force
  rm "${PROJECT}/scripts/templates/smoke/with_dask.py"
  assert_usage_error "there is no scripts/templates/smoke/with_dask.py; write one, or name other frameworks" smoke.sh
}

# bats test_tags=slow
@test "launch, status: each works from anywhere, through bash, and with a CDPATH (needs .venv)" {
  use_tools
  assert_found_from_anywhere $'place\nfind\nprepare\nfind\nstart MAIN WORKER_1' launch.sh dask 1 --detach
  add_ended_cluster demo stub
  assert_found_from_anywhere find status.sh demo
}
