#!/usr/bin/env bats
# scripts/launch.sh: what it asks of a backend and in which order. The backend `stub` starts nothing. What can be wrong with
# each word, and what a plan is, are in tests/unit/launcher.
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

@test "launch: a start that fails ends it, and what was started is removed (needs .venv)" {
  use_tools
  STUB_CODES=start=77 assert_error 77 "launch.sh: error: start failed" launch dask 2 --detach
  assert_calls "${started}
remove"
  refute compgen -G "${PROJECT}/.clusters/dask-*"
}

@test "launch: bad input is named and ends with its code, and nothing is started" {
  assert_usage_error "unexpected 'mine.py' after dask 3; a script is given with --entry FILE, its arguments behind --" \
    launch.sh dask 3 mine.py
  assert_refused 2 "launch.sh: error: --ttl: 'soon' " launch dask 3 --ttl soon
  TTL=soon assert_refused 78 "launch.sh: error: bad settings: TTL: 'soon' " launch dask 3
  printf '%s\n' '# mine' 'TIMEOUT=5' 'set TTL=1h' >"${PROJECT}/config.env"
  assert_refused 78 "launch.sh: error: ${PROJECT}/config.env:3: expected KEY=VALUE " launch dask 3
  assert_calls ""
}

# Every file of project, work folder and HOME, with size and time; what Python compiles on the way is nobody's business, nor
# is how many other tests have the same file: the second column.
tree() {
  find "${PROJECT}" "${BATS_TEST_TMPDIR}/a folder with spaces" -name __pycache__ -prune -o -exec ls -ld {} + |
    sed -E 's/^([^ ]+) +[0-9]+ /\1 /'
}

@test "launch: --dry-run on the backend local prints each node's address, needs no .venv and changes nothing" {
  local before nodes
  export BACKEND=local
  before="$(tree)"
  run -0 --separate-stderr launch dask 2 --dry-run --json --name demo
  assert_equal "$(tree)" "${before}"
  assert_nothing_started
  nodes="$(from_json '*[node["environment"]["NODE_ADDRESS"] for node in found["nodes"]], found["work_dir"]' <<<"${output}")"
  assert_regex "${nodes}" "^(127\.0\.0\.[0-9]+ ){3}file://${PROJECT}/.clusters$"
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

@test "session: a detached one is a cluster of main alone, and says how it is reached (needs .venv)" {
  use_tools
  run -0 --separate-stderr "${PROJECT}/scripts/session.sh" jupyter mine --detach
  assert_output mine
  assert_stderr --partial "session.sh: connect.sh mine "
  run -0 tail -n 1 "${STUB_DIR}/calls"
  assert_output "start MAIN"
}
