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
  assert_stderr "try.sh: error: unknown option '--x' (try.sh --help says more)"
}

@test "lib: run_verb answers a call for help itself, and leaves what follows -- alone" {
  use_python_stub
  run -0 --separate-stderr line 'run_verb launch "$@"' dask --json --help
  assert_line --index 0 "Usage: try.sh"
  assert_stderr ""
  run -0 line 'run_verb launch "$@"' dask -- -h
  assert_line "[-h]"
  assert_line --index 0 "${PYTHON}"
}

@test "lib: run_verb hands every word on as it was typed" {
  use_python_stub
  local words=(dask '' 'a  b' "d'e" 'f"g' $'h\ni' -x '*' '$HOME' "\\" 'ü' -1 - -- -h '' --json)
  run -0 line 'run_verb launch "$@"' "${words[@]}"
  refute_output --partial "Usage:"
  assert_equal "$(sed '1d; $d' <<<"${output}")" "$(printf '[%s]\n' -m oci_cluster launch "${words[@]}")"
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

@test "lib: exec_cluster calls PYTHON where .venv is not made, with the arguments as they are" {
  use_python_stub
  run -0 --separate-stderr line 'exec_cluster "$@"' plan '' 'a  b' -- "d'e"
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

@test "lib: exec_cluster calls the Python of .venv where that is made, whatever PYTHON says" {
  python_stub "${PROJECT}/.venv/bin/python"
  PYTHON=/no/such run -0 --separate-stderr line 'exec_cluster list'
  assert_line --index 0 "${PROJECT}/common/../.venv/bin/python"
}

@test "lib: exec_cluster leaves a .venv of the user's own alone, and takes the one beside it where that is made" {
  use_python_stub
  python_stub "${PROJECT}/.venv/bin/python"
  : >"${PROJECT}/.venv/pyvenv.cfg"
  run -0 --separate-stderr line 'exec_cluster list'
  assert_line --index 0 "${PYTHON}"
  python_stub "${PROJECT}/.venv-clusters/bin/python"
  run -0 --separate-stderr line 'exec_cluster list'
  assert_line --index 0 "${PROJECT}/common/../.venv-clusters/bin/python"
  for mark in .launcher.lock .uv.lock .tools-0a .dev-installed; do
    : >"${PROJECT}/.venv/${mark}"
    run -0 --separate-stderr line 'exec_cluster list'
    assert_line --index 0 "${PROJECT}/common/../.venv/bin/python"
    rm "${PROJECT}/.venv/${mark}"
  done
  mv "${PROJECT}/.venv/pyvenv.cfg" "${PROJECT}/.venv/conda-meta"
  run -0 --separate-stderr line 'exec_cluster list'
  assert_line --index 0 "${PROJECT}/common/../.venv-clusters/bin/python"
  rm -r "${PROJECT}/.venv"
  : >"${PROJECT}/.venv"
  run -0 --separate-stderr line 'exec_cluster list'
  assert_line --index 0 "${PROJECT}/common/../.venv-clusters/bin/python"
}

@test "lib: exec_cluster calls python3 where nothing is said" {
  unset PYTHON
  python_stub "${PWD}/bin/python3"
  PATH="${PWD}/bin:${PATH}" run -0 line 'exec_cluster list'
  assert_line --index 0 "${PWD}/bin/python3"
}

@test "lib: exec_cluster keeps the user's PYTHONPATH, behind its own" {
  use_python_stub
  PYTHONPATH="/mine:/and mine" run -0 line 'exec_cluster list'
  assert_line "CLUSTER_PROGRAM=try.sh PYTHONPATH=${PROJECT}/common:/mine:/and mine CLUSTER_CWD=${PWD} in common"
}

@test "lib: exec_cluster refuses a Python that is too old, or none" {
  advice="install one, or name it: PYTHON=/path/to/python3 try.sh ..."
  python_of_version 3.9.99 old
  PYTHON="${PWD}/old" run -78 --separate-stderr line 'exec_cluster list'
  assert_output ""
  assert_stderr "try.sh: error: '${PWD}/old' is not a Python of 3.10 or newer; ${advice}"
  python_of_version 3.10 new
  PYTHON="${PWD}/new" run -99 --separate-stderr line 'exec_cluster list' # this one is called
  assert_stderr ""
  PYTHON=no-such run -78 --separate-stderr line 'exec_cluster list'
  assert_output ""
  assert_stderr "try.sh: error: 'no-such' is not a Python of 3.10 or newer; ${advice}"
}

@test "lib: exec_cluster ends with Python's exit code" {
  use_python_stub
  STUB_PYTHON_CODE=75 run -75 line 'exec_cluster list; echo still here'
  refute_line "still here"
}

@test "lib: run_verb ends with the verb's code, whatever it is" {
  local code
  use_python_stub
  for code in 1 7 75 143; do
    STUB_PYTHON_CODE="${code}" run "-${code}" line 'run_verb launch "$@"' dask 3
  done
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
  run -0 line 'exec_cluster --help'
  refute_output --partial "the wrong one"
  assert_line --index 0 --partial "usage: python -m oci_cluster"
}

@test "lib: a user's CDPATH leads nowhere" {
  use_python_stub
  mkdir -p elsewhere/common elsewhere/scripts/backends
  script <<<'exec_cluster list'
  cd "${PROJECT}"
  CDPATH="${OLDPWD}/elsewhere" run -0 scripts/try.sh
  assert_line --partial "PYTHONPATH=${PROJECT}/common "
  CDPATH="${OLDPWD}/elsewhere" run -0 bash -c 'source common/lib.sh; exec_cluster list'
  assert_line --partial "PYTHONPATH=${PROJECT}/common "
}

@test "setting: config.env means to bash what it means to Python" {
  local line number=100
  mkdir -p project/common lines
  cp "${ROOT}/common/lib.sh" project/common
  while IFS= read -r line; do
    number=$((number + 1))
    printf '%b\n' "${line}" >"lines/${number}"
  done <<'END'
NAME=plain
NAME=plain\r
NAME=/opt/my-python/bin/python3.11
  NAME=indented
NAME=value # a comment
NAME=value # a comment: don't\r
NAME=value\t#tab
NAME=a#b
NAME=#b
NAME='with blanks' # why
NAME='with blanks'\r
NAME="with blanks"
NAME="$HOME/$(id)"
NAME="a # b"
NAME=
NAME=\r
NAME= # nothing
NAME=first\nNAME=last
NAME=first\nNAME=
# NAME=no
NAMES=no
OTHER=1
NAME= value
NAME='open
NAME=two words
export NAME=shown
  export   NAME='shown too'
END
  run -0 bash -c 'source project/common/lib.sh
for file in lines/*; do
  printf "%s\n" "$(<"${file}")" >project/config.env
  answer="$(setting NAME default 2>/dev/null)" || answer=refused
  printf "%s gives %s\n" "$(<"${file}")" "${answer}"
done'
  local of_bash="${output}"
  PYTHONPATH="${ROOT}/common" run -0 python3 -c '
import pathlib, sys
from oci_cluster.contract.settings.settings_files import read_settings_file
for path in sorted(pathlib.Path("lines").iterdir()):
    try:
        answer = read_settings_file(path).get("NAME") or "default"
    except Exception:
        answer = "refused"
    sys.stdout.buffer.write(path.read_bytes().rstrip(b"\n") + f" gives {answer}\n".encode())'
  assert_equal "${of_bash}" "${output}"
  assert_output --partial "gives refused"
}

@test "setting: what bash does not read as Python would is refused, not guessed" {
  mkdir -p project/common
  cp "${ROOT}/common/lib.sh" project/common
  for line in "a\\ b" "'a'b" 'a"b"'; do
    echo "NAME=${line}" >project/config.env
    run -78 bash -c 'source project/common/lib.sh; setting NAME default'
    assert_output --partial "NAME=${line} is not understood; write NAME=VALUE, or set NAME in the environment"
  done
}
