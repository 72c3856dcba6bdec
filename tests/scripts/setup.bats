#!/usr/bin/env bats
# scripts/setup.sh: its command line. What it makes is asked of the stand-in for OCI.

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
}

@test "setup: the header comment is the help" {
  assert_help setup.sh
}

@test "setup: a wrong command line asks nobody for anything" {
  assert_usage_error "one of --apply, --print and --tfvars, got --apply and --print" setup.sh --print --apply
  assert_usage_error "expected a framework, got an empty word" setup.sh ""
  assert_usage_error "a tenancy is of the backend oci alone, got --backend local" setup.sh --backend local
  assert_usage_error "unknown option '--force'" setup.sh --force
}

@test "setup: no Python, or one that is too old, is named" {
  assert_needs_python setup.sh
}
