#!/usr/bin/env bats
# What all scripts that people run have in common: their help, wrong command lines, no Python, and where they are run from.
# A test goes through a table of scripts; what can be wrong with the words of each is in tests/unit/launcher. Where it fails, the last line `asked:` is the command that did.
# shellcheck disable=SC2030,SC2031 # tests run in shells of their own

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
}

unknown_backend="unknown backend 'cloud'; there is: docker kubernetes local oci stub"
empty_name="expected a cluster's name, got an empty word"

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

# bats test_tags=slow
@test "launch, session, scale, stop: a wrong command line starts and ends nothing" {
  assert_usage_error "unexpected 'mine.py' after dask 3; a script is given with --entry FILE, its arguments behind --" \
    launch.sh dask 3 mine.py
  BACKEND=cloud assert_usage_error "${unknown_backend}" launch.sh dask 3
  assert_refused 2 "session.sh: error: unknown kind of session 'jupiter'; this checkout has: jupyter, ssh, tensorboard" \
    "${PROJECT}/scripts/session.sh" jupiter
  assert_usage_error "${empty_name}" scale.sh '' +1
  assert_usage_error "${unknown_backend}" stop.sh --backend cloud demo
}

# bats test_tags=slow
@test "list, status, logs: a wrong command line asks nobody for anything" {
  assert_usage_error "unknown option '-a'" list.sh -a
  BACKEND=../local assert_usage_error "${unknown_backend/cloud/../local}" status.sh
  assert_usage_error "${empty_name}" logs.sh --node=MAIN ''
}

@test "check, setup, from-ads: a wrong command line looks at nothing" {
  assert_usage_error "one of --apply, --print and --tfvars, got --apply and --print" setup.sh --print --apply
  assert_usage_error "expected one file, the YAML of ads opctl run; got 0 of them" from-ads.sh
  use_local
  assert_refused 2 "check.sh: error: unknown framework 'spark'; this checkout has: dask" "${PROJECT}/scripts/check.sh" spark
}

@test "quota, queue, completion: a wrong command line asks nobody for anything" {
  assert_usage_error "expected one of: show, apply teams.yaml, hold TEAM, resume TEAM; got ''" quota.sh
  assert_usage_error "one team at a time, got 'a' and 'b'" queue.sh a b
  assert_usage_error "expected nothing, got 'zsh'" completion.sh zsh
}

@test "new, update, smoke: a wrong command line makes, changes and starts nothing" {
  local mine="${PWD}/my own"
  assert_refused 2 "new.sh: error: unknown framework 'spark'; ${PROJECT} has: dask; name a version that has it: --from" "${PROJECT}/scripts/new.sh" spark "${mine}"
  assert [ ! -e "${mine}" ]
  assert_usage_error "expected a version, got an empty word" update.sh ""
  assert_usage_error "'spark' is no framework of this project" smoke.sh spark
  assert_usage_error "unknown option '--force'" smoke.sh --force
  rm "${PROJECT}/scripts/templates/smoke/with_dask.py"
  assert_usage_error "there is no scripts/templates/smoke/with_dask.py; write one, or name other frameworks" smoke.sh
}

# bats test_tags=slow
@test "list, status, logs, scale, stop: what the backend ends with is what they end with" {
  ends_with() { # code, call of the backend, script, argument...
    STUB_CODES="$2=$1" assert_error "$1" "$3: error: $2 failed" "${PROJECT}/scripts/$3" "${@:4}"
  }
  add_ended_cluster demo stub
  ends_with 69 find list.sh
  ends_with 69 find status.sh demo
  ends_with 69 find logs.sh demo
  ends_with 69 logs logs.sh demo
  STUB_BLOCK=run ends_with 2 start scale.sh demo 3
  ends_with 77 finish stop.sh demo
  ends_with 69 remove stop.sh demo --delete
  assert [ -e "${PROJECT}/.clusters/demo-id-of-demo/cluster.json" ] # a second try finds it
}

# bats test_tags=slow
@test "list, logs, scale, stop: each works from anywhere, through bash, and with a CDPATH" {
  add_ended_cluster demo stub
  assert_found_from_anywhere find list.sh --all
  assert_found_from_anywhere $'find\nlogs' logs.sh demo
  STUB_BLOCK=run assert_found_from_anywhere find scale.sh demo +0
  assert_found_from_anywhere $'find\nfinish' stop.sh demo
}

# bats test_tags=slow
@test "launch, status: each works from anywhere, through bash, and with a CDPATH (needs .venv)" {
  use_tools
  assert_found_from_anywhere $'place\nfind\nprepare\nfind\nstart MAIN WORKER_1' launch.sh dask 1 --detach
  add_ended_cluster demo stub
  assert_found_from_anywhere find status.sh demo
}
