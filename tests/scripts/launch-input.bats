#!/usr/bin/env bats
# scripts/launch.sh: bad input is named, and nothing is started. What can be wrong with each word is in
# tests/unit/launcher/launch; here is that the script says so, and ends with the code for it.
# bats file_tags=slow

load test_helper.bash
load project.bash
load launch.bash

setup() {
  isolate
  make_project
}

@test "launch: workers that are no whole number from 0 to the most are refused" {
  local workers
  for workers in -1x '' 251; do
    assert_refused 2 "launch.sh: error: " launch dask "${workers}"
    assert_stderr --partial "'${workers}'"
  done
  assert_calls ""
}

@test "launch: an unknown framework is named, with those there are" {
  assert_refused 2 "launch.sh: error: unknown framework '../dask'; this checkout has: dask" launch ../dask 3
  assert_calls ""
}

@test "launch: the slash that completion puts after a framework is no part of its name (needs .venv)" {
  use_tools
  run -0 --separate-stderr launch dask/ 1
  run -0 submitted '[found["framework"], found["environment"]["FRAMEWORK"]]'
  assert_output "['dask', 'dask']"
}

@test "launch: an entry point that is not there is named, with where it was looked for" {
  mkdir code
  local missing="there is no file"
  assert_refused 2 "launch.sh: error: --entry: ${missing} 'no.py' in '${PWD}' or 'code'; " launch dask 3 --code code --entry no.py
  ENTRY_POINT=no.py assert_refused 78 "launch.sh: error: bad settings: ENTRY_POINT: ${missing} 'no.py' in '${PWD}'; " launch dask 3
  assert_refused 2 "launch.sh: error: --code 'code' has no entry point" launch dask 3 --code code
  assert_calls ""
}

@test "launch: a bad value is named by the flag or the variable that brought it" {
  assert_refused 2 "launch.sh: error: --ttl: 'soon' " launch dask 3 --ttl soon
  TTL=soon assert_refused 78 "launch.sh: error: bad settings: TTL: 'soon' " launch dask 3
  assert_refused 78 "launch.sh: error: bad settings: TTL: 'soon' " launch dask 3 --env TTL=soon
  assert_refused 2 "launch.sh: error: --ps: '-1' " launch dask 3 --ps -1
  assert_refused 2 "launch.sh: error: --name: '-x' " launch dask 3 --name -x
  assert_calls ""
}

@test "launch: all bad settings are named at once" {
  echo 'HEARTBEAT_TIMEOUT=often' >"${PROJECT}/config.env"
  TIMEOUT=long EPHEMERAL=perhaps assert_refused 78 "launch.sh: error: bad settings: " launch dask 3
  assert_stderr --partial "EPHEMERAL: 'perhaps'"
  assert_stderr --partial "TIMEOUT: 'long'"
  assert_stderr --partial "HEARTBEAT_TIMEOUT: 'often'"
}

@test "launch: a line of config.env that is no setting is named" {
  printf '%s\n' '# mine' 'TIMEOUT=5' 'set TTL=1h' >"${PROJECT}/config.env"
  assert_refused 78 "launch.sh: error: ${PROJECT}/config.env:3: expected KEY=VALUE " launch dask 3
  assert_stderr --partial "got: set TTL=..."
}

@test "launch: a bad --env is named" {
  assert_refused 2 "launch.sh: error: --env '--x=...' " launch dask 3 --env --x=x # the value may be a secret
  assert_refused 2 "launch.sh: error: --env FOO: there is no FOO in your environment; " launch dask 3 --env FOO
  assert_refused 2 "launch.sh: error: --env-file: ${PWD}/no.env cannot be read: " launch dask 3 --env-file no.env
  assert_refused 2 "launch.sh: error: --env NODE_RANK is decided" launch dask 3 --env NODE_RANK=1
  assert_refused 2 "launch.sh: error: --env CODE_DIR is not accepted; use --code instead" launch dask 3 --env CODE_DIR=x
  assert_calls ""
}

@test "launch: a bad package or module is named" {
  assert_refused 2 "launch.sh: error: --with './mine' " launch dask 3 --with a,./mine
  assert_refused 2 "launch.sh: error: --module: there is no module 'a.b'" launch dask 3 --module a.b
  assert_calls ""
}

@test "launch: a --python that cannot be one is named" {
  touch file
  assert_refused 2 "launch.sh: error: --python file " launch dask 3 --python file
  assert_refused 2 "launch.sh: error: " launch dask 3 --python --mine # looks like an option
  assert_stderr --partial "--mine"
  assert_calls ""
}
