#!/usr/bin/env bats
# common/lib.sh: what all scripts share.
# shellcheck disable=SC2016 # single quotes hold the text of scripts

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
}

# A script of the project: its own lines after those that all scripts begin with.
script() { # stdin: lines
  {
    printf '%s\n' '#!/usr/bin/env bash' '# Usage: try.sh' '#' '# Try it.' '#   indented, with a # and a \n' 'set -Eeuo pipefail'
    printf '%s\n' 'source "${0%/*}/../common/lib.sh"'
    cat
  } >"${PROJECT}/scripts/try.sh"
  chmod +x "${PROJECT}/scripts/try.sh"
}

try() { "${PROJECT}/scripts/try.sh" "$@"; }

# Run a line of a script.
line() { # line, argument...
  script <<<"$1"
  try "${@:2}"
}

# --- Messages ---------------------------------------------------------------------------------------------------------

@test "lib: sourcing it prints nothing, runs nothing and sets no option" {
  options() { printf '%s %s\n' "$-" "$(shopt | tr -d '\n')"; }
  before="$(options)"
  # shellcheck source=common/lib.sh
  source "${PROJECT}/common/lib.sh" >said 2>&1
  assert_equal "$(options)" "${before}"
  assert [ ! -s said ]
}

@test "lib: log talks on stderr, under the script's name, as it stands" {
  run -0 --separate-stderr line 'log "100%" "a  b" "\n"'
  assert_output ""
  assert_stderr 'try.sh: 100% a  b \n'
}

@test "lib: die ends with its code and one line" {
  run -69 --separate-stderr line 'die 69 "no room at" "$1"; echo still here' /tmp
  assert_output ""
  assert_stderr "try.sh: error: no room at /tmp"
}

@test "lib: usage prints the header comment, up to the first line of code" {
  run -0 --separate-stderr line usage
  assert_output "\
Usage: try.sh

Try it.
  indented, with a # and a \n"
  assert_stderr ""
}

@test "lib: usage_error ends with 2 and names the way to more" {
  run -2 --separate-stderr line 'usage_error "unknown option $1"' "'--x'"
  assert_output ""
  assert_stderr "try.sh: error: unknown option '--x' (try.sh --help tells more)"
}

@test "lib: need_value is content with any value, the empty one and one that looks like an option included" {
  script <<<'need_value "$1" $#; echo "$2"'
  run -0 try --name ''
  assert_output ""
  run -0 try --name --other
  assert_output -- --other
  run -2 --separate-stderr try --name
  assert_stderr "try.sh: error: --name needs a value (try.sh --help tells more)"
}

# --- Command lines ----------------------------------------------------------------------------------------------------

# Show what parse_cluster_options made of the arguments.
parse() { # flags, argument...
  script <<'END'
flags="$1"
shift
parse_cluster_options "${flags}" "$@"
printf '%s|' "${backend}" "${name}" ${options[@]+"${options[@]}"}
printf '%s\n' "$(backend_most_workers)" # of the backend, which is sourced by now
END
  try "$@"
}

@test "lib: parse_cluster_options sets backend, name and options" {
  BACKEND="" run -0 parse '--json'
  assert_output "local||250"
  run -0 parse '--json -f --node=' --node 'a b' --json demo -f
  assert_output "stub|demo|--node=a b|--json|-f|250"
  run -0 parse '--json' demo --backend local
  assert_output "local|demo|250"
}

@test "lib: parse_cluster_options refuses what the script does not know" {
  refuse() { # message, argument...
    run -2 --separate-stderr parse '--json --node=' "${@:2}"
    assert_output ""
    assert_stderr "try.sh: error: $1 (try.sh --help tells more)"
  }
  refuse "unknown option '--jso'" --jso
  refuse "unknown option '--json --node='" '--json --node='
  refuse "unknown option '--node='" --node=
  refuse "unknown option '-'" -
  refuse "unknown option '--'" -- demo
  refuse "--node needs a value" demo --node
  refuse "one name at a time, got 'a' and 'b'" a b
}

@test "lib: parse_cluster_options answers a call for help before it looks for the backend" {
  run -0 --separate-stderr parse '' --backend none --help
  assert_line --index 0 "Usage: try.sh"
  assert_stderr ""
}

@test "lib: use_backend takes the name of a file in scripts/backends, and nothing else" {
  script <<<'use_backend "$1"; backend_status demo'
  run -0 try stub
  assert_output "status of demo"
  echo 'echo sourced' >"${PROJECT}/scripts/outside.sh"
  for name in '' ../outside outside stub.sh 'stub local' STUB /etc/passwd; do
    run -2 --separate-stderr try "${name}"
    assert_output ""
    assert_stderr "try.sh: error: unknown backend '${name}'; there is: docker local oci stub  (try.sh --help tells more)"
  done
}

# --- The door to Python -----------------------------------------------------------------------------------------------

