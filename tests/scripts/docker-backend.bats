#!/usr/bin/env bats
# BACKEND=docker: what can be said without an engine that runs anything.
# shellcheck disable=SC2016 # single quotes hold the text of scripts
# bats file_tags=slow

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
  # shellcheck disable=SC2046 # names
  unset $(names_in "${ROOT}/scripts/backends/docker.env") WORK_DIR CODE_URI
  export BACKEND=docker CALLS="${BATS_TEST_TMPDIR}/engine-calls"
}

# Have an engine that has every image, notes what it is asked to change, and can do nothing else.
use_engine() { # name
  local bin="${BATS_TEST_TMPDIR}/my engines"
  mkdir -p "${bin}"
  cat >"${bin}/$1" <<'END'
#!/bin/sh
case "$1 $2" in
  "info --format") echo '{"NCPU": 4, "MemTotal": 4000}' ;;
  "image inspect") echo '[{}]' ;;
  *) for word; do printf '<%s>' "$word" >>"$CALLS"; done && echo >>"$CALLS" ;;
esac
END
  chmod +x "${bin}/$1"
  export DOCKER="${bin}/$1" IMAGE=dask:1
}

launch() { "${PROJECT}/scripts/launch.sh" "$@"; }

# The engine was asked to change nothing, and nothing is kept of a cluster.
assert_nothing_run() {
  assert [ ! -e "${CALLS}" ]
  assert_nothing_started
}

@test "docker backend: a dry run needs nothing installed, and changes nothing" {
  use_engine docker
  run -0 --separate-stderr launch dask 2 --dry-run --name demo
  assert_stderr ""
  assert_line --index 0 "# What a launch runs. Nothing has been run."
  assert_line --index 1 "# The entry point runs in /code, which shows the folder of the code read-only."
  assert_equal "$(grep -c ' run --detach --pull never ' <<<"${output}")" 3
  assert_nothing_run
}

@test "docker backend: a dry run is what the engine gets" {
  use_engine docker
  launch dask 1 --dry-run --name demo -- 'an argument' '$(id)' >"${BATS_TEST_TMPDIR}/script"
  run -0 --separate-stderr bash -eu "${BATS_TEST_TMPDIR}/script"
  assert_stderr ""
  run -0 sed -E 's/^<([a-z]+)>.*<--name><(demo)-[0-9a-f]{8}(-[A-Z_0-9]+)>.*<dask:1>$/\1 \2\3/; s/^<([a-z]+)>.*<(demo)-[0-9a-f]{8}>$/\1 \2/' "${CALLS}"
  assert_output "$(printf '%s\n' 'network demo' 'volume demo' 'run demo-MAIN' 'run demo-WORKER_1')"
}

@test "docker backend: without an engine a launch says what to do" {
  export DOCKER=none-of-that IMAGE=dask:1
  assert_refused 69 "launch.sh: error: the container engine 'none-of-that' cannot be run: No such file or directory" \
    launch dask 2
  assert_regex "${stderr}" 'install Docker or Podman, or name the one you have: DOCKER=podman'
}
