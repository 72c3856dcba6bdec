#!/usr/bin/env bats
# What all scripts that people run have in common: their help, wrong command lines, no Python, and where they are run from.
# A test goes through a table of scripts. Where it fails, the last line `asked:` is the command that did.
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

# tests/unit/launcher has all that can be wrong with the words of each script.
# bats test_tags=slow
@test "launch, session, scale, stop: a wrong command line starts and ends nothing" {
  assert_usage_error "expected <framework> <workers>, got 0 of them" launch.sh
  assert_usage_error "unexpected 'mine.py' after dask 3; a script is given with --entry FILE, its arguments behind --" \
    launch.sh dask 3 mine.py
  assert_usage_error "unknown option '--epochs'; if it is your script's, write -- before it: ... -- --epochs" \
    launch.sh dask --epochs 3
  assert_usage_error "${unknown_backend}" launch.sh dask 3 --backend cloud
  BACKEND=cloud assert_usage_error "${unknown_backend}" launch.sh dask 3
  assert_usage_error "expected KIND [NAME], got 0 of them" session.sh
  assert_usage_error "unknown option '--keep'" session.sh jupyter --keep
  assert_usage_error "${unknown_backend}" session.sh jupyter --backend cloud
  assert_refused 2 "session.sh: error: unknown kind of session 'jupiter'; this checkout has: jupyter, ssh, tensorboard" \
    "${PROJECT}/scripts/session.sh" jupiter
  assert_usage_error "expected NAME WORKERS, got 0 of them" scale.sh
  assert_usage_error "${empty_name}" scale.sh '' +1
  assert_usage_error "${unknown_backend}" scale.sh demo 3 --backend cloud
  assert_usage_error "${empty_name}" stop.sh --delete ""
  assert_usage_error "${unknown_backend}" stop.sh --backend cloud demo
}

# bats test_tags=slow
@test "list, status, logs: a wrong command line asks nobody for anything" {
  assert_usage_error "unknown option '-a'" list.sh -a
  assert_usage_error "${unknown_backend}" list.sh --backend cloud
  assert_usage_error "unknown option '--nodes'" status.sh --nodes
  BACKEND=../local assert_usage_error "${unknown_backend/cloud/../local}" status.sh
  assert_usage_error "${empty_name}" logs.sh --node=MAIN ''
  assert_usage_error "${unknown_backend}" logs.sh --backend cloud demo
}

@test "check, setup, from-ads: a wrong command line looks at nothing" {
  wrong_check() { assert_refused 2 "check.sh: error: $1" "${PROJECT}/scripts/check.sh" "${@:2}"; }
  touch train.yaml
  assert_usage_error "one of --apply, --print and --tfvars, got --apply and --print" setup.sh --print --apply
  assert_usage_error "expected a framework, got an empty word" setup.sh ""
  assert_usage_error "a tenancy is of the backend oci alone, got --backend local" setup.sh --backend local
  assert_usage_error "unknown option '--force'" setup.sh --force
  assert_usage_error "expected one file, the YAML of ads opctl run; got 0 of them" from-ads.sh
  assert_usage_error "one of --merge, which keeps what config.env has, and --force, which does not; got both" \
    from-ads.sh train.yaml --merge --force
  assert_usage_error "${unknown_backend}" from-ads.sh train.yaml --backend cloud
  use_local
  assert_usage_error "expected a framework, got an empty word" check.sh ""
  wrong_check "unexpected 'train.py' after dask 2; a script is given with" dask 2 train.py
  wrong_check "unknown option '--force'; if it is your script's" --force
  wrong_check "unknown framework 'spark'; this checkout has: dask" spark
  wrong_check "unknown backend 'moon'; there is:" --backend moon
  wrong_check "workers: 'many' is not a whole number" dask many
}

@test "quota, queue, completion: a wrong command line asks nobody for anything" {
  assert_usage_error "expected one of: show, apply teams.yaml, hold TEAM, resume TEAM; got ''" quota.sh
  assert_usage_error "expected hold TEAM, got hold" quota.sh hold
  assert_usage_error "--drain belongs to hold, not to resume" quota.sh resume team-a --drain
  assert_usage_error "teams and queues are of the backend kubernetes alone, got --backend local" quota.sh show --backend local
  assert_usage_error "one team at a time, got 'a' and 'b'" queue.sh a b
  assert_usage_error "expected a name, got an empty word" queue.sh ""
  assert_usage_error "expected nothing, got 'zsh'" completion.sh zsh
}

@test "new, update, smoke: a wrong command line makes, changes and starts nothing" {
  local mine="${PWD}/my own"
  assert_usage_error "expected <framework...> <dir>, got 'dask'" new.sh dask
  assert_usage_error "unknown option '--force'" new.sh dask "${mine}" --force
  assert_refused 2 "new.sh: error: unknown framework 'spark'; ${PROJECT} has: dask; name a version that has it: --from" "${PROJECT}/scripts/new.sh" spark "${mine}"
  assert [ ! -e "${mine}" ]
  assert_usage_error "expected a version, got an empty word" update.sh ""
  assert_usage_error "expected SOURCE [REF], got 0 of them" update.sh
  assert_refused 78 "update.sh: error: ${PROJECT} has no vendor/oci_cluster-*.whl" "${PROJECT}/scripts/update.sh" /
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
  local code
  for code in 2 69 77; do
    STUB_BLOCK=run ends_with "${code}" start scale.sh demo 3
  done
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
