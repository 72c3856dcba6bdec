#!/usr/bin/env bats
# scripts/launch.sh: what it asks of a backend and in which order.
# The backend `stub` starts nothing.
# shellcheck disable=SC2154 # launch.bash sets what is asked of the backend
# bats file_tags=slow

load test_helper.bash
load project.bash
load launch.bash

setup() {
  isolate
  make_project
}

@test "launch: checks, prepares, then runs and follows (needs .venv)" {
  use_tools
  run -0 --separate-stderr launch dask 2 --name demo
  assert_output "MAIN     | hello"
  assert_stderr --regexp "^launch.sh: cluster demo started: 3 nodes; files in ${PROJECT}/.clusters/demo-[0-9a-f]{8}"
  assert_stderr --partial "launch.sh: cluster demo ended with 0 after "
  assert_calls "${started}
logs follow
finish"
}

@test "launch: the cluster's exit code is its own (needs .venv)" {
  use_tools
  local code
  for code in 1 7 75 143; do
    STUB_CODES="run=${code}" run "-${code}" --separate-stderr launch dask 3
    assert_output "MAIN     | hello"
  done
  run ! grep -E '^(end|remove)' "${STUB_DIR}/calls" # it has ended by itself
}

@test "launch: a check that fails ends it, and nothing is prepared" {
  STUB_CODES=place=78 assert_refused 78 "launch.sh: error: place failed" launch dask 3
  assert_calls place
  STUB_CODES=place=69 run -69 launch dask 3 --dry-run
  rm "${STUB_DIR}/calls"
  STUB_CODES=find=69 assert_refused 69 "launch.sh: error: find failed" launch dask 3
}

@test "launch: a preparation that fails ends it, and nothing is started" {
  STUB_CODES=prepare=69 assert_error 69 "launch.sh: error: prepare failed" launch dask 3
  assert_calls "${prepared}"
}

@test "launch: a start that fails ends it, and what was started is removed (needs .venv)" {
  use_tools
  STUB_CODES=start=77 assert_error 77 "launch.sh: error: start failed" launch dask 2 --detach
  assert_calls "${started}
remove"
  refute compgen -G "${PROJECT}/.clusters/dask-*"
}

@test "launch: --detach prints the name alone, and follows nothing (needs .venv)" {
  use_tools
  run -0 --separate-stderr launch dask 2 --detach --name demo
  assert_output demo
  assert_stderr ""
  assert_calls "${started}"
}

@test "launch: --detach --json prints the status as JSON (needs .venv)" {
  use_tools
  run -0 --separate-stderr launch dask 3 --json --detach --name demo
  assert_stderr ""
  run -0 from_json 'found["name"], len(found["nodes"])' <<<"${output}"
  assert_output "demo 4"
}

@test "launch: --backend wins over BACKEND" {
  BACKEND=local run -0 planned 'found["backend"]' --backend stub
  assert_output stub
}

@test "launch: BACKEND of config.env counts where neither flag nor environment names one" {
  unset BACKEND
  echo 'BACKEND=stub' >"${PROJECT}/config.env"
  run -0 planned 'found["backend"]'
  assert_output stub
}

@test "launch: a link to a script is the script" {
  mkdir bin
  ln -s "${PROJECT}/scripts/launch.sh" bin/first
  ln -s first bin/launch
  run -0 --separate-stderr bin/launch --help
  assert_line --index 0 "Usage: launch.sh <framework> <workers> [option...] [-- argument of the entry point...]"
  run -2 --separate-stderr bin/launch dusk 3
  assert_stderr "launch: error: unknown framework 'dusk'; this checkout has: dask"
}

@test "launch: --version names the release and the commit" {
  run -0 --separate-stderr "${ROOT}/scripts/launch.sh" --version
  assert_output --regexp '^0\.[0-9.]+ \((v?[0-9a-f].*|no git here)\)$'
  run -0 --separate-stderr launch dask 3 --dry-run -- --version
  refute_output --regexp 'no git here'
}
