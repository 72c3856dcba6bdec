#!/usr/bin/env bats
# scripts/launch.sh: how signals end it, wherever it is.
# shellcheck disable=SC2154 # launch.bash sets what is asked of the backend
# bats file_tags=slow

load test_helper.bash
load project.bash
load launch.bash

setup() {
  isolate
  make_project
}
teardown() { end_jobs; }

# Begin a launch and wait until it is in a phase: place, find, prepare, start or run.
begin_launch() { # phase, argument...
  local phase="$1"
  shift
  STUB_BLOCK="${phase}" begin "${PROJECT}/scripts/launch.sh" dask 2 "$@"
  eventually is_there_or_ended "${STUB_DIR}/reached"
  assert [ -e "${STUB_DIR}/reached" ]
}

# Begin one that stays in `plan`: its config.env does not end.
begin_launch_in_plan() {
  mkfifo "${PROJECT}/config.env"
  endless() {
    exec >"${PROJECT}/config.env" # opens when launch.sh reads it
    : >"${STUB_DIR}/reached"
    exec cat "${STUB_DIR}/gate"
  }
  help_in_background endless
  begin_launch none
}

ctrl_c() { kill -INT -- "-${JOB}"; } # a terminal sends it to the whole group

assert_ended_by_signal() { # calls
  finish
  assert_failure 143
  assert_calls "$1"
}

@test "launch: Ctrl-C while it plans ends it" {
  begin_launch_in_plan
  ctrl_c
  assert_ended_by_signal ""
  assert_output ""
  assert_stderr "launch.sh: stopped"
}

@test "launch: TERM while it plans ends it, and nothing is started" {
  begin_launch_in_plan
  kill -TERM "${JOB}"
  assert_ended_by_signal ""
  assert_output ""
  assert_stderr "launch.sh: stopped"
}

@test "launch: HUP while it plans ends it, and nothing is started" {
  begin_launch_in_plan
  kill -HUP "${JOB}"
  assert_ended_by_signal ""
  assert_output ""
  assert_stderr "launch.sh: stopped"
}

@test "launch: a signal while it checks or prepares ends it, and nothing is started" {
  local phase signal
  for phase in place:INT find:TERM prepare:HUP; do
    signal="${phase#*:}" phase="${phase%:*}"
    rm -f "${STUB_DIR}/reached" "${STUB_DIR}/calls"
    begin_launch "${phase}"
    if [[ "${signal}" == INT ]]; then ctrl_c; else kill "-${signal}" "${JOB}"; fi
    assert_ended_by_signal "$(sed "/^${phase}\$/q" <<<"${prepared}")
${phase} was told to end"
    assert_output ""
    assert_stderr "launch.sh: stopped"
  done
  assert [ ! -e "${PROJECT}/.clusters" ]
}

@test "launch: a signal while .venv is being made ends the installer, too" {
  # It knows its version, notes its pid, and installs for ever.
  mkdir bin
  cat >bin/uv <<END
#!/bin/sh
[ "\$1" != --version ] || exec echo 'uv 99.0'
echo "\$\$" >"${STUB_DIR}/installer"
: >"${STUB_DIR}/reached"
exec sleep 300
END
  chmod +x bin/uv
  PATH="${PWD}/bin:${PATH}" begin_launch none
  kill -TERM "${JOB}"
  assert_ended_by_signal "${prepared}"
  eventually has_ended "$(cat "${STUB_DIR}/installer")"
  assert_output ""
}

@test "launch: a signal while it starts the cluster removes what was started (needs .venv)" {
  use_tools
  begin_launch start --detach
  ctrl_c
  assert_ended_by_signal "${started}
start was told to end
remove"
  assert_output ""
  refute compgen -G "${PROJECT}/.clusters/dask-*"
}

@test "launch: TERM while it starts a detached cluster stops the one that comes of it (needs .venv)" {
  use_tools
  STUB_DEAF=1 begin_launch start --detach
  kill -TERM "${JOB}"
  eventually test -e "${STUB_DIR}/told" # launch.sh passes it on; what has been started by then is another test's
  open_gate
  assert_ended_by_signal "${started}
finish"
  assert_output ""
}

@test "launch: a signal while the cluster runs stops it in order (needs .venv)" {
  use_tools
  local signal
  for signal in INT HUP; do
    rm -rf "${STUB_DIR}/reached" "${STUB_DIR}/calls" "${PROJECT}/.clusters"
    begin_launch run
    if [[ "${signal}" == INT ]]; then ctrl_c; else kill "-${signal}" "${JOB}"; fi
    assert_ended_by_signal "${started}
logs follow
finish"
    assert_output "MAIN     | hello"
    assert_stderr --partial "; Ctrl-C again ends it at once"
    run -0 grep -l "stopped by the launcher" "${PROJECT}"/.clusters/*/stop
  done
}

@test "launch: a cluster that ends by itself after a signal keeps its exit code (needs .venv)" {
  use_tools
  # The signal comes while it is being started, and is passed on; it has ended with a code of its own by then.
  STUB_DEAF=1 STUB_CODES=run=7 begin_launch start
  kill -TERM "${JOB}"
  open_gate
  finish
  assert_failure 7
  run -0 grep -l "stopped by the launcher" "${PROJECT}"/.clusters/*/stop
}
