#!/usr/bin/env bats
# common/start-lib.sh: what the start scripts of all frameworks share.
# shellcheck disable=SC2016 # single quotes hold the text of scripts

load test_helper.bash

# Run lines as a start script does, with the arguments after them.
lines() { # text, argument...
  printf '%s\n' '#!/usr/bin/env bash' 'set -Eeuo pipefail' "source '${ROOT}/common/start-lib.sh'" "$1" >start-test.sh
  bash start-test.sh "${@:2}"
}

# --- Messages, variables ----------------------------------------------------------------------------------------------

@test "start-lib: sourcing it prints nothing, runs nothing and sets no option" {
  options() { printf '%s %s\n' "$-" "$(shopt | tr -d '\n')"; }
  before="$(options)"
  # shellcheck source=common/start-lib.sh
  source "${ROOT}/common/start-lib.sh" >said 2>&1
  assert_equal "$(options)" "${before}"
  assert [ ! -s said ]
}

@test "start-lib: log writes a line with the time and the script's name, on stderr" {
  run -0 --separate-stderr lines 'log "100%" "a  b" "\n"'
  assert_output ""
  assert_stderr --regexp '^[0-2][0-9]:[0-5][0-9]:[0-5][0-9] start-test\.sh: 100% a  b \\n$'
}

@test "start-lib: a log that cannot be written ends nothing" {
  [[ -e /dev/full ]] || skip "this system has no /dev/full"
  run -0 lines 'log "lost" 2>/dev/full; echo "still here"'
  assert_output --partial "still here"
}

@test "start-lib: die ends with its code and one line" {
  run -75 --separate-stderr lines 'die 75 "not ready:" "$1"; echo "still here"' WORKER_2
  assert_output ""
  assert_stderr --regexp '^[0-9:]{8} start-test\.sh: error: not ready: WORKER_2$'
}

@test "start-lib: require is content when every variable is set" {
  A=1 B='a b' C=0 run -0 --separate-stderr lines 'require A B C; require'
  assert_output ""
  assert_stderr ""
}

@test "start-lib: require names every variable that is missing or empty, at once, and ends with 78" {
  unset NONE ALSO
  SOME=1 EMPTY='' run -78 --separate-stderr lines 'require NONE SOME EMPTY ALSO; echo "still here"'
  assert_output ""
  assert_stderr --regexp '^[0-9:]{8} start-test\.sh: error: not set: NONE EMPTY ALSO; common/README\.md says what each is$'
}

# --- Time to end ------------------------------------------------------------------------------------------------------

