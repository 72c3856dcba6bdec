#!/usr/bin/env bats
# scripts/check.sh: its report and its exit codes, on the backend `local`.

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
  export BACKEND=local
}

check() { "${PROJECT}/scripts/check.sh" "$@"; }

# bats test_tags=slow
@test "check: what works is fine, item by item, and nothing is started" {
  use_tools
  mkdir -p "${PROJECT}/.venv/envs/dask/bin"
  ln -s "$(command -v "${PYTHON}")" "${PROJECT}/.venv/envs/dask/bin/python"
  SCHEDULER_PORT=$((20000 + RANDOM % 5000)) DASHBOARD_PORT=$((25000 + RANDOM % 5000)) run -0 --separate-stderr check dask 2
  refute_output --regexp '^(fails|unknown)'
  for item in settings ports 'entry point' Python memory GPUs 'free ports' 'file locks'; do
    assert_line --regexp "^fine +${item} "
  done
  assert_stderr "check.sh: 8 items on local: nothing that was seen will fail"
  assert [ ! -e "${PROJECT}/.clusters" ]
}

# bats test_tags=slow
@test "check: what will fail is told with what fixes it, all of it at once" {
  use_tools
  run -1 --separate-stderr check dask 2 --entry none.py --ttl soon
  assert_line --partial "fails    entry point       --entry: "
  assert_line "         give the path of your script"
  assert_line --partial "fails    settings          --ttl: 'soon'"
  assert_stderr --partial " will fail"
}
