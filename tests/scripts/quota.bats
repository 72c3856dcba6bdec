#!/usr/bin/env bats
# scripts/quota.sh and scripts/queue.sh: their command lines. What they do is asked of a real Kubernetes.

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
}

@test "quota: the header comment is the help" {
  assert_help quota.sh
  assert_help queue.sh
}

@test "quota: a wrong command line asks nobody for anything" {
  assert_usage_error "expected one of: show, apply teams.yaml, hold TEAM, resume TEAM; got ''" quota.sh
  assert_usage_error "expected hold TEAM, got hold" quota.sh hold
  assert_usage_error "--drain belongs to hold, not to resume" quota.sh resume team-a --drain
  assert_usage_error "teams and queues are of the backend kubernetes alone, got --backend local" quota.sh show --backend local
  assert_usage_error "one team at a time, got 'a' and 'b'" queue.sh a b
  assert_usage_error "expected a name, got an empty word" queue.sh ""
}

@test "quota: no Python, or one that is too old, is named" {
  assert_needs_python quota.sh show
  assert_needs_python queue.sh
}