@test "start-lib: end_child waits for a child that listens, kills one that does not in its share, and has none without a pid" {
  end() { GRACE_PERIOD="$3" run -0 --separate-stderr lines "$1"' & child=$!; until [[ -e up ]]; do sleep 0.01; done
    end_child "${child}" '"$2"' && echo ended || echo killed; kill -0 "${child}" 2>/dev/null || echo gone'; }
  local listens='(trap "exit 3" TERM; : >up; while :; do sleep 0.01; done)' deaf='(trap "" TERM; : >up; exec sleep 100)'
  end "${listens}" 90 100
  assert_output $'ended\ngone'
  rm up
  end "${listens}" "" 100
  assert_output $'ended\ngone'
  rm up
  end "${deaf}" 10 1
  assert_output $'killed\ngone'
  run -0 lines 'end_child "" 40'
}

@test "start-lib: write_ready makes the file whole, and not of a command that fails" {
  READY_FILE="${PWD}/ready" run -1 lines 'half() { echo a=1; false; echo b=2; }; write_ready half; echo "still here"'
  assert [ ! -e ready ]
  READY_FILE="${PWD}/ready" run -0 lines 'write_ready printf "%s\n" a=1 "b=2 3"'
  assert_equal "$(<ready)" $'a=1\nb=2 3'
}

@test "start-lib: grace_share is that part of GRACE_PERIOD, in milliseconds" {
  share() { GRACE_PERIOD="$1" lines 'grace_share "$1"; echo "${milliseconds}"' "$2"; }
  run -0 share "" 70
  assert_output 7000
  run -0 share 3 70
  assert_output 2100
  run -0 share 0.5 30
  assert_output 150
  run -0 share 08.0625 100
  assert_output 8062
  run -0 share 0 50
  assert_output 0
}

@test "start-lib: a GRACE_PERIOD that is not plain seconds ends with 78" {
  local text
  for text in 15s -1 1e3 'x[0]' .5 '1 2'; do
    GRACE_PERIOD="${text}" run -78 --separate-stderr lines 'grace_share 50; echo "still here"'
    assert_output ""
    assert_stderr --partial "error: GRACE_PERIOD: expected seconds, got '${text}'"
  done
}

# --- The entry point --------------------------------------------------------------------------------------------------

show_args='read_entry_args; printf "%d\n" "${#entry_args[@]}"; printf "[%s]\n" ${entry_args[@]+"${entry_args[@]}"}'

@test "start-lib: read_entry_args returns every kind of argument as it was given" {
  local given=(plain 'a  b' "d'e" 'f"g' $'h\ni' $'\n' '' -x -- '--k=v' '$HOME' '`id`' '*' "\\" '\n' 'ü' $'\xff' ' ' $'\t')
  printf '%s\0' "${given[@]}" >args
  ENTRY_ARGS_FILE=args run -0 --keep-empty-lines lines "${show_args}"
  expected="$(printf '%s\n' "${#given[@]}" && printf '[%s]\n' "${given[@]}")"
  assert_output "${expected}"$'\n'
}

@test "start-lib: read_entry_args returns none for an empty file" {
  : >args
  ENTRY_ARGS_FILE=args run -0 lines "${show_args}"
  assert_output $'0\n[]'
}

@test "start-lib: arguments that cannot be read are no empty list" {
  ENTRY_ARGS_FILE=none run -1 lines "${show_args}"
  assert_output --partial "none: No such file"
}

# What an entry point of one's own sees.
show_call='#!/bin/sh
echo "in $(pwd -P)"
printf "[%s]\n" "$@"
exit 7'

# Set what run_entry_point needs.
entry_point() { # path, argument...
  mkdir -p "the code/deep"
  export CODE_DIR="${PWD}/the code" ENTRY_POINT="$1" ENTRY_ARGS_FILE="${PWD}/args"
  : >args
  [[ $# -eq 1 ]] || printf '%s\0' "${@:2}" >args
}

@test "start-lib: a profiler's words stand before the entry point's command, with a path of each rank's own" {
  entry_point train.py 'a b'
  mkdir bin node
  printf '%s\n' "${show_call}" >bin/python
  # What it is given is a command.
  printf '#!/bin/sh\necho "profiler: $1 $2"; shift 2; exec "$@"\n' >bin/spy
  chmod +x bin/python bin/spy
  export NODE_DIR="${PWD}/node" NODE_NAME=MAIN OUTPUT_DIR="${PWD}/my outputs"
  printf 'spy\0-o\0{output}.svg\0' >node/profile-cmd
  PATH="${PWD}/bin:${PATH}" run -7 lines run_entry_point
  assert_line --index 0 "profiler: -o ${PWD}/my outputs/profile-MAIN.svg"
  assert_line --index 2 "[train.py]"
  assert_line --index 3 "[a b]"
  PATH="${PWD}/bin:${PATH}" RANK=3 run -7 lines run_entry_point
  assert_line --index 0 "profiler: -o ${PWD}/my outputs/profile-MAIN-rank-3.svg"
  : >node/profile-cmd
  PATH="${PWD}/bin:${PATH}" run -7 lines run_entry_point
  assert_line --index 0 "in $(cd "${CODE_DIR}" && pwd -P)"
}

@test "start-lib: a script ending in .py is run by the environment's Python, in CODE_DIR" {
  entry_point "deep/it's mine.py" 'a b' '' -x
  mkdir bin
  printf '%s\n' "${show_call}" >bin/python
  chmod +x bin/python
  PATH="${PWD}/bin:${PATH}" run -7 --separate-stderr lines run_entry_point
  assert_output "\
in $(cd "${CODE_DIR}" && pwd -P)
[deep/it's mine.py]
[a b]
[]
[-x]"
  assert_stderr ""
}

@test "start-lib: hiding_modules names files of the code that hide modules, where a module cannot be imported beside them" {
  mkdir -p code/email code/queue code/mine bin
  touch code/random.py code/mine.py code/dask.py code/test_random.py code/email/__init__.py
  ln -s "$(command -v python3)" bin/python
  # tempfile needs random's Random.
  CODE_DIR="${PWD}/code" PYTHONPATH="${PWD}/code" PATH="${PWD}/bin:${PATH}" run -0 --separate-stderr lines \
    'hiding_modules tempfile dask'
  assert_output "code/dask.py, code/email/, code/random.py"
  rm code/random.py
  CODE_DIR="${PWD}/code" PYTHONPATH="${PWD}/code" PATH="${PWD}/bin:${PATH}" run -0 --separate-stderr lines \
    'hiding_modules tempfile dask'
  assert_output ""
}

@test "start-lib: a module is run as one, with its package's relative imports, from CODE_DIR" {
  entry_point "package.train" 'a b' ''
  export ENTRY_MODULE=package.train
  mkdir -p "the code/package" bin
  ln -s "$(command -v "${PYTHON:-python3}")" bin/python
  echo 'word = "mine"' >"the code/package/helper.py"
  printf '%s\n' 'import os, sys' 'from .helper import word' 'print(os.getcwd(), __package__, word, sys.argv[1:])' \
    'sys.exit(7)' >"the code/package/train.py"
  PATH="${PWD}/bin:${PATH}" run -7 --separate-stderr lines run_entry_point
  assert_output "$(cd "${CODE_DIR}" && pwd -P) package mine ['a b', '']"
  assert_stderr ""
}

@test "start-lib: any other script runs by itself, in CODE_DIR, wherever it is" {
  entry_point "deep/run me" 'a b'
  printf '%s\n' "${show_call}" >"the code/deep/run me"
  chmod +x "the code/deep/run me"
  run -7 --separate-stderr lines run_entry_point
  assert_output $'in '"$(cd "${CODE_DIR}" && pwd -P)"$'\n[a b]'
  mv "the code/deep/run me" "the code/start"
  ENTRY_POINT=start run -7 lines run_entry_point # in the folder itself, which is not on PATH
  ENTRY_POINT="${CODE_DIR}/start" run -7 lines run_entry_point
}

@test "start-lib: without arguments the entry point gets none" {
  entry_point "start"
  printf '%s\n' '#!/bin/sh' 'echo "$#"' >"the code/start"
  chmod +x "the code/start"
  run -0 lines run_entry_point
  assert_output 0
}

@test "start-lib: the entry point takes the place of the shell, so that signals are its own" {
  mkdir bin
  printf '%s\n' '#!/bin/sh' 'echo "$$"' >bin/python
  chmod +x bin/python
  entry_point train.py
  PATH="${PWD}/bin:${PATH}" run -0 lines 'echo "$$"; run_entry_point; echo "still here"'
  assert_equal "${#lines[@]}" 2
  assert_equal "${lines[0]}" "${lines[1]}"
  entry_point "start"
  printf '%s\n' '#!/bin/sh' 'echo "$$"' >"the code/start"
  chmod +x "the code/start"
  run -0 lines 'echo "$$"; run_entry_point; echo "still here"'
  assert_equal "${#lines[@]}" 2
  assert_equal "${lines[0]}" "${lines[1]}"
}

@test "start-lib: an entry point that cannot be run, or a CODE_DIR that is not there, is a failure" {
  entry_point "start"
  run -127 lines run_entry_point
  assert_output --partial start
  touch "the code/start"
  run -126 lines run_entry_point
  CODE_DIR=/none run -1 lines run_entry_point
  assert_output --partial "/none: No such file"
}

# --- Waiting ----------------------------------------------------------------------------------------------------------

@test "start-lib: wait_until returns 0 as soon as the command succeeds" {
  TIMEOUT=60 run -0 lines '
    look() { looks=$((looks + 1)) && [[ "$*" == "a b c" && "${looks}" -ge 3 ]]; }
    looks=0
    wait_until "$$" look "a b" c
    echo "${looks}"'
  assert_output 3
}

@test "start-lib: wait_until returns 1 when the process has ended first" {
  TIMEOUT=60 run -1 lines 'true & pid=$!; wait "${pid}"; wait_until "${pid}" false'
  assert_output ""
}

@test "start-lib: wait_until believes a command that succeeds after the process has ended" {
  TIMEOUT=60 run -0 lines 'true & pid=$!; wait "${pid}"; wait_until "${pid}" true'
}

@test "start-lib: wait_until returns 75 when the time is over, after a last look" {
  TIMEOUT=0 run -75 lines 'wait_until "$$" false'
  TIMEOUT=0 run -0 lines 'wait_until "$$" true'
}

# --- Sessions ---------------------------------------------------------------------------------------------------------

# Set what a session's start script needs: a kind that has facts.
make_session() {
  mkdir -p kind code
  printf '#!/bin/sh\necho "key=value"\n' >kind/facts.sh
  printf '#!/bin/sh\necho "serves in $(basename "${PWD}")"\ncat "${READY_FILE}"\nexit 3\n' >kind/start.sh
  chmod +x kind/facts.sh kind/start.sh
  : >args
  export SESSION=kind ENTRY_POINT="${PWD}/kind/start.sh" READY_FILE="${PWD}/ready" CODE_DIR="${PWD}/code"
  export ENTRY_ARGS_FILE="${PWD}/args" WORKER_COUNT=0
}

@test "start-lib: a session of main alone is ready with its facts, and becomes its start script" {
  make_session
  run -3 --separate-stderr lines 'run_session_alone; echo "a launcher of ranks"'
  assert_output "serves in code
key=value"
}

@test "start-lib: a session with workers, and what is none, goes on to the framework's own" {
  make_session
  WORKER_COUNT=1 run -0 --separate-stderr lines 'run_session_alone; session_facts; echo "the framework"'
  assert_output "key=value
the framework"
  assert [ ! -e ready ]
  unset SESSION ENTRY_POINT
  run -0 --separate-stderr lines 'run_session_alone; session_facts; echo "the framework"'
  assert_output "the framework"
}

@test "start-lib: a session whose facts fail is not ready" {
  make_session
  printf '#!/bin/sh\nexit 78\n' >kind/facts.sh
  run -78 --separate-stderr lines 'run_session_alone'
  assert_output ""
  assert [ ! -e ready ]
}

@test "start-lib: a session listens on its node's own address, and in a network of its own on loopback alone" {
  address() { lines "source '${ROOT}/scripts/sessions/session-lib.sh'; session_address"; }
  export NODE_ADDRESS=10.0.0.1
  run -0 --separate-stderr address
  assert_output "10.0.0.1"
  OWN_NETWORK=1 run -0 --separate-stderr address
  assert_output "127.0.0.1"
}
