#!/usr/bin/env bats
# scripts/launch.sh: bad input is named, and nothing is started.
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
  for workers in -1 abc 1000000 3.5 '' 251; do
    assert_refused 2 "launch.sh: error: workers: '${workers}' " \
      launch dask "${workers}"
  done
  assert_calls ""
}

@test "launch: workers that begin like a negative number are refused in one line" {
  assert_refused 2 "launch.sh: error: " launch dask -1x
  assert_stderr --partial "'-1x'"
}

@test "launch: an unknown framework is named, with those there are" {
  local name
  for name in nope '' ../dask scripts; do
    assert_refused 2 "launch.sh: error: unknown framework '${name}'; this checkout has: dask" launch "${name}" 3
  done
  assert_calls ""
}

@test "launch: the slash that completion puts after a framework is no part of its name (needs .venv)" {
  use_tools
  run -0 --separate-stderr launch dask/ 1
  run -0 submitted '[found["framework"], found["environment"]["FRAMEWORK"]]'
  assert_output "['dask', 'dask']"
}

@test "launch: an entry point that is not there is named, with where it was looked for" {
  mkdir folder code
  touch outside.py
  local missing="there is no file"
  assert_refused 2 "launch.sh: error: --entry: ${missing} 'no.py' in '${PWD}'; " launch dask 3 --entry no.py
  assert_refused 2 "launch.sh: error: --entry: 'folder' is a folder; name the script: --code folder --entry FILE" launch dask 3 --entry folder
  assert_refused 2 "launch.sh: error: --entry: ${missing} 'no.py' in '${PWD}' or 'code'; " launch dask 3 --code code --entry no.py
  assert_refused 2 "launch.sh: error: --entry: ${missing} 'outside.py' in '${PWD}' or 'code'; " launch dask 3 --code code --entry outside.py
  ENTRY_POINT=no.py assert_refused 78 "launch.sh: error: bad settings: ENTRY_POINT: ${missing} 'no.py' in '${PWD}'; " launch dask 3
  assert_calls ""
}

@test "launch: a folder of code needs an entry point, and must be there" {
  mkdir code
  assert_refused 2 "launch.sh: error: --code 'code' has no entry point" launch dask 3 --code code
  assert_refused 2 "launch.sh: error: --code: 'nowhere' " launch dask 3 --code nowhere
}

@test "launch: a bad TTL is named by the flag or the variable that brought it" {
  local ttl
  for ttl in soon -5 1h30m; do
    assert_refused 2 "launch.sh: error: --ttl: '${ttl}' " \
      launch dask 3 --ttl "${ttl}"
  done
  TTL=soon assert_refused 78 "launch.sh: error: bad settings: TTL: 'soon' " launch dask 3
  assert_calls ""
}

@test "launch: a bad number of parameter servers is named by the flag or the variable that brought it" {
  local servers
  for servers in some -1 1.5 1000001; do
    assert_refused 2 "launch.sh: error: --ps: '${servers}' " \
      launch dask 3 --ps "${servers}"
  done
  PS_COUNT=some assert_refused 78 "launch.sh: error: bad settings: PS_COUNT: 'some' " launch dask 3
  assert_calls ""
}

@test "launch: a bad setting is refused when --env brings it, too" {
  assert_refused 78 "launch.sh: error: bad settings: TTL: " launch dask 3 --env TTL=soon
  assert_stderr --partial "'soon'"
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
  local pair
  for pair in A-B =x 1A=x --x=x; do # of which the value may be a secret
    assert_refused 2 "launch.sh: error: --env '${pair/=x/=...}' " launch dask 3 --env "${pair}"
  done
  assert_refused 2 "launch.sh: error: --env FOO: there is no FOO in your environment; " launch dask 3 --env FOO
  assert_refused 2 "launch.sh: error: --env-file: ${PWD}/no.env cannot be read: " launch dask 3 --env-file no.env
  assert_calls ""
}

@test "launch: a bad package or module is named" {
  assert_refused 2 "launch.sh: error: --with './mine' " launch dask 3 --with a,./mine
  assert_refused 2 "launch.sh: error: --module: there is no module 'a.b'" launch dask 3 --module a.b
  assert_refused 2 "launch.sh: error: --outputs: '../x' " launch dask 3 --outputs ../x
  assert_calls ""
}

@test "launch: an --env that the launch itself decides is named" {
  local name
  for name in MODE NODE_RANK WORKER_COUNT LAUNCH_ID CLUSTER_ID FRAMEWORK NODE_ADDRESS; do
    assert_refused 2 "launch.sh: error: --env ${name} is decided" launch dask 3 --env "${name}=1"
  done
  assert_calls ""
}

@test "launch: an --env that has an option of its own is sent there" {
  assert_refused 2 "launch.sh: error: --env CODE_DIR is not accepted; use --code instead" launch dask 3 --env CODE_DIR=x
  assert_refused 2 "launch.sh: error: --env ARGS is not accepted; use -- ARGUMENT" launch dask 3 --env ARGS=x
}

@test "launch: a bad name is named" {
  local name
  for name in 'a b' ../x -x; do
    assert_refused 2 "launch.sh: error: --name: '${name}' " launch dask 3 --name "${name}"
  done
  assert_refused 2 "launch.sh: error: --name: '000" launch dask 3 --name "$(printf '%0256d' 0)"
  assert_stderr --partial " at most"
  assert_calls ""
}

@test "launch: a --python that cannot be one is named" {
  touch file
  mkdir folder
  local name
  for name in file folder no/such; do
    assert_refused 2 "launch.sh: error: --python ${name} " launch dask 3 --python "${name}"
  done
  assert_calls ""
}

@test "launch: a --python that looks like an option is refused in one line" {
  assert_refused 2 "launch.sh: error: " launch dask 3 --python --mine
  assert_stderr --partial "--mine"
}
