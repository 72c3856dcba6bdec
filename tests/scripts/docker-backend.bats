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

@test "docker backend: a dry run can be JSON" {
  use_engine docker
  launch dask 1 --dry-run --json -- 'an argument' '$(id)' >"${BATS_TEST_TMPDIR}/planned"
  run -0 from_json 'json.loads(found["environment"]["ARGS"])' <"${BATS_TEST_TMPDIR}/planned"
  assert_output "['an argument', '\$(id)']"
  run -0 from_json '[words[1] for words in found["commands"]]' <"${BATS_TEST_TMPDIR}/planned"
  assert_output "['network', 'volume', 'run', 'run']"
  assert_nothing_run
}

@test "docker backend: config.env supplies settings, and the environment wins" {
  use_engine podman
  printf '%s\n' BACKEND=docker "DOCKER='${DOCKER}'" IMAGE=dask:1 MEMORY=1g GPUS=all WORK_DIR=oci://bucket@ns/work >"${PROJECT}/config.env"
  unset BACKEND DOCKER IMAGE
  MEMORY=2g run -0 --separate-stderr launch dask 1 --dry-run
  assert_output --partial "--memory 2g --shm-size 1g --device nvidia.com/gpu=all dask:1"
  assert_line WORK_DIR=file:///work
}

@test "docker backend: --python, too many workers and no image are refused" {
  use_engine docker
  run -2 --separate-stderr launch dask 2 --python "$(command -v "${PYTHON}")"
  assert_regex "${stderr}" '^launch.sh: error: --python works with the backend local only'
  run -2 --separate-stderr launch dask 101
  assert_regex "${stderr}" 100
  IMAGE="" run -78 --separate-stderr launch dask 2
  assert_regex "${stderr}" '^launch.sh: error: IMAGE is not set, and no image of dask was built from here; make build-dask'
  assert_nothing_run
}

@test "docker backend: without an engine every script says what to do" {
  local script arguments
  use_tools
  export DOCKER=none-of-that IMAGE=dask:1
  while read -r script arguments; do
    # shellcheck disable=SC2086 # words
    assert_error 69 "${script}: error: the container engine 'none-of-that' cannot be run: No such file or directory" \
      "${PROJECT}/scripts/${script}" ${arguments} </dev/null
    assert_regex "${stderr}" 'install Docker or Podman, or name the one you have: DOCKER=podman'
  done <<'END'
launch.sh dask 2
launch.sh dask 2 --dry-run
list.sh
status.sh demo
logs.sh demo
scale.sh demo 3
stop.sh demo
END
  assert [ ! -e "${PROJECT}/.clusters" ]
}