# A Python that shows how it was called. It is asked for its version first.
python_stub() { # file
  mkdir -p "${1%/*}"
  cat >"$1" <<'END'
#!/bin/sh
case "$1" in
  -c) exit 0 ;;
  -m) ;;
  *) echo "unknown call: $*" && exit 99 ;;
esac
echo "$0"
printf '[%s]\n' "$@"
echo "CLUSTER_PROGRAM=${CLUSTER_PROGRAM} PYTHONPATH=${PYTHONPATH} CLUSTER_CWD=${CLUSTER_CWD} in ${PWD##*/}"
exit "${STUB_PYTHON_CODE:-0}"
END
  chmod +x "$1"
}

# Take it for PYTHON.
use_python_stub() {
  PYTHON="${PWD}/my python"
  python_stub "${PYTHON}"
}

@test "lib: cluster calls PYTHON where .venv is not made, with the arguments as they are" {
  use_python_stub
  run -0 --separate-stderr line 'cluster "$@"' plan '' 'a  b' -- "d'e"
  assert_output "\
${PYTHON}
[-m]
[oci_cluster]
[plan]
[]
[a  b]
[--]
[d'e]
CLUSTER_PROGRAM=try.sh PYTHONPATH=${PROJECT}/common CLUSTER_CWD=${PWD} in common"
  assert_stderr ""
}

@test "lib: cluster calls the Python of .venv where that is made, whatever PYTHON says" {
  python_stub "${PROJECT}/.venv/bin/python"
  PYTHON=/no/such run -0 --separate-stderr line 'cluster list'
  assert_line --index 0 "${PROJECT}/common/../.venv/bin/python"
}

@test "lib: cluster calls python3 where nothing is said" {
  unset PYTHON
  python_stub "${PWD}/bin/python3"
  PATH="${PWD}/bin:${PATH}" run -0 line 'cluster list'
  assert_line --index 0 "${PWD}/bin/python3"
}

@test "lib: cluster keeps the user's PYTHONPATH, behind its own" {
  use_python_stub
  PYTHONPATH="/mine:/and mine" run -0 line 'cluster list'
  assert_line "CLUSTER_PROGRAM=try.sh PYTHONPATH=${PROJECT}/common:/mine:/and mine CLUSTER_CWD=${PWD} in common"
}

@test "lib: cluster refuses a Python that is too old, or none" {
  advice="install one, or name it: PYTHON=/path/to/python3 try.sh ..."
  python_of_version 3.9.99 old
  PYTHON="${PWD}/old" run -78 --separate-stderr line 'cluster list'
  assert_output ""
  assert_stderr "try.sh: error: '${PWD}/old' is not a Python of 3.10 or newer; ${advice}"
  python_of_version 3.10 new
  PYTHON="${PWD}/new" run -99 --separate-stderr line 'cluster list' # this one is called
  assert_stderr ""
  PYTHON=no-such run -78 --separate-stderr line 'cluster list'
  assert_output ""
  assert_stderr "try.sh: error: 'no-such' is not a Python of 3.10 or newer; ${advice}"
}

@test "lib: cluster returns Python's exit code, exec_cluster ends with it" {
  use_python_stub
  export STUB_PYTHON_CODE=75
  run -0 line 'cluster list >/dev/null || echo "code $?"'
  assert_output "code 75"
  run -75 line 'exec_cluster list; echo still here'
  refute_line "still here"
  refute_line "code 75"
}

@test "lib: cluster leaves the script's own environment as it is" {
  use_python_stub
  run -0 line 'cluster list >/dev/null; echo "${PYTHONPATH-unset} ${CLUSTER_CWD-unset} ${CLUSTER_PROGRAM-unset}"'
  assert_output "unset unset unset"
}

@test "lib: exec_cluster takes the script's place, so that signals are Python's" {
  printf '%s\n' '#!/bin/sh' '[ "$1" = -c ] || echo "$$"' >python
  chmod +x python
  PYTHON="${PWD}/python" run -0 line 'echo "$$"; exec_cluster list'
  assert_equal "${lines[0]}" "${lines[1]}"
}

@test "lib: a folder that the user is in supplies no modules" {
  mkdir oci_cluster json
  echo 'print("the wrong one")' | tee oci_cluster/__init__.py >json/__init__.py
  run -0 line 'cluster --help'
  refute_output --partial "the wrong one"
  assert_line --index 0 --partial "usage: python -m oci_cluster"
}

@test "lib: a user's CDPATH leads nowhere" {
  use_python_stub
  mkdir -p elsewhere/common elsewhere/scripts/backends
  script <<<'use_backend stub; cluster list'
  cd "${PROJECT}"
  CDPATH="${OLDPWD}/elsewhere" run -0 scripts/try.sh
  assert_line --partial "PYTHONPATH=${PROJECT}/common "
  CDPATH="${OLDPWD}/elsewhere" run -0 bash -c 'source common/lib.sh; use_backend stub; cluster list'
  assert_line --partial "PYTHONPATH=${PROJECT}/common "
}
