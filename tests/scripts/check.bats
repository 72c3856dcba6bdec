#!/usr/bin/env bats
# scripts/check.sh: its report and its exit codes, on the backend `local`.

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
  use_local
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

# bats test_tags=slow
@test "check: --json prints the items and a summary, and nothing else" {
  use_tools
  run -1 --separate-stderr check dask 2 --entry none.py --json
  assert_equal "$(from_json 'found["summary"]["fails"], found["summary"]["exit_code"]' <<<"${output}")" "1 1"
  assert_equal "$(from_json 'sorted(found["findings"][0])' <<<"${output}")" "['fix', 'item', 'text', 'verdict']"
}

# bats test_tags=slow
@test "check: a config.env that cannot be read is an error" {
  use_tools
  echo 'no setting' >"${PROJECT}/config.env"
  run -78 --separate-stderr check dask 2
  assert_output ""
  assert_stderr --partial "config.env:1: expected KEY=VALUE"
}
